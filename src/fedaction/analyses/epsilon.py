"""The statistic that FSAR's supplement (section 5, Fig. 2) calls a proof of privacy. It is none."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from fedaction.analyses.draw import SOFT, canvas, colour, label
from fedaction.analyses.finding import Finding, number
from fedaction.analyses.inputs import choose, layout_of, probabilities
from fedaction.analyses.study import NotApplicable, Study, Trained
from fedaction.data.client import ClientData
from fedaction.data.samples import in_memory
from fedaction.evaluation.epsilon import Epsilon, chance_epsilon, empirical_epsilon
from fedaction.evaluation.joints import map_joints
from fedaction.federation.seeds import generator
from fedaction.methods import title_of

WARNING = (
    "This is a statistic of one pair of datasets and one trained model, without any randomised mechanism. It is not "
    "differential privacy and bounds nothing: a small value says that two histograms look alike, not that the model "
    "gives nothing away."
)
_METHODS, _CLIENTS = 4, 12


def epsilon(study: Study) -> Finding:
    """See the module."""
    alone = "samples are replaced by another client's, and there is only one"
    chosen, notes = choose(study, _METHODS, _CLIENTS, alone)
    measured: dict[str, dict[str, Epsilon]] = {}
    chances: dict[str, dict[str, float]] = {}
    pairs: dict[str, dict[str, Any]] = {}
    for method, trained, clients in chosen:
        measured[method], chances[method] = {}, {}
        neighbours = {name: _neighbour(clients, name, study.seed) for name in clients}
        foreigners = {name: x for name, (_, x, _) in neighbours.items()}
        results = trained.each(partial(_rate, trained, foreigners), clients)
        for name, (own, foreign) in zip(clients, results, strict=True):
            replaced, _, pair = neighbours[name]
            pairs.setdefault(name, pair)
            if not bool(own.isfinite().all() and foreign.isfinite().all()):
                continue  # a network that has diverged
            measured[method][name] = empirical_epsilon(own, torch.cat([own[~replaced], foreign]))
            random = generator(study.seed, "epsilon chance", name)
            chances[method][name] = chance_epsilon(own, int(replaced.sum()), random)
    everyone = list(dict.fromkeys(name for own in measured.values() for name in own))
    if not everyone:
        raise NotApplicable("no network gives finite probabilities")
    rows = [(name, *(_cell(name, measured[m], chances[m]) for m in measured)) for name in everyone]
    values: dict[str, Any] = {m: {} for m in measured}
    for m, own in measured.items():
        for name, item in own.items():
            values[m][name] = {"epsilon": item.value, "chance": chances[m][name], "edges": item.edges}
            values[m][name] |= {"D": item.one, "replaced": item.other, "used": item.used}
    how = (
        "D is a client's test set. In D' the samples of one class, drawn at random, are replaced by as many test "
        "samples of another client, on the client's own joints. Compared are histograms (10 bins, one pseudo-count "
        "each) of the probability that the model gives the class it predicts; epsilon is the largest |log ratio| of "
        "bins with 10 samples or more. In brackets: the mean when as many samples, drawn at random, are replaced by "
        "others of D itself, which is what chance alone gives."
    )
    return Finding(
        title="Empirical epsilon (not a privacy guarantee)",
        caption=WARNING,
        columns=("client", *(f"{title_of(m)} (chance), nats" for m in measured)),
        rows=rows,
        values={"warning": WARNING, "methods": values, "pairs": pairs},
        figure=_draw(measured, chances, everyone),
        notes=(how, *notes),
    )


def _cell(name: str, measured: Mapping[str, Epsilon], chances: Mapping[str, float]) -> str:
    return f"{number(measured[name].value, 2)} ({number(chances[name], 2)})" if name in measured else "–"


def _rate(trained: Trained, foreigners: Mapping[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    """The probabilities (N,) and (n,) of the predicted classes, on a client's test set and on foreign samples."""
    own = in_memory(trained.clients[name].test).x
    both = probabilities(trained, name, torch.cat([own, foreigners[name]])).amax(1)
    return both[: len(own)], both[len(own) :]


def _neighbour(clients: Mapping[str, ClientData], name: str, seed: int) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Which of a client's test samples are replaced (N,) bool, by what (n, ...), and that in words."""
    random = generator(seed, "epsilon", name)
    client = clients[name]
    present = client.test.labels.unique()
    label_ = int(present[torch.randint(len(present), (1,), generator=random)])
    others = [other for other in clients if other != name]
    other = others[int(torch.randint(len(others), (1,), generator=random))]
    replaced = client.test.labels == label_
    count, available = int(replaced.sum()), len(clients[other].test)
    order = torch.cat([torch.randperm(available, generator=random) for _ in range(-(-count // available))])[:count]
    layouts = [layout_of(item) for item in clients.values()]
    x = map_joints(clients[other].test.take(order), layout_of(clients[other]), layout_of(client), layouts)
    pair = {"class": client.info.classes[label_], "by": other, "samples": count, "of": len(client.test)}
    return replaced, x, pair


def _draw(
    measured: Mapping[str, Mapping[str, Epsilon]], chances: Mapping[str, Mapping[str, float]], everyone: list[str]
) -> Figure:
    """Above: the two histograms of the first client, method by method; below: everyone's epsilon beside chance."""
    figure = canvas(max(7.0, 2.9 * len(measured)), 5.8 + 0.12 * len(everyone))
    grid = figure.add_gridspec(2, len(measured), height_ratios=[2.4, 2.6])
    first = everyone[0]
    upper = None
    for column, (method, own) in enumerate(measured.items()):
        axes = figure.add_subplot(grid[0, column], sharey=upper)
        upper = upper or axes
        if first in own:
            item, shade = own[first], colour(column)
            edges = (100 * item.edges).tolist()
            axes.stairs((100 * item.one).tolist(), edges, fill=True, color=shade, alpha=0.3, label="D")
            axes.stairs((100 * item.other).tolist(), edges, color=shade, linewidth=1.8, label="D′")
        axes.set_title(f"{title_of(method)}: {label(first, 20)}", loc="left", fontsize=9)
        axes.set_xlabel("probability of the predicted class, %")
        if column == 0:
            axes.set_ylabel("share of samples, %")
        else:
            axes.tick_params(labelleft=False)
        axes.legend(loc="best")
    axes = figure.add_subplot(grid[1, :])
    height = 0.8 / len(measured)
    for place, (method, own) in enumerate(measured.items()):
        rows = [row for row, name in enumerate(everyone) if name in own]
        y = [row + (place - (len(measured) - 1) / 2) * height for row in rows]
        values = [own[everyone[row]].value for row in rows]
        axes.barh(y, values, height * 0.85, color=colour(place), label=title_of(method))
        for at, row in zip(y, rows, strict=True):
            chance = chances[method][everyone[row]]
            known = "chance alone" if place == len(measured) - 1 and row == rows[-1] else None
            axes.plot([chance, chance], [at - height / 2, at + height / 2], color="black", linewidth=1.6, label=known)
    axes.set_yticks(range(len(everyone)), [label(name, 26) for name in everyone])
    axes.set_ylim(len(everyone) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("empirical epsilon, nats (not differential privacy: it bounds nothing)", color=SOFT)
    axes.set_title("Every client", loc="left")
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    axes.legend(loc="best")
    return figure
