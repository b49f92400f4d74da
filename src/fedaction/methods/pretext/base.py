"""What a pretext task is: a game whose right answers are known because we made it up ourselves.

Everything random is drawn on the CPU, from the generator that is given and from nothing else, as small tensors with
one row per recording; pixels are changed on the device where they are, all recordings at once.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from fedaction.data.clips.draws import Drawn
from fedaction.methods.base import Net, Task
from fedaction.models.resnet3d import ResNet3D

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
"""Red, green and blue over ImageNet, in units of 0 to 255."""


class Pretext(Task, Protocol):
    """A task with its network and its loss. It holds settings only: what it does is a function of its arguments.

    Recordings are (T, H, W, 3) uint8. Axes before a batch's, of stacked clients say, are kept by `apply`.
    """

    def network(self, depth: int, width: int) -> nn.Module:
        """A `backbone` without a classifier and the task's `head`; values are filled in later."""
        ...

    def loss(self, net: Net, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The task's loss on what `apply` gave, and numbers worth recording. A pure function."""
        ...


def backbone(depth: int, width: int, image_strides: tuple[int, int, int, int] = (1, 2, 2, 2)) -> ResNet3D:
    """The reference's R3D: a stem over three frames without pooling. Strides do not change its tensors."""
    return ResNet3D(
        depth, 0, width, stem_frames=3, pool=False, eps=1e-3, image_strides=image_strides, mean=MEAN, std=STD
    )


def check_clip(frames: int, size: int) -> None:
    """Refuses clips that no task can be made of."""
    if frames < 2 or size < 16:
        raise ValueError(f"a clip of {frames} frames of {size} x {size}: at least 2 frames and 16 pixels are needed")


def check_recording(shape: tuple[int, ...], frames: int, why: str) -> None:
    """Refuses recordings that are too short, or none."""
    if len(shape) != 4 or shape[-1] != 3 or min(shape) < 1:
        raise ValueError(f"a recording is (T, H, W, 3), not {shape}")
    if shape[0] < frames:
        raise ValueError(f"a recording has {shape[0]} frames, but {why} needs {frames}; take longer ones")


def flatten_lead(x: Tensor, drawn: Drawn) -> tuple[Tensor, dict[str, Tensor], tuple[int, ...]]:
    """Recordings and what was drawn for them with one leading axis, on one device; and the axes that there were."""
    lead = x.shape[:-4]
    if x.dim() < 5 or x.shape[-1] != 3:
        raise ValueError(f"recordings are (N, T, H, W, 3), not {tuple(x.shape)}")
    flat: dict[str, Tensor] = {}
    for name, tensor in drawn.items():
        if tensor.shape[: len(lead)] != lead:
            raise ValueError(f"{name} was drawn as {tuple(tensor.shape)}, but there are {tuple(lead)} recordings")
        flat[name] = tensor.to(x.device, non_blocking=True).flatten(0, len(lead) - 1)
    return x.flatten(0, -5), flat, tuple(lead)


def pick_frames(x: Tensor, frames: Tensor) -> Tensor:
    """(N, T, H, W, 3) recordings and (N, F) numbers of frames to (N, F, H, W, 3)."""
    return x[torch.arange(len(x), device=x.device)[:, None], frames]
