"""How whoever waits hears of long work."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Hears of a run as it goes."""

    def started(self, label: str, round: int, rounds: int) -> None:
        """A run begins, or goes on after `round` rounds."""
        ...

    def advanced(self, label: str, round: int, accuracy: float | None) -> None:
        """A round is done; the mean test accuracy if it was taken."""
        ...

    def warned(self, message: str) -> None:
        """Something the user should know."""
        ...


class Quiet:
    """A `Progress` that says nothing."""

    def started(self, label: str, round: int, rounds: int) -> None:
        """See `Progress`."""

    def advanced(self, label: str, round: int, accuracy: float | None) -> None:
        """See `Progress`."""

    def warned(self, message: str) -> None:
        """See `Progress`."""
