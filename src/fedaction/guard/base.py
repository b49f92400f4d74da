"""What a guard is."""

from __future__ import annotations

from typing import Protocol

from fedaction.federation.state import Job, Report, Update


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
