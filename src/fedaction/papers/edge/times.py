"""What the virtual clock says of fleets of devices, without any training: the edge paper's Tables II, IV and V."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fedaction.federation.clock import Clock, Device
from fedaction.federation.state import Job
from fedaction.methods.central import EVERYONE
from fedaction.papers.cells import Draft, Workbench
from fedaction.papers.edge.items import DISTIL, HOURS, KINDS, ONCE, TASKS, TEST, THRICE
from fedaction.papers.edge.setting import FLEETS, EdgeSetting
from fedaction.papers.item import Item, ItemRow
from fedaction.papers.outcome import Value
from fedaction.server.devices import Fleet, fleet_of
from fedaction.server.flights import Flight, InFlight
from fedaction.server.schedule import Participation, Turns

AGGREGATIONS = 80
"""How often the paper's server combines; also the local epochs of every client at equal work."""


@dataclass(frozen=True)
class _Member:
    id: str
    samples: int
    group: str = "video"


def seconds_for(
    fleet: Fleet, method: str, epochs: int = 1, updates: int | None = None, samples: int = 0, seed: int = 0
) -> float:
    """Virtual seconds of 80 aggregations on a fleet with one client per device; infinite where they never come.

    Args:
        fleet: the devices.
        method: "central" (on the server), "fedavg" (rounds) or "edge" (update by update).
        epochs: local epochs of a job.
        updates: asynchronous: updates to wait for; None: equal work, 80 for every client.
        samples: of each client; needed where a profile has seconds per sample.
        seed: of the clock's chances.
    """
    if method == "central":
        samples *= len(fleet.devices)
        devices = {EVERYONE: fleet.server or fleet.devices[0]}
    else:
        devices = {f"client-{number:05d}": device for number, device in enumerate(fleet.devices)}
    members = [_Member(name, samples) for name in devices]
    clock = Clock(seed, devices, dict.fromkeys(devices, samples), epochs)
    if method == "edge":
        return _time_updates(Turns(seed), clock, members, updates or AGGREGATIONS * len(members))
    schedule, now = Participation(seed, clock=clock), 0.0
    for round in range(1, AGGREGATIONS + 1):
        plan = schedule.choose(round, members, now)
        if not plan.working:
            return math.inf
        now = plan.end
    return now


def _time_updates(turns: Turns, clock: Clock, members: list[_Member], updates: int) -> float:
    """When so many answers have come, of clients that are given the next job at once."""
    flights = InFlight()
    launched, now = 0, 0.0

    def ask(client: str) -> None:
        nonlocal launched
        launched += 1
        job = Job(client, "", 0, 0, {}, launched)
        flights.add(Flight(job, clock.span(client, launched, now)))

    for client in turns.first(members):
        ask(client)
    while updates:
        try:
            landed = flights.land()
        except RuntimeError:  # all have vanished
            return math.inf
        now = landed.span.finish
        updates -= not landed.span.lost
        ask(landed.job.client)
    return now


def read_stage_times(draft: Draft[EdgeSetting]) -> Iterator[Value]:
    """Table II's rows of fine-tuning, in hours, in all readings."""
    for row in draft.item.rows:
        if row.method == DISTIL:
            continue
        method = TASKS[row.label[1]]
        single = AGGREGATIONS if method == "edge" else None
        readings = {HOURS: (1, None), THRICE: (3, single), ONCE: (1, single)}
        for column, paper in zip(draft.item.columns, row.paper, strict=True):
            if column not in readings or (method == "central" and column is not HOURS):
                continue
            epochs, updates = readings[column]
            fleet, samples = _fleet(draft.bench, row)
            seconds = [seconds_for(fleet, method, epochs, updates, samples, seed) for seed in draft.bench.seeds]
            known = [one / 3600 for one in seconds if 0 < one < math.inf]
            values = tuple(known if len({*known}) > 1 else known[:1])  # most profiles leave nothing to chance
            yield Value(row.label, column.label, values, paper)


def note_savings(item: Item, table: Sequence[Value]) -> list[str]:
    """How much less time the asynchronous server takes, by dataset and reading."""
    means = {(value.row, value.column): value.mean for value in table}
    printed = {value.row: value.paper for value in table if value.column == HOURS.label}
    notes: list[str] = []
    for dataset in dict.fromkeys(row.data for row in item.rows if row.data):
        one, other = (dataset, "synchronous"), (dataset, "asynchronous")
        pairs = [(means.get((one, reading.label)), means.get((other, reading.label))) for reading in (HOURS, THRICE)]
        pairs.append((printed.get(one), printed.get(other)))
        equal, fewer, paper = (100 * (1 - b / a) if a and b else None for a, b in pairs)
        if equal is not None and fewer is not None and paper is not None:
            notes.append(
                f"{dataset}: asynchronous takes {equal:.0f} % less time than synchronous at equal work, "
                f"{fewer:.0f} % less for 80 aggregations; the paper reports {paper:.0f} % less."
            )
    return notes


def read_device_times(draft: Draft[EdgeSetting]) -> Iterator[Value]:
    """Tables IV and V: a row for every kind of device, the paper's or those that were given."""
    column = draft.item.columns[0]
    printed = {row.label: row.paper[0] for row in draft.item.rows}
    for row in {row.data: row for row in draft.item.rows}.values():
        fleet, samples = _fleet(draft.bench, row)
        for device in {device.name: device for device in fleet.devices}.values():
            label = (row.data, KINDS.get(device.name, device.name))
            if "devices" in draft.bench.overrides or label in printed:
                seconds = device.test_seconds if column == TEST else _epoch_seconds(device, samples)
                yield Value(label, column.label, (seconds,) if seconds else (), printed.get(label))


def _epoch_seconds(device: Device, samples: int) -> float:
    """What the clock charges for a job of one local epoch, chance aside."""
    plain = replace(device, jitter=0.0, failure_rate=0.0, vanishes=math.inf)
    return Clock(0, {device.name: plain}, {device.name: samples}).span(device.name, 1).busy


def _fleet(bench: Workbench[EdgeSetting], row: ItemRow) -> tuple[Fleet, int]:
    """The devices of a row, and how many samples a client has where a profile asks for it; else 0."""
    fleet = fleet_of(bench.overrides.get("devices", FLEETS[row.data]))
    if all(device.seconds_per_epoch for device in fleet.devices) or bench.setting.row_keys(row) is None:
        return fleet, 0
    recipe = bench.recipe(replace(row, method="fedavg"))
    return fleet, round(statistics.fmean(client.train for client in bench.clients(recipe)))
