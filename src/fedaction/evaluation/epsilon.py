"""The statistic that FSAR's supplement calls a proof of privacy. It is none; see `empirical_epsilon`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_DRAWS = 50  # of what chance gives


@dataclass(frozen=True)
class Epsilon:
    """What `empirical_epsilon` found."""

    value: float  # the largest |log ratio|, in nats; NaN where no bin has enough samples
    edges: Tensor  # (bins + 1,) borders of the bins, 0 to 1
    one: Tensor  # (bins,) smoothed share of the first set's samples in each bin
    other: Tensor  # (bins,) the second set's
    used: Tensor  # (bins,) bool, the bins that the value is taken over


def empirical_epsilon(p: Tensor, q: Tensor, bins: int = 10, smoothing: float = 1.0, least: int = 10) -> Epsilon:
    """The largest |log ratio| between two histograms of a model's probabilities.

    FSAR's supplement (section 5) compares the probabilities that a model gives on a dataset D and on D', in which the
    samples of one class are replaced by another dataset's, and reads max |log Pr[D] / Pr[D']| as the epsilon of
    differential privacy.

    It is NOT differential privacy and bounds nothing. Differential privacy is a property of a randomised mechanism,
    over all pairs of neighbouring datasets and all outputs; here one model, trained once, without any randomised
    mechanism, is shown one pair of datasets that differ in many samples, and was not trained again on the second. A
    small value says that two histograms look alike, and nothing about what the model gives away. For a guarantee,
    train with clipping and noise and ask an accountant.

    The value also depends on the bins, the smoothing and the number of samples: two samples of one and the same
    distribution give more than 0. Compare it with what chance gives (`chance_epsilon`).

    Args:
        p: (N,) probabilities on D, 0 to 1.
        q: (M,) probabilities on D'.
        bins: bins of equal width over 0 to 1.
        smoothing: pseudo-count added to every bin of both histograms, so that an empty one has a ratio.
        least: only bins with so many samples or more, of both sets together, count: the ratio of a few samples to
            none is noise.
    """
    for name, values in (("p", p), ("q", q)):
        if values.dim() != 1 or not len(values) or not bool(((values >= 0) & (values <= 1)).all()):
            raise ValueError(f"{name} must be a vector of probabilities, 0 to 1, with at least one entry")
    if bins < 1 or not smoothing > 0:
        raise ValueError(f"bins must be 1 or more and smoothing above 0, got {bins} and {smoothing}")
    counts = [_counts(values, bins) for values in (p, q)]
    shares = [(c + smoothing) / (c.sum() + smoothing * bins) for c in counts]
    used = counts[0] + counts[1] >= least
    ratios = (shares[0].log() - shares[1].log()).abs()[used]
    value = float(ratios.max()) if len(ratios) else math.nan
    return Epsilon(value, torch.linspace(0, 1, bins + 1, dtype=torch.float64), shares[0], shares[1], used)


def chance_epsilon(p: Tensor, replaced: int, random: torch.Generator) -> float:
    """What chance gives: the mean `empirical_epsilon` when samples are replaced by samples of the same set.

    Of the (N,) probabilities p on D, `replaced` ones, chosen at random, give way to others drawn from p.
    """
    values: list[float] = []
    for _ in range(_DRAWS):
        kept = torch.randperm(len(p), generator=random)[replaced:]
        drawn = torch.randint(len(p), (replaced,), generator=random)
        values.append(empirical_epsilon(p, p[torch.cat([kept, drawn])]).value)
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _counts(values: Tensor, bins: int) -> Tensor:
    place = (values.double() * bins).long().clamp(max=bins - 1)  # 1.0 belongs to the last bin
    return torch.bincount(place.cpu(), minlength=bins).double()
