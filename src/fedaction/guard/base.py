"""What a guard is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fedaction.federation.average import Averages, Parts
from fedaction.federation.scope import Scope
from fedaction.federation.state import Job, Report, Update, Weight


class Refused(ValueError):
    """An update that is not used; the message says whose, and why."""


class Guard(Protocol):
    """A filter of updates. A round has one list of them, and every update passes them in that order."""

    def __call__(self, update: Update, job: Job, report: Report) -> Update:
        """The update as it goes on, or `Refused`.

        Args:
            update: what a client sent.
            job: what it had been given.
            report: the update's scalars.
        """
        ...


class Gatherer(Protocol):
    """What makes averages of the updates that have passed the guards: a plain `Averager`, or a robust one."""

    @property
    def marks(self) -> Mapping[str, list[str]]:
        """Clients by what was done to their updates, known once there are averages."""
        ...

    def add(self, update: Update, job: Job, weight: Weight, scopes: Mapping[str, Scope], parts: Parts) -> None:
        """Takes an update; see `Averager.add`."""
        ...

    def averages(self) -> Averages:
        """Of all that was added."""
        ...
