"""What a signal store holds, in words and numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedaction.data.dataset import Issue, count_issues
from fedaction.data.imports import list_counts, list_issues
from fedaction.data.signals.store import load_signals


@dataclass(frozen=True)
class SignalSummary:
    """What a signal store holds and what was wrong with its files."""

    source: str
    device: str
    channels: tuple[str, ...]
    rate_hz: float | None
    units: str  # what accelerations were taken for
    recordings: int
    seconds: float | None  # of all recordings; None where the rate is not known
    window: int  # readings; 0: a recording is one sample
    hop: int
    windows: int  # samples
    classes: dict[str, int]  # samples of each class
    subjects: dict[str, int]  # samples of each person; empty when not known
    issues: tuple[Issue, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """How often each kind of issue occurred."""
        return count_issues(self.issues)

    def __str__(self) -> str:
        rate = "rate not known" if self.rate_hz is None else f"{self.rate_hz:g} Hz"
        length = "" if self.seconds is None else f", {self.seconds / 60:.1f} min"
        cut = "whole recordings"
        if self.window:
            spans = (self.window, self.hop)
            second = (
                "" if self.rate_hz is None else " ({:g} s, every {:g} s)".format(*(n / self.rate_hz for n in spans))
            )
            cut = f"windows of {self.window} readings, every {self.hop}{second}"
        lines = [
            f"{self.source}: {self.recordings} recordings{length}, {self.windows} samples, {len(self.classes)} "
            "classes",
            f"  device    {self.device or 'without a name'} (inertial), {rate}; {cut}",
            f"  channels  {', '.join(self.channels)}",
            f"  units     {self.units}",
            f"  classes   {list_counts(self.classes)}",
            f"  subjects  {list_counts(self.subjects) if self.subjects else 'not known'}",
        ]
        return "\n".join([*lines, *list_issues(self.issues), *(f"  note: {note}" for note in self.notes)])


def inspect_signals(path: str | Path) -> SignalSummary:
    """What a signal store holds, and what was wrong when it was imported."""
    item = load_signals(path)
    samples = np.array([count_windows(len(own), item.window, item.hop) for own in item.recordings])
    readings = sum(len(own) for own in item.recordings)
    per_class = np.bincount(item.labels, weights=samples, minlength=len(item.classes)).astype(int).tolist()
    people: Counter[str] = Counter()
    for who, count in zip(item.subjects, samples.tolist(), strict=False):
        people[who] += count
    return SignalSummary(
        source=str(path),
        device=item.device,
        channels=item.channels,
        rate_hz=item.rate_hz,
        units=item.units,
        recordings=len(item),
        seconds=None if item.rate_hz is None else readings / item.rate_hz,
        window=item.window,
        hop=item.hop,
        windows=int(samples.sum()),
        classes=dict(zip(item.classes, per_class, strict=True)),
        subjects=dict(sorted(people.items())),
        issues=item.issues,
        notes=item.notes,
    )


def count_windows(length: int, window: int, hop: int) -> int:
    """Samples of a recording of so many readings; 0 where it is too short."""
    return 1 if not window else max(0, (length - window) // hop + 1)
