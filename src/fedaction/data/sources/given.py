"""Clients that a program gives."""

from __future__ import annotations

from fedaction.data.client import ClientData
from fedaction.data.sources.base import Source, Tell


class GivenSource(Source):
    """Clients that a Python program made (`fedaction.clients`) and gave to `fedaction.run`."""

    given_clients: tuple[str, ...] = ()
    """Their names."""
    given_sha256: str = ""
    """A hash of all that they hold: a run is resumed with the same data, or not at all."""

    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """Refuses: only the program has them."""
        raise ValueError(
            "this run's clients were given by a program, and are not kept: resume it with that program, by the same "
            "fedaction.run(..., out=DIR)"
        )

    def fingerprint(self, seed: int) -> dict[str, str]:
        """See `Source.fingerprint`."""
        return {"the program's clients": self.given_sha256}
