"""Asynchronous rounds: the server takes answers as they come, on a virtual clock.

What a client will answer is decided when it is asked, so that it may be computed at any time before the server sees
it: jobs in flight are trained a few at a time, in the order in which they arrive.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedaction.engines.base import Engine
from fedaction.federation.clock import Clock
from fedaction.server.course import Course
from fedaction.server.federation import Federation
from fedaction.server.flights import Flight
from fedaction.server.schedule import Turns
from fedaction.server.state import FederationState, Row


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
        course = Course(self.federation, state)
        if not course.launched:
            for client in self.turns.first(self.federation.members):
                self._launch(course, client, round)
        while not course.is_over(self.updates):
            flight = course.flights.next()
            if flight.update is None and not flight.span.lost:
                self._train(course, engine)
            else:
                self._land(course, engine, round)
        return course.freeze(round)

    def _launch(self, course: Course, client: str, round: int) -> None:
        """Sends a client the server's present model."""
        first = client not in course.ledger.visits
        job = course.give_out(client, round)
        course.flights.add(Flight(job, self.clock.span(client, job.number, course.time, first=first)))

    def _train(self, course: Course, engine: Engine) -> None:
        """Computes the next answers that are not known yet."""
        flights = course.flights.unknown(self.ahead)
        for flight, update in zip(flights, engine.train([flight.job for flight in flights]), strict=True):
            course.flights.answer(flight, update)

    def _land(self, course: Course, engine: Engine, round: int) -> None:
        """The clock goes on to the next arrival: its answer is used, and somebody is asked in its place."""
        flight = course.flights.land()
        course.settle(flight.job, flight.span, flight.update, engine, round)
        members, working = self.federation.members, course.flights.clients
        client = self.turns.successor(flight.job.client, course.launched + 1, members, working)
        self._launch(course, client, round)
