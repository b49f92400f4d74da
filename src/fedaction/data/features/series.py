"""Fixed-width features of time series by random convolution kernels.

The idea is ROCKET's (Dempster, Petitjean, Webb 2020): many random kernels of length 9, each on a few channels and
with a random bias and dilation; of each convolution the share of positive values and the maximum are kept. Two things
differ. Dilations are powers of two, so that all kernels of one dilation are one convolution. And since every
recording is normalised by itself, what that takes away, the mean and the spread of each channel, is given back as
features.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import conv1d

from fedaction.data.preprocess import locate_frames
from fedaction.federation.seeds import generator, numpy_generator

_LENGTH = 9
_BATCH = 64  # series convolved at once
_STILL = 1e-6  # a channel that spreads less does not move


def kernel_features(series: Tensor, width: int, *, floor: float = 0.0, seed: int = 0) -> Tensor:
    """Features of series of equal length.

    Args:
        series: (N, C, T) float32, T at least 2.
        width: numbers per series.
        floor: share of the liveliest channel's spread that is added to every channel's before dividing by it. 0
            makes all channels equally lively, whatever their units; more leaves still channels stiller.
        seed: seed of the kernels. They depend on it, C, T and width only.

    Returns:
        (N, width) float32: shares of positive values and maxima of each kernel, then mean and logarithm of the spread
        of each channel (projected at random where they would take more than half of the width).
    """
    count, channels, length = series.shape
    if length < 2 or channels < 1:
        raise ValueError(f"a series needs at least one channel and 2 samples, got {channels} and {length}")
    if width < 8:
        raise ValueError(f"features of a series need a width of at least 8, got {width}")
    own = min(2 * channels, width // 2)
    groups = _kernels(channels, length, -(-(width - own) // 2), seed)
    out = torch.empty(count, width)
    for first in range(0, count, _BATCH):
        x = series[first : first + _BATCH]
        mean, spread = x.mean(2), x.std(2, correction=0)
        unit = spread + floor * spread.amax(1, keepdim=True) + _STILL
        even = (x - mean[:, :, None]) / unit[:, :, None]
        answers = [conv1d(even, w, b, padding=d * (_LENGTH // 2), dilation=d) for d, w, b in groups]
        pooled = [(answer > 0).float().mean(2) for answer in answers] + [answer.amax(2) for answer in answers]
        statistics = torch.cat([mean, (spread + _STILL).log()], 1)
        part = [torch.cat(pooled, 1)[:, : width - own], project(statistics, own, seed)]
        out[first : first + _BATCH] = torch.cat(part, 1)
    return out


def project(values: Tensor, width: int, seed: int = 0) -> Tensor:
    """Values (N, D) as they are where D is the width, else N vectors of that width by a fixed Gaussian matrix."""
    given = values.shape[1]
    if given == width:
        return values
    if given < width:
        raise ValueError(f"these features have {given} numbers: ask for a width of {given} or less, not {width}")
    matrix = torch.randn(given, width, generator=generator(seed, "projection", given, width))
    return values @ matrix / given**0.5


def resample(series: Sequence[npt.NDArray[np.floating]], length: int) -> Tensor:
    """Series (T_i, C) of any length as (N, C, length) float32, by linear interpolation."""
    out = torch.empty(len(series), series[0].shape[1], length)
    for i, item in enumerate(series):
        values = torch.from_numpy(np.array(item, dtype=np.float32))  # a copy: what is mapped may be read-only
        left, right, share = locate_frames(torch.tensor([len(item)]), length)
        out[i] = torch.lerp(values[left[0]], values[right[0]], share[0, :, None]).T
    return out


@lru_cache(maxsize=8)
def _kernels(channels: int, length: int, count: int, seed: int) -> tuple[tuple[int, Tensor, Tensor], ...]:
    """For each dilation its kernels: (dilation, weights (k, C, 9), biases (k,))."""
    rng = numpy_generator(seed, "kernels", channels, length, count)
    steps = max(int(np.log2(max((length - 1) / (_LENGTH - 1), 1))), 0) + 1
    steps = min(steps, count)  # where few kernels are asked for, the longest dilations have none
    groups: list[tuple[int, Tensor, Tensor]] = []
    for step, members in enumerate(np.array_split(np.arange(count), steps)):
        weights = np.zeros((len(members), channels, _LENGTH), np.float32)
        for kernel in weights:
            some = int(2 ** rng.uniform(0, np.log2(min(channels, _LENGTH) + 1)))
            some = min(some, channels)
            drawn = rng.standard_normal((some, _LENGTH))
            drawn -= drawn.mean(axis=1, keepdims=True)
            # Of unit size however many channels it reads, so that biases mean the same to all kernels.
            kernel[rng.choice(channels, some, replace=False)] = drawn / np.sqrt(some * _LENGTH)
        biases = rng.uniform(-1, 1, len(members)).astype(np.float32)
        groups.append((2**step, torch.from_numpy(weights), torch.from_numpy(biases)))
    return tuple(groups)
