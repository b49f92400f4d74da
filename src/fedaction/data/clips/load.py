"""Clips of one labelled file, whatever kind of file it is."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from fedaction.data.clips.decode import PastEndError, VideoError, count_packets, read_all, read_clips
from fedaction.data.clips.picture import Pixels
from fedaction.data.clips.spec import (
    ClipSpec,
    clip_starts,
    cut,
    random_corners,
    resize,
)
from fedaction.data.matlab import read_matrix

DEPTH_RANGE = (2000.0, 3500.0)
"""Millimetres from the camera that depth clips show, from white to almost black. UTD-MHAD's people stand in it."""


def load_clips(
    path: str | Path,
    spec: ClipSpec,
    clips: int | Literal["all"] = "all",
    random: torch.Generator | None = None,
) -> Pixels:
    """Clips of a video, or of UTD-MHAD's depth files (.mat), (N, T, H, W, 3) uint8.

    Args:
        path: the file.
        spec: what a clip is.
        clips: so many; or all that do not overlap.
        random: where clips begin, and where they are cut if `spec` says so, is drawn from it. None: clips are spread
            evenly and cut from the centre.
    """
    path = Path(path)
    if path.suffix.lower() == ".mat":
        return _depth_clips(path, spec, clips, random)
    if clips == "all":
        return read_all(path, spec.frames, spec.stride, short_side=spec.short_side, crop=spec.crop)
    # Drawn once, so that a second try with the true length does not depend on the first.
    state = None if random is None else random.get_state()
    total = count_packets(path)
    for _ in range(2):
        if random is not None and state is not None:
            random.set_state(state)
        starts, corners = _draw(max(total, 1), spec, clips, random)
        try:
            return read_clips(
                path,
                starts,
                spec.frames,
                spec.stride,
                short_side=spec.short_side,
                crop=spec.crop,
                corners=corners,
            )
        except PastEndError as error:
            total = error.frames
    raise VideoError(f"{path}: its length changes from one reading to the next")


def read_depth(path: str | Path) -> Pixels:
    """A depth file of UTD-MHAD as pictures, (T, H, W, 3) uint8.

    Near is bright and far is dark, linear over `DEPTH_RANGE` and cut off at its ends; 0 is where nothing was
    measured, which in these files is all but the person. The three channels are equal.
    """
    depth = _depth(Path(path))
    return np.repeat(_shades(depth)[..., None], 3, axis=3)


def _depth_clips(path: Path, spec: ClipSpec, clips: int | Literal["all"], random: torch.Generator | None) -> Pixels:
    depth = _depth(path)
    total = len(depth)
    starts, corners = _draw(total, spec, clips, random)
    rows = np.stack([_looped(np.arange(start, min(start + spec.span, total), spec.stride), spec) for start in starts])
    used, places = np.unique(rows, return_inverse=True)  # the other frames need no work
    pictures = _shades(depth[used])[..., None]
    if spec.short_side is not None:
        pictures = resize(pictures, spec.short_side)
    made = pictures[places.reshape(rows.shape)]  # N, T, H, W, 1
    if spec.crop is not None:
        side = spec.crop
        made = np.stack([cut(c, side, None if corners is None else corners[i]) for i, c in enumerate(made)])
    return np.repeat(made, 3, axis=4)


def _looped(there: npt.NDArray[np.int64], spec: ClipSpec) -> npt.NDArray[np.int64]:
    return there[np.arange(spec.frames) % len(there)]


def _depth(path: Path) -> npt.NDArray[np.float64]:
    """(T, H, W) in millimetres; 0: not measured."""
    depth = read_matrix(path, "d_depth")  # H, W, T
    if depth.ndim == 2:  # MATLAB drops a last axis of length 1
        depth = depth[:, :, None]
    if depth.ndim != 3 or not depth.size:
        raise ValueError(f"{path}: d_depth has shape {depth.shape}; expected (height, width, frames)")
    if not (depth.min() >= 0 and depth.max() <= np.iinfo(np.uint16).max):  # nor NaN
        raise ValueError(f"{path}: d_depth has values that are no distances in millimetres (0 to 65535)")
    return depth.transpose(2, 0, 1)


def _shades(depth: npt.NDArray[np.float64]) -> Pixels:
    near, far = DEPTH_RANGE
    shades = np.clip(np.rint(1 + 254 * (far - np.arange(2**16)) / (far - near)), 1, 255).astype(np.uint8)
    shades[0] = 0
    return shades[depth.astype(np.uint16)]


def _draw(
    total: int, spec: ClipSpec, clips: int | Literal["all"], random: torch.Generator | None
) -> tuple[list[int], list[tuple[float, float]] | None]:
    """First frames, and corners unless all are cut from the centre."""
    starts = clip_starts(total, spec, clips, random)
    if clips == "all" or random is None or spec.place != "random":
        return starts, None
    return starts, random_corners(clips, random)
