"""What programs and processes take of memory and processors while they are watched, where Linux says it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

MARK = "FEDACTION_WATCHED"
"""The environment variable that all processes of a watched program inherit."""
_PROC = Path("/proc")
_PAUSE = 0.2  # seconds between two looks
_SHARE = 0.1  # of the time, at most, is spent on adding up memory


@dataclass(frozen=True)
class Watched:
    """What a program took."""

    start: float
    """On the clock of `time.monotonic`, which all processes share."""
    seconds: float
    """Until it ended."""
    status: int | None
    """Its exit status; None: it was stopped, as it took too long."""
    memory: int | None
    """Bytes that its processes held together at most; None: the system does not say. See `_Family.weigh`."""
    work: tuple[tuple[float, float], ...]
    """Times, and seconds of processors that its processes had used by then."""
    others: float
    """Processors that everybody else used meanwhile, on average."""

    def work_by(self, when: float) -> float | None:
        """Seconds of processors used by a time, between two looks by a straight line."""
        return _read_between(self.work, when)


@dataclass
class ProcessUse:
    """What a process that goes on has used, by looks at it from time to time."""

    pid: int
    memory: int = 0
    """Bytes of main memory that it had at most; 0: not known."""
    _work: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])  # since 1970; until then

    def look(self) -> None:
        """Notes what it has used so far; nothing where it has ended, or this is no Linux."""
        place = _PROC / str(self.pid)
        with suppress(OSError, ValueError, IndexError):
            used, sizes = _read_used(_read_stat(place)), _read_sizes(place / "status")
            self._work.append((time.time(), used))
            self.memory = max(self.memory, sizes.get("VmHWM", 0))

    def cpu_between(self, start: float, end: float) -> float:
        """CPU seconds from one moment to another, both since 1970, of the time in which it was looked at."""
        if len(self._work) < 2:
            return 0.0
        first, last = self._work[0][0], self._work[-1][0]
        before, after = (_read_between(self._work, min(max(when, first), last)) for when in (start, end))
        return (after or 0.0) - (before or 0.0)


def watch(command: Sequence[str], environment: Mapping[str, str], log: Path, limit: float) -> Watched:
    """Runs a program to its end, or for `limit` seconds; what it prints goes to `log`. Nothing of it stays behind."""
    mark = uuid.uuid4().hex
    with log.open("wb") as out:
        busy, start = _busy_seconds(), time.monotonic()
        main = subprocess.Popen(
            command, env={**environment, MARK: mark}, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
        family = _Family(main.pid, mark)
        family.find()
        try:
            again = start
            while main.poll() is None and (now := time.monotonic()) < start + limit:
                family.count()
                if now >= again:
                    family.weigh()
                    again = now + (time.monotonic() - now) / _SHARE
                with suppress(subprocess.TimeoutExpired):
                    main.wait(_PAUSE)
            status, seconds = main.poll(), time.monotonic() - start
        finally:
            family.count()
            _stop(main, family)
    used = family.work[-1][1]
    others = 0.0 if busy is None else max(0.0, (_busy_seconds() or busy) - busy - used) / seconds
    return Watched(start, seconds, status, family.most or None, tuple(family.work), others)


@dataclass
class _Family:
    """The processes of a program: all that come of its first one, or have its mark."""

    root: int
    mark: str
    most: int = 0
    work: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    _members: dict[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])
    _strangers: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])

    def find(self) -> list[tuple[int, int]]:
        """Those alive, each by its number and when it began, for numbers are used again; what they used is noted."""
        alive: dict[tuple[int, int], int] = {}
        for entry in _PROC.glob("[0-9]*"):
            with suppress(OSError, ValueError, IndexError):
                words = _read_stat(entry)
                key = (int(entry.name), int(words[19]))
                if words[0] != "Z":
                    alive[key] = int(words[1])
                if key in self._members:
                    self._members[key] = _read_used(words)
        if not self._members:  # the first is alive, or not yet waited for, when it is looked for the first time
            self._members |= {key: 0.0 for key in alive if key[0] == self.root}
        known = {key[0] for key in alive if key in self._members}
        fresh = True
        while fresh:
            fresh = False
            for key, parent in alive.items():
                if key not in self._members and (parent in known or self._is_marked(key)):
                    self._members[key], fresh = 0.0, True
                    known.add(key[0])
        return [key for key in alive if key in self._members]

    def count(self) -> None:
        """Notes work."""
        self.find()
        self.work.append((time.monotonic(), sum(self._members.values())))

    def weigh(self) -> None:
        """Notes memory.

        What processes share with each other counts once. Pages of files are those of the process that has most of
        them: others on the machine may use the same libraries, so that a proportional share of them says little.
        """
        held, files = 0, 0
        for number, _ in self.find():
            with suppress(OSError, ValueError):
                rollup, status = (_read_sizes(_PROC / str(number) / name) for name in ("smaps_rollup", "status"))
                held += rollup.get("Pss_Anon", 0) + rollup.get("Pss_Shmem", 0)
                files = max(files, status.get("RssFile", 0))
        self.most = max(self.most, held + files)

    def _is_marked(self, key: tuple[int, int]) -> bool:
        if key in self._strangers:
            return False
        with suppress(OSError):
            if f"{MARK}={self.mark}".encode() in (_PROC / str(key[0]) / "environ").read_bytes():
                return True
        self._strangers.add(key)
        return False


def _read_between(work: Sequence[tuple[float, float]], when: float) -> float | None:
    """What was used by a time, from times and what was used by them."""
    for (a, x), (b, y) in pairwise(work):
        if a <= when <= b:
            return x + (y - x) * (when - a) / (b - a) if b > a else y
    return None


def _read_stat(place: Path) -> list[str]:
    """What a process's `stat` says behind its name, which may have spaces and brackets in it."""
    return (place / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()


def _read_used(words: Sequence[str]) -> float:
    """CPU seconds, from those words."""
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _read_sizes(path: Path) -> dict[str, int]:
    """Bytes by name, from a file of lines such as "Rss: 12 kB"."""
    lines = (line.split() for line in path.read_text(encoding="ascii", errors="replace").splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) == 3 and words[2] == "kB"}


def _stop(main: subprocess.Popen[bytes], family: _Family) -> None:
    """Ends what is left of a program: asks, waits, then insists."""
    for sign, seconds in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        end = time.monotonic() + seconds
        if main.poll() is None:
            main.send_signal(sign)
        for number, _ in family.find():
            with suppress(OSError):
                os.kill(number, sign)
        while (main.poll() is None or family.find()) and time.monotonic() < end:
            time.sleep(0.1)


def _busy_seconds() -> float | None:
    """Seconds that all processors together have been busy since the machine began."""
    try:
        words = (_PROC / "stat").read_text(encoding="ascii", errors="replace").split("\n", 1)[0].split()
        numbers = [int(word) for word in words[1:9]]
    except (OSError, ValueError):
        return None
    return (sum(numbers) - numbers[3] - numbers[4]) / os.sysconf("SC_CLK_TCK")
