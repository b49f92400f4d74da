"""From recordings of any length to one tensor: centre, resize, align.

The steps and their order are those of the CrosSCLR and AimCLR preprocessing, which FSAR reads:

1. centre: subtract the layout's centre joint of the same frame and body;
2. resize: linear interpolation of the valid frames to a fixed number, with OpenCV's half-pixel convention;
3. align: turn each frame about the vertical so that the shoulder line lies along x. It can be left out: where people
   face the camera it adds the noise of the shoulders to every other joint.

Two departures. Valid frames are those in which some joint of some body is not zero, wherever they stand (the
original counts non-zero frames and then takes that many from the start). Frames with missing values are
mended or their sequence is dropped, and `prepare` reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedaction.data.files import to_float32
from fedaction.data.layout import Layout

_CHUNK = 64  # sequences worked on at once: enough to make calls cheap, few enough to stay near the cache


@dataclass(frozen=True)
class PrepareReport:
    """What `prepare` did to its sequences."""

    given: int  # number of sequences passed in
    kept: tuple[int, ...]  # positions of the sequences in the result, in order; use it to pick their labels
    empty: tuple[int, ...]  # positions of the sequences dropped because no frame of theirs was usable
    nan_frames: int  # frames with a NaN or an infinity, filled in from the frames around them
    zero_frames: int  # frames in which every joint of every body was zero, left out before resizing

    def __str__(self) -> str:
        text = f"{len(self.kept)} of {self.given} sequences prepared"
        parts = [
            (len(self.empty), "empty sequences dropped"),
            (self.nan_frames, "frames with missing values filled in"),
            (self.zero_frames, "all-zero frames left out"),
        ]
        return "; ".join([text] + [f"{count} {what}" for count, what in parts if count])


def mend(sequence: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float32], int]:
    """Fills in missing values of one sequence over time.

    A body's frame with any NaN or infinity is replaced by linear interpolation between the body's nearest good
    frames, and beyond the first or last of them by that frame. A body's all-zero frames mean that it is absent
    and are never interpolated from. A body with no good frame at all becomes zero: it counts as absent.

    Gives the (M, T, V, C) sequence without missing values (the same array when nothing was missing), and the
    number of frames that had some. Frames of a body that is missing throughout are not counted.
    """
    bad = ~np.asarray(np.isfinite(sequence).all(axis=(2, 3)))  # M, T
    if not bad.any():
        return sequence, 0
    mended = sequence.copy()
    counted = np.zeros(sequence.shape[1], dtype=bool)
    for body in np.flatnonzero(bad.any(axis=1)):
        good = np.flatnonzero(~bad[body] & (sequence[body] != 0).any(axis=(1, 2)))
        gaps = np.flatnonzero(bad[body])
        if len(good) == 0:
            mended[body, gaps] = 0
            if np.isfinite(sequence[body]).any():  # not simply an absent body written as NaN
                counted[gaps] = True
            continue
        counted[gaps] = True
        after = np.searchsorted(good, gaps)
        left, right = good[np.maximum(after - 1, 0)], good[np.minimum(after, len(good) - 1)]
        share = np.where(right > left, (gaps - left) / np.maximum(right - left, 1), 0.0).clip(0, 1)
        share = share.astype(np.float32)[:, None, None]
        mended[body, gaps] = sequence[body, left] * (1 - share) + sequence[body, right] * share
    return mended, int(counted.sum())


def centre(x: Tensor, layout: Layout) -> Tensor:
    """Coordinates relative to the same body's centre joint in the same frame. x: (..., V, C)."""
    return x - x[..., layout.centre : layout.centre + 1, :]


def locate_frames(lengths: Tensor, frames: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where each output frame lies between two input frames, as OpenCV's bilinear resize has it.

    Output frame t stands at (t + 0.5) * length / frames - 0.5 of the input, clamped to its first and last frame
    (half-pixel centres; `align_corners=False` in torch). Shrinking takes no average: it samples.

    For (N,) lengths, gives the left and the right input frame, (N, frames) int64, and the right one's share in
    [0, 1), (N, frames) float32.
    """
    last = (lengths - 1)[:, None]
    place = (torch.arange(frames, dtype=torch.float64) + 0.5) * (lengths.double() / frames)[:, None] - 0.5
    place = torch.minimum(place.clamp(min=0), last.double())
    left = place.floor()
    return left.long(), torch.minimum(left.long() + 1, last), (place - left).float()


def align_shoulders(x: Tensor, layout: Layout) -> Tensor:
    """Each frame turned about the vertical (y) so that its shoulder line, left to right, points along x.

    x is (..., T, V, C) with all frames of a clip in T. It is returned as it is when the layout lacks a shoulder
    or C is not 3 (a flat pose has nothing to turn).

    As in the original, the sense of rotation is chosen once for a clip and body, by the sign of the shoulder
    line's z summed over the clip, and the cosine is damped by 1e-4 m. A clip in which the person turns through
    the camera axis therefore has frames that are turned the wrong way; results published with this preprocessing
    contain them.
    """
    if x.shape[-1] != 3 or not {"left_shoulder", "right_shoulder"} <= set(layout.joints):
        return x
    line = x[..., layout.index("right_shoulder"), :] - x[..., layout.index("left_shoulder"), :]  # ..., T, C
    across, depth = line[..., 0], line[..., 2]
    cosine = across / (torch.hypot(across, depth) + 1e-4)
    sense = torch.where(depth.sum(dim=-1, keepdim=True) >= 0, -1.0, 1.0)
    sine = sense * (1 - cosine.square()).clamp(min=0).sqrt()
    cosine, sine = cosine[..., None], sine[..., None]
    out = torch.empty_like(x)
    out[..., 1] = x[..., 1]
    torch.sub(cosine * x[..., 0], sine * x[..., 2], out=out[..., 0])
    torch.add(sine * x[..., 0], cosine * x[..., 2], out=out[..., 2])
    return out


def normalise(x: Tensor, layout: Layout, align: bool = True) -> Tensor:
    """Centres and aligns (N, M, T, V, C) sequences of equal length without missing values: a new tensor."""
    if x.dim() != 5 or x.shape[3] != len(layout):
        raise ValueError(f"layout {layout.name!r} expects (N, M, T, {len(layout)}, C), got shape {tuple(x.shape)}")
    if not align:
        return centre(x, layout)
    if x.device.type != "cpu" or len(x) <= _CHUNK:
        return align_shoulders(centre(x, layout), layout)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    for start in range(0, len(x), _CHUNK):
        out[start : start + _CHUNK] = align_shoulders(centre(x[start : start + _CHUNK], layout), layout)
    return out


def prepare(
    sequences: Sequence[npt.ArrayLike] | npt.NDArray[np.floating] | Tensor,
    layout: Layout,
    frames: int = 50,
    align: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> tuple[Tensor, PrepareReport]:
    """Recordings of any length to one batch: mend, drop empty frames, centre, resize, align.

    Args:
        sequences: (M, T_i, V, C) arrays, or one (N, M, T, V, C) batch. Sequences with fewer bodies than
            others get zero bodies.
        layout: the joints' layout. Another number of joints is an error.
        frames: frames of each sequence in the result.
        align: whether to turn the shoulders along x.
        progress: called with the sequences prepared and the sequences there are.

    Returns:
        (N, M, frames, V, C) float32 of the sequences in `PrepareReport.kept`, and the report.
    """
    if frames < 1:
        raise ValueError(f"frames must be at least 1, got {frames}")
    usable: list[npt.NDArray[np.float32]] = []
    kept: list[int] = []
    empty: list[int] = []
    nan_frames = zero_frames = 0
    for i, given in enumerate(sequences):
        sequence, mended = mend(check_sequence(given, layout, f"sequence {i}"))
        valid = (sequence != 0).any(axis=(0, 2, 3))  # T
        nan_frames += mended
        zero_frames += int((~valid).sum())
        if valid.any():
            kept.append(i)
            usable.append(sequence if valid.all() else sequence[:, valid])
        else:
            empty.append(i)
    report = PrepareReport(len(sequences), tuple(kept), tuple(empty), nan_frames, zero_frames)
    coordinates = {item.shape[3] for item in usable}
    if len(coordinates) > 1:
        raise ValueError(f"sequences differ in their number of coordinates: {sorted(coordinates)}")
    bodies = max((item.shape[0] for item in usable), default=1)
    out = torch.empty(len(usable), bodies, frames, len(layout), max(coordinates, default=3))
    for start in range(0, len(usable), _CHUNK):
        chunk = _prepare_chunk(usable[start : start + _CHUNK], bodies, layout, frames)
        out[start : start + _CHUNK] = align_shoulders(chunk, layout) if align else chunk
        if progress is not None:
            progress(min(start + _CHUNK, len(usable)), len(usable))
    if not torch.isfinite(out).all():
        raise ValueError("coordinates are too large for float32: positions are expected in metres")
    return out, report


def check_sequence(given: npt.ArrayLike, layout: Layout, where: str) -> npt.NDArray[np.float32]:
    """One sequence as (M, T, V, C) float32, or an error that says what does not fit the layout."""
    array = np.asarray(given)
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"{where}: coordinates must be real numbers, not {array.dtype}")
    if array.ndim != 4:
        raise ValueError(f"{where}: expected (bodies, frames, joints, coordinates), got shape {array.shape}")
    if array.shape[2] != len(layout):
        raise ValueError(f"{where}: layout {layout.name!r} has {len(layout)} joints, the data have {array.shape[2]}")
    if array.shape[0] < 1 or array.shape[3] not in (2, 3):
        raise ValueError(f"{where}: expected at least one body and 2 or 3 coordinates, got shape {array.shape}")
    return to_float32(array)


def _prepare_chunk(sequences: Sequence[npt.NDArray[np.float32]], bodies: int, layout: Layout, frames: int) -> Tensor:
    """(N, bodies, frames, V, C) from clean sequences, centred and resized; one gather over all frames end to end."""
    lengths = torch.tensor([item.shape[1] for item in sequences])
    firsts = torch.cumsum(lengths, dim=0) - lengths
    flat = torch.zeros(bodies, int(lengths.sum()), len(layout), sequences[0].shape[3])
    for item, first in zip(sequences, firsts.tolist(), strict=True):
        # A copy, because a memory-mapped recording is read-only and torch tensors are not.
        flat[: item.shape[0], first : first + item.shape[1]] = torch.from_numpy(np.array(item))
    flat = centre(flat, layout)
    left, right, share = locate_frames(lengths, frames)
    share = share[:, :, None, None]
    picked = [flat[:, place + firsts[:, None]] for place in (left, right)]  # each (bodies, N, frames, V, C)
    return (picked[0] * (1 - share) + picked[1] * share).transpose(0, 1)
