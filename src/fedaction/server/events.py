"""Asynchronous rounds: the server takes answers as they come, on a virtual clock.

What a client will answer is decided when it is asked, so that it may be computed at any time before the server sees
it: jobs in flight are trained a few at a time, in the order in which they arrive.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedaction.engines.base import Engine
from fedaction.federation.clock import Clock
from fedaction.server.federation import Federation, Ledger
from fedaction.server.flights import Flight, InFlight
from fedaction.server.schedule import Turns
from fedaction.server.state import FederationState, Row


class _Now:
    """A federation while its round is under way; changed in place."""

    def __init__(self, federation: Federation, state: FederationState) -> None:
        self.server, self.time, self.launched = state.server, state.time, state.launched
        self.flights = InFlight(state.flights)
        self.ledger = Ledger(federation, state)
        self.waiting = self.lost = 0

    def freeze(self, round: int) -> FederationState:
        """The state after the round."""
        visits, busy, flights = self.ledger.visits, self.ledger.busy, self.flights.values()
        return FederationState(round, self.server, visits, self.time, busy, self.launched, flights)


@dataclass(frozen=True)
class Events:
    """Advances a federation by a round: so many accepted updates as make one."""

    federation: Federation
    """Whose; its method combines updates asynchronously."""
    turns: Turns
    """Who is asked when."""
    clock: Clock
    """How long jobs take."""
    updates: int
    """Accepted updates that make a round; more where the method combines several at a time."""
    ahead: int = 1
    """How many jobs are trained at a time; the result does not depend on it."""

    def advance(self, state: FederationState, engine: Engine, round: int) -> tuple[FederationState, list[Row]]:
        """One round: the state after it, and its rows."""
        now = _Now(self.federation, state)
        if not now.launched:
            for client in self.turns.first(self.federation.members):
                self._launch(now, client, round)
        while len(now.ledger.accepted) < self.updates or now.waiting:
            flight = now.flights.next()
            if flight.update is None and not flight.span.lost:
                self._train(now, engine)
            else:
                self._land(now, engine, round)
        counts = {"dropped": now.lost, "combined": 1}
        return now.freeze(round), now.ledger.rows(round, now.time, counts, ages=True)

    def _launch(self, now: _Now, client: str, round: int) -> None:
        """Sends a client the server's present model. The job carries the round and version of this moment."""
        now.launched += 1
        job = self.federation.job(now.server, client, round, now.launched)
        first = client not in now.ledger.visits
        now.ledger.send(job)
        now.flights.add(Flight(job, self.clock.span(client, now.launched, now.time, first=first)))

    def _train(self, now: _Now, engine: Engine) -> None:
        """Computes the next answers that are not known yet."""
        flights = now.flights.unknown(self.ahead)
        for flight, update in zip(flights, engine.train([flight.job for flight in flights]), strict=True):
            now.flights.answer(flight, update)

    def _land(self, now: _Now, engine: Engine, round: int) -> None:
        """The clock goes on to the next arrival: its answer is used, and somebody is asked in its place."""
        flight = now.flights.land()
        client = flight.job.client
        now.time = flight.span.finish
        now.ledger.work(client, flight.span)
        if flight.update is None:
            now.lost += 1
        elif now.ledger.receive(flight.update, flight.job, now.server, round):
            engine.commit([client])
            now.waiting += 1
            if now.waiting >= self.federation.method.buffer:
                now.server, now.waiting = now.ledger.combine(now.server), 0
        else:
            engine.drop([client])
        members, working = self.federation.members, now.flights.clients
        self._launch(now, self.turns.successor(client, now.launched + 1, members, working), round)
