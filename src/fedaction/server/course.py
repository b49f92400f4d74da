"""An asynchronous round under way: what the server has, who works, and what becomes of an answer."""

from __future__ import annotations

from fedaction.engines.base import Engine
from fedaction.federation.clock import Span
from fedaction.federation.state import Job, Update
from fedaction.server.federation import Federation, Ledger
from fedaction.server.flights import InFlight
from fedaction.server.state import FederationState, Row


class Course:
    """A federation while its round is under way; changed in place."""

    def __init__(self, federation: Federation, state: FederationState) -> None:
        """The round begins where `state` ends."""
        self._federation = federation
        self.server, self.time, self.launched = state.server, state.time, state.launched
        self.flights = InFlight(state.flights)
        self.ledger = Ledger(federation, state)
        self._waiting = self._lost = 0

    def is_over(self, updates: int) -> bool:
        """Whether so many updates were accepted, and none waits in a buffer."""
        return len(self.ledger.accepted) >= updates and not self._waiting

    def give_out(self, client: str, round: int) -> Job:
        """A job for a client: the server's present model. It carries the round and version of this moment."""
        self.launched += 1
        job = self._federation.job(self.server, client, round, self.launched)
        self.ledger.send(job)
        return job

    def settle(self, job: Job, span: Span, update: Update | None, engine: Engine, round: int) -> bool:
        """A job is over: whether its answer is used. Without one (None) the job is lost."""
        self.time = span.finish
        self.ledger.work(job.client, span)
        if update is None:
            self._lost += 1
            return False
        if not self.ledger.receive(update, job, self.server, round):
            engine.drop([job.client])
            return False
        engine.commit([job.client])
        self._waiting += 1
        if self._waiting >= self._federation.method.buffer:
            self.server, self._waiting = self.ledger.combine(self.server), 0
        return True

    def freeze(self, round: int) -> tuple[FederationState, list[Row]]:
        """The state after the round, and its rows."""
        visits, busy, flights = self.ledger.visits, self.ledger.busy, self.flights.values()
        state = FederationState(round, self.server, visits, self.time, busy, self.launched, flights)
        return state, self.ledger.rows(round, self.time, {"dropped": self._lost, "combined": 1}, ages=True)
