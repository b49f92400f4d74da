"""How unlike clients' distances from the model that they were sent are, round by round (FedVSSL, Fig. 5)."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from fedaction.analyses.draw import canvas, colour, label, whole_rounds
from fedaction.analyses.finding import Finding, number, points, significant
from fedaction.analyses.study import NotApplicable, Study
from fedaction.evaluation.divergence import OWN, SENT, consistency, deviations
from fedaction.methods import title_of
from fedaction.report.series import Series, average, tabulate
from fedaction.runs.metrics import Row

_DRAWN = 6  # modules of a network


class Spread(NamedTuple):
    """One seed's distances of one module of the network."""

    distances: Series  # the mean over clients, by round
    deviations: Series  # the standard deviation over clients, by round
    clients: float  # how many clients a round has, on average


Modules = Mapping[str, Sequence[Spread]]
"""The seeds of each module, by the name that its rows in the metrics have."""


def divergence(study: Study) -> Finding:
    """See the module."""
    spreads: dict[str, dict[str, list[Spread]]] = defaultdict(lambda: defaultdict(list))
    for run in study.runs:
        for name, spread in _read_spreads(run.rows).items():
            spreads[run.method][name].append(spread)
    if not spreads:
        raise NotApplicable(
            "no round says how far clients' models went from the one that they were sent; set update_distances = "
            "true in the recipe and run it again"
        )
    shown: dict[str, Modules] = {}
    for method, modules in spreads.items():
        several = {name: [seed for seed in seeds if seed.deviations] for name, seeds in modules.items()}
        shown[method] = {name: seeds for name, seeds in several.items() if seeds}
    alone = [method for method, modules in shown.items() if not modules]
    shown = {method: modules for method, modules in shown.items() if modules}
    if not shown:
        raise NotApplicable("a deviation is over the clients of a round, and no round here has two of them")
    table: list[tuple[str, ...]] = []
    values: dict[str, dict[str, Any]] = defaultdict(dict)
    for method, modules in shown.items():
        for name, seeds in modules.items():
            values[method][name], cells = _measure(seeds)
            table.append((f"{title_of(method)}, {_describe(name)}", *cells))
    heads = ["method, part", "clients a round", "mean distance", "deviation, mean", "its own deviation"]
    return Finding(
        title="How unlike clients' updates are",
        caption="Standard deviation, over the clients of a round, of the L2 distance between the model that a client "
        "was sent and the one that it trained, by part of the network.",
        columns=[*heads, "that, % of the mean", "first tenth", "last tenth"],
        rows=table,
        values={"methods": values},
        figure=_draw(shown),
        notes=_note(shown, alone),
    )


def _read_spreads(rows: Iterable[Row]) -> dict[str, Spread]:
    """What a run's metrics say of each module of the network, at rounds that have two clients or more."""
    spreads: dict[str, Spread] = {}
    for (split, name), by_client in tabulate(rows).items():
        if split != "train" or not name.startswith((SENT, OWN)):
            continue
        by_round: dict[int, list[float]] = defaultdict(list)
        for series in by_client.values():
            for round, distance in series.items():
                by_round[round].append(distance)
        means = {r: statistics.fmean(values) for r, values in sorted(by_round.items()) if len(values) > 1}
        spreads[name] = Spread(means, deviations(by_round), statistics.fmean(map(len, by_round.values())))
    return spreads


def _describe(name: str) -> str:
    """A module of the network by the name of its rows."""
    return f"{name.removeprefix(OWN)} (own)" if name.startswith(OWN) else name.removeprefix(SENT)


def _measure(seeds: Sequence[Spread]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The numbers of one module, means over seeds; and the cells of its row."""
    curve, means = average(seed.deviations for seed in seeds), average(seed.distances for seed in seeds)
    clients = statistics.fmean(seed.clients for seed in seeds)
    each = [asdict(consistency(seed.deviations)) for seed in seeds]
    numbers = {name: statistics.fmean(one[name] for one in each) for name in each[0]}
    values = {
        "rounds": list(curve),
        "deviation": [mean for mean, _ in curve.values()],
        "distance": [mean for mean, _ in means.values()],
        "clients": clients,
        **numbers,
    }
    distance = statistics.fmean(statistics.fmean(seed.distances.values()) for seed in seeds)
    share = numbers["variation"] / numbers["mean"] if numbers["mean"] else None
    written = {name: significant(value) for name, value in numbers.items()}
    cells = (number(clients, 1), significant(distance), written["mean"], written["variation"], points(share))
    return values, (*cells, written["first"], written["last"])


def _note(shown: Mapping[str, Modules], alone: Sequence[str]) -> list[str]:
    notes = [
        "Distances are over parameters, without the statistics of normalisation, in the weights' own unit; the "
        "parts of a network are those of its tensors' names. Deviations are with n - 1, over clients whose updates "
        "were used, at rounds with two or more of them; of a client with several updates in a round, their mean. Its "
        "own deviation: of the deviation, over rounds. First and last tenth: its mean over a tenth of the rounds."
    ]
    own = {_describe(name) for modules in shown.values() for name in modules if name.startswith(OWN)}
    if own:
        notes.append(
            f"{', '.join(sorted(own))}: stays with clients, so that there is no global one to be distant from; shown "
            "is how far it went from the client's own of before. Fig. 5 of the paper shares the head: heads = "
            '"shared" where the recipe has that key.'
        )
    if any(len(modules) > _DRAWN for modules in shown.values()):
        notes.append(f"Drawn: the first {_DRAWN} parts of each network; all are in the table.")
    if alone:
        notes.append(f"Left out: {', '.join(map(title_of, alone))}, of which no round has two clients.")
    return notes


def _draw(shown: Mapping[str, Modules]) -> Figure:
    figure = canvas(9, 0.5 + 2.9 * len(shown))
    places = list(dict.fromkeys(name.split("/")[1] for modules in shown.values() for name in modules))
    for place, (method, modules) in enumerate(shown.items()):
        axes = figure.add_subplot(len(shown), 1, place + 1)
        for name, seeds in list(modules.items())[:_DRAWN]:
            curve = average(seed.deviations for seed in seeds)
            x, y = list(curve), [mean for mean, _ in curve.values()]
            dash, mark = "--" if name.startswith(OWN) else "-", "o" if len(curve) == 1 else ""
            shade, words = colour(places.index(name.split("/")[1])), label(_describe(name), 30)
            axes.plot(x, y, dash, color=shade, linewidth=1.3, label=words, marker=mark)
        axes.set_ylim(bottom=0)
        axes.set_title(title_of(method), loc="left")
        axes.set_ylabel("deviation of the L2 distance")
        axes.grid(axis="y")
        axes.legend(loc="upper right", ncols=3)
        whole_rounds(axes)
    return figure
