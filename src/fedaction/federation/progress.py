"""Progress callbacks: how whoever waits is told of long work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

DATA = "data"
"""What reading or making data is called where progress is shown."""
CONTROLS = "controls"
"""What fitting simple classifiers to compare with is called there."""


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


def tell_of(progress: Progress, label: str) -> Callable[[int, int], None]:
    """A callback that takes what is done and what there is, and shows it as work of that label.

    Where several things are done one after another (a dataset, then the next), each is shown by itself.
    """
    parts, last, whole = 0, 0, -1

    def tell(done: int, total: int) -> None:
        nonlocal parts, last, whole
        if total != whole or done < last:
            parts, whole = parts + 1, total
            progress.start(name(), 0, total)
        last = done
        progress.advance(name(), done, None)

    def name() -> str:
        return label if parts == 1 else f"{label}, part {parts}"

    return tell
