"""What a clip is, and where the clips of recordings begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

_MOST_FRAMES, _MOST_SIDE = 4096, 4096


@dataclass(frozen=True)
class ClipSpec:
    """What a clip is."""

    frames: int = 8  # T
    stride: int = 1  # from one frame to the next, in frames of the recording; less where the recording is too short
    side: int = 128  # pixels of the shorter side after scaling
    crop: int = 0  # side of the square that is then kept from the middle; 0: as large as it can be, which is `side`

    def __post_init__(self) -> None:
        if not 1 <= self.frames <= _MOST_FRAMES or self.stride < 1:
            raise ValueError(
                f"a clip has 1 to {_MOST_FRAMES} frames and a stride from 1; got {self.frames} and {self.stride}"
            )
        if not 1 <= self.side <= _MOST_SIDE or self.crop < 0:
            raise ValueError(
                f"side must be 1 to {_MOST_SIDE} pixels and crop 0 or more, got {self.side}, {self.crop}"
            )
        if self.crop > self.side:
            raise ValueError(f"a square of {self.crop} cannot be cut from pictures scaled to {self.side}")

    @property
    def square(self) -> int:
        """Rows and columns of a frame."""
        return self.crop or self.side


class Spans(NamedTuple):
    """Clips: (N,) int64 each."""

    row: Tensor  # which of the recordings
    start: Tensor  # its frame that comes first
    stride: Tensor  # from one frame of the clip to the next

    def pick(self, clips: Tensor) -> Spans:
        """Some of the clips, (n,) int64 or (N,) bool."""
        return Spans(*(column[clips] for column in self))


def free_space(lengths: Tensor, frames: int, stride: int) -> tuple[Tensor, Tensor]:
    """Where clips fit into recordings of (R,) frames.

    Gives (R,) strides, the largest up to `stride` that fits, and (R,) the last frame at which a clip may begin.
    """
    strides = ((lengths - 1) // max(frames - 1, 1)).clamp(1, stride)
    return strides, (lengths - (frames - 1) * strides - 1).clamp(min=0)


def spread_clips(lengths: Tensor, frames: int, stride: int, count: int) -> Spans:
    """Clips of recordings of (R,) frames, evenly spread over each.

    `count` of each from its beginning to its end, fewer where there are not so many different ones, in the middle
    where it is one alone; 0: all that do not overlap, from the beginning on.
    """
    strides, free = free_space(lengths, frames, stride)
    counts = (free + 1).clamp(max=count) if count else free // (frames * strides) + 1
    row, position = _each(counts)
    if not count:
        return Spans(row, position * frames * strides[row], strides[row])
    gaps = (counts - 1)[row].clamp(min=1)
    # As of numpy's linspace, rounded.
    start = torch.where(counts[row] == 1, free[row] // 2, (2 * free[row] * position + gaps) // (2 * gaps))
    return Spans(row, start, strides[row])


def draw_clips(lengths: Tensor, frames: int, stride: int, count: int, random: Sequence[torch.Generator]) -> Spans:
    """`count` clips of each recording of (R,) frames, drawn independently from the recording's own generator."""
    strides, free = free_space(lengths, frames, stride)
    row, _ = _each(torch.full_like(free, count))
    draws = [torch.randint(int(last) + 1, (count,), generator=own) for last, own in zip(free, random, strict=True)]
    return Spans(row, torch.cat(draws), strides[row])


def _each(counts: Tensor) -> tuple[Tensor, Tensor]:
    """The recording of each clip, and which of the recording's clips it is, for (R,) numbers of clips."""
    row = torch.arange(len(counts)).repeat_interleave(counts)
    return row, torch.arange(len(row)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
