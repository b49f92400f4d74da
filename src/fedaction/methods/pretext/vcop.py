"""Clip order (VCOP, Xu et al., 2019): three clips of a recording are shuffled; in which order are they?"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaction.data.clips.draws import Drawn, below
from fedaction.data.clips.pixels import Scale, draw_view, view
from fedaction.methods.base import Net
from fedaction.methods.pretext.base import backbone, check_clip, check_recording, flatten_lead, pick_frames
from fedaction.models.pretext_heads import OrderHead, PretextNetwork


@dataclass(frozen=True)
class VCOP:
    """The task. Target: the number of the permutation, counted as `itertools.permutations` does.

    All clips of a recording are cut from the same place, or the places would give the order away.
    """

    frames: int = 16
    """Of a clip, consecutive."""
    size: int = 112
    """Rows and columns of a clip."""
    clips: int = 3
    """That are shuffled."""
    interval: int = 8
    """Frames between one clip and the next; fewer, where a recording is too short for that. Where there is none to
    spare at all, clips overlap, evenly spread."""
    scales: tuple[Scale, ...] = (128,)
    """See `draw_view`. Pictures of 4 to 3 become the reference's 171 x 128; others keep their shape, which ((171,
    128),) would stretch to that."""
    dropout: float = 0.5
    """Before the head's last layer."""

    def __post_init__(self) -> None:
        check_clip(self.frames, self.size)
        if self.clips < 2 or self.interval < 0:
            raise ValueError(f"clips {self.clips}, interval {self.interval}: needed are 2 clips and no gap below 0")

    def draw(
        self, count: int, shape: tuple[int, ...], random: torch.Generator, round: int | None = None
    ) -> dict[str, Tensor]:
        """`starts` (count, clips) of clips as they are shown, `label` (count,), and a view; see `Pretext.draw`."""
        check_recording(shape, self.frames + self.clips - 1, f"{self.clips} different clips of {self.frames} frames")
        spare = shape[0] - self.clips * self.frames
        gap = min(self.interval, spare // (self.clips - 1))
        if spare >= self.clips - 1:
            first = below(torch.full((count, 1), spare - (self.clips - 1) * gap + 1), random)
            starts = first + (self.frames + gap) * torch.arange(self.clips)
        else:
            step = (shape[0] - self.frames + 1) / self.clips
            starts = torch.tensor([int(step / 2 + step * i) for i in range(self.clips)]).expand(count, -1)
        label = below(torch.full((count,), len(self.orders)), random)
        starts = starts.gather(1, torch.tensor(self.orders)[label])
        return {"starts": starts, "label": label, **draw_view(count, shape, self.size, self.scales, random)}

    @property
    def orders(self) -> list[tuple[int, ...]]:
        """The permutations by label: which clip comes first, second and so on."""
        return list(itertools.permutations(range(self.clips)))

    def apply(self, x: Tensor, drawn: Drawn) -> tuple[Tensor, Tensor]:
        """(N, clips, frames, size, size, 3) float32 shuffled clips and (N,) int64 labels; see `Pretext.apply`."""
        x, drawn, lead = flatten_lead(x, drawn)
        frames = drawn["starts"][..., None] + torch.arange(self.frames, device=x.device)  # N, clips, frames
        clips = view(pick_frames(x, frames.flatten(1)), drawn, self.size)
        return clips.reshape(*lead, self.clips, self.frames, *clips.shape[2:]), drawn["label"].reshape(lead)

    def network(self, depth: int, width: int) -> nn.Module:
        """See `Pretext.network`."""
        body = backbone(depth, width)
        return PretextNetwork(body, OrderHead(body.features, self.clips, self.dropout))

    def loss(self, net: Net, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross-entropy."""
        logits = net(x)
        loss = F.cross_entropy(logits, y)
        return loss, {"ce": loss, "accuracy": (logits.argmax(-1) == y).to(loss.dtype).mean()}
