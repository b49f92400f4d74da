"""Rows of a table, block by block, cut where the label or the person changes and where time jumps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedaction.data.signals.tables import Floats

MOST_READINGS = 2**20
"""A longer stretch is cut here, so that memory is bounded."""


@dataclass(frozen=True)
class Stretch:
    """Readings of one label and one person, without a gap."""

    label: str
    subject: str
    times: Floats  # (T,) seconds
    values: Floats  # (T, C)


class Cutter:
    """Cuts rows that come in blocks into stretches, and counts what it finds."""

    def __init__(self, longest_s: float) -> None:
        self.rows = self.bad = self.gaps = self.twice = 0
        self._longest = longest_s
        self._held: list[Stretch] = []  # parts of the stretch that is not over
        self._length = 0

    def add(self, times: Floats, values: Floats, labels: Sequence[str], people: Sequence[str]) -> Iterator[Stretch]:
        """Takes rows (n,), gives the stretches that end among them."""
        good = np.isfinite(values).all(axis=1) & np.isfinite(times)
        self.rows, self.bad = self.rows + len(times), self.bad + int((~good).sum())
        rows = np.flatnonzero(good)
        if not len(rows):
            return
        last = self._held[-1].times[-1] if self._held else -np.inf
        new = np.diff(times[rows], prepend=last) != 0
        self.twice += int((~new).sum())
        rows = rows[new]
        at, what, who = times[rows], np.array(labels)[rows], np.array(people)[rows]
        step = np.diff(at)
        jumps = (step > self._longest) | (step < 0)
        same = (what[1:] == what[:-1]) & (who[1:] == who[:-1])
        bounds = [0, *(np.flatnonzero(jumps | ~same) + 1).tolist(), len(rows)]
        for first, end in itertools.pairwise(bounds):
            if first == end:
                continue
            part = Stretch(str(what[first]), str(who[first]), at[first:end], values[rows[first:end]])
            if self._held and not self._continues(part):
                yield from self.end()
            self._held.append(part)
            self._length += end - first
            if self._length >= MOST_READINGS:
                yield from self.end()

    def _continues(self, part: Stretch) -> bool:
        """Whether a part follows on what is held."""
        before = self._held[-1]
        if (before.label, before.subject) != (part.label, part.subject):
            return False
        step = part.times[0] - before.times[-1]
        jumped = bool(step > self._longest or step < 0)
        self.gaps += jumped
        return not jumped

    def end(self) -> Iterator[Stretch]:
        """What is held, as one stretch."""
        if self._held:
            first = self._held[0]
            times = np.concatenate([part.times for part in self._held])
            values = np.concatenate([part.values for part in self._held])
            yield Stretch(first.label, first.subject, times, values)
        self._held, self._length = [], 0


def keep_labelled(stretches: Iterator[Stretch], ignored: set[str]) -> Iterator[Stretch]:
    """Stretches of an activity."""
    return (own for own in stretches if own.label not in ignored)
