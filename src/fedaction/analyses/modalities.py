"""FDARN: which features show the modality they come from, and how well its discriminator recognised it."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fedaction.analyses.draw import COLOURS, MARKS, SOFT, canvas, label, whole_rounds
from fedaction.analyses.finding import Finding, number, points
from fedaction.analyses.study import NotApplicable, Study, Trained
from fedaction.data.client import ClientData
from fedaction.data.samples import in_memory
from fedaction.engines.base import Applied
from fedaction.evaluation.features import in_batches
from fedaction.evaluation.probe import chance_accuracy, principal, probe_accuracy
from fedaction.federation.seeds import generator
from fedaction.methods import title_of
from fedaction.methods.base import Method
from fedaction.methods.fdarn import FDARN
from fedaction.report.series import Series, average, tabulate
from fedaction.runs.metrics import Row

Kind = Literal["modality", "activity"]
_FOLDS = 5
_DRAWN = 600  # points of a panel
_NAMED = 16  # names of a legend


WORDS = {
    "seen_altruistic": "recognised, altruistic, %",
    "seen_egocentric": "recognised, egocentric, %",
    "margin_altruistic": "loss, altruistic, nats",
    "margin_egocentric": "loss, egocentric, nats",
    "spread": "spread-out term",
}
"""Metrics of a run, in words."""


def subspaces(study: Study) -> Finding:
    """Whether altruistic features hide the modality they come from, and egocentric ones show it."""
    if "fdarn" not in study.states:
        raise NotApplicable(
            f"{title_of(study.recipe.run.method)} has one kind of features; FDARN has altruistic and egocentric ones"
        )
    trained = study.trained("fdarn")
    clients = {name: client for name, client in trained.clients.items() if len(client.test)}
    rows = _each_once(clients)
    samples = sum(map(len, rows.values()))
    if len({client.info.group for client in clients.values()}) < 2:
        raise NotApplicable("the tested clients have no two modalities that could be told apart")
    if samples < _FOLDS:
        raise NotApplicable(f"{samples} test samples are too few for {_FOLDS} folds")
    names: dict[Kind, list[str]] = {
        "modality": [clients[name].info.group for name, own in rows.items() for _ in own],
        "activity": [
            clients[name].info.classes[label_]
            for name, own in rows.items()
            for label_ in clients[name].test.labels[own]
        ],
    }
    values: dict[str, Any] = {}
    seen: dict[str, tuple[Tensor, Tensor]] = {}
    table: list[tuple[str, ...]] = []
    for control in (False, True):
        for subspace, own in _features(trained, rows, trained.untrained if control else trained.net).items():
            if not bool(own.isfinite().all()):
                raise NotApplicable(f"{subspace} features are not finite: training has diverged")
            key = f"{subspace}, untrained" if control else subspace
            places = principal(own)
            values[key] = {"variance": places[1]}
            if not control:
                seen[subspace] = places
            cells: list[str] = []
            for kind, words in names.items():
                numbers = _number(words)
                several = len(set(words)) > 1
                accuracy = probe_accuracy(own, numbers, _FOLDS, study.seed) if several else None
                chance = chance_accuracy(numbers)
                values[key][kind] = {"accuracy": accuracy, "chance": chance}
                cells += [points(accuracy), points(chance)]
            table.append((key, *cells))
    heads = [f"{kind} {what}, %" for kind in names for what in ("probe", "chance")]
    drawn = torch.randperm(samples, generator=generator(study.seed, "subspaces"))[:_DRAWN].sort().values
    some = f"Drawn: {len(drawn)} of {samples} samples, at random." if len(drawn) < samples else ""
    many = f"Activities are not named: there are {len(set(names['activity']))}."
    how = (
        f"Probe: accuracy of a linear ridge classifier on {samples} test samples of {len(clients)} clients, each "
        f"seen by a client's encoders, in {_FOLDS}-fold cross-validation. A recording that several clients are "
        "tested on counts once, so that no fold has a copy of another's. Chance: the share of the most frequent "
        "modality or activity. FDARN means the altruistic features to hide the modality, so that its probe "
        "is near chance, and the egocentric ones to show it. The picture's axes are the two directions of most "
        "variance; modalities that lie upon each other there may be told apart in others, which the probe sees."
    )
    control = (
        "Untrained: the same encoders with the values that training started from. What the probe reads off these was "
        "in the inputs, which a random map keeps; only what trained features have more or less than these did "
        "training put in or take out. A modality probe as high untrained as trained says nothing of egocentric "
        "features, and of altruistic ones that they hide nothing."
    )
    return Finding(
        title="Subspaces: what tells of the modality and what of the activity",
        caption="FDARN's altruistic and egocentric features of all clients' test samples in two principal "
        "directions, by modality and by activity.",
        columns=("features", *heads),
        rows=table,
        values={"samples": samples, "clients": list(clients), "subspaces": values},
        figure=_draw(seen, names, drawn.tolist()),
        notes=(how, control, *((some,) if some else ()), *((many,) if len(set(names["activity"])) > _NAMED else ())),
    )


def _each_once(clients: Mapping[str, ClientData]) -> dict[str, list[int]]:
    """Which test samples of each client are taken, so that each recording is taken once.

    Clients of a modality that are tested on the same strangers share their recordings, and take them in turn. They do
    where none of their test's people is in their training, and their tests are of the same people and actions in
    the same order.
    """
    alike: dict[object, list[str]] = {}
    for name, client in clients.items():
        test, met = client.test, {*client.train.subjects}
        strangers = bool(test.subjects) and met.isdisjoint(test.subjects)
        same = (client.info.group, test.subjects, tuple(test.labels.tolist()))
        alike.setdefault(same if strangers else name, []).append(name)
    turns = {name: (turn, len(names)) for names in alike.values() for turn, name in enumerate(names)}
    return {name: list(range(turns[name][0], len(client.test), turns[name][1])) for name, client in clients.items()}


def _subspaces(method: Method) -> list[str]:
    """Those that there are, but for ablations both."""
    absent = {"phi_a": "altruistic", "phi_e": "egocentric"}.get(method.settings.fdarn_without)
    return [subspace for subspace in ("altruistic", "egocentric") if subspace != absent]


def _features(
    trained: Trained, rows: Mapping[str, Sequence[int]], net_of: Callable[[str], Applied]
) -> dict[str, Tensor]:
    """(N, d) features of clients' test samples, in the clients' order, in each subspace that there is."""
    subspaces = _subspaces(trained.method)

    def of(client: str) -> list[Tensor]:
        net, x = net_of(client), in_memory(trained.clients[client].test).x[list(rows[client])]
        return [in_batches(lambda b, s=s: net(b.to(trained.device), part=s).cpu(), x) for s in subspaces]

    by_subspace = zip(*trained.each(of, rows), strict=True)
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


def discriminator(study: Study) -> Finding:
    """How well FDARN's discriminator told modalities apart while it trained, in each subspace."""
    if "fdarn" not in study.states:
        raise NotApplicable(f"{title_of(study.recipe.run.method)} has no modality discriminator; FDARN has one")
    runs = [run.rows for run in study.runs if run.method == "fdarn"]
    seeds = [own for rows in runs if (own := [r for r in rows if r.split == "train" and r.name in WORDS])]
    if not seeds:
        raise NotApplicable("FDARN was trained without its modality discriminator here")
    modalities = sorted({row.group for rows in seeds for row in rows})
    means = _series(seeds)
    by_modality = {m: _series([[row for row in rows if row.group == m] for rows in seeds]) for m in modalities}
    table = [
        (
            words,
            _cell(name, means[name][min(means[name])]),
            _cell(name, means[name][max(means[name])]),
            *(_cell(name, _last(by_modality[m].get(name))) for m in modalities),
        )
        for name, words in WORDS.items()
        if means.get(name)
    ]
    if not table:
        raise NotApplicable("the discriminator's numbers are not finite, or its seeds have no round in common")
    averaged = _averaged(study.trained("fdarn"))
    table += [
        (
            f"recognised after averaging, {subspace}, test samples, %",
            "",
            *(points(own.get(m)) for m in ("", *modalities)),
        )
        for subspace, own in averaged.items()
    ]
    values = {
        "curves": {n: {"rounds": list(s), "values": list(s.values())} for n, s in means.items()},
        "last": {n: _last(s) for n, s in means.items()},
        "modalities": {m: {n: _last(s) for n, s in own.items()} for m, own in by_modality.items()},
        "averaged": {s: {m: share for m, share in own.items() if m} for s, own in averaged.items()},
        "chance": 1 / len(modalities),
        "seeds": len(seeds),
    }
    return Finding(
        title="The modality discriminator over rounds",
        caption="Share of training samples whose modality FDARN's discriminator recognises, and its losses: means "
        f"over the clients of a round ({study.describe_seeds({'fdarn': seeds}, bands=False)}).",
        columns=("mean over clients", "first round", "last round", *(f"{m}, last" for m in modalities)),
        rows=table,
        values=values,
        figure=_draw_curves(means, len(modalities)),
        notes=(
            "Taken on training batches while weights move, with the weights of the moment: of a discriminator that "
            "its client has trained since the round began on one modality alone, where one answer is always right. "
            "After averaging: the last round's discriminator and encoders as the server has them, on test samples, "
            "of the first seed. The encoders work against "
            "the discriminator in the altruistic subspace, and with it in the egocentric one. Chance is 1 / "
            f"{len(modalities)}, one of the modalities blindly guessed; a discriminator that always answers the same "
            "is right for the clients of that modality and wrong for all others, which the columns by modality show.",
        ),
    )


def _averaged(trained: Trained) -> dict[str, dict[str, float]]:
    """By subspace, the share of test samples whose modality the server's discriminator recognises.

    By modality, and as "" over all clients; means of the clients' shares.
    """
    method = trained.method
    assert isinstance(method, FDARN)
    subspaces = _subspaces(method)
    clients = [name for name, client in trained.clients.items() if len(client.test)]

    def of(client: str) -> list[float]:
        net, x = trained.net(client), in_memory(trained.clients[client].test).x.to(trained.device)
        with torch.no_grad():
            return [float(method.discriminate(net, net(x, part=subspace))[1]) for subspace in subspaces]

    shares = dict(zip(clients, trained.each(of, clients), strict=True))
    groups = {name: trained.clients[name].info.group for name in clients}
    return {
        subspace: {
            group: statistics.fmean(own[place] for name, own in shares.items() if group in ("", groups[name]))
            for group in ("", *sorted({*groups.values()}))
        }
        for place, subspace in enumerate(subspaces)
    }


def _series(seeds: Sequence[Sequence[Row]]) -> dict[str, Series]:
    """By metric and round, the mean over clients and then over seeds, at rounds that all seeds have."""
    tables = [tabulate(rows) for rows in seeds]
    means: dict[str, Series] = {}
    for name in WORDS:
        each: list[Series] = []
        for table in tables:
            clients = table["train", name].values()
            rounds = {r for own in clients for r in own}
            each.append({r: statistics.fmean(own[r] for own in clients if r in own) for r in rounds})
        means[name] = {r: mean for r, (mean, _) in average(each).items()}
    return {name: own for name, own in means.items() if own}


def _last(series: Series | None) -> float | None:
    return series[max(series)] if series else None


def _cell(name: str, value: float | None) -> str:
    return points(value) if name.startswith("seen") else number(value)


def _draw_curves(means: Mapping[str, Series], modalities: int) -> Figure:
    panels = {
        "modality recognised, % of samples": ("seen_altruistic", "seen_egocentric"),
        "loss of the discriminator, nats": ("margin_altruistic", "margin_egocentric"),
        "spread-out term of its prototypes": ("spread",),
    }
    shown = {title: [n for n in names if n in means] for title, names in panels.items()}
    shown = {title: names for title, names in shown.items() if names}
    figure = canvas(3.6 * len(shown) + 0.4, 3.4)
    for column, (title, names) in enumerate(shown.items()):
        axes = figure.add_subplot(1, len(shown), column + 1)
        for name in names:
            factor = 100 if name.startswith("seen") else 1
            series = means[name]
            subspace = name.partition("_")[2]
            place = {"altruistic": 0, "egocentric": 1}.get(subspace, 2)
            x, y, mark = list(series), [factor * value for value in series.values()], "o" if len(series) <= 20 else ""
            axes.plot(x, y, marker=mark, markersize=3.5, color=COLOURS[place], label=subspace or None)
        if names[0].startswith("seen"):
            words = f"chance, 1 of {modalities}"
            axes.axhline(100 / modalities, color=SOFT, linewidth=1, linestyle="--", label=words)
            axes.set_ylim(-3, 103)
        axes.set_title(title, loc="left", fontsize=9)
        axes.grid(axis="y")
        whole_rounds(axes)
        if names != ["spread"]:
            axes.legend(loc="best")
    return figure
