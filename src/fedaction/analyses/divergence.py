"""How unlike clients' distances from the model that they were sent are, round by round (FedVSSL, Fig. 5)."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fedaction.analyses.curves import over_seeds
from fedaction.analyses.draw import COLOURS, canvas, label, whole_rounds
from fedaction.analyses.finding import Finding, Table, number, points, significant
from fedaction.analyses.study import NotApplicable, Study, plain
from fedaction.evaluation.divergence import OWN, SENT, Consistency, consistency, deviations
from fedaction.methods import title_of
from fedaction.runs.metrics import read_rows
from fedaction.runs.study import list_runs

_DRAWN = 6  # parts of a network


@dataclass(frozen=True)
class Spread:
    """One seed's distances of one part of the network.

    Attributes:
        distances: the mean over clients, by round.
        deviations: the standard deviation over clients, by round.
        clients: how many clients a round has, on average.
    """

    distances: Mapping[int, float]
    deviations: Mapping[int, float]
    clients: float


Parts = Mapping[str, Sequence[Spread]]
"""The seeds of each part, by the name that its rows in the metrics have."""


def spreads_of(path: Path) -> dict[str, Spread]:
    """What a run's metrics say of each part of the network, at rounds that have two clients or more."""
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in read_rows(path) if path.exists() else []:
        if row.split == "train" and row.name.startswith((SENT, OWN)) and row.value is not None:
            found[row.name][row.round].append(float(row.value))
    spreads: dict[str, Spread] = {}
    for name, by_round in found.items():
        several = {r: values for r, values in by_round.items() if len(values) > 1}
        means = {r: statistics.fmean(values) for r, values in sorted(several.items())}
        clients = statistics.fmean(map(len, by_round.values()))
        spreads[name] = Spread(means, deviations(several), clients)
    return spreads


def divergence(study: Study) -> Finding:
    """See the module."""
    found: dict[str, dict[str, list[Spread]]] = defaultdict(lambda: defaultdict(list))
    for method, _, home in list_runs(study.recipe, study.folder):
        for name, spread in spreads_of(home / "metrics.jsonl").items():
            found[method][name].append(spread)
    if not found:
        raise NotApplicable(
            "no round says how far clients' models went from the one that they were sent; set update_distances = "
            "true in the recipe and run it again"
        )
    shown = {
        method: {name: known for name, seeds in parts.items() if (known := [s for s in seeds if s.deviations])}
        for method, parts in found.items()
    }
    alone = [method for method, parts in shown.items() if not parts]
    shown = {method: parts for method, parts in shown.items() if parts}
    if not shown:
        raise NotApplicable("a deviation is over the clients of a round, and no round here has two of them")
    table: list[tuple[str, ...]] = []
    values: dict[str, Any] = {}
    for method, parts in shown.items():
        values[method] = {name: _values(seeds) for name, seeds in parts.items()}
        table += [(f"{title_of(method)}, {words(name)}", *_cells(seeds)) for name, seeds in parts.items()]
    return Finding(
        title="How unlike clients' updates are",
        caption="Standard deviation, over the clients of a round, of the L2 distance between the model that a client "
        f"was sent and the one that it trained, by part of the network. {study.words}",
        table=Table(
            (
                "method, part",
                "clients a round",
                "mean distance",
                "deviation, mean",
                "its own deviation",
                "that, % of the mean",
                "first tenth",
                "last tenth",
            ),
            tuple(table),
        ),
        values={"methods": plain(values)},
        figure=_picture(shown),
        notes=_notes(shown, alone),
    )


def words(name: str) -> str:
    """A part of the network by the name of its rows."""
    return f"{name.removeprefix(OWN)} (own)" if name.startswith(OWN) else name.removeprefix(SENT)


def _values(seeds: Sequence[Spread]) -> dict[str, Any]:
    curve, means = over_seeds([{**s.deviations} for s in seeds]), over_seeds([{**s.distances} for s in seeds])
    return {
        "rounds": list(curve),
        "deviation": [mean for mean, _ in curve.values()],
        "distance": [mean for mean, _ in means.values()],
        "clients": statistics.fmean(seed.clients for seed in seeds),
        **_numbers(seeds),
    }


def _numbers(seeds: Sequence[Spread]) -> dict[str, float]:
    """`Consistency` of each seed's curve, means over seeds."""
    found = [consistency(seed.deviations) for seed in seeds]
    return {f.name: statistics.fmean(getattr(one, f.name) for one in found) for f in fields(Consistency)}


def _cells(seeds: Sequence[Spread]) -> tuple[str, ...]:
    numbers = _numbers(seeds)
    distance = statistics.fmean(statistics.fmean(seed.distances.values()) for seed in seeds)
    share = numbers["variation"] / numbers["mean"] if numbers["mean"] else None
    return (
        number(statistics.fmean(seed.clients for seed in seeds), 1),
        significant(distance),
        significant(numbers["mean"]),
        significant(numbers["variation"]),
        points(share),
        significant(numbers["first"]),
        significant(numbers["last"]),
    )


def _notes(shown: Mapping[str, Parts], alone: Sequence[str]) -> tuple[str, ...]:
    notes = [
        "Distances are over parameters, without the statistics of normalisation, in the weights' own unit; the "
        "parts of a network are those of its tensors' names. Deviations are with n - 1, over clients whose updates "
        "were used, at rounds with two or more of them; of a client with several updates in a round, their mean. Its "
        "own deviation: of the deviation, over rounds. First and last tenth: its mean over a tenth of the rounds."
    ]
    own = {words(name) for parts in shown.values() for name in parts if name.startswith(OWN)}
    if own:
        notes.append(
            f"{', '.join(sorted(own))}: stays with clients, so that there is no global one to be distant from; shown "
            "is how far it went from the client's own of before. Fig. 5 of the paper shares the head: heads = "
            '"shared" where the recipe has that key.'
        )
    if any(len(parts) > _DRAWN for parts in shown.values()):
        notes.append(f"Drawn: the first {_DRAWN} parts of each network; all are in the table.")
    if alone:
        notes.append(f"Left out: {', '.join(map(title_of, alone))}, of which no round has two clients.")
    return tuple(notes)


def _picture(shown: Mapping[str, Parts]) -> Figure:
    figure = canvas(9, 0.5 + 2.9 * len(shown))
    modules = list(dict.fromkeys(name.split("/")[1] for parts in shown.values() for name in parts))
    for place, (method, parts) in enumerate(shown.items()):
        axes = figure.add_subplot(len(shown), 1, place + 1)
        for name, seeds in list(parts.items())[:_DRAWN]:
            curve = over_seeds([{**seed.deviations} for seed in seeds])
            colour = COLOURS[modules.index(name.split("/")[1]) % len(COLOURS)]
            axes.plot(
                list(curve),
                [mean for mean, _ in curve.values()],
                "--" if name.startswith(OWN) else "-",
                color=colour,
                linewidth=1.3,
                label=label(words(name), 30),
                marker="o" if len(curve) == 1 else "",
            )
        axes.set_ylim(bottom=0)
        axes.set_title(title_of(method), loc="left")
        axes.set_ylabel("deviation of the L2 distance")
        axes.grid(axis="y")
        axes.legend(loc="upper right", ncols=3)
        whole_rounds(axes)
    return figure
