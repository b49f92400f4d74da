"""Clips or recordings as NumPy files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fedaction.data.client import ClientData
from fedaction.data.clips.pool import pool_recordings
from fedaction.data.clips.recordings import Held, Recordings
from fedaction.data.clips.videos import Side, VideoSample, VideoSet
from fedaction.data.files import digest_files, open_npy
from fedaction.data.sources.base import Tell
from fedaction.data.sources.video import RecordedSource
from fedaction.federation.files import read_json

_SIDES: tuple[Side, ...] = ("train", "test")


class ArraySource(RecordedSource):
    """Your own clips or recordings, as NumPy files in one folder; they are memory-mapped, never read as a whole.

    `train_clips.npy` is (N, T, H, W, 3) uint8 red, green, blue, `train_labels.npy` (N,) whole numbers from 0,
    `train_recordings.npy` (N,) whole numbers that say which recording each is a part of (without it, each is its
    own); the same for `test`. `classes.json` is the list of the classes' names.
    """

    arrays: str
    """The folder; a relative path is looked up from where the command runs."""
    frames: int = Field(0, ge=0, le=1000)
    """Frames of a clip; 0: all T that the arrays have."""
    arrays_stride: int = Field(1, ge=1)
    """Frames of the original videos from one frame of the arrays to the next, for the model file."""

    @property
    def clip(self) -> tuple[int, int]:
        """See `Source.clip`."""
        clips = _map_clips(Path(self.arrays), "train")
        return self.arrays_stride * self.video_stride, min(clips.shape[2:4])

    def list_videos(self, seed: int) -> VideoSet:
        """See `RecordedSource.list_videos`."""
        folder = Path(self.arrays)
        if not folder.is_dir():
            raise ValueError(f"arrays: there is no folder {folder}")
        if not (folder / "classes.json").is_file():
            raise ValueError(f"{folder}: classes.json is missing; it is the list of the classes' names")
        classes = read_json(folder / "classes.json")
        if not isinstance(classes, list) or not all(isinstance(name, str) for name in cast("list[Any]", classes)):
            raise ValueError(f"{folder / 'classes.json'} must be a list of names")
        names = tuple(cast("list[str]", classes))
        samples: list[VideoSample] = []
        for side in _SIDES:
            path = folder / f"{side}_clips.npy"
            _, numbers, labels = (column.tolist() for column in _list_recordings(folder, side))
            if min(labels) < 0 or max(labels) >= len(names):
                raise ValueError(
                    f"{folder}: {side}: labels run from {min(labels)} to {max(labels)}, "
                    f"but there are {len(names)} classes"
                )
            samples += [VideoSample(path, f"{side}/{n}", y, side) for n, y in zip(numbers, labels, strict=True)]
        return VideoSet("arrays", names, tuple(samples))

    def fingerprint(self, seed: int) -> dict[str, str]:
        """See `Source.fingerprint`."""
        folder = Path(self.arrays)
        return {folder.name: digest_files(folder, [folder / "classes.json", *folder.glob("t*_*.npy")])}

    def cut(self, videos: VideoSet, seed: int, tell: Tell | None, whole: bool) -> ClientData:
        """See `RecordedSource.cut`."""
        folder, past = Path(self.arrays), 0
        shapes = [_map_clips(folder, side).shape[1:] for side in _SIDES]
        if shapes[0] != shapes[1]:
            raise ValueError(f"{folder}: clips of train and test differ in shape: {shapes[0]} and {shapes[1]}")
        splits: dict[Side, Recordings] = {}
        for side in _SIDES:
            pixels = torch.from_numpy(_map_clips(folder, side))
            which, numbers, labels = _list_recordings(folder, side)
            count, frames = pixels.shape[:2]
            lengths = torch.full((count,), frames)
            store = Held(pixels.flatten(0, 1), lengths)
            splits[side] = Recordings(store, torch.arange(count), lengths, labels[which], past + which)
            past += len(numbers)
        return pool_recordings(
            videos, splits, self.frames or shapes[0][0], self.video_stride, self._choice(seed, whole)
        )


def _list_recordings(folder: Path, side: Side) -> tuple[Tensor, Tensor, Tensor]:
    """(N,) which of the recordings each clip is a part of, from 0; (R,) their own numbers; (R,) their labels."""
    count = len(_map_clips(folder, side))
    labels = _read_numbers(folder / f"{side}_labels.npy", count)
    path = folder / f"{side}_recordings.npy"
    numbers, which = (_read_numbers(path, count) if path.exists() else torch.arange(count)).unique(
        return_inverse=True
    )
    label = labels.new_zeros(len(numbers)).index_copy_(0, which, labels)
    if not torch.equal(label[which], labels):
        raise ValueError(f"{folder}: {side}: clips of one recording have different labels")
    return which, numbers, label


def _map_clips(folder: Path, side: Side) -> NDArray[np.uint8]:
    """(N, T, H, W, 3) clips, mapped into memory."""
    path = folder / f"{side}_clips.npy"
    clips = _load(path)
    if clips.ndim != 5 or clips.shape[-1] != 3 or clips.dtype != np.uint8:
        raise ValueError(f"{path}: clips must be (N, T, H, W, 3) uint8, these are {clips.shape} {clips.dtype}")
    if not clips.size:
        raise ValueError(f"{path}: there are no clips")
    return clips


def _read_numbers(path: Path, count: int) -> Tensor:
    """(N,) int64."""
    numbers = _load(path)
    if numbers.dtype.kind not in "iu":
        raise ValueError(f"{path}: its numbers must be whole, but they are {numbers.dtype}")
    if numbers.shape != (count,):
        raise ValueError(f"{path}: {count} clips need as many numbers, got {numbers.shape}")
    return torch.from_numpy(numbers.astype(np.int64))


def _load(path: Path) -> NDArray[Any]:
    if not path.is_file():
        raise ValueError(f"{path.parent}: {path.name} is missing")
    return open_npy(path, "c")  # it could be changed, as torch wants it; nothing does
