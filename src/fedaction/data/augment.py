"""Training-time augmentation of skeleton sequences: temporal crop, then shear, then a slow move.

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

_MOVES = (
    torch.deg2rad(torch.tensor([-10.0, -5.0, 0.0, 5.0, 10.0])),
    torch.tensor([0.9, 1.0, 1.1]),
    *(torch.tensor([-0.2, -0.1, 0.0, 0.1, 0.2]),) * 2,
)
"""What angle, scale and the two shifts are drawn from."""


class Drawn(NamedTuple):
    """Augmentation parameters, one row per sample."""

    shear: Tensor  # (..., 3, 3) float32, unit diagonal
    # (...) float32 in [0, 1): where the window starts, as a share of the possible starts, so that it can be drawn
    # before the number of frames is known
    start: Tensor
    move: Tensor  # (..., 2, 4) float32: radians, scale, and metres along x and y, in the first and in the last frame


@dataclass(frozen=True)
class Augment:
    """Temporal crop and shear as in the CrosSCLR and AimCLR feeders, which FSAR uses."""

    # amplitude; each of the six off-diagonal entries is uniform in [-shear, shear). 0 turns it off.
    shear: float = 0.5
    # The sequence is padded by frames // crop at both ends with its own frames in reverse (the end frame comes
    # twice), and a window of the old length is taken at random. 0 turns it off.
    crop: int = 6
    # Turned about the camera's axis, scaled and shifted in x and y, differently in the first and the last frame and
    # in between by a straight line: what ST-GCN's training code does (Yan et al., AAAI 2018).
    move: bool = False

    def __post_init__(self) -> None:
        if self.shear < 0 or self.crop < 0:
            raise ValueError(f"shear and crop must not be negative: shear={self.shear}, crop={self.crop}")

    def draw(self, count: int, generator: torch.Generator) -> Drawn:
        """Parameters for `count` samples from a CPU generator: shear (count, 3, 3) and start (count,)."""
        numbers = torch.rand(count, 7, generator=generator)
        shear = torch.eye(3).repeat(count, 1, 1)
        shear[:, ~torch.eye(3, dtype=torch.bool)] = (2 * numbers[:, :6] - 1) * self.shear
        move = torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat(count, 2, 1)
        if self.move:
            chosen = [values[torch.randint(len(values), (count, 2), generator=generator)] for values in _MOVES]
            move = torch.stack(chosen, -1)
        return Drawn(shear, numbers[:, 6], move)

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
        sheared = torch.bmm(points, shear.transpose(1, 2))
        if not self.move:
            return sheared.reshape(x.shape)
        sheared = sheared.reshape(count, bodies, frames, joints, 3)
        return _move(sheared, drawn.move.reshape(count, 2, 4)).reshape(x.shape)

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


def _move(x: Tensor, move: Tensor) -> Tensor:
    """(N, M, T, V, 3) sequences turned, scaled and shifted; (N, 2, 4) says how in their first and last frames.

    A body that is absent from a frame, all zeros, stays so.
    """
    move, share = move.to(x), torch.linspace(0, 1, x.shape[2], dtype=x.dtype, device=x.device)[:, None]
    angle, scale, right, up = (move[:, :1] + share * (move[:, 1:] - move[:, :1])).unbind(-1)  # each N, T
    cos, sin = (each[:, None, :, None] for each in (angle.cos() * scale, angle.sin() * scale))
    a, b = x[..., 0], x[..., 1]
    moved = cos * a - sin * b + right[:, None, :, None], sin * a + cos * b + up[:, None, :, None]
    present = (x != 0).any(-1).any(-1)[..., None, None]
    return torch.stack([*moved, x[..., 2]], -1).where(present, x)
