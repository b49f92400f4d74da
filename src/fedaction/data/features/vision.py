"""Pictures, clips and optical flow as histograms of directions over cells of space and time.

What is counted is gradients of brightness (a contour's direction) and movement (where a contour or pixel goes to), as
in the HOG, HOF and MBH descriptors; each vector is shared out over eight directions by its projections on them. Clips
and flow have 4 spans of time by 4 x 4 cells by 16 numbers, pictures 8 x 8 cells by 16: 1024 numbers. The square root
is taken, so that a few strong edges do not outweigh the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from fedaction.data.preprocess import locate_frames

WIDTH = 1024
_FRAMES, _SIDE = 16, 48
_SPANS, _CELLS, _PICTURE_CELLS, _DIRECTIONS = 4, 4, 8, 8
_RED_GREEN_BLUE = (0.299, 0.587, 0.114)


def clip_features(clips: Sequence[npt.NDArray[np.generic]]) -> Tensor:
    """(N, 1024) of clips (T, H, W, 3 or 1), 0 to 255: the contours of what changes, and where they move to."""
    return torch.stack([_clip(_grey(_resize(clip, f"clip {i}", (1, 3)))) for i, clip in enumerate(clips)])


def flow_features(flows: Sequence[npt.NDArray[np.generic]]) -> Tensor:
    """(N, 1024) of flows (T, H, W, 2), pixels right and down: where pixels go to, and the borders of movement."""
    features = []
    for i, given in enumerate(flows):
        height, width = given.shape[1:3]
        flow = _resize(given, f"flow {i}", (2,)) * torch.tensor([_SIDE / width, _SIDE / height])  # T, S, S, 2
        right, down = flow.unbind(-1)
        borders = _gradient(torch.hypot(right, down))
        features.append(_histogram([(right, down), borders], _SPANS, _CELLS))
    return torch.stack(features)


def picture_features(pictures: Sequence[npt.NDArray[np.generic]]) -> Tensor:
    """(N, 1024) of pictures (H, W, 3 or 1), 0 to 255: contours and brightness by cell."""
    features = []
    for i, picture in enumerate(pictures):
        if picture.ndim != 3:
            raise ValueError(f"picture {i}: expected (height, width, 3 or 1), got shape {picture.shape}")
        grey = _grey(_resize(picture[None], f"picture {i}", (1, 3), frames=1))
        levels = (torch.arange(_DIRECTIONS) + 0.5) / _DIRECTIONS
        bright = (1 - (grey[:, None] - levels[:, None, None]).abs() * _DIRECTIONS).clamp(min=0)  # 1, 8, S, S
        contours = _directions(*_gradient(grey))
        features.append(_pool(torch.cat([contours, bright], 1), 1, _PICTURE_CELLS))
    return torch.stack(features)


def _clip(grey: Tensor) -> Tensor:
    """Features of (T, S, S) in [0, 1]."""
    # Less the clip's mean picture: a resting camera's background says nothing about the action.
    across, down = _gradient(grey - grey.mean(0, keepdim=True))
    change = torch.diff(grey, dim=0, append=grey[-1:])
    # A contour that moves along its gradient gets darker there: the product points where it goes.
    own_across, own_down = _gradient(grey)
    moved = (-change * own_across, -change * own_down)
    return _histogram([(across, down), moved], _SPANS, _CELLS)


def _resize(given: npt.NDArray[np.generic], where: str, channels: tuple[int, ...], frames: int = _FRAMES) -> Tensor:
    """(frames, S, S, channels) float32: interpolated over time, averaged over space."""
    if given.ndim != 4 or given.shape[3] not in channels or not given.size or given.dtype.kind not in "fiu":
        allowed = " or ".join(str(number) for number in channels)
        raise ValueError(
            f"{where}: expected numbers (frames, height, width, {allowed}), got {given.dtype} {given.shape}"
        )
    left, right, share = locate_frames(torch.tensor([len(given)]), frames)
    used, places = np.unique(torch.cat([left[0], right[0]]).numpy(), return_inverse=True)
    pictures = torch.from_numpy(np.array(given[used], dtype=np.float32)).permute(0, 3, 1, 2)
    small = adaptive_avg_pool2d(pictures, _SIDE)[torch.from_numpy(places)]
    return torch.lerp(small[:frames], small[frames:], share[0, :, None, None, None]).permute(0, 2, 3, 1)


def _grey(pictures: Tensor) -> Tensor:
    """(T, S, S) in [0, 1] from (T, S, S, 3 or 1) in 0 to 255."""
    weights = torch.tensor(_RED_GREEN_BLUE if pictures.shape[-1] == 3 else (1.0,))
    return (pictures @ weights) / 255


def _gradient(x: Tensor) -> tuple[Tensor, Tensor]:
    """Central differences of (T, S, S) to the right and downwards."""
    down, across = torch.gradient(x, dim=(1, 2))
    return across, down


def _directions(across: Tensor, down: Tensor) -> Tensor:
    """Vectors (T, S, S) shared out over eight directions: (T, 8, S, S), not negative."""
    angles = torch.arange(_DIRECTIONS) * (2 * math.pi / _DIRECTIONS)
    cosine, sine = angles.cos()[:, None, None], angles.sin()[:, None, None]
    return (across[:, None] * cosine + down[:, None] * sine).clamp(min=0)


def _pool(x: Tensor, spans: int, cells: int) -> Tensor:
    """Square roots of the means of (T, K, S, S) over spans of time and cells of space, flat."""
    small = adaptive_avg_pool2d(x, cells)  # T, K, cells, cells
    return small.unflatten(0, (spans, -1)).mean(1).sqrt().flatten()


def _histogram(fields: list[tuple[Tensor, Tensor]], spans: int, cells: int) -> Tensor:
    return _pool(torch.cat([_directions(*field) for field in fields], 1), spans, cells)
