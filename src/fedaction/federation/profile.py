"""Where a run's time goes: seconds of every kind of work, by round."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch

STEPS = "steps"
"""The section of training steps: what all the rest is there for."""
OTHER = "other"
"""The section of whatever has none of its own."""
_WAIT = "waiting"
_WARM = 2  # rounds that a run takes to get going


@dataclass(frozen=True)
class SectionTime:
    """A line of `profile.json`."""

    name: str
    seconds: float
    share: float
    """Of the wall time."""
    per_round: float
    """Seconds of a mean round."""


@dataclass(frozen=True)
class ProfileRecord:
    """What `profile.json` holds."""

    wall: float = 0.0
    """Seconds in all."""
    rounds: int = 0
    """Rounds that were done, of all runs together."""
    sections: tuple[SectionTime, ...] = ()
    """The longest first."""
    first: int = 0
    """The first round, and `last` the last, of which `steps` says something: not the two that get a run going."""
    last: int = 0
    steps: float | None = None
    """The share of training steps in those rounds."""


@dataclass(frozen=True)
class _Place:
    """What seconds are counted under; round 0 is all that is no part of a round."""

    run: str
    round: int
    section: str


class Profile:
    """Seconds of nested sections. A section's are its own, without those of sections inside it.

    The thread that makes a profile is the one whose time is explained: its sections sum to the wall time. While it
    waits for other threads (`waiting`), its seconds are shared out by what those were doing.
    """

    def __init__(
        self, now: Callable[[], float] = time.perf_counter, settle: Callable[[], object] | None = None
    ) -> None:
        """Starts the clock.

        Args:
            now: the clock.
            settle: called at the end of every section, so that what a GPU has yet to do counts where it began;
                by default it waits for the GPU, if one is used. A CPU then cannot work ahead of it.
        """
        self._now, self._settle = now, settle or _wait_for_gpu
        self._run, self._round = "", 0
        self._lock, self._own = threading.Lock(), threading.local()
        self._main = threading.get_ident()
        self._seconds: dict[_Place, float] = {}
        self._helpers: dict[_Place, float] = {}
        self._stack = [OTHER]
        self._since = now()

    def section(self, name: str) -> AbstractContextManager[None]:
        """A block of work of this name."""
        return self._measure(name)

    def waiting(self) -> AbstractContextManager[None]:
        """A block in which this thread waits for others that do its work."""
        return self._measure(_WAIT)

    def begin(self, run: str, round: int) -> None:
        """From here on seconds are those of a round of a run; round 0: of none."""
        self._charge()
        self._run, self._round = run, round

    @contextmanager
    def _measure(self, name: str) -> Generator[None]:
        stack = self._sections()
        self._charge()
        stack.append(name)
        try:
            yield
        finally:
            if name != _WAIT:
                self._settle()
            self._charge()
            stack.pop()

    def _sections(self) -> list[str]:
        """The sections that this thread is in, the outermost first."""
        if threading.get_ident() == self._main:
            return self._stack
        return self._own.__dict__.setdefault("stack", [])

    def _charge(self) -> None:
        """Gives the seconds since the last call to the section that this thread is in."""
        now, main, stack = self._now(), threading.get_ident() == self._main, self._sections()
        since = self._since if main else self._own.__dict__.get("since", now)
        if stack:
            place = _Place(self._run, self._round, stack[-1])
            with self._lock:
                seconds = self._seconds if main else self._helpers
                seconds[place] = seconds.get(place, 0.0) + now - since
        if main:
            self._since = now
        else:
            self._own.since = now

    def _shared_out(self) -> dict[_Place, float]:
        """All seconds of the main thread, those of waiting given to what others did in that round."""
        self._charge()
        with self._lock:
            seconds, helpers = dict(self._seconds), dict(self._helpers)
        for place in [place for place in seconds if place.section == _WAIT]:
            work = {p: s for p, s in helpers.items() if (p.run, p.round) == (place.run, place.round)}
            if total := sum(work.values()):
                waited = seconds.pop(place)
                for own, spent in work.items():
                    seconds[own] = seconds.get(own, 0.0) + waited * spent / total
        return seconds

    def record(self) -> ProfileRecord:
        """All of it so far."""
        places = self._shared_out()
        wall = sum(places.values())
        rounds = sorted({(p.run, p.round) for p in places if p.round})
        sections: dict[str, float] = {}
        within: dict[str, float] = {}
        for place, seconds in places.items():
            sections[place.section] = sections.get(place.section, 0.0) + seconds
            if place.round:
                within[place.section] = within.get(place.section, 0.0) + seconds
        first = {run: min(number for name, number in rounds if name == run) for run, _ in rounds}
        last = {run: max(number for name, number in rounds if name == run) for run, _ in rounds}
        start = {run: min(number + _WARM, last[run]) for run, number in first.items()}
        steady = {p: s for p, s in places.items() if p.round and p.round >= start[p.run]}
        steps = sum(s for p, s in steady.items() if p.section == STEPS)
        times = (
            SectionTime(name, own, own / wall if wall else 0.0, within.get(name, 0.0) / max(len(rounds), 1))
            for name, own in sorted(sections.items(), key=lambda item: -item[1])
        )
        return ProfileRecord(
            wall,
            len(rounds),
            tuple(times),
            min(start.values(), default=0),
            max(last.values(), default=0),
            steps / total if (total := sum(steady.values())) else None,
        )


class _Nothing(Profile):
    """Measures nothing, and takes no time for it."""

    def __init__(self) -> None: ...

    def section(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def waiting(self) -> AbstractContextManager[None]:
        return nullcontext()

    def begin(self, run: str, round: int) -> None: ...

    def record(self) -> ProfileRecord:
        return ProfileRecord()


NOTHING: Profile = _Nothing()
"""The profile of those who did not ask for one."""


def say_profile(record: ProfileRecord) -> str:
    """A profile as lines of text: section, seconds, share of the wall time, seconds of a mean round."""
    wide = max([len("section"), *(len(own.name) for own in record.sections)])
    lines = [f"{'section':<{wide}}  {'seconds':>9}  {'of wall':>7}  {'a round':>9}"]
    lines += [
        f"{own.name:<{wide}}  {own.seconds:>9.3f}  {own.share:>7.1%}  {own.per_round:>9.4f}"
        for own in record.sections
    ]
    lines.append(f"{'all':<{wide}}  {record.wall:>9.3f}")
    return "\n".join([*lines, *([f"training steps: {said}"] if (said := say_steps(record)) else [])])


def say_steps(record: ProfileRecord) -> str:
    """The share of training steps in words, such as "88 % of rounds 3 to 20"; "" where there were no rounds."""
    return "" if record.steps is None else f"{100 * record.steps:.0f} % of rounds {record.first} to {record.last}"


def _wait_for_gpu() -> None:
    """Waits for what this thread has asked a GPU for. Not for the whole card: another thread may be recording."""
    if torch.cuda.is_initialized():
        torch.cuda.current_stream().synchronize()
