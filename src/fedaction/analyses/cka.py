"""How alike clients' networks represent the same sequences, block by block (FSAR, Fig. 5)."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from fedaction.analyses.draw import canvas, heat, scale
from fedaction.analyses.finding import Finding, number
from fedaction.analyses.inputs import Inputs, choose, common_inputs
from fedaction.analyses.study import NotApplicable, Study, Trained
from fedaction.evaluation.cka import centred_gram, cka_matrix
from fedaction.evaluation.features import block_features
from fedaction.evaluation.topology import between
from fedaction.methods import title_of

_METHODS, _CLIENTS, _SEQUENCES = 3, 8, 256


def cka(study: Study) -> Finding:
    """See the module."""
    alone = "alignment is between clients, and there is only one"
    chosen, notes = choose(study, _METHODS, _CLIENTS, alone)
    alignments: dict[str, list[Tensor]] = {}
    names: dict[str, list[str]] = {}
    inputs: Inputs | None = None
    for method, trained, clients in chosen:
        shown = common_inputs(clients, _SEQUENCES, study.seed)
        inputs = inputs or shown
        names[method] = list(clients)
        alignments[method] = _align(trained, shown)
    assert inputs is not None
    blocks = max(len(matrices) for matrices in alignments.values())
    rows = [(title_of(m), *(number(_mean(b)) for b in matrices)) for m, matrices in alignments.items()]
    values: dict[str, Any] = {
        m: {"clients": names[m], "blocks": matrices, "mean": [_mean(b) for b in matrices]}
        for m, matrices in alignments.items()
    }
    how = (
        f"Linear CKA of the flattened features of {len(inputs)} test sequences, drawn from "
        f"{', '.join(inputs.rows)}: the clients that have at least half of everyone's joints, by name. Every "
        "client's network, after one more round of its own training and before averaging (averaged networks would "
        "differ by what stays with clients alone), sees the same sequences on its own joints; a joint "
        "that a recording lacks is the mean of the nearest joints that it has, and the sequence is then centred and "
        "aligned as the client's own are."
    )
    return Finding(
        title="Alignment of clients' features (CKA)",
        caption="Linear CKA between clients' networks after each block; 1 means equal up to rotation and scale.",
        columns=("mean over pairs", *(f"block {b + 1}" for b in range(blocks))),
        rows=rows,
        values={"methods": values, "sequences": {k: len(v) for k, v in inputs.rows.items()}},
        figure=_draw(alignments, names),
        notes=(how, *notes),
    )


def _align(trained: Trained, inputs: Inputs) -> list[Tensor]:
    """A (clients, clients) matrix for each block. Only Gram matrices are kept: features may be large."""
    networks = trained.train_once(inputs.clients)

    def grams_of(client: str) -> list[Tensor]:
        net, x = networks[client], inputs.shown_to(client).to(trained.device)
        blocks: Any = getattr(net.module, "blocks", None)
        if not isinstance(blocks, int):
            raise NotApplicable(f"the network of {trained.method.title} is not cut into blocks")
        return [centred_gram(block_features(net, x, block + 1)).cpu() for block in range(blocks)]

    return [cka_matrix(own) for own in zip(*trained.each(grams_of, inputs.clients), strict=True)]


def _mean(matrix: Tensor) -> float:
    return float(between(matrix).mean())


def _draw(alignments: dict[str, list[Tensor]], names: dict[str, list[str]]) -> Figure:
    columns = max(len(matrices) for matrices in alignments.values())
    figure = canvas(2.75 * columns + 2.2, 2.65 * len(alignments) + 0.9)
    image = None
    for row, (method, matrices) in enumerate(alignments.items()):
        for column, matrix in enumerate(matrices):
            axes = figure.add_subplot(len(alignments), columns, row * columns + column + 1)
            digits, across = 2 if len(matrix) <= 6 else None, row == len(alignments) - 1
            named: dict[str, Any] = {"names": names[method], "across": across, "down": column == 0}
            image = heat(axes, matrix, low=0, high=1, colours="viridis", digits=digits, **named)
            axes.set_title(f"block {column + 1}: mean {number(_mean(matrix), 2)}", loc="left", fontweight="normal")
            if column == 0:
                axes.set_ylabel(title_of(method), fontweight="bold", color="black")
    if image is not None:
        scale(figure, image, figure.axes, "linear CKA", shrink=0.7, aspect=28)
    return figure
