"""Recordings that clips are cut from: their frames in memory, on a GPU, mapped from a file, or left in video files.

A clip that reaches past its recording's end is filled by repeating the frames it has, from its first; one that would
begin there is moved forward. So it is wherever the frames are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedaction.data.clips.spec import Spans
from fedaction.data.samples import Samples, in_memory
from fedaction.federation.processes import cores, in_order

if TYPE_CHECKING:  # needs PyAV, which is not always installed
    from fedaction.data.clips.cache import ClipCache

Pixels = NDArray[np.uint8]
Tell = Callable[[int, int], object]
_CPU = torch.device("cpu")
_SHARE = 0.5  # of a GPU's free memory that recordings may take


class FrameStore(Protocol):
    """Where the frames of recordings are."""

    @property
    def device(self) -> torch.device:
        """Where clips go."""
        ...

    @property
    def square(self) -> tuple[int, int]:
        """Rows and columns of a frame."""
        ...

    @property
    def resident(self) -> bool:
        """Whether the frames themselves are where clips go."""
        ...

    def read(self, spans: Spans, frames: int, keep: bool) -> Tensor:
        """(N, frames, H, W, 3) uint8 clips on the device that they are for.

        `keep`: the same clips will be asked for again, and are worth a place in a cache.
        """
        ...

    def on(self, device: torch.device) -> FrameStore:
        """The same for a device; what fits there is moved there once, for all who ask."""
        ...


class Held:
    """Frames in memory, or mapped into it. Is a `FrameStore`."""

    def __init__(self, pixels: Tensor, lengths: Tensor, device: torch.device = _CPU) -> None:
        """Takes (F, H, W, 3) uint8 frames of all recordings, one after another, and (R,) how many each has."""
        self.square = int(pixels.shape[1]), int(pixels.shape[2])
        self.resident = pixels.device.type == device.type
        self._pixels, self.device = pixels, device
        self._lengths = lengths.to(pixels.device)
        self._first = self._lengths.cumsum(0) - self._lengths
        self._elsewhere: dict[torch.device, Held] = {}

    def read(self, spans: Spans, frames: int, keep: bool) -> Tensor:
        """See `FrameStore.read`."""
        at = self._pixels.device
        row, start, stride = (send(column, at) for column in spans)
        length = self._lengths[row]
        last = (length - (frames - 1) * stride - 1).clamp(min=0)
        start = torch.where(start < length, start, last)
        there = (length - start + stride - 1) // stride  # frames that a clip has
        step = torch.arange(frames, device=at) % there[:, None]
        places = (self._first[row] + start)[:, None] + stride[:, None] * step  # N, frames
        return send(self._pixels[places], self.device)

    def on(self, device: torch.device) -> Held:
        """See `FrameStore.on`: moved where it takes no more than half of the free memory."""
        if device.type == self.device.type:
            return self
        if device not in self._elsewhere:
            pixels = self._pixels
            if device.type != "cuda" or pixels.numel() <= _SHARE * torch.cuda.mem_get_info(device)[0]:
                pixels = pixels.to(device)
            else:
                warnings.warn(
                    "the clips take more than half of the device's memory; each batch is copied there", stacklevel=2
                )
            self._elsewhere[device] = Held(pixels, self._lengths, device)
        return self._elsewhere[device]


@dataclass(frozen=True, eq=False)
class Streamed:
    """Frames in video files; clips are decoded, by threads, when they are wanted. Is a `FrameStore`."""

    paths: Sequence[Path] = field(repr=False)  # (R,) files
    side: int  # frames are brought to this shorter side, in pixels
    crop: int  # side of the square that is kept from their middle
    cache: ClipCache | None = None  # of decoded clips, or None
    device: torch.device = _CPU  # where clips go
    resident = False

    @property
    def square(self) -> tuple[int, int]:
        """See `FrameStore`."""
        return self.crop, self.crop

    def read(self, spans: Spans, frames: int, keep: bool) -> Tensor:
        """See `FrameStore.read`. Neighbours of one file are read together."""
        columns = zip(*(column.tolist() for column in spans), strict=True)
        jobs = [
            partial(self._read, row, [start for _, start, _ in same], stride, frames, keep)
            for (row, stride), same in groupby(columns, lambda span: (span[0], span[2]))
        ]
        nothing = np.zeros((0, frames, *self.square, 3), dtype=np.uint8)
        parts = [nothing, *(future.result() for future in [_decoders().submit(job) for job in jobs])]
        return send(torch.from_numpy(np.concatenate(parts)), self.device)

    def on(self, device: torch.device) -> Streamed:
        """See `FrameStore.on`: files stay where they are."""
        return replace(self, device=device)

    def hold(self, lengths: Tensor, tell: Tell | None = None) -> Held:
        """All frames, decoded once; at most (R,) `lengths` of the files, which may turn out to have fewer."""
        pixels = torch.empty((int(lengths.sum()), *self.square, 3), dtype=torch.uint8)
        counts, done = lengths.clone(), 0
        for number, frames in enumerate(in_order(partial(self._whole, path) for path in self.paths)):
            count = min(len(frames), int(lengths[number]))
            pixels[done : done + count] = torch.from_numpy(np.array(frames[:count]))
            counts[number] = count
            done += count
            if tell is not None:
                tell(number + 1, len(self.paths))
        return Held(pixels[:done], counts)

    def _read(self, row: int, starts: list[int], stride: int, frames: int, keep: bool) -> Pixels:
        path = self.paths[row]
        how = {"starts": starts, "frames": frames, "stride": stride, "side": self.side, "crop": self.crop}
        return self._take(path, how, partial(read_spans, path, starts, frames, stride, self.side, self.crop), keep)

    def _whole(self, path: Path) -> Pixels:
        how = {"whole": [self.side, self.crop]}
        return self._take(path, how, lambda: read_whole(path, self.side, self.crop)[None])[0]

    def _take(self, path: Path, how: Mapping[str, object], make: Callable[[], Pixels], keep: bool = True) -> Pixels:
        return make() if self.cache is None or not keep else self.cache.clips(path, how, make)


@dataclass(frozen=True, eq=False)
class Recordings:
    """Labelled recordings of one split."""

    store: FrameStore  # their frames, among those of others
    rows: Tensor  # (R,) int64, which of the store's recordings they are
    lengths: Tensor  # (R,) int64 frames that they count as having; the store may have fewer of some
    labels: Tensor  # (R,) int64
    numbers: Tensor  # (R,) int64; rows with the same number are parts of one recording
    subjects: tuple[str, ...] = field(default=(), repr=False)  # (R,) who performs; empty where that is not known

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, samples: Samples) -> Recordings:
        """Samples (N, T, H, W, 3), each of which is a recording, or a part of one."""
        held, count = in_memory(samples), len(samples)
        lengths = torch.full((count,), samples.shape[0])
        numbers = torch.arange(count) if samples.recording is None else samples.recording
        store = Held(held.x.flatten(0, 1), lengths, held.x.device)
        return cls(store, torch.arange(count), lengths, samples.labels, numbers, samples.subjects)

    def pick(self, rows: Tensor) -> Recordings:
        """Some of the recordings, (n,) int64; the frames stay where they are."""
        subjects = tuple(self.subjects[row] for row in rows.tolist()) if self.subjects else ()
        return Recordings(
            self.store, self.rows[rows], self.lengths[rows], self.labels[rows], self.numbers[rows], subjects
        )

    def on(self, device: torch.device) -> Recordings:
        """The same for work on a device."""
        return replace(self, store=self.store.on(device))


def read_whole(path: Path, side: int, crop: int) -> Pixels:
    """All frames of a file, (T, crop, crop, 3)."""
    from fedaction.data.clips.decode import read_all
    from fedaction.data.clips.depth import read_depth

    if path.suffix.lower() == ".mat":
        return read_depth(path, side, crop)
    return read_all(path, 1, short_side=side, crop=crop)[:, 0]


def read_spans(path: Path, starts: Sequence[int], frames: int, stride: int, side: int, crop: int) -> Pixels:
    """Clips of a file, (N, frames, crop, crop, 3)."""
    from fedaction.data.clips.decode import PastEndError, read_clips

    if path.suffix.lower() == ".mat":  # depth, whose files are read as a whole
        pixels, row = torch.from_numpy(read_whole(path, side, crop)), torch.zeros(len(starts), dtype=torch.int64)
        spans = Spans(row, torch.tensor(starts), torch.full_like(row, stride))
        return Held(pixels, torch.tensor([len(pixels)])).read(spans, frames, keep=False).numpy()
    try:
        return read_clips(path, starts, frames, stride, short_side=side, crop=crop)
    except PastEndError as error:
        last = max(error.frames - (frames - 1) * stride - 1, 0)
        moved = [start if start < error.frames else last for start in starts]
        return read_clips(path, moved, frames, stride, short_side=side, crop=crop)


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device, without waiting for what a GPU is still doing."""
    if tensor.device.type == device.type or device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


@cache
def _decoders() -> ThreadPoolExecutor:
    """Threads that decode, one for each core, for whoever asks."""
    return ThreadPoolExecutor(cores(), thread_name_prefix="decode")
