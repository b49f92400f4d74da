"""UTD-MHAD's depth files as pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from fedaction.data.clips.picture import Pixels, corner_of
from fedaction.data.matlab import read_matrix

DEPTH_RANGE = (2000.0, 3500.0)
"""Millimetres from the camera that depth clips show, from white to almost black. UTD-MHAD's people stand in it."""


def read_depth(path: str | Path, side: int = 0, crop: int = 0) -> Pixels:
    """A depth file of UTD-MHAD (.mat) as pictures, (T, H, W, 3) uint8.

    Near is bright and far is dark, linear over `DEPTH_RANGE` and cut off at its ends; 0 is where nothing was
    measured, which in these files is all but the person. The three channels are equal. `side` is the pixels of
    the shorter side after scaling, `crop` the side of the square that is then cut from the middle; 0: neither is
    done.
    """
    pictures = _shade(_read(Path(path)))[..., None]
    if side:
        pictures = resize(pictures, side)
    if crop:
        top, left = corner_of(pictures.shape[1], pictures.shape[2], crop)
        pictures = pictures[:, top : top + crop, left : left + crop]
    return np.repeat(pictures, 3, axis=3)


def resize(clip: Pixels, side: int) -> Pixels:
    """Scales (T, H, W, C) uint8 so that its shorter side has so many pixels: bilinear, with antialiasing.

    Videos are scaled by their decoder, before their colours are converted: that is cheaper (see
    `fedaction.bench.video`) and differs little, by 1 of 255 on average in real clips.
    """
    height, width = clip.shape[1:3]
    scale = side / min(height, width)
    size = max(round(height * scale), 1), max(round(width * scale), 1)
    if size == (height, width):
        return clip
    pictures = torch.from_numpy(np.array(clip)).permute(0, 3, 1, 2)
    scaled = F.interpolate(pictures, size, mode="bilinear", antialias=True, align_corners=False)
    return scaled.permute(0, 2, 3, 1).contiguous().numpy()


def _read(path: Path) -> npt.NDArray[np.float64]:
    """(T, H, W) in millimetres; 0: not measured."""
    depth = read_matrix(path, "d_depth")  # H, W, T
    if depth.ndim == 2:  # MATLAB drops a last axis of length 1
        depth = depth[:, :, None]
    if depth.ndim != 3 or not depth.size:
        raise ValueError(f"{path}: d_depth has shape {depth.shape}; expected (height, width, frames)")
    if not (depth.min() >= 0 and depth.max() <= np.iinfo(np.uint16).max):  # nor NaN
        raise ValueError(f"{path}: d_depth has values that are no distances in millimetres (0 to 65535)")
    return depth.transpose(2, 0, 1)


def _shade(depth: npt.NDArray[np.float64]) -> Pixels:
    near, far = DEPTH_RANGE
    shades = np.clip(np.rint(1 + 254 * (far - np.arange(2**16)) / (far - near)), 1, 255).astype(np.uint8)
    shades[0] = 0
    return shades[depth.astype(np.uint16)]
