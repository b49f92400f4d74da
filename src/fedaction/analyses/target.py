"""Rounds, traffic and local work until a target is reached, method beside baselines (FedVSSL, Fig. 4)."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fedaction.analyses.clock import SHARE
from fedaction.analyses.curves import Series, over_seeds, series_of
from fedaction.analyses.draw import COLOURS, MARKS, SOFT, canvas, whole_rounds
from fedaction.analyses.finding import Finding, Table, number, points
from fedaction.analyses.study import NotApplicable, Study, plain
from fedaction.methods import title_of
from fedaction.methods.central import EVERYONE
from fedaction.report.page import amount
from fedaction.runs.metrics import read_rows
from fedaction.runs.study import list_runs


@dataclass(frozen=True)
class Cost:
    """What it took to come to a round.

    Attributes:
        round: the round.
        bytes_up: sent by clients up to it, in all.
        bytes_down: sent to them.
        client_epochs: passes of a client over its own samples whose results came back, whether or not they were used.
        passes: passes over all clients' samples together, if all hold equally many.
    """

    round: int
    bytes_up: int
    bytes_down: int
    client_epochs: int
    passes: float


@dataclass(frozen=True)
class Way:
    """One seed of one method: the mean over clients of the test accuracy by round, and what each round took.

    Attributes:
        accuracy: 0..1, at the rounds that tested all clients.
        up: bytes of each round.
        down: likewise.
        epochs: client-epochs of each round.
        clients: how many hold samples: those that took part or were tested.
        central: whether all samples are in one place, which then counts as one client.
    """

    accuracy: Series
    up: Mapping[int, int]
    down: Mapping[int, int]
    epochs: Mapping[int, int]
    clients: int
    central: bool = False

    @property
    def last(self) -> float:
        """The accuracy at the end."""
        return self.accuracy[max(self.accuracy)]

    def until(self, round: int) -> Cost:
        """What the rounds up to this one took."""

        def total(of: Mapping[int, int]) -> int:
            return sum(value for r, value in of.items() if r <= round)

        epochs = total(self.epochs)
        return Cost(round, total(self.up), total(self.down), epochs, epochs / self.clients)

    def reach(self, target: float) -> Cost | None:
        """What the first tested round took whose accuracy is the target or better; None where there is none."""
        found = next((r for r, value in sorted(self.accuracy.items()) if value >= target), None)
        return None if found is None else self.until(found)


def way_of(path: Path, local_epochs: int) -> Way | None:
    """What a run's metrics say of its way; None where nothing was tested."""
    series = series_of(path)
    if not series:
        return None
    counts: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    clients: set[str] = {client for client in series if client}
    for row in read_rows(path):
        if row.split == "server" and not row.client:
            counts[row.name][row.round] += int(row.value or 0)
        elif row.split == "train":
            clients.add(row.client)
    back = {r: counts["participants"][r] + counts["refused"][r] for r in list(counts["participants"])}
    return Way(
        accuracy=series[""],
        up=counts["bytes_up"],
        down=counts["bytes_down"],
        epochs={r: local_epochs * n for r, n in back.items()},
        clients=1 if EVERYONE in clients else len(clients),
        central=EVERYONE in clients,
    )


Ways = Mapping[str, Sequence[Way]]
"""The seeds of each method."""


def to_target(study: Study) -> Finding:
    """See the module."""
    ways: dict[str, list[Way]] = defaultdict(list)
    for method, _, home in list_runs(study.recipe, study.folder):
        found = way_of(home / "metrics.jsonl", study.recipe.run.local_epochs)
        if found is not None:
            ways[method].append(found)
    if not ways:
        raise NotApplicable("nothing was tested: no round has a result of all clients")
    aim, why = _aim(study, ways)
    table: list[tuple[str, ...]] = []
    values: dict[str, Any] = {}
    for method, seeds in ways.items():
        reached = [cost for seed in seeds if (cost := seed.reach(aim)) is not None]
        table.append(
            (title_of(method), points(statistics.fmean(s.last for s in seeds)), *_cells(reached, len(seeds)))
        )
        curve = over_seeds([seed.accuracy for seed in seeds])
        values[method] = {
            "rounds": list(curve),
            "accuracy": [mean for mean, _ in curve.values()],
            "reached": [None if (cost := seed.reach(aim)) is None else asdict(cost) for seed in seeds],
            "whole": [asdict(seed.until(max(seed.accuracy))) for seed in seeds],
        }
    several = max(map(len, ways.values()))
    spread = f"means of {several} seeds, bands one standard deviation" if several > 1 else f"seed {study.seed}"
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
    return Finding(
        title="Rounds and traffic to a target",
        caption=f"Mean test {study.measure} over clients against rounds, and the target ({spread}). {study.words}",
        table=Table(
            ("method", "last, %", f"round of {points(aim)} %", "up", "down", "client-epochs", "passes over all data"),
            tuple(table),
        ),
        values={"target": plain(aim), "methods": plain(values)},
        figure=_picture(ways, aim, study.measure),
        notes=tuple(notes),
    )


def _aim(study: Study, ways: Ways) -> tuple[float, str]:
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

    def mean(pick: Callable[[Cost], float]) -> float:
        return statistics.fmean(map(pick, reached))

    when = number(mean(lambda cost: cost.round), 0 if len(reached) == 1 else 1)
    if len(reached) < seeds:
        when += f" ({len(reached)} of {seeds} seeds)"
    up, down = amount(mean(lambda cost: cost.bytes_up)), amount(mean(lambda cost: cost.bytes_down))
    epochs = number(mean(lambda cost: cost.client_epochs), 0)
    return when, up, down, epochs, number(mean(lambda cost: cost.passes), 2)


def _picture(ways: Ways, aim: float, measure: str) -> Figure:
    figure = canvas(9, 4.2)
    axes = figure.add_subplot()
    for place, (method, seeds) in enumerate(ways.items()):
        curve, colour = over_seeds([seed.accuracy for seed in seeds]), COLOURS[place % len(COLOURS)]
        x, y = list(curve), [100 * mean for mean, _ in curve.values()]
        dash = "-" if place < len(COLOURS) else "--"
        axes.plot(x, y, dash, color=colour, label=title_of(method), linewidth=2.2 if place == 0 else 1.5)
        spread = [100 * std for _, std in curve.values()]
        if any(spread):
            low, high = ([a + sign * b for a, b in zip(y, spread, strict=True)] for sign in (-1, 1))
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        first = next((r for r, (mean, _) in curve.items() if mean >= aim), None)
        if first is not None:
            mark = MARKS[place % len(MARKS)]
            axes.plot(first, 100 * curve[first][0], mark, color=colour, markersize=7, markeredgecolor="white")
    axes.axhline(100 * aim, color=SOFT, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    place_of = axes.get_yaxis_transform()
    axes.text(0.995, 100 * aim, f"target {points(aim)} %", ha="right", va="bottom", transform=place_of, color=SOFT)
    axes.set_ylabel(f"test {measure}, %")
    axes.grid(axis="y")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=min(len(ways), 6))
    whole_rounds(axes)
    return figure
