"""Whether FDARN's altruistic features hide the modality they come from, and its egocentric ones show it."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fedaction.analyses.draw import COLOURS, MARKS, canvas, label
from fedaction.analyses.finding import Finding, points
from fedaction.analyses.study import NotApplicable, Study, Trained
from fedaction.data.samples import in_memory
from fedaction.evaluation.features import in_batches
from fedaction.evaluation.probe import chance_accuracy, principal, probe_accuracy
from fedaction.federation.seeds import generator
from fedaction.methods import title_of
from fedaction.methods.fdarn import FDARN

Kind = Literal["modality", "activity"]
_FOLDS = 5
_DRAWN = 600  # points of a panel
_NAMED = 16  # names of a legend


def subspaces(study: Study) -> Finding:
    """See the module."""
    if "fdarn" not in study.states:
        raise NotApplicable(
            f"{title_of(study.recipe.run.method)} has one kind of features; FDARN has altruistic and egocentric ones"
        )
    trained = study.trained("fdarn")
    clients = {name: client for name, client in trained.clients.items() if len(client.test)}
    samples = sum(len(client.test) for client in clients.values())
    if len({client.info.group for client in clients.values()}) < 2:
        raise NotApplicable("the tested clients have no two modalities that could be told apart")
    if samples < _FOLDS:
        raise NotApplicable(f"{samples} test samples are too few for {_FOLDS} folds")
    tested = clients.values()
    names: dict[Kind, list[str]] = {
        "modality": [client.info.group for client in tested for _ in range(len(client.test))],
        "activity": [client.info.classes[label_] for client in tested for label_ in client.test.labels.tolist()],
    }
    features = _features(trained, list(clients))
    values: dict[str, Any] = {}
    seen: dict[str, tuple[Tensor, Tensor]] = {}
    table: list[tuple[str, ...]] = []
    for subspace, own in features.items():
        if not bool(own.isfinite().all()):
            raise NotApplicable(f"{subspace} features are not finite: training has diverged")
        seen[subspace] = principal(own)
        values[subspace] = {"variance": seen[subspace][1]}
        cells: list[str] = []
        for kind, words in names.items():
            numbers = _number(words)
            several = len(set(words)) > 1
            accuracy = probe_accuracy(own, numbers, _FOLDS, study.seed) if several else None
            chance = chance_accuracy(numbers)
            values[subspace][kind] = {"accuracy": accuracy, "chance": chance}
            cells += [points(accuracy), points(chance)]
        table.append((subspace, *cells))
    heads = [f"{kind} {what}, %" for kind in names for what in ("probe", "chance")]
    drawn = torch.randperm(samples, generator=generator(study.seed, "subspaces"))[:_DRAWN].sort().values
    some = f"Drawn: {len(drawn)} of {samples} samples, at random." if len(drawn) < samples else ""
    many = f"Activities are not named: there are {len(set(names['activity']))}."
    how = (
        f"Probe: accuracy of a linear ridge classifier on {samples} test samples of {len(clients)} clients, each "
        f"seen by its own client's encoders, in {_FOLDS}-fold cross-validation. Chance: the share of the most "
        "frequent modality or activity. FDARN means the altruistic features to hide the modality, so that its probe "
        "is near chance, and the egocentric ones to show it. The picture's axes are the two directions of most "
        "variance; modalities that lie upon each other there may be told apart in others, which the probe sees."
    )
    return Finding(
        title="Subspaces: what tells of the modality and what of the activity",
        caption="FDARN's altruistic and egocentric features of all clients' test samples in two principal "
        "directions, by modality and by activity.",
        columns=("features", *heads),
        rows=table,
        values={"samples": samples, "clients": list(clients), "subspaces": values},
        figure=_draw(seen, names, drawn.tolist()),
        notes=(how, *((some,) if some else ()), *((many,) if len(set(names["activity"])) > _NAMED else ())),
    )


def _features(trained: Trained, clients: Sequence[str]) -> dict[str, Tensor]:
    """(N, d) features of all clients' test samples, in the clients' order, in each subspace that there is."""
    assert isinstance(trained.method, FDARN)
    absent = {"phi_a": "altruistic", "phi_e": "egocentric"}.get(trained.method.settings.fdarn_without)
    subspaces = [subspace for subspace in ("altruistic", "egocentric") if subspace != absent]

    def of(client: str) -> list[Tensor]:
        net, x = trained.net(client), in_memory(trained.clients[client].test).x
        return [in_batches(lambda b, s=s: net(b.to(trained.device), part=s).cpu(), x) for s in subspaces]

    by_subspace = zip(*trained.each(of, clients), strict=True)
    return {subspace: torch.cat(own) for subspace, own in zip(subspaces, by_subspace, strict=True)}


def _number(words: Sequence[str]) -> Tensor:
    place = {word: i for i, word in enumerate(sorted(set(words)))}
    return torch.tensor([place[word] for word in words])


def _draw(seen: dict[str, tuple[Tensor, Tensor]], names: dict[Kind, list[str]], drawn: Sequence[int]) -> Figure:
    """Rows: subspaces; columns: by modality, by activity."""
    figure = canvas(10, 3.9 * len(seen) + 0.3)
    for row, (subspace, (places, shares)) in enumerate(seen.items()):
        for column, (kind, words) in enumerate(names.items()):
            axes = figure.add_subplot(len(seen), 2, 2 * row + column + 1)
            _draw_points(axes, places[list(drawn)], [words[i] for i in drawn], sorted(set(words)), row == 0)
            axes.set_title(f"{subspace}, by {kind}", loc="left")
            axes.set_xlabel(f"first direction ({points(float(shares[0]), 0)} % of variance)")
            axes.set_ylabel(f"second ({points(float(shares[1]), 0)} %)")
    return figure


def _draw_points(axes: Axes, places: Tensor, words: Sequence[str], kinds: Sequence[str], named: bool) -> None:
    """Points (n, 2) in their kinds' colours and marks."""
    shades = matplotlib.colormaps["turbo"]
    for place, kind in enumerate(kinds):
        own = places[[i for i, word in enumerate(words) if word == kind]]
        shade = COLOURS[place] if len(kinds) <= len(COLOURS) else shades((place + 0.5) / len(kinds))
        style: dict[str, Any] = {"markersize": 3.5, "markeredgewidth": 0, "alpha": 0.75, "color": shade}
        axes.plot(own[:, 0].tolist(), own[:, 1].tolist(), MARKS[place % len(MARKS)], label=label(kind, 18), **style)
    axes.margins(0.06)
    if named and len(kinds) <= _NAMED:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=7.5, handletextpad=0.1)
