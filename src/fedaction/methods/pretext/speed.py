"""Playback speed (the reference's `speednet`): how fast, and which way, is a clip played?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaction.data.clips.draws import Drawn, below
from fedaction.data.clips.pixels import Scale, draw_hue, draw_light, draw_view, view, with_colours
from fedaction.methods.base import Net
from fedaction.methods.pretext.base import backbone, check_clip, check_recording, flatten_lead, pick_frames
from fedaction.models.pretext_heads import PretextNetwork, SpeedHead


@dataclass(frozen=True)
class Speed:
    """The task. Target: the number of the stride among `strides`.

    A clip of 16 frames at stride 4 spans 61. Where a recording has fewer, the reference repeats its last frame until
    the clip is full; how long a clip stands still then says how fast it was, and the network learns that in place of
    motion. By default, strides that do not fit are therefore not drawn: of recordings of 31 to 60 frames only those
    from -2 to 2 are. A clip starts anywhere that leaves room for all of it.
    """

    frames: int = 16
    """Of a clip."""
    size: int = 112
    """Rows and columns of a clip."""
    strides: tuple[int, ...] = (-4, -2, -1, 0, 1, 2, 4)
    """From one frame to the next; negative: backwards; 0: a still picture."""
    short: Literal["skip", "clamp"] = "skip"
    """What happens to strides that a recording is too short for: "skip", they are not drawn; "clamp", the
    reference's: its last frame is repeated (and, backwards, comes first)."""
    scales: tuple[Scale, ...] = (112, 128, 144)
    """See `draw_view`."""
    flip: float = 0.5
    """Probability of being mirrored."""
    chance: float = 0.2
    """Of each of the three changes that follow."""
    brightness: float = 32.0
    """At most this is added or subtracted."""
    contrast: float = 0.2
    """A factor within exp(+-contrast)."""
    hue: float = 12.0
    """At most this many steps of two degrees."""
    saturation: float = 0.1
    """A factor within exp(+-saturation)."""
    dropout: float = 0.5
    """Before the head's layer."""
    easy: tuple[int, ...] = (0, 1, 4)
    """The strides that alone are drawn in the first `easy_rounds` rounds."""
    easy_rounds: int = 0
    """See there."""

    def __post_init__(self) -> None:
        check_clip(self.frames, self.size)
        if len(set(self.strides)) != len(self.strides) or len(self.strides) < 2:
            raise ValueError(f"strides {self.strides}: two or more, all different, are needed")
        if self.easy_rounds and (len(set(self.easy)) < 2 or not {*self.easy} <= {*self.strides}):
            raise ValueError(f"easy strides {self.easy}: two or more of the strides {self.strides} are needed")
        if self.short not in ("skip", "clamp"):
            raise ValueError(f"short {self.short!r} is neither skip nor clamp")

    def draw(
        self, count: int, shape: tuple[int, ...], random: torch.Generator, round: int | None = None
    ) -> dict[str, Tensor]:
        """`frames` (count, frames), `label` (count,), a view and colours; see `Pretext.draw`."""
        check_recording(shape, 1, "a clip")
        strides = torch.tensor(self.strides)
        spans = strides.abs() * (self.frames - 1) + 1
        allowed = self.strides if round is None or round > self.easy_rounds else self.easy
        drawable = torch.isin(strides, torch.tensor(allowed)).nonzero().flatten()
        if self.short == "skip":
            drawable = drawable[spans[drawable] <= shape[0]]
            if len(drawable) < 2:
                need = max(sorted(abs(stride) for stride in allowed)[:2]) * (self.frames - 1) + 1
                raise ValueError(
                    f"a recording of {shape[0]} frames has room for fewer than two of the strides {allowed} in "
                    f"clips of {self.frames} frames; take recordings of {need} frames or more, or shorter clips"
                )
        label = drawable[below(torch.full((count,), len(drawable)), random)]
        start = below((shape[0] - spans[label] + 1).clamp(min=1), random)
        steps = torch.arange(self.frames)
        steps = torch.where(strides[label, None] < 0, steps.flip(0), steps)
        frames = (start[:, None] + strides[label, None].abs() * steps).clamp(max=shape[0] - 1)
        return {
            "frames": frames,
            "label": label,
            **draw_light(count, random, self.chance, self.brightness, self.contrast),
            **draw_view(count, shape, self.size, self.scales, random, flip=self.flip),
            **draw_hue(count, random, self.chance, self.hue, self.saturation),
        }

    def apply(self, x: Tensor, drawn: Drawn) -> tuple[Tensor, Tensor]:
        """(N, frames, size, size, 3) float32 clips and (N,) int64 labels; see `Pretext.apply`."""
        x, drawn, lead = flatten_lead(x, drawn)
        clips = with_colours(view(pick_frames(x, drawn["frames"]), drawn, self.size), drawn)
        return clips.reshape(*lead, *clips.shape[1:]), drawn["label"].reshape(lead)

    def network(self, depth: int, width: int) -> nn.Module:
        """See `Pretext.network`."""
        body = backbone(depth, width)
        return PretextNetwork(body, SpeedHead(body.features, len(self.strides), self.dropout))

    def loss(self, net: Net, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross-entropy."""
        logits = net(x)
        loss = F.cross_entropy(logits, y)
        return loss, {"ce": loss, "accuracy": (logits.argmax(-1) == y).to(loss.dtype).mean()}
