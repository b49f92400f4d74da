"""What each client's model takes for what."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from fedaction.analyses.draw import canvas, heat, label, scale
from fedaction.analyses.finding import Finding, points
from fedaction.analyses.study import NotApplicable, Study
from fedaction.methods import title_of
from fedaction.report.files import Confusion, read_evidence

_CLIENTS = 6  # drawn
_NAMED = 24  # classes, at most, for their names to be readable


def confusion(study: Study) -> Finding:
    """See the module."""
    matrices = read_evidence(study.folder / "evidence.json").confusion
    if not matrices:
        raise NotApplicable("the run left no evidence of predictions (evidence.json); a finished run does")
    table: list[tuple[str, ...]] = []
    values: dict[str, Any] = {}
    for client, evidence in matrices.items():
        counts = torch.tensor(evidence.matrix, dtype=torch.float64)
        right, recall = _accuracy(counts), _shares(counts).diag()
        table.append((client, str(int(counts.sum())), points(right), _worst(evidence, counts)))
        values[client] = {"classes": evidence.classes, "matrix": evidence.matrix, "accuracy": right, "recall": recall}
    left = (f"Drawn: the first {_CLIENTS} of {len(matrices)} clients.",) if len(matrices) > _CLIENTS else ()
    method = title_of(study.recipe.run.method)
    guess = "that of the nearest training recording" if study.measure == "recall at 1" else "what was predicted"
    return Finding(
        title="Confusion matrices",
        caption=f"{method}, each client on its own test set: rows are true actions, columns {guess}, "
        "shades the share of the row.",
        columns=("client", "test samples", "right, %", "most frequent mistake"),
        rows=table,
        values={"clients": values},
        figure=_draw(dict(list(matrices.items())[:_CLIENTS])),
        notes=left,
    )


def _accuracy(counts: Tensor) -> float | None:
    return float(counts.diag().sum() / counts.sum()) if counts.sum() else None


def _shares(counts: Tensor) -> Tensor:
    return counts / counts.sum(1, keepdim=True).clamp(min=1)


def _worst(evidence: Confusion, counts: Tensor) -> str:
    mistakes = counts.clone().fill_diagonal_(0)
    if not mistakes.any():
        return "none"
    row, column = divmod(int(mistakes.argmax()), len(mistakes))
    count, total = int(counts[row, column]), int(counts[row].sum())
    return f"{evidence.classes[row]} taken for {evidence.classes[column]}, {count} of {total}"


def _draw(matrices: dict[str, Confusion]) -> Figure:
    columns = min(2, len(matrices))
    rows = -(-len(matrices) // columns)
    figure = canvas(4.6 * columns + 0.6, 4.4 * rows)
    image = None
    for place, (client, evidence) in enumerate(matrices.items()):
        axes = figure.add_subplot(rows, columns, place + 1)
        counts = torch.tensor(evidence.matrix, dtype=torch.float64)
        names = evidence.classes if len(evidence.classes) <= _NAMED else ()
        image = heat(axes, 100 * _shares(counts), low=0, high=100, colours="Blues", names=names)
        axes.tick_params(labelsize=7)
        borders = [i - 0.5 for i in range(1, len(counts))]
        axes.set_xticks(borders, minor=True)
        axes.set_yticks(borders, minor=True)
        axes.grid(which="minor", linewidth=0.4)
        axes.tick_params(which="minor", length=0)
        axes.set_title(f"{label(client, 28)}: {points(_accuracy(counts))} % right", loc="left")
        axes.set(ylabel="true action", xlabel="predicted action")
    if image is not None:
        scale(figure, image, figure.axes, "share of the row, %", shrink=0.8 / rows, aspect=30)
    return figure
