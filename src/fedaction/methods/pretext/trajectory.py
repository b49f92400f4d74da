"""How patches move and change their size through a clip (CtP), a batch of clips at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedaction.data.clips.draws import below, chosen, uniform

PACES = (0.7, 0.15, 0.15)
"""Chances of going on evenly, ever faster, ever slower from one key frame to the next."""


def draw_keys(count: int, frames: int, inner: Sequence[float], random: torch.Generator) -> Tensor:
    """Key frames: the first, the last, and some evenly spaced between them, moved by up to a third of the spacing.

    Args:
        count: of clips.
        frames: of a clip.
        inner: chances of 0, 1, 2, ... inner key frames.
        random: a CPU generator.

    Returns:
        (count, len(inner) + 1) int64, ascending. Those that were not drawn are at the last frame: the stretch
        after a key frame at the last frame has no length.
    """
    number = chosen((count,), inner, random)[:, None]
    place = torch.arange(1, len(inner))
    spacing = frames / (number + 1).double()
    jitter = (spacing / 3).long()
    keys = (spacing * place).long() + below(2 * jitter.expand(-1, len(place)), random) - jitter
    keys = torch.where(place <= number, keys, frames - 1).clamp(0, frames - 1)
    return torch.cat([torch.zeros_like(number), keys, torch.full_like(number, frames - 1)], 1)


def draw_paces(keys: Tensor, random: torch.Generator, chances: Sequence[float] = PACES) -> Tensor:
    """0, 1 or 2 for each stretch between key frames: evenly, ever faster, ever slower; (count, K - 1) int64."""
    return chosen((keys.shape[0], keys.shape[1] - 1), chances, random)


def between(values: Tensor, keys: Tensor, paces: Tensor | None = None) -> Tensor:
    """Values of all frames from those of key frames.

    Args:
        values: (N, K, ...).
        keys: (N, K) of `draw_keys`.
        paces: (N, K - 1) of `draw_paces`; None: evenly throughout.

    Returns:
        (N, frames, ...).
    """
    frame = torch.arange(int(keys[0, -1]) + 1).expand(len(keys), -1).contiguous()
    stretch = torch.searchsorted(keys[:, 1:].contiguous(), frame)  # key frames end the stretch before them
    first, last = keys.gather(1, stretch), keys.gather(1, stretch + 1)
    share = (frame - first).double() / (last - first).clamp(min=1)
    if paces is not None:
        pace = paces.gather(1, stretch)
        share = torch.where(pace == 1, share**2, torch.where(pace == 2, 1 - (1 - share) ** 2, share))
    row = torch.arange(len(keys))[:, None]
    share = share.reshape(*share.shape, *(1,) * (values.dim() - 2)).to(values.dtype)
    begin, end = values[row, stretch], values[row, stretch + 1]
    return begin + (end - begin) * share


@dataclass(frozen=True)
class Walk:
    """How patches start and move. Lengths are in pixels of the clip.

    As in the reference, all patches of a clip have their key frames in common, one set for where they are and
    another for how large they are.
    """

    frames: int
    """Of a clip."""
    size: int
    """Rows and columns of a clip."""
    boxes: int
    """patches."""
    scales: tuple[float, ...]
    """Square root of a patch's area, one is drawn."""
    ratios: tuple[float, ...]
    """Width over height, one is drawn."""
    jitter: float
    """Width and height are multiplied by exp(+-jitter)."""
    speed: float
    """The centre moves by up to this much a frame, in each direction."""
    growth: float
    """Width and height change by up to exp(+-growth) a frame."""
    inner: tuple[float, ...]
    """Chances of 0, 1, 2, ... inner key frames."""
    whole: bool
    """Whether boxes are rounded to whole pixels."""

    def draw(self, count: int, random: torch.Generator) -> Tensor:
        """(count, boxes, frames, 4) float32: x1, y1, x2, y2 within 0 to size, of one pixel or more."""
        first = self._sides(count, random)
        room = self.size - first
        centre = first / 2 + uniform((count, self.boxes, 2), random) * room
        centres = self._centres(centre, first / 2, self.size - first / 2, random)
        sides = self._grow(first, random)
        boxes = torch.cat([centres - sides / 2, centres + sides / 2], -1)
        boxes = boxes.clamp(0, self.size)
        low, high = (boxes.round() if self.whole else boxes).movedim(1, 2).chunk(2, -1)
        # Only patches of a few pixels, in small clips, can shrink to nothing.
        low = low.clamp(max=self.size - 1)
        return torch.cat([low, torch.maximum(high, low + 1)], -1).float()

    def _sides(self, count: int, random: torch.Generator) -> Tensor:
        """(count, boxes, 2) widths and heights in the first frame."""
        number = below(torch.full((count, self.boxes), len(self.scales) * len(self.ratios)), random)
        scale = torch.tensor(self.scales, dtype=torch.float64)[number // len(self.ratios)]
        root = torch.tensor(self.ratios, dtype=torch.float64)[number % len(self.ratios)].sqrt()
        sides = torch.stack([scale * root, scale / root], -1)
        return (sides * uniform(tuple(sides.shape), random, -self.jitter, self.jitter).exp()).clamp(1, self.size - 1)

    def _centres(self, centre: Tensor, low: Tensor, high: Tensor, random: torch.Generator) -> Tensor:
        """(count, frames, boxes, 2); the box, were it as large as at first, would stay inside at key frames."""
        keys = draw_keys(len(centre), self.frames, self.inner, random)
        at = [centre]
        for length in keys.diff().unbind(1):
            step = uniform(tuple(centre.shape), random, -self.speed, self.speed) * length[:, None, None]
            at.append(torch.minimum(torch.maximum(at[-1] + step, low), high))
        return between(torch.stack(at, 1), keys, draw_paces(keys, random))

    def _grow(self, first: Tensor, random: torch.Generator) -> Tensor:
        """(count, frames, boxes, 2) widths and heights."""
        keys = draw_keys(len(first), self.frames, self.inner, random)
        at = [first]
        for length in keys.diff().unbind(1):
            rate = uniform(tuple(first.shape), random, -self.growth, self.growth) * length[:, None, None]
            at.append(at[-1] * rate.exp())
        return between(torch.stack(at, 1), keys, draw_paces(keys, random))
