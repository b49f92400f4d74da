"""Catch the patch (CtP, Wang et al., 2021): patches are pasted into a clip and move; where do they go?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaction.data.clips.draws import REFERENCE, Drawn, below, uniform
from fedaction.data.clips.pixels import Scale, draw_hue, draw_view, view, with_brightness, with_contrast, with_hue
from fedaction.methods.base import Net
from fedaction.methods.pretext.base import backbone, check_clip, check_recording, flatten_lead, pick_frames
from fedaction.methods.pretext.patch import draw_looks, paste
from fedaction.methods.pretext.trajectory import Walk, between, draw_keys, draw_paces
from fedaction.models.pretext_heads import PretextNetwork, TrackHead

STRIDES = (1, 2, 2, 1)
"""Of the backbone's stages over rows and columns: its last map is twice as fine as for other tasks."""

Rounding = Literal["auto", "pixels", "none"]

STRIDE = 8
"""Pixels of a clip per pixel of that map, and frames of a clip per frame of it."""


@dataclass(frozen=True)
class CtP:
    """The task. Target: a patch's box in every frame, whether it is shown there or not; the head sees the first.

    Lengths in pixels (`sides`, `speed`, and `spread` of centres) are the reference's, for clips of 112 x 112. Clips
    of another size scale them by `unit`, so that patches stay as large and as fast relative to the picture, and
    targets as large as they were.
    """

    frames: int = 16
    """Of a clip."""
    size: int = 112
    """Rows and columns of a clip."""
    strides: tuple[int, ...] = (1, 2, 3, 4, 5)
    """From one frame of a clip to the next; one is drawn for a clip, and each of its frames is late by 0 to stride -
    1. Frames past a recording's end are its last."""
    scales: tuple[Scale, ...] = (112, 128, 144)
    """See `draw_view`."""
    flip: float = 0.5
    """Probability of being mirrored."""
    boxes: int = 3
    """Patches in a clip."""
    sides: tuple[float, ...] = (16, 24, 28, 32, 48, 64)
    """Square roots of a patch's area."""
    ratios: tuple[float, ...] = (0.5, 0.67, 0.75, 1.0, 1.33, 1.5, 2.0)
    """Of its width and height."""
    jitter: float = 0.18
    """Width and height are multiplied by exp(+-jitter)."""
    speed: float = 3.0
    """The centre moves by up to this much a frame, in each direction."""
    growth: float = 0.025
    """Width and height change by up to exp(+-growth) a frame."""
    keys: tuple[float, ...] = (0.5, 0.3, 0.2)
    """Chances of 0, 1, 2, ... inner key frames of a trajectory and of opacity."""
    visible: float = 0.8
    """The chance of each frame to show a patch."""
    opacity: float = 0.8
    """The least."""
    smooth: float = 0.5
    """The chance of a patch to fade out towards its edge."""
    hue_chance: float = 0.25
    """Of another hue (up to `hue` steps of two degrees) and saturation (within exp(+-saturation))."""
    hue: float = 12.0
    """See there."""
    saturation: float = 0.1
    """See there."""
    light_chance: float = 0.5
    """Of another brightness, and of another contrast, that change through the clip."""
    brightness: float = 30.0
    """At most this is added or subtracted."""
    contrast: float = 0.12
    """A factor within exp(+-contrast)."""
    light_keys: tuple[float, ...] = (0.7, 0.3)
    """As `keys`, for brightness and contrast."""
    spread: tuple[float, float] = (0.8, 0.04)
    """What offsets of a centre (pixels) and logarithms of a size ratio are divided by."""
    unit: float | None = None
    """Pixels of a clip per pixel of the reference's; None: size / 112."""
    rounding: Rounding = "auto"
    """Whether boxes are rounded to whole "pixels", as the reference does at 112 x 112, or not ("none"); "auto": not
    where a clip's pixels are larger than the reference's, and rounding would be much of what is to be predicted."""

    def __post_init__(self) -> None:
        check_clip(self.frames, self.size)
        if self.boxes < 1 or min(self.strides) < 1 or (self.unit is not None and self.unit <= 0):
            raise ValueError(
                f"boxes {self.boxes}, strides {self.strides}, unit {self.unit}: needed are a box, strides from 1 and "
                "a unit above 0"
            )

    @property
    def pixel(self) -> float:
        """Pixels of a clip per pixel of the reference's."""
        return self.size / REFERENCE if self.unit is None else self.unit

    @property
    def walk(self) -> Walk:
        """How patches move."""
        sides = tuple(side * self.pixel for side in self.sides)
        speed = self.speed * self.pixel
        whole = self.rounding == "pixels" or (self.rounding == "auto" and self.pixel >= 1)
        shape = (self.frames, self.size, self.boxes)
        return Walk(*shape, sides, self.ratios, self.jitter, speed, self.growth, self.keys, whole)

    def draw(
        self, count: int, shape: tuple[int, ...], random: torch.Generator, round: int | None = None
    ) -> dict[str, Tensor]:
        """`frames` (count, frames), `boxes` (count, boxes, frames, 4), a view, looks and colours.

        See `Pretext.draw`, `draw_view`, `draw_looks`.
        """
        check_recording(shape, 2, "a trajectory")
        boxes = self.walk.draw(count, random)
        return {
            "frames": self._frames(count, shape[0], random),
            **draw_view(count, shape, self.size, self.scales, random, flip=self.flip),
            "boxes": boxes,
            **draw_looks(boxes, self.visible, self.opacity, self.smooth, self.keys, random),
            **draw_hue(count, random, self.hue_chance, self.hue, self.saturation),
            "brightness": self._light(count, self.brightness, random).float(),
            "contrast": self._light(count, self.contrast, random, exponential=True).float(),
        }

    def _frames(self, count: int, length: int, random: torch.Generator) -> Tensor:
        stride = torch.tensor(self.strides)[below(torch.full((count,), len(self.strides)), random)]
        start = below((length - stride * (self.frames - 1)).clamp(min=1), random)
        late = below(stride[:, None].expand(-1, self.frames), random)
        return (start[:, None] + stride[:, None] * torch.arange(self.frames) + late).clamp(max=length - 1)

    def _light(self, count: int, most: float, random: torch.Generator, *, exponential: bool = False) -> Tensor:
        """(count, frames) within +-most, or within exp(+-most); 0 or 1 throughout where it was not drawn."""
        on = uniform((count, 1), random) < self.light_chance
        keys = draw_keys(count, self.frames, self.light_keys, random)
        values = uniform(tuple(keys.shape), random, -most, most)
        values = between(values.exp() if exponential else values, keys, draw_paces(keys, random))
        return torch.where(on, values, float(exponential))

    def apply(self, x: Tensor, drawn: Drawn) -> tuple[Tensor, Tensor]:
        """(N, frames, size, size, 3) float32 clips and (N, boxes, frames, 4) boxes x1, y1, x2, y2 in their pixels.

        See `Pretext.apply`.
        """
        x, drawn, lead = flatten_lead(x, drawn)
        clips = paste(view(pick_frames(x, drawn["frames"]), drawn, self.size), drawn)
        clips = with_hue(clips, drawn["hue"], drawn["saturation"])
        clips = with_contrast(with_brightness(clips, drawn["brightness"]), drawn["contrast"])
        boxes = drawn["boxes"]
        return clips.reshape(*lead, *clips.shape[1:]), boxes.reshape(*lead, *boxes.shape[1:])

    def network(self, depth: int, width: int) -> nn.Module:
        """See `Pretext.network`; the backbone has CtP's strides."""
        body = backbone(depth, width, STRIDES)
        return PretextNetwork(body, TrackHead(body.features, -(-self.frames // STRIDE), self.frames, STRIDE))

    def targets(self, boxes: Tensor) -> Tensor:
        """(N, B, F, 4) boxes to how far each centre (x, y) is from the first, and how much wider and higher it is."""
        centres = (boxes[..., :2] + boxes[..., 2:]) / 2
        sides = (boxes[..., 2:] - boxes[..., :2]).clamp(min=1).log()
        pixels, logarithms = self.spread
        moved = (centres - centres[:, :, :1]) / (pixels * self.pixel)
        return torch.cat([moved, (sides - sides[:, :, :1]) / logarithms], -1)

    def loss(self, net: Net, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Smooth L1, summed over coordinates, mean over boxes and frames."""
        predicted = net(x, y[:, :, 0])
        wrong = F.smooth_l1_loss(predicted, self.targets(y.to(predicted.dtype)), reduction="none")
        centre, size = wrong[..., :2].sum(-1).mean(), wrong[..., 2:].sum(-1).mean()
        return centre + size, {"centre": centre, "size": size}
