"""Rounds, traffic and local work until a target is reached, method beside baselines (FedVSSL, Fig. 4)."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from fedaction.analyses.clock import SHARE
from fedaction.analyses.curves import read_accuracies
from fedaction.analyses.draw import MARKS, canvas, colour, draw_accuracy, draw_target, whole_rounds
from fedaction.analyses.finding import Finding, number, points
from fedaction.analyses.study import NotApplicable, Study
from fedaction.federation.words import amount
from fedaction.methods import title_of
from fedaction.methods.central import EVERYONE
from fedaction.report.series import Series, average, tabulate
from fedaction.runs.metrics import Row, read_epochs


class Cost(NamedTuple):
    """What it took to come to a round."""

    round: float
    bytes_up: float  # sent by clients up to it, in all
    bytes_down: float  # sent to them
    # passes of a client over its own samples whose results came back, whether or not they were used
    client_epochs: float
    passes: float  # passes over all clients' samples together, if all hold equally many


@dataclass(frozen=True)
class Way:
    """One seed of one method: the mean over clients of the test accuracy by round, and what each round took."""

    accuracy: Series  # 0..1, at the rounds that tested all clients
    costs: Mapping[int, tuple[int, int, int]]  # by round, bytes up, bytes down and client-epochs
    clients: int  # how many hold samples: those that took part or were tested
    central: bool = False  # whether all samples are in one place, which then counts as one client

    @property
    def last(self) -> float:
        """The accuracy at the end."""
        return self.accuracy[max(self.accuracy)]

    def until(self, round: int) -> Cost:
        """What the rounds up to this one took."""
        past = (cost for r, cost in self.costs.items() if r <= round)
        up, down, epochs = map(sum, zip((0, 0, 0), *past, strict=True))
        return Cost(round, up, down, epochs, epochs / self.clients)

    def reach(self, target: float) -> Cost | None:
        """What the first tested round took whose accuracy is the target or better; None where there is none."""
        rounds = (r for r, value in sorted(self.accuracy.items()) if value >= target)
        return next(map(self.until, rounds), None)


def way_of(rows: Sequence[Row], local_epochs: int) -> Way | None:
    """What a run's metrics say of its way; None where nothing was tested."""
    series = read_accuracies(rows)
    if not series:
        return None
    clients = {client for client in series if client} | {row.client for row in rows if row.split == "train"}
    table = tabulate(rows)
    counts = [*(table["server", name].get("", {}) for name in ("bytes_up", "bytes_down"))]
    counts.append(read_epochs(rows, local_epochs))
    costs: dict[int, tuple[int, int, int]] = {}
    for round in sorted({r for own in counts for r in own}):
        up, down, epochs = (int(own.get(round, 0)) for own in counts)
        costs[round] = up, down, epochs
    central = EVERYONE in clients
    return Way(series[""], costs, 1 if central else len(clients), central)


Ways = Mapping[str, Sequence[Way]]
"""The seeds of each method."""


def to_target(study: Study) -> Finding:
    """See the module."""
    ways: dict[str, list[Way]] = defaultdict(list)
    for run in study.runs:
        if (way := way_of(run.rows, study.recipe.run.local_epochs)) is not None:
            ways[run.method].append(way)
    if not ways:
        raise NotApplicable("nothing was tested: no round has a result of all clients")
    aim, why = _choose_target(study, ways)
    table: list[tuple[str, ...]] = []
    values: dict[str, Any] = {}
    for method, seeds in ways.items():
        costs = [seed.reach(aim) for seed in seeds]
        last = points(statistics.fmean(seed.last for seed in seeds))
        table.append((title_of(method), last, *_cells([cost for cost in costs if cost is not None], len(seeds))))
        curve = average(seed.accuracy for seed in seeds)
        values[method] = {
            "rounds": list(curve),
            "accuracy": [mean for mean, _ in curve.values()],
            "reached": [None if cost is None else cost._asdict() for cost in costs],
            "whole": [seed.until(max(seed.accuracy))._asdict() for seed in seeds],
        }
    notes = [
        f"The target is {points(aim)} % ({why}). A method has reached it in the first tested round, per seed, whose "
        f"mean {study.measure} over clients is the target or better; numbers are means over the seeds that did. "
        f"Rounds from one test to the next: {study.recipe.run.evaluate_every}. Traffic is the sum up to that round. "
        "A client-epoch is one pass of a client over its own samples whose result came back. Passes over all data "
        "are client-epochs by the number of clients, which is exact where clients hold equally many samples."
    ]
    if any(seed.central for seeds in ways.values() for seed in seeds):
        notes.append(
            "Of centralised training a client-epoch is a pass over everybody's samples; its traffic is that of the "
            "model to and from that one place, without the samples that had to be brought there."
        )
    heads = ("method", "last, %", f"round of {points(aim)} %", "up", "down", "client-epochs", "passes over all data")
    return Finding(
        title="Rounds and traffic to a target",
        caption=f"Mean test {study.measure} over clients against rounds, and the target "
        f"({study.describe_seeds(ways)}).",
        columns=heads,
        rows=table,
        values={"target": aim, "methods": values},
        figure=_draw(ways, aim, study.measure),
        notes=notes,
    )


def _choose_target(study: Study, ways: Ways) -> tuple[float, str]:
    """The target, and where it is from."""
    if study.target:
        return study.target, "as asked"
    central = {m: seeds for m, seeds in ways.items() if seeds[0].central and m != study.recipe.run.method}
    if central:
        name, seeds = next(iter(central.items()))
        aim, why = statistics.fmean(seed.last for seed in seeds), f"what {title_of(name)} has at its end"
    else:
        aim = SHARE * max(statistics.fmean(seed.last for seed in seeds) for seeds in ways.values())
        why = f"{points(SHARE, 0)} % of the best method's {study.measure} at its end"
    if not aim:
        raise NotApplicable(f"the {study.measure} at the end is 0, which is no target; name one with --target")
    return aim, why


def _cells(reached: Sequence[Cost], seeds: int) -> tuple[str, ...]:
    if not reached:
        return "not reached", "–", "–", "–", "–"
    mean = Cost(*map(statistics.fmean, zip(*reached, strict=True)))
    when = number(mean.round, 0 if len(reached) == 1 else 1)
    if len(reached) < seeds:
        when += f" ({len(reached)} of {seeds} seeds)"
    epochs, passes = number(mean.client_epochs, 0), number(mean.passes, 2)
    return when, amount(mean.bytes_up), amount(mean.bytes_down), epochs, passes


def _draw(ways: Ways, aim: float, measure: str) -> Figure:
    figure = canvas(9, 4.2)
    axes = figure.add_subplot()
    for place, (method, seeds) in enumerate(ways.items()):
        curve = average(seed.accuracy for seed in seeds)
        draw_accuracy(axes, list(curve), curve.values(), place, title_of(method))
        first = next((r for r, (mean, _) in curve.items() if mean >= aim), None)
        if first is not None:
            mark, height = MARKS[place % len(MARKS)], 100 * curve[first][0]
            axes.plot(first, height, mark, color=colour(place), markersize=7, markeredgecolor="white")
    draw_target(axes, aim)
    axes.set_ylabel(f"test {measure}, %")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=min(len(ways), 6))
    whole_rounds(axes)
    return figure
