"""An engine whose updates somebody looks at as they pass: to measure them, or to keep some of their tensors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from fedaction.engines.base import SimulatedEngine
from fedaction.engines.store import LocalStore
from fedaction.evaluation.site import Evaluation, Question
from fedaction.federation.state import Job, Update

Observer = Callable[[Job, Update, LocalStore], Update]
"""Sees a job, its update and what the client keeps; gives the update, with more metrics perhaps."""


@dataclass(frozen=True)
class ObservedEngine:
    """Another engine, with observers of what it trains."""

    engine: SimulatedEngine
    observers: Sequence[Observer]

    @property
    def store(self) -> LocalStore:
        """See `SimulatedEngine.store`."""
        return self.engine.store

    def train(self, jobs: Iterable[Job]) -> Iterator[Update]:
        """See `Engine.train`. Of the jobs, only those that the engine has begun are held."""
        started: deque[Job] = deque()

        def note() -> Iterator[Job]:
            for job in jobs:
                started.append(job)
                yield job

        for update in self.engine.train(note()):
            job = started.popleft()
            for observe in self.observers:
                update = observe(job, update, self.store)
            yield update

    def evaluate(self, jobs: Iterable[Job], question: Question = Question()) -> Iterator[Evaluation]:  # noqa: B008
        """See `Engine.evaluate`."""
        return self.engine.evaluate(jobs, question)

    def commit(self, clients: Iterable[str]) -> None:
        """See `Engine.commit`."""
        self.engine.commit(clients)

    def drop(self, clients: Iterable[str]) -> None:
        """See `Engine.drop`."""
        self.engine.drop(clients)

    def close(self) -> None:
        """See `Engine.close`."""
        self.engine.close()
