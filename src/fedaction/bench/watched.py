"""What processes of this machine use while a benchmark goes on, where Linux says it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Watched:
    """A process that is looked at from time to time."""

    pid: int
    memory: int = 0
    """Bytes of main memory that it had at most; 0: not known."""
    _times: list[float] = field(default_factory=list[float])  # seconds since 1970
    _used: list[float] = field(default_factory=list[float])  # CPU seconds until then

    def look(self) -> None:
        """Notes what it has used so far; nothing where it has ended, or this is no Linux."""
        try:
            words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        except OSError:
            return
        self._times.append(time.time())
        self._used.append((int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK"))
        most = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")]
        self.memory = max([self.memory, *most])

    def cpu_between(self, start: float, end: float) -> float:
        """CPU seconds from one moment to another, both since 1970, by the looks nearest to them."""
        import numpy as np

        if len(self._times) < 2:
            return 0.0
        first, last = np.interp([start, end], self._times, self._used)
        return float(last - first)
