"""The asynchronous loop: answers are combined as they come, on the virtual clock.

What a client will answer is decided when it is asked, so that it may be computed at any time before the server sees
it: jobs in flight are trained a few at a time, in the order in which they arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from fedaction.engines.base import Engine
from fedaction.federation.staleness import staleness_of
from fedaction.federation.state import Job, Member, Update
from fedaction.federation.tree import Tree, tree_bytes
from fedaction.guard.validate import problem
from fedaction.methods.base import Method
from fedaction.runs.checkpoint import RunState
from fedaction.runs.metrics import Row
from fedaction.server.events import Events, Flight, InFlight


class _Working:
    """A run's state while it is being advanced, and what happens meanwhile; changed in place."""

    def __init__(self, state: RunState) -> None:
        self.server, self.time, self.launched = state.server, state.time, state.launched
        self.flights = InFlight(state.flights)
        self.locals, self.visits, self.busy = dict(state.locals), dict(state.visits), dict(state.busy)
        self.waiting: list[Update] = []
        self.down = self.up = self.lost = self.accepted = 0
        self.refused: dict[str, str] = {}
        self.seen: dict[str, list[Mapping[str, float]]] = {}

    def frozen(self, state: RunState, round: int) -> RunState:
        """The state after the round."""
        return replace(
            state,
            round=round,
            server=self.server,
            time=self.time,
            launched=self.launched,
            flights=self.flights.values(),
            locals=self.locals,
            visits=self.visits,
            busy=self.busy,
        )


@dataclass(frozen=True)
class Asynchronous:
    """Advances a run by a round: so many accepted updates as make one.

    Attributes:
        method: an asynchronous one.
        members: those who train.
        events: who is asked when.
        updates: accepted updates that make a round; more where the method combines several at a time.
        oldest: updates older than this many server updates are refused; None: none is too old.
        ahead: how many jobs are trained at a time.
        local: a client's LOCAL tensors: among those of the clients that have trained, or as they start.
        frozen: bytes of FROZEN tensors that a client is sent the first time.
    """

    method: Method
    members: Sequence[Member]
    events: Events
    updates: int
    oldest: int | None
    ahead: int
    local: Callable[[Mapping[str, Tree], str], Tree]
    frozen: Callable[[str], int]

    def advance(self, state: RunState, engine: Engine, round: int) -> tuple[RunState, list[Row], list[str]]:
        """One round: the state after it, its rows, and what the user should know."""
        now = _Working(state)
        if not now.launched:
            for client in self.events.first(self.members):
                self._launch(now, client)
        while now.accepted < self.updates or now.waiting:
            flight = now.flights.next()
            if flight.update is None and not flight.span.lost:
                self._train(now, engine, round)
            else:
                self._land(now)
        return now.frozen(state, round), self._rows(now, round), list(now.refused.values())

    def _launch(self, now: _Working, client: str) -> None:
        """Sends a client the server's present model."""
        now.launched += 1
        payload = self.method.payload(now.server, self.method.clients[client])
        now.down += tree_bytes(payload) + (0 if now.visits.get(client) else self.frozen(client))
        now.visits[client] = now.visits.get(client, 0) + 1
        span = self.events.span(client, now.launched, now.time)
        now.flights.add(Flight(client, now.launched, now.server.version, span, payload))

    def _train(self, now: _Working, engine: Engine, round: int) -> None:
        """Computes the next answers that are not known yet."""
        flights = now.flights.unknown(self.ahead)
        groups = [self.method.clients[flight.client].group for flight in flights]
        jobs = [
            Job(f.client, group, f.version, round, f.payload, self.local(now.locals, f.client), f.number)
            for f, group in zip(flights, groups, strict=True)
        ]
        for flight, update in zip(flights, engine.train(jobs), strict=True):
            now.flights.answer(flight, update)

    def _land(self, now: _Working) -> None:
        """The clock goes on to the next arrival: its answer is used, and somebody is asked in its place."""
        flight = now.flights.land()
        now.time = flight.span.finish
        now.busy[flight.client] = now.busy.get(flight.client, 0.0) + flight.span.busy
        if flight.update is None:
            now.lost += 1
        else:
            now.up += tree_bytes(flight.update.tree)
            reason = self._refusal(now, flight.update)
            if reason:
                now.refused[flight.client] = reason
            else:
                self._accept(now, flight.update)
        self._launch(now, self.events.successor(flight.client, now.launched + 1, self.members, now.flights.clients))

    def _refusal(self, now: _Working, update: Update) -> str:
        """Why an update is not used; "" where it is."""
        info = self.method.clients[update.client]
        expected = Job(update.client, info.group, 0, 0, self.method.payload(now.server, info), {})
        try:
            age = staleness_of(now.server, update)
        except ValueError as error:
            return str(error)
        reason = problem(update, expected) or ""
        if not reason and self.oldest is not None and age > self.oldest:
            reason = f"client {update.client!r} sent an update {age} server updates old; {self.oldest} is the most"
        return reason

    def _accept(self, now: _Working, update: Update) -> None:
        """Notes an update, and combines those that wait once they are enough."""
        age = float(staleness_of(now.server, update))
        now.accepted += 1
        now.seen.setdefault(update.client, []).append({**update.metrics, "staleness": age})
        now.waiting.append(replace(update, local={}))
        if update.local:
            now.locals[update.client] = update.local
        if len(now.waiting) >= self.method.buffered:
            now.server = self.method.combine(now.server, sorted(now.waiting, key=lambda u: u.client))
            now.waiting.clear()

    def _rows(self, now: _Working, round: int) -> list[Row]:
        """A client's values are means over its updates in the round; of their ages the largest is there too."""

        def group(client: str) -> str:
            return self.method.clients[client].group

        rows: list[Row] = []
        for client, found in sorted(now.seen.items()):
            oldest = max(values["staleness"] for values in found)
            values = {**_means(found), "staleness_max": oldest, "updates": len(found)}
            rows += [Row(round, client, group(client), "train", name, value) for name, value in values.items()]
        rows += [Row(round, client, group(client), "server", "refused", 1) for client in sorted(now.refused)]
        counts = {
            "participants": now.accepted,
            "refused": len(now.refused),
            "dropped": now.lost,
            "combined": 1,
            "bytes_down": now.down,
            "bytes_up": now.up,
        }
        return rows + [Row(round, "", "", "server", name, value) for name, value in counts.items()]


def _means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(values[name] for values in found) for name in found[0]}


def clock_rows(round: int, time: float, busy: Mapping[str, float], group: Callable[[str], str]) -> list[Row]:
    """The virtual clock after a round: seconds since the start, and for each client how long it worked in all."""
    rows = [Row(round, client, group(client), "clock", "busy", busy[client]) for client in sorted(busy)]
    return [*rows, Row(round, "", "", "clock", "time", time)]
