"""How steadily a training curve rises, in numbers."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stability:
    """A curve in numbers; all are in the curve's own unit (accuracies: shares, 0 to 1)."""

    mean_change: float  # mean absolute change from one measurement to the next. A curve that learns fast has some too
    # the same of the falls alone (rises count as 0): what a curve loses on its way, however fast it learns
    mean_drop: float
    largest_drop: float  # the largest fall from one measurement to the next; 0 where it never falls
    last_std: float  # standard deviation over the last fifth of the measurements, at least two of them
    # mean height over the rounds (area under the curve over its length): high for early and lasting success
    area: float


def stability(rounds: Sequence[int], values: Sequence[float]) -> Stability:
    """The numbers of a curve, given by the rounds it was measured at (rising) and its values; at least two."""
    if len(rounds) != len(values) or len(values) < 2:
        raise ValueError(f"a curve needs two measurements or more; got {len(rounds)} rounds and {len(values)} values")
    if any(b <= a for a, b in itertools.pairwise(rounds)):
        raise ValueError("the rounds of a curve must rise")
    changes = [b - a for a, b in itertools.pairwise(values)]
    drops = [max(0.0, -change) for change in changes]
    tail = values[-max(2, round(len(values) / 5)) :]
    lengths = [b - a for a, b in itertools.pairwise(rounds)]
    heights = [(a + b) / 2 for a, b in itertools.pairwise(values)]
    return Stability(
        mean_change=statistics.fmean(abs(change) for change in changes),
        mean_drop=statistics.fmean(drops),
        largest_drop=max(drops),
        last_std=statistics.stdev(tail),
        area=sum(h * n for h, n in zip(heights, lengths, strict=True)) / (rounds[-1] - rounds[0]),
    )
