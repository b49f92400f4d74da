"""A run on its clock, virtual or real: when its rounds were over, and how long its devices worked."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedaction.federation.files import read_json
from fedaction.federation.order import natural_key
from fedaction.methods.central import EVERYONE
from fedaction.report.series import Series, mean_over_clients, tabulate
from fedaction.runs.metrics import Row

UNITS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


@dataclass(frozen=True)
class RunClock:
    """One seed of one method. Times are in seconds, virtual ones but for asynchronous runs between real sites."""

    times: Series  # when each round was over
    accuracy: Series  # mean test accuracy (0..1) over clients, at the rounds that tested all of them
    recordings: Series  # the same per recording, where samples are clips
    busy: Mapping[str, float]  # how long each device worked, that of a job still under way included
    updates: Mapping[str, float]  # how many updates of each device the server used
    staleness: Mapping[str, float]  # of each device's updates, the mean in server updates; none of a synchronous run
    stalest: Mapping[str, float]  # the largest of each device
    real: bool = False  # whether time was measured, not computed

    @property
    def time(self) -> float:
        """When the last round was over."""
        return self.times[max(self.times)]

    def utilisation(self, client: str) -> float:
        """The share of the time that a device worked; the rest it was idle, or off."""
        return min(self.busy[client] / self.time, 1.0) if self.time > 0 else 0.0

    @property
    def mean_utilisation(self) -> float:
        """Over devices."""
        return statistics.fmean(map(self.utilisation, self.busy))

    def mean_staleness_of(self, clients: Collection[str]) -> float | None:
        """Over the updates of some devices; None where none has an age."""
        known = [client for client in self.staleness if client in clients and client in self.updates]
        total = sum(self.updates[client] for client in known)
        return sum(self.staleness[c] * self.updates[c] for c in known) / total if total else None

    def time_to(self, target: float) -> float | None:
        """When a tested round was over whose accuracy was `target` or better, for the first time."""
        return next(
            (self.times[r] for r, a in sorted(self.accuracy.items()) if a >= target and r in self.times), None
        )


def read_clock(rows: Sequence[Row], folder: Path, sampled: bool = False) -> RunClock | None:
    """What a run's metrics say of its clock; None where it had none.

    The last checkpoint in its folder says which jobs are under way. `sampled`: only some clients are asked at a time,
    and those never asked count as idle.
    """
    table = tabulate(rows)
    times = table["clock", "time"].get("", {})
    if not times:
        return None
    ages, counts = table["train", "staleness"], table["train", "updates"]
    busy = {client: series[max(series)] for client, series in table["clock", "busy"].items()}
    if counts:
        for client, seconds in _under_way(folder, max(times)).items():
            busy[client] = busy.get(client, 0.0) + seconds
        updates = {client: sum(counts[client].values()) if client in counts else 0.0 for client in busy}
    else:
        # Who answers after the deadline works on, but no longer than the round: in the next it starts anew.
        busy = {client: _within_rounds(series, times) for client, series in table["clock", "busy"].items()}
        trained = Counter(client for client, _ in {(row.client, row.round) for row in rows if row.split == "train"})
        updates = {client: float(trained[client]) for client in busy}
    tested = table["test", "accuracy"]
    if sampled and EVERYONE not in busy:
        busy = dict.fromkeys(tested, 0.0) | busy
        updates = dict.fromkeys(tested, 0.0) | updates
    if not busy:
        return None
    means = {
        c: sum(age * counts[c].get(r, 1.0) for r, age in own.items()) / sum(counts[c].get(r, 1.0) for r in own)
        for c, own in ages.items()
    }
    return RunClock(
        times=times,
        accuracy=mean_over_clients(tested),
        recordings=mean_over_clients(table["test", "recordings"]),
        busy=dict(sorted(busy.items(), key=lambda client: natural_key(client[0]))),
        updates=updates,
        staleness=means,
        stalest={client: max(own.values()) for client, own in table["train", "staleness_max"].items()},
        real=bool(counts) and _is_between_sites(folder),
    )


def word_of(clocks: Iterable[RunClock]) -> str:
    """What time is called: "real" where all of it was measured, else "virtual"."""
    kinds = {clock.real for clock in clocks}
    return "real" if kinds == {True} else "virtual"


def unit_of(seconds: float) -> tuple[str, float]:
    """The unit that a time is shown in, and how many seconds it has: hours, but for times of two hours or less."""
    return next((unit for unit in UNITS if seconds > 2 * unit[1]), UNITS[-1])


def _within_rounds(busy: Series, times: Series) -> float:
    """The sum of a client's work, that of each round cut to the round's own length. Both are running sums."""
    total = worked = now = 0.0
    for r in sorted(times):
        then = busy.get(r, worked)
        total += min(then - worked, times[r] - now)
        worked, now = then, times[r]
    return total


def _is_between_sites(folder: Path) -> bool:
    """Whether a run's sites were processes of their own."""
    try:
        return read_json(folder / "environment.json").get("engine") == "flower"
    except (OSError, ValueError, AttributeError):
        return False


def _under_way(folder: Path, round: int) -> dict[str, float]:
    """How long each device has worked on what it has not answered yet, by the checkpoint after a round.

    Metrics count a job's work when its answer comes. Where there is no such checkpoint, nothing is known of others.
    """
    seconds: dict[str, float] = {}
    try:
        saved = read_json(folder / "checkpoints" / f"round-{round:06d}.json")
        for flight in saved.get("flights", ()):
            elapsed, busy = max(saved["time"] - flight["start"], 0.0), float(flight["busy"])
            if flight["finish"] is None and not flight["lost"]:  # a real device, whose answer nobody foresees
                worked = elapsed
            elif flight["finish"] is None:  # it vanished on the way
                worked = min(busy, elapsed)
            else:  # its rests, where it has any, are taken to be spread evenly
                worked = busy * min(elapsed / max(flight["finish"] - flight["start"], 1e-9), 1.0)
            if math.isfinite(worked):
                seconds[flight["client"]] = seconds.get(flight["client"], 0.0) + worked
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no checkpoint, or not a sound one
        return {}
    return seconds
