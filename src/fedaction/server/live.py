"""Asynchronous rounds in real time: the server takes answers as they really come, and asks again at once.

A sibling of `Events`, whose clock is virtual: the same books, the same jobs, the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fedaction.engines.base import Engine
from fedaction.engines.live import Answer, LiveEngine
from fedaction.federation.clock import Span
from fedaction.server.course import Course
from fedaction.server.federation import Federation
from fedaction.server.flights import Flight
from fedaction.server.schedule import Turns
from fedaction.server.state import FederationState, Row


class NoAnswerError(RuntimeError):
    """No client of an asynchronous run answers any more, and why."""


@dataclass(frozen=True)
class _Failed:
    """A client whose last jobs came to nothing."""

    times: int
    """How many in a row."""
    until: float
    """When it is asked again, on the run's clock."""
    reason: str
    """Of the last one."""


@dataclass
class Live:
    """Advances a federation by a round: so many accepted updates as make one, whoever sends them.

    Jobs that are in flight in a state are sent again by the first round of this object, as they were given out: a
    site that has done one already answers the same, and it is counted once.
    """

    federation: Federation
    """Whose; its method combines updates asynchronously."""
    turns: Turns
    """Who is asked when."""
    updates: int
    """Accepted updates that make a round; more where the method combines several at a time."""
    now: Callable[[], float] = time.monotonic
    """Seconds from some moment on."""
    rest: float = 2.0
    """Seconds before a client whose job came to nothing is asked again; after the second in a row twice as many."""
    tries: int = 3
    """Where every client has failed so many times in a row, or is gone, the run cannot go on."""
    _began: float | None = None  # what `now` said when the run's clock was at 0
    _failed: dict[str, _Failed] = field(default_factory=dict[str, _Failed])

    def advance(self, state: FederationState, engine: Engine, round: int) -> tuple[FederationState, list[Row]]:
        """One round: the state after it, and its rows. A NoAnswerError where no client is left that answers."""
        if not isinstance(engine, LiveEngine):
            raise TypeError(f"{type(engine).__name__} cannot give answers as they come")
        course = Course(self.federation, state)
        if self._began is None:
            self._began = self.now() - state.time
            for flight in state.flights:
                engine.send(flight.job)
        if not course.launched:
            for client in self.turns.first(self.federation.members):
                self._launch(course, engine, client, round)
        self._ask_idle(course, engine, round)
        while not course.is_over(self.updates):
            self._check_hope(course, engine)
            answer = engine.next()
            if answer is not None:
                self._land(course, engine, answer, round)
            self._ask_idle(course, engine, round)
        return course.freeze(round)

    def _launch(self, course: Course, engine: LiveEngine, client: str, round: int) -> None:
        """Sends a client the server's present model."""
        job = course.give_out(client, round)
        course.flights.add(Flight(job, Span(self._time(), float("inf"), 0.0)))
        engine.send(job)

    def _ask_idle(self, course: Course, engine: LiveEngine, round: int) -> None:
        """Asks those who are there and have nothing to do, as many as may work at a time."""
        names, working = [member.id for member in self.federation.members], course.flights.clients
        while len(working) < min(self.turns.at_once or len(names), len(names)):
            idle = [c for c in names if c not in working and engine.is_there(c) and self._has_rested(c)]
            if not idle:
                break
            self._launch(course, engine, self.turns.draw(idle, course.launched + 1), round)

    def _land(self, course: Course, engine: LiveEngine, answer: Answer, round: int) -> None:
        """An answer has come; one to a job that is not in flight is nobody's."""
        flight = course.flights.take(answer.number)
        if flight is None:
            return
        client, start, finish = flight.job.client, flight.span.start, self._time()
        span = Span(start, finish, finish - start, lost=answer.update is None)
        if answer.update is None:
            self.federation.warn(f"round {round}: {answer.reason}; its job is lost")
        if course.settle(flight.job, span, answer.update, engine, round):
            self._failed.pop(client, None)
            return
        times = self._failed[client].times + 1 if client in self._failed else 1
        reason = answer.reason or f"the last update of client {client!r} was refused"
        self._failed[client] = _Failed(times, finish + self.rest * times, reason)

    def _has_rested(self, client: str) -> bool:
        return client not in self._failed or self._time() >= self._failed[client].until

    def _check_hope(self, course: Course, engine: LiveEngine) -> None:
        """Ends a run that nobody answers any more."""
        for member in self.federation.members:
            failed = self._failed.get(member.id)
            absent = member.id not in course.flights.clients and not engine.is_there(member.id)
            if not absent and (failed is None or failed.times < self.tries):
                return
        reasons = "; ".join(failed.reason for _, failed in sorted(self._failed.items())) or "none is there"
        raise NoAnswerError(f"no client is left that answers: {reasons}. Start the sites again, then resume")

    def _time(self) -> float:
        """The run's clock: seconds since it began, without those in which no server ran."""
        return self.now() - (self._began or 0.0)
