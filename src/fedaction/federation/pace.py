"""How fast some work goes, and how long the rest of it may take."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

_REMEMBERED = 32  # steps whose speed counts: the first are slow, and epochs may become longer


class Pace:
    """How fast some work goes, and so how long the rest of it takes."""

    def __init__(self, done: int, total: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`total`: None as long as it is not known."""
        self.begun, self.done, self.total = done, done, total
        self._clock, self.start = clock, clock()
        self._steps: deque[tuple[float, int]] = deque([(self.start, done)], maxlen=_REMEMBERED)

    def advance(self, done: int, total: int | None = None) -> None:
        """So much is done now."""
        self.done, self.total = done, self.total if total is None else total
        self._steps.append((self._clock(), done))

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self._clock() - self.start

    @property
    def seconds_left(self) -> float | None:
        """An estimate by the last steps; None where nothing is known yet, or nothing is left."""
        (first, before), (last, done) = self._steps[0], self._steps[-1]
        if self.total is None or done <= before or done >= self.total:
            return None
        return max(0.0, (self.total - done) * (last - first) / (done - before) - (self._clock() - last))

    def say_left(self) -> str:
        """The same in words: "about 3 min left", or nothing."""
        seconds = self.seconds_left
        return "" if seconds is None else f"about {say_duration(seconds)} left"


def say_duration(seconds: float) -> str:
    """A time as people say it: 5 s, 40 s, 3 min, 2.5 h."""
    if seconds < 10:
        return f"{max(1, round(seconds))} s"
    if seconds < 90:
        return f"{10 * round(seconds / 10)} s"
    if seconds < 90 * 60:
        return f"{max(2, round(seconds / 60))} min"
    return f"{seconds / 3600:.1f} h"
