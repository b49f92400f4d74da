"""What a clip is, where clips of a video begin, and how a clip that is in memory is scaled, cut and mirrored.

Whatever is random here is drawn from the generator that is given, and from nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedaction.data.clips.picture import Corner, Pixels, corner_of

_MOST_FRAMES, _MOST_SIDE = 4096, 4096


@dataclass(frozen=True)
class ClipSpec:
    """What a clip is.

    Attributes:
        frames: T.
        stride: from one frame to the next, in frames of the video.
        short_side: pixels of the shorter side after scaling; None: not scaled.
        crop: side of the square that is cut out; None: whole pictures, which then must be of one size in all videos.
        place: where the square is cut from: the centre, or at random where clips are drawn at random. Clips for test
            are always cut from the centre.
    """

    frames: int = 8
    stride: int = 1
    short_side: int | None = 128
    crop: int | None = 112
    place: Literal["centre", "random"] = "centre"

    def __post_init__(self) -> None:
        if not 1 <= self.frames <= _MOST_FRAMES or self.stride < 1:
            raise ValueError(
                f"a clip has 1 to {_MOST_FRAMES} frames and a stride from 1; got {self.frames} and {self.stride}"
            )
        for name, side in (("short_side", self.short_side), ("crop", self.crop)):
            if side is not None and not 1 <= side <= _MOST_SIDE:
                raise ValueError(f"{name} must be 1 to {_MOST_SIDE} pixels, got {side}")
        if self.crop is not None and self.short_side is not None and self.crop > self.short_side:
            raise ValueError(f"a square of {self.crop} cannot be cut from pictures scaled to {self.short_side}")
        if self.place not in ("centre", "random"):
            raise ValueError(f'place must be "centre" or "random", got {self.place!r}')

    @property
    def span(self) -> int:
        """Frames of the video from a clip's first to its last."""
        return (self.frames - 1) * self.stride + 1


def starts_of_all(total: int, spec: ClipSpec) -> list[int]:
    """First frames of all clips that do not overlap: 10 s at 24 frames a second are 30 clips of 8.

    A remainder that does not fill a clip is dropped; a video shorter than a clip has one, which starts at 0.

    Args:
        total: frames of the video.
        spec: of the clips.
    """
    _check_total(total)
    return list(range(0, max(total - spec.span + 1, 1), spec.frames * spec.stride))


def even_starts(total: int, spec: ClipSpec, count: int) -> list[int]:
    """First frames of clips spread evenly from the beginning to the end; of one clip, in the middle."""
    _check_total(total, count)
    last = max(total - spec.span, 0)
    return [round(start) for start in np.linspace(0, last, count)] if count > 1 else [last // 2]


def random_starts(total: int, spec: ClipSpec, count: int, random: torch.Generator) -> list[int]:
    """First frames of clips drawn independently, any whole clip as likely as another."""
    _check_total(total, count)
    return torch.randint(max(total - spec.span, 0) + 1, (count,), generator=random).tolist()


def clip_starts(total: int, spec: ClipSpec, clips: int | Literal["all"], random: torch.Generator | None) -> list[int]:
    """First frames of all clips that do not overlap, or of so many: drawn at random or, without a generator, even."""
    if clips == "all":
        return starts_of_all(total, spec)
    return even_starts(total, spec, clips) if random is None else random_starts(total, spec, clips, random)


def random_corners(count: int, random: torch.Generator) -> list[Corner]:
    """Where to cut each of so many clips: shares of the free space, for `decode.read_clips`."""
    return [(top, left) for top, left in torch.rand(count, 2, generator=random, dtype=torch.float64).tolist()]


def resize(clip: Pixels, short_side: int) -> Pixels:
    """Scales (T, H, W, C) uint8 so that its shorter side has so many pixels: bilinear, with antialiasing.

    For pictures that are in memory already. Files are scaled by the decoder, before their colours are converted: that
    is cheaper (see `fedaction.bench.video`) and differs little: by 1 of 255 on average in real clips.
    """
    height, width = clip.shape[1:3]
    scale = short_side / min(height, width)
    size = max(round(height * scale), 1), max(round(width * scale), 1)
    if size == (height, width):
        return clip
    pictures = torch.from_numpy(np.array(clip)).permute(0, 3, 1, 2)
    scaled = F.interpolate(pictures, size, mode="bilinear", antialias=True, align_corners=False)
    return scaled.permute(0, 2, 3, 1).contiguous().numpy()


def cut(clip: Pixels, side: int, corner: Corner | None = None) -> Pixels:
    """A square of (T, H, W, C): at a corner as in `decode.read_clips`, or in the centre."""
    top, left = corner_of(clip.shape[1], clip.shape[2], side, corner)
    return clip[:, top : top + side, left : left + side]


def random_crop(clips: Tensor, side: int, random: torch.Generator) -> Tensor:
    """Cuts a square from each of (N, T, H, W, C), one place for all frames of a clip: (N, T, side, side, C)."""
    height, width = clips.shape[2:4]
    if side > min(height, width):
        raise ValueError(f"a square of {side} cannot be cut from pictures of {height} x {width}")
    tops = torch.randint(height - side + 1, (len(clips),), generator=random).tolist()
    lefts = torch.randint(width - side + 1, (len(clips),), generator=random).tolist()
    out = clips.new_empty(*clips.shape[:2], side, side, clips.shape[4])
    for clip, top, left, place in zip(clips, tops, lefts, out, strict=True):
        place.copy_(clip[:, top : top + side, left : left + side])
    return out


def random_flip(clips: Tensor, random: torch.Generator, chance: float = 0.5) -> Tensor:
    """Mirrors each of (N, T, H, W, C) left to right with a chance, all frames of a clip alike."""
    mirrored = torch.rand(len(clips), generator=random) < chance
    return torch.where(mirrored.to(clips.device)[:, None, None, None, None], clips.flip(3), clips)


def _check_total(total: int, count: int = 1) -> None:
    if total < 1 or count < 1:
        raise ValueError(f"{count} clips of a video of {total} frames")
