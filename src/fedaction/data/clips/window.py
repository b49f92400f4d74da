"""The part of a frame that a network sees: the middle, or a random place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedaction.data.client import ClientData


class Cut(NamedTuple):
    """Where a window lies in each of (N,) clips' frames, and whether it is mirrored."""

    top: Tensor  # (N,) int64 first row; rows outside the frame repeat its edge
    left: Tensor  # (N,) int64 first column, likewise
    mirrored: Tensor  # (N,) bool


@dataclass(frozen=True)
class Window:
    """The part of a frame that a network sees."""

    size: tuple[int, int]  # rows and columns of the window
    frame: tuple[int, int]  # rows and columns of a frame
    pad: int = 0  # how far a random window may reach over the frame's edges, in pixels
    flip: bool = False  # whether random windows are mirrored, half of them

    def draw(self, count: int, generator: torch.Generator) -> Cut:
        """Random windows for `count` clips, from a CPU generator."""
        numbers = torch.rand(3, count, generator=generator)
        first: list[Tensor] = []
        for axis in (0, 1):
            places = self.frame[axis] + 2 * self.pad - self.size[axis] + 1
            # Rounding can lift the largest float32 below 1 to the full count, hence the clamp.
            first.append((numbers[axis] * places).long().clamp(max=places - 1) - self.pad)
        return Cut(first[0], first[1], (numbers[2] < 0.5) if self.flip else torch.zeros(count, dtype=torch.bool))

    def cut(self, clips: Tensor, cut: Cut) -> Tensor:
        """(N, T, H, W, 3) clips to (N, T, h, w, 3), each through its own window; all on one device."""
        (height, width), device = self.size, clips.device
        rows = cut.top[:, None] + torch.arange(height, device=device)  # N, h
        columns = cut.left[:, None] + torch.arange(width, device=device)  # N, w
        columns = torch.where(cut.mirrored[:, None], columns.flip(-1), columns)
        rows, columns = rows.clamp(0, self.frame[0] - 1), columns.clamp(0, self.frame[1] - 1)
        which = torch.arange(len(clips), device=device)[:, None, None, None]
        frames = torch.arange(clips.shape[1], device=device)[:, None, None]
        return clips[which, frames, rows[:, None, :, None], columns[:, None, None, :]]

    def centre(self, clips: Tensor) -> Tensor:
        """(N, T, H, W, 3) clips to the (N, T, h, w, 3) middle of their frames."""
        top, left = (self.frame[0] - self.size[0]) // 2, (self.frame[1] - self.size[1]) // 2
        return clips[:, :, top : top + self.size[0], left : left + self.size[1]]


def window_of(data: ClientData, crop: int, pad: int = 0, flip: bool = False) -> Window:
    """What networks see of the frames: a square of `crop` pixels, or with 0 the largest that fits; see `Window`."""
    height, width = data.train.shape[1:3]
    side = crop or min(height, width)
    if side > min(height, width):
        raise ValueError(f"crop = {side}, but frames are {height} x {width} pixels; make it smaller, or 0")
    return Window((side, side), (height, width), pad, flip)
