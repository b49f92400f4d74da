"""Recordings of one split, from which clips are read: held as pixels, on the device if they fit, or left in files.

A clip that reaches past its recording's end is filled by repeating the frames it has, from its first, as `data.video`
does; one that would begin there is moved forward.
"""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedaction.data.samples import Examples
from fedaction.federation.processes import cores

if TYPE_CHECKING:  # needs PyAV, which is not always installed
    from fedaction.data.clips.cache import ClipCache

Pixels = NDArray[np.uint8]
_AHEAD = 2  # batches that are read while one is used
_T = TypeVar("_T")


class Spans(NamedTuple):
    """Clips: (N,) int64 each, on the CPU.

    Attributes:
        row: which of the recordings.
        start: its frame that comes first.
        stride: from one frame of the clip to the next.
    """

    row: Tensor
    start: Tensor
    stride: Tensor


class Recordings(Protocol):
    """What clips are read from.

    Attributes:
        device: where clips go.
        y: (R,) int64 labels, on the CPU.
        recording: (R,) int64; rows with the same number are parts of one recording.
        lengths: (R,) int64 frames.
        frame: rows and columns of a frame.
    """

    device: torch.device
    y: Tensor
    recording: Tensor
    lengths: Tensor
    frame: tuple[int, int]

    def clips(self, spans: Spans, frames: int, batch: int, keep: bool) -> Generator[Tensor]:
        """Clips in the order of the spans, `batch` at a time: (N, frames, H, W, 3) uint8, on the device.

        `keep`: the same clips will be asked for again, and are worth a place in a cache.
        """
        ...


class Held:
    """Recordings whose pixels are in memory, or mapped into it."""

    def __init__(
        self,
        pixels: Tensor,
        lengths: Tensor,
        y: Tensor,
        recording: Tensor | None,
        device: torch.device,
        resident: bool,
    ) -> None:
        """Takes what there is of a split.

        Args:
            pixels: (F, H, W, 3) uint8 frames of all recordings, one after another.
            lengths: (R,) int64, how many are of each.
            y: (R,) int64 labels.
            recording: see `Recordings`; None: each row is its own.
            device: where clips go.
            resident: whether all pixels are moved there; otherwise only each batch is.
        """
        self.device, self.resident, self.y, self.lengths = device, resident, y, lengths
        self.recording = torch.arange(len(y)) if recording is None else recording
        self.frame = int(pixels.shape[1]), int(pixels.shape[2])
        self._pixels = pixels.to(device) if resident else pixels
        self._first = lengths.cumsum(0) - lengths

    @classmethod
    def of(cls, examples: Examples, device: torch.device, resident: bool) -> Held:
        """Recordings of one length, (R, T, H, W, 3)."""
        lengths = torch.full((len(examples),), int(examples.x.shape[1]))
        return cls(examples.x.flatten(0, 1), lengths, examples.y, examples.recording, device, resident)

    def clips(self, spans: Spans, frames: int, batch: int, keep: bool) -> Generator[Tensor]:
        """See `Recordings.clips`."""
        lengths, stride = self.lengths[spans.row], spans.stride
        last = (lengths - (frames - 1) * stride - 1).clamp(min=0)
        start = torch.where(spans.start < lengths, spans.start, last)
        there = (lengths - start + stride - 1) // stride  # frames that a clip has
        step = torch.arange(frames) % there[:, None]
        places = (self._first[spans.row] + start)[:, None] + stride[:, None] * step  # N, frames
        if self.resident:
            for part in places.to(self.device).split(batch):
                yield self._pixels[part]
            return
        jobs = ([partial(self._pixels.__getitem__, part)] for part in places.split(batch))
        for (pixels,) in ahead(jobs, 1):
            yield _moved(pixels, self.device)


@dataclass(eq=False)
class Streamed:
    """Recordings in video files, whose clips are decoded by threads while the batches before them are used.

    Memory holds a few batches, however many files there are.

    Attributes:
        paths: (R,) files.
        y: see `Recordings`, as for the others.
        recording: here, each file is one.
        lengths: by the files' packets: a clip that begins past the true end is moved forward.
        side: frames are brought to this shorter side, in pixels, and their middle square is kept.
        device: where clips go.
        cache: of decoded clips, or None.
        workers: threads; 0: one for each core.
        frame: see `Recordings`.
    """

    paths: Sequence[Path]
    y: Tensor
    recording: Tensor
    lengths: Tensor
    side: int
    device: torch.device
    cache: ClipCache | None = None
    workers: int = 0
    frame: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.frame = (self.side, self.side)

    def clips(self, spans: Spans, frames: int, batch: int, keep: bool) -> Generator[Tensor]:
        """See `Recordings.clips`."""
        cache = self.cache if keep else None
        parts = zip(*(column.split(batch) for column in spans), strict=True)
        for found in ahead((self._jobs(part, frames, cache) for part in parts), self.workers or cores()):
            yield _moved(torch.from_numpy(np.concatenate(found)), self.device)

    def _jobs(self, part: Sequence[Tensor], frames: int, cache: ClipCache | None) -> list[Callable[[], Pixels]]:
        """What reads a batch; neighbours of one file are read together."""
        rows = zip(*(column.tolist() for column in part), strict=True)
        groups = [
            (key, [start for _, start, _ in same]) for key, same in groupby(rows, lambda span: (span[0], span[2]))
        ]
        return [partial(self._read, row, starts, stride, frames, cache) for (row, stride), starts in groups]

    def _read(self, row: int, starts: list[int], stride: int, frames: int, cache: ClipCache | None) -> Pixels:
        path = self.paths[row]

        def make() -> Pixels:
            return read_spans(path, starts, frames, stride, self.side)

        if cache is None:
            return make()
        how = {"starts": starts, "frames": frames, "stride": stride, "side": self.side}
        return cache.clips(path, how, make)


def read_whole(path: Path, side: int) -> Pixels:
    """All frames of a file, (T, side, side, 3)."""
    from fedaction.data.clips.decode import read_all
    from fedaction.data.clips.load import read_depth
    from fedaction.data.clips.spec import cut, resize

    if path.suffix.lower() == ".mat":
        return np.ascontiguousarray(cut(resize(read_depth(path), side), side))
    return read_all(path, 1, short_side=side, crop=side)[:, 0]


def read_spans(path: Path, starts: Sequence[int], frames: int, stride: int, side: int) -> Pixels:
    """Clips of a file, (N, frames, side, side, 3)."""
    from fedaction.data.clips.decode import PastEndError, read_clips

    if path.suffix.lower() == ".mat":  # depth, whose files are read as a whole
        pixels = torch.from_numpy(read_whole(path, side))
        one = Held(pixels, torch.tensor([len(pixels)]), torch.zeros(1), None, torch.device("cpu"), True)
        spans = Spans(torch.zeros(len(starts), dtype=torch.int64), torch.tensor(starts), torch.tensor(stride))
        spans = spans._replace(stride=spans.stride.expand(len(starts)))
        return next(one.clips(spans, frames, len(starts), keep=False)).numpy()
    try:
        return read_clips(path, starts, frames, stride, short_side=side, crop=side)
    except PastEndError as error:
        last = max(error.frames - (frames - 1) * stride - 1, 0)
        moved = [start if start < error.frames else last for start in starts]
        return read_clips(path, moved, frames, stride, short_side=side, crop=side)


def ahead(batches: Iterable[Sequence[Callable[[], _T]]], workers: int) -> Generator[list[_T]]:
    """The results of each batch of jobs, in order; threads are a few batches ahead of what is asked for."""
    pending: deque[list[Future[_T]]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="clips") as pool:
        try:
            for jobs in batches:
                pending.append([pool.submit(job) for job in jobs])
                if len(pending) > _AHEAD:
                    yield [future.result() for future in pending.popleft()]
            while pending:
                yield [future.result() for future in pending.popleft()]
        finally:
            for future in chain.from_iterable(pending):
                future.cancel()


def _moved(pixels: Tensor, device: torch.device) -> Tensor:
    return pixels.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else pixels
