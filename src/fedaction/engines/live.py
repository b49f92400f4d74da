"""What an engine does besides, where sites work in their own time: it sends jobs, and gives answers as they come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from fedaction.engines.base import Engine
from fedaction.federation.state import Job, Update


@dataclass(frozen=True)
class Answer:
    """What became of a job."""

    number: int
    """The job's."""
    update: Update | None
    """Its result; None: there will be none."""
    reason: str = ""
    """Why there is none."""


@runtime_checkable
class LiveEngine(Engine, Protocol):
    """An `Engine` whose sites work in their own time, each at one job."""

    def send(self, job: Job) -> None:
        """Sends a job to its client, and does not wait."""
        ...

    def next(self) -> Answer | None:
        """The next answer, as they come; None where there is none yet, after a moment's wait."""
        ...

    def is_there(self, client: str) -> bool:
        """Whether a client can be asked now."""
        ...
