"""The asynchronous loop: answers are combined as they come, on the virtual clock.

What a client will answer is decided when it is asked, so that it may be computed at any time before the server sees
it: jobs in flight are trained a few at a time, in the order in which they arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from fedaction.engines.base import Engine
from fedaction.federation.events import Events, Flight, earliest
from fedaction.federation.staleness import staleness_of
from fedaction.federation.state import Job, Member, Update
from fedaction.federation.tree import Tree, tree_bytes
from fedaction.guard.validate import problem
from fedaction.methods.base import Method
from fedaction.runs.checkpoint import RunState
from fedaction.runs.metrics import Row


@dataclass
class _Tally:
    """What happened in a round."""

    down: int = 0
    up: int = 0
    lost: int = 0
    refused: dict[str, str] = field(default_factory=dict[str, str])
    seen: dict[str, list[Mapping[str, float]]] = field(default_factory=dict[str, list[Mapping[str, float]]])

    @property
    def accepted(self) -> int:
        return sum(len(found) for found in self.seen.values())


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
        local: a client's LOCAL tensors, as they are or as they start.
        frozen: bytes of FROZEN tensors that a client is sent the first time.
    """

    method: Method
    members: Sequence[Member]
    events: Events
    updates: int
    oldest: int | None
    ahead: int
    local: Callable[[RunState, str], Tree]
    frozen: Callable[[str], int]

    def advance(self, state: RunState, engine: Engine, round: int) -> tuple[RunState, list[Row], list[str]]:
        """One round: the state after it, its rows, and what the user should know."""
        tally = _Tally()
        if not state.launched:
            for client in self.events.first(self.members):
                state = self._launch(state, client, tally)
        waiting: list[Update] = []
        while tally.accepted < self.updates or waiting:
            flight = earliest(state.flights)
            if flight.update is None and not flight.span.lost:
                state = self._train(state, engine, round)
                continue
            state = self._land(state, flight)
            if flight.update is None:
                tally.lost += 1
            else:
                tally.up += tree_bytes(flight.update.tree)
                reason = self._refusal(state, flight.update)
                if reason:
                    tally.refused[flight.client] = reason
                else:
                    state = self._accept(state, flight.update, waiting, tally)
            working = [other.client for other in state.flights]
            successor = self.events.successor(flight.client, state.launched + 1, self.members, working)
            state = self._launch(state, successor, tally)
        return replace(state, round=round), self._rows(state, round, tally), list(tally.refused.values())

    def _launch(self, state: RunState, client: str, tally: _Tally) -> RunState:
        """Sends a client the server's present model."""
        number, info = state.launched + 1, self.method.clients[client]
        payload = self.method.payload(state.server, info)
        tally.down += tree_bytes(payload) + (0 if state.visits.get(client) else self.frozen(client))
        span = self.events.span(client, number, state.time)
        flight = Flight(client, number, state.server.version, span, payload)
        visits = {**state.visits, client: state.visits.get(client, 0) + 1}
        return replace(state, launched=number, flights=(*state.flights, flight), visits=visits)

    def _train(self, state: RunState, engine: Engine, round: int) -> RunState:
        """Computes the next answers that are not known yet."""
        pending = [f for f in sorted(state.flights, key=lambda f: f.place) if f.update is None and not f.span.lost]
        jobs = [
            Job(
                flight.client,
                self.method.clients[flight.client].group,
                flight.version,
                round,
                flight.payload,
                self.local(state, flight.client),
                flight.number,
            )
            for flight in pending[: self.ahead]
        ]
        found = {update.client: update for update in engine.train(jobs)}
        flights = (replace(f, update=found[f.client], payload={}) if f.client in found else f for f in state.flights)
        return replace(state, flights=tuple(flights))

    def _land(self, state: RunState, flight: Flight) -> RunState:
        """The clock goes on to a flight's arrival."""
        busy = {**state.busy, flight.client: state.busy.get(flight.client, 0.0) + flight.span.busy}
        flights = tuple(other for other in state.flights if other.number != flight.number)
        return replace(state, time=flight.span.finish, busy=busy, flights=flights)

    def _refusal(self, state: RunState, update: Update) -> str:
        """Why an update is not used; "" where it is."""
        info = self.method.clients[update.client]
        expected = Job(update.client, info.group, 0, 0, self.method.payload(state.server, info), {})
        reason = problem(update, expected) or ""
        try:
            age = staleness_of(state.server, update)
        except ValueError as error:
            return str(error)
        if not reason and self.oldest is not None and age > self.oldest:
            reason = f"client {update.client!r} sent an update {age} server updates old; {self.oldest} is the most"
        return reason

    def _accept(self, state: RunState, update: Update, waiting: list[Update], tally: _Tally) -> RunState:
        """Notes an update, and combines those that wait once they are enough."""
        age = float(staleness_of(state.server, update))
        tally.seen.setdefault(update.client, []).append({**update.metrics, "staleness": age})
        waiting.append(replace(update, local={}))
        if update.local:
            state = replace(state, locals={**state.locals, update.client: update.local})
        if len(waiting) < self.method.buffered:
            return state
        server = self.method.combine(state.server, sorted(waiting, key=lambda u: u.client))
        waiting.clear()
        return replace(state, server=server)

    def _rows(self, state: RunState, round: int, tally: _Tally) -> list[Row]:
        """A client's values are means over its updates in the round."""

        def group(client: str) -> str:
            return self.method.clients[client].group

        rows: list[Row] = []
        for client, found in sorted(tally.seen.items()):
            rows += [Row(round, client, group(client), "train", n, v) for n, v in _means(found).items()]
            rows.append(Row(round, client, group(client), "train", "updates", len(found)))
        rows += [Row(round, client, group(client), "server", "refused", 1) for client in sorted(tally.refused)]
        counts = {
            "participants": tally.accepted,
            "refused": len(tally.refused),
            "dropped": tally.lost,
            "combined": 1,
            "bytes_down": tally.down,
            "bytes_up": tally.up,
        }
        return rows + [Row(round, "", "", "server", name, value) for name, value in counts.items()]


def _means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(values[name] for values in found) for name in found[0]}


def clock_rows(round: int, time: float, busy: Mapping[str, float], group: Callable[[str], str]) -> list[Row]:
    """The virtual clock after a round: seconds since the start, and for each client how long it worked in all."""
    rows = [Row(round, client, group(client), "clock", "busy", busy[client]) for client in sorted(busy)]
    return [*rows, Row(round, "", "", "clock", "time", time)]
