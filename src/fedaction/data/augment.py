"""Training-time augmentation of skeleton sequences: temporal crop, then shear.

Training only. Nothing here knows whether it sees training or test samples: the caller must not augment at
test time. Parameters are drawn per sample, apart from being applied, so an engine that stacks many clients
can draw for each from that client's own generator and apply all at once; a sample's result does not depend on
its batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Drawn(NamedTuple):
    """Augmentation parameters, one row per sample."""

    shear: Tensor  # (..., 3, 3) float32, unit diagonal
    # (...) float32 in [0, 1): where the window starts, as a share of the possible starts, so that it can be drawn
    # before the number of frames is known
    start: Tensor


@dataclass(frozen=True)
class Augment:
    """Temporal crop and shear as in the CrosSCLR and AimCLR feeders, which FSAR uses."""

    # amplitude; each of the six off-diagonal entries is uniform in [-shear, shear). 0 turns it off.
    shear: float = 0.5
    # The sequence is padded by frames // crop at both ends with its own frames in reverse (the end frame comes
    # twice), and a window of the old length is taken at random. 0 turns it off.
    crop: int = 6

    def __post_init__(self) -> None:
        if self.shear < 0 or self.crop < 0:
            raise ValueError(f"shear and crop must not be negative: shear={self.shear}, crop={self.crop}")

    def draw(self, count: int, generator: torch.Generator) -> Drawn:
        """Parameters for `count` samples from a CPU generator: shear (count, 3, 3) and start (count,)."""
        numbers = torch.rand(count, 7, generator=generator)
        shear = torch.eye(3).repeat(count, 1, 1)
        shear[:, ~torch.eye(3, dtype=torch.bool)] = (2 * numbers[:, :6] - 1) * self.shear
        return Drawn(shear, numbers[:, 6])

    def apply(self, x: Tensor, drawn: Drawn) -> Tensor:
        """Crops, then shears each sample with its own parameters: a new tensor of x's shape.

        x is (..., M, T, V, 3) on any device; parameters have the same leading axes, on any device.
        """
        if x.dim() < 5 or x.shape[-1] != 3:
            raise ValueError(f"augmentation needs (..., M, T, V, 3) coordinates, got shape {tuple(x.shape)}")
        lead = x.shape[:-4]
        if drawn.start.shape != lead or drawn.shear.shape != (*lead, 3, 3):
            raise ValueError(
                f"parameters were drawn for samples {tuple(drawn.start.shape)}, the batch has {tuple(lead)}"
            )
        bodies, frames, joints, _ = x.shape[-4:]
        count = drawn.start.numel()
        rows = x.reshape(count * bodies * frames, joints * 3)
        if self.crop and frames // self.crop:
            rows = rows.index_select(0, self._rows(drawn.start.reshape(-1).to(x.device), bodies, frames))
        points = rows.reshape(count, bodies * frames * joints, 3)
        shear = drawn.shear.reshape(count, 3, 3).to(device=x.device, dtype=x.dtype)
        return torch.bmm(points, shear.transpose(1, 2)).reshape(x.shape)

    def _rows(self, start: Tensor, bodies: int, frames: int) -> Tensor:
        """For each output frame of each body of each sample, the row that it comes from."""
        pad = frames // self.crop
        # Rounding can lift the largest float32 below 1 to the full count, hence the clamp.
        first = (start * (2 * pad + 1)).long().clamp(max=2 * pad)  # N
        frame = first[:, None] + torch.arange(frames, device=start.device) - pad  # N, T
        frame = torch.where(frame < 0, -1 - frame, frame)
        frame = torch.where(frame >= frames, 2 * frames - 1 - frame, frame)
        clip = torch.arange(len(start) * bodies, device=start.device).reshape(-1, bodies, 1) * frames  # N, M, 1
        return (clip + frame[:, None]).reshape(-1)
