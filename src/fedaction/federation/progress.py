"""Progress callbacks: how whoever waits is told of long work."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Is called while work goes on; several pieces of work may be told apart by their labels."""

    def start(self, label: str, done: int, total: int, *, unit: str = "", metric: str = "") -> None:
        """Work begins, or resumes after `done` of `total` units.

        Args:
            label: what people call it.
            done: units done already.
            total: units in all.
            unit: what is counted, in the singular ("round"); "": nothing that has a name.
            metric: what the values given to `advance` measure ("accuracy").
        """
        ...

    def advance(self, label: str, done: int, value: float | None = None) -> None:
        """So many units are done; the value of the metric, 0 to 1, if it was taken."""
        ...

    def tell(self, message: str) -> None:
        """What is about to be done, in lines of text."""
        ...

    def warn(self, message: str) -> None:
        """Something the user should know."""
        ...


class Quiet:
    """A `Progress` that says nothing."""

    def start(self, label: str, done: int, total: int, *, unit: str = "", metric: str = "") -> None:
        """See `Progress`."""

    def advance(self, label: str, done: int, value: float | None = None) -> None:
        """See `Progress`."""

    def tell(self, message: str) -> None:
        """See `Progress`."""

    def warn(self, message: str) -> None:
        """See `Progress`."""
