"""The SuperLink that a run goes through: one of its own, or one that is there already."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from fedaction.engines.flower.gate import is_open
from fedaction.engines.flower.launch import ServerKeys, answers, open_superlink, stop


class Link(Protocol):
    """A SuperLink on this machine."""

    @property
    def own(self) -> bool:
        """Whether it is this run's alone, and is started and ended with it."""
        ...

    def open(self) -> None:
        """Comes back as soon as it answers; a ValueError where it does not."""
        ...

    def has_ended(self, seconds: float = 0.0) -> bool:
        """Whether it has ended, or does within a time: those who need it may notice before we do."""
        ...

    def close(self) -> None:
        """Leaves it."""
        ...


@dataclass
class OwnLink:
    """A `Link` that is started here, and started again where it has ended."""

    home: Path
    """Flower's own folder."""
    host: str
    """Where it listens."""
    port: int
    log: IO[bytes]
    keys: ServerKeys | None = None
    own: bool = True
    _process: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """See `Link.open`."""
        self._process = open_superlink(self.home, self.host, self.port, self.log, self.keys)
        if is_open(self.port, self.keys is not None):
            self.close()
            raise ValueError(
                "whoever reaches the SuperLink's port could have this machine run a program: its gate does not "
                "close. Is this a version of Flower that fedaction was tested with?"
            )

    def has_ended(self, seconds: float = 0.0) -> bool:
        """See `Link.has_ended`."""
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """See `Link.close`."""
        if self._process is not None:
            stop(self._process)


@dataclass
class GivenLink:
    """A `Link` that somebody else keeps running: it is waited for, never started or ended."""

    port: int
    keys: ServerKeys | None = None
    patience: float = 180.0
    """Seconds that it has to answer."""
    own: bool = False

    def open(self) -> None:
        """See `Link.open`."""
        end = time.monotonic() + self.patience
        while not answers(self.port, self.keys):
            if time.monotonic() > end:
                how = "without encryption" if self.keys is None else f"with the certificate of {self.keys.folder}"
                raise ValueError(
                    f"no SuperLink answers at 127.0.0.1:{self.port} {how}; start it, or leave --superlink out: then "
                    "one is started"
                )
            time.sleep(0.5)
        if is_open(self.port, self.keys is not None):
            raise ValueError(
                f"whoever reaches port {self.port} can have the SuperLink there run a program on this machine, since "
                "Flower's Control API is open. Start it with `python -m fedaction.engines.flower.node superlink` in "
                "place of `flower-superlink`, and the same options, or leave --superlink out: then one is started"
            )

    def has_ended(self, seconds: float = 0.0) -> bool:
        """See `Link.has_ended`. One that is only slow to answer is asked until the time is over."""
        end = time.monotonic() + seconds
        while not answers(self.port, self.keys):
            if time.monotonic() >= end:
                return True
            time.sleep(0.2)
        return False

    def close(self) -> None:
        """See `Link.close`. It stays as it is."""
