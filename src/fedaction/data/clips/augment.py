"""How clips are changed while a network is fine-tuned: scaled, cut, mirrored, with other colours."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedaction.data.clips.draws import Drawn
from fedaction.data.clips.pixels import Scale, draw_hue, draw_light, draw_view, view, with_colours


@dataclass(frozen=True)
class Augmentation:
    """Changes of a clip, the same for all its frames, from small draws on the CPU; pixels change on their device."""

    frame: tuple[int, int]  # rows and columns of a frame
    size: int  # of the square that is cut out
    # One is drawn, then the square lies anywhere; see `pixels.draw_view`
    scales: tuple[Scale, ...] = (112, 128, 144)
    flip: float = 0.35  # probability of being mirrored
    chance: float = 0.2  # of each of the three changes that follow; 0: none of them
    brightness: float = 32.0  # at most this is added or subtracted, of 255
    contrast: float = 0.2  # a factor within exp(+-contrast)
    hue: float = 12.0  # at most this many steps of two degrees
    saturation: float = 0.1  # a factor within exp(+-saturation)

    def draw(self, count: int, random: torch.Generator) -> dict[str, Tensor]:
        """What happens to each of `count` clips; every tensor has a row for each."""
        return {
            **draw_view(count, (1, *self.frame, 3), self.size, self.scales, random, flip=self.flip),
            **draw_light(count, random, self.chance, self.brightness, self.contrast),
            **draw_hue(count, random, self.chance, self.hue, self.saturation),
        }

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        """(N, T, H, W, 3) uint8 clips to (N, T, size, size, 3) float32 in 0 to 255; all on one device."""
        clips = view(clips, drawn, self.size)
        return with_colours(clips, drawn) if self.chance else clips
