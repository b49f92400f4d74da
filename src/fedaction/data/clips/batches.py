"""Clips of video on a device: batches gathered by index, random crops, scores per clip and per recording."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedaction.data.client import ClientData
from fedaction.data.clips.draws import below
from fedaction.data.clips.recordings import Recordings, Spans
from fedaction.data.samples import in_memory

_HASHED = 64 << 20  # bytes at once
_SHARE = 0.5  # of the device's free memory that clips may take


class Cut(NamedTuple):
    """Where a window lies in each of (N,) clips' frames, and whether it is mirrored.

    Attributes:
        top: (N,) int64 first row; rows outside the frame repeat its edge.
        left: (N,) int64 first column, likewise.
        mirrored: (N,) bool.
    """

    top: Tensor
    left: Tensor
    mirrored: Tensor


@dataclass(frozen=True)
class Window:
    """The part of a frame that a network sees.

    Attributes:
        size: rows and columns of the window.
        frame: rows and columns of a frame.
        pad: how far a random window may reach over the frame's edges, in pixels.
        flip: whether random windows are mirrored, half of them.
    """

    size: tuple[int, int]
    frame: tuple[int, int]
    pad: int = 0
    flip: bool = False

    def draw(self, count: int, generator: torch.Generator) -> Cut:
        """Random windows for `count` clips, from a CPU generator."""
        numbers = torch.rand(3, count, generator=generator)
        first: list[Tensor] = []
        for axis in (0, 1):
            places = self.frame[axis] + 2 * self.pad - self.size[axis] + 1
            # Rounding can lift the largest float32 below 1 to the full count, hence the clamp.
            first.append((numbers[axis] * places).long().clamp(max=places - 1) - self.pad)
        return Cut(first[0], first[1], (numbers[2] < 0.5) if self.flip else torch.zeros(count, dtype=torch.bool))

    def cut(self, clips: Tensor, cut: Cut) -> Tensor:
        """(N, T, H, W, 3) clips to (N, T, h, w, 3), each through its own window; all on one device."""
        (height, width), device = self.size, clips.device
        rows = cut.top[:, None] + torch.arange(height, device=device)  # N, h
        columns = cut.left[:, None] + torch.arange(width, device=device)  # N, w
        columns = torch.where(cut.mirrored[:, None], columns.flip(-1), columns)
        rows, columns = rows.clamp(0, self.frame[0] - 1), columns.clamp(0, self.frame[1] - 1)
        which = torch.arange(len(clips), device=device)[:, None, None, None]
        frames = torch.arange(clips.shape[1], device=device)[:, None, None]
        return clips[which, frames, rows[:, None, :, None], columns[:, None, None, :]]

    def centre(self, clips: Tensor) -> Tensor:
        """(N, T, H, W, 3) clips to the (N, T, h, w, 3) middle of their frames."""
        top, left = (self.frame[0] - self.size[0]) // 2, (self.frame[1] - self.size[1]) // 2
        return clips[:, :, top : top + self.size[0], left : left + self.size[1]]


class Clips:
    """Clips of one split, ready to be trained on or tested.

    Attributes:
        frames: of a clip.
        y: (N,) int64 labels, on the device.
        recording: (N,) int64, of which recording each is, from 0; on the CPU.
        recordings: how many there are.
    """

    def __init__(self, source: Recordings, spans: Spans, frames: int, renewed: bool = False) -> None:
        """`renewed`: where a clip begins is drawn whenever it is trained on; otherwise `spans` say it."""
        self.source, self.spans, self.frames, self.renewed = source, spans, frames, renewed
        self.y = source.y[spans.row].to(source.device)
        names, self.recording = source.recording[spans.row].unique(return_inverse=True)
        self.recordings = len(names)

    @classmethod
    def whole(cls, source: Recordings) -> Clips:
        """Each row of recordings that have one length is a clip."""
        count = len(source.y)
        return cls(
            source,
            Spans(torch.arange(count), torch.zeros(count, dtype=torch.int64), _ones(count)),
            int(source.lengths[0]),
        )

    @classmethod
    def spread(cls, source: Recordings, frames: int, stride: int, count: int) -> Clips:
        """So many clips of each row, evenly spread from its beginning to its end; never the same one twice."""
        strides, free = _room(source, frames, stride)
        counts = (free + 1).clamp(max=count)
        row = torch.arange(len(counts)).repeat_interleave(counts)
        position = torch.arange(len(row)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
        gaps = (counts - 1)[row].clamp(min=1)
        # As of numpy's linspace, rounded; the middle one of the places where there is one clip alone.
        start = torch.where(counts[row] == 1, free[row] // 2, (2 * free[row] * position + gaps) // (2 * gaps))
        return cls(source, Spans(row, start, strides[row]), frames)

    @classmethod
    def anywhere(cls, source: Recordings, frames: int, stride: int) -> Clips:
        """One clip of each row, from another place each time."""
        strides, free = _room(source, frames, stride)
        return cls(source, Spans(torch.arange(len(free)), free // 2, strides), frames, renewed=True)

    def __len__(self) -> int:
        return len(self.spans.row)

    def at(self, index: Tensor, random: torch.Generator) -> Spans:
        """The clips of an (N,) int64 index on the CPU; where they are renewed, at places that are drawn now."""
        spans = Spans(*(part[index] for part in self.spans))
        if not self.renewed:
            return spans
        free = (self.source.lengths[spans.row] - (self.frames - 1) * spans.stride).clamp(min=1)
        return spans._replace(start=below(free, random))

    def batches(self, size: int, spans: Spans | None = None) -> Generator[Tensor]:
        """All clips, or given ones, in order, `size` at a time: (N, frames, H, W, 3) uint8, on the device."""
        return self.source.clips(self.spans if spans is None else spans, self.frames, size, keep=not self.renewed)


def _room(source: Recordings, frames: int, stride: int) -> tuple[Tensor, Tensor]:
    """(R,) strides, smaller where a recording is too short, and (R,) last places where a clip may begin."""
    strides = ((source.lengths - 1) // max(frames - 1, 1)).clamp(1, stride)
    return strides, (source.lengths - (frames - 1) * strides - 1).clamp(min=0)


def _ones(count: int) -> Tensor:
    return torch.ones(count, dtype=torch.int64)


def fits(data: ClientData, device: torch.device) -> bool:
    """Whether the clips of both splits can stay on the device and leave room to train there."""
    return may_stay(
        sum(split.x.numel() * split.x.element_size() for split in map(in_memory, (data.train, data.test))), device
    )


def may_stay(needed: int, device: torch.device) -> bool:
    """Whether so many bytes can stay on the device and leave room to train there."""
    return device.type != "cuda" or needed <= _SHARE * torch.cuda.mem_get_info(device)[0]


def check_clips(data: ClientData, origin: str) -> None:
    """Raises ValueError where clips, labels or recordings are not what training needs."""
    classes = len(data.info.classes)
    if classes < 2:
        raise ValueError(f"{origin}: there are {classes} classes; training needs two or more")
    train, test = in_memory(data.train), in_memory(data.test)
    for name, split in (("train", train), ("test", test)):
        where = f"{origin}: {name}"
        if split.x.dim() != 5 or split.x.shape[-1] != 3 or split.x.dtype != torch.uint8:
            found = f"{tuple(split.x.shape)} {str(split.x.dtype).removeprefix('torch.')}"
            raise ValueError(f"{where}: clips must be (N, T, H, W, 3) uint8, these are {found}")
        if not len(split) or 0 in split.x.shape:
            raise ValueError(f"{where}: there are no clips")
        if split.y.dtype != torch.int64 or split.y.shape != split.x.shape[:1]:
            raise ValueError(
                f"{where}: {split.x.shape[0]} clips need as many int64 labels, got {tuple(split.y.shape)}"
            )
        if int(split.y.min()) < 0 or int(split.y.max()) >= classes:
            raise ValueError(
                f"{where}: labels run from {int(split.y.min())} to {int(split.y.max())}, "
                f"but there are {classes} classes"
            )
        if split.recording is None:
            continue
        if split.recording.dtype != torch.int64 or split.recording.shape != split.y.shape:
            raise ValueError(
                f"{where}: {len(split)} clips need as many int64 recordings, got {tuple(split.recording.shape)}"
            )
        if len(torch.stack([split.recording, split.y]).unique(dim=1).T) != len(split.recording.unique()):
            raise ValueError(f"{where}: clips of one recording have different labels")
    if train.shape != test.shape:
        shapes = f"{train.shape} and {test.shape}"
        raise ValueError(f"{origin}: clips of train and test differ in shape: {shapes}")


def digest_of(data: ClientData) -> str:
    """A hash of every clip, label and recording of both splits, and of the classes' names."""
    digest = hashlib.sha256()
    said: list[str] = list(data.info.classes)
    for split in map(in_memory, (data.train, data.test)):
        recording = torch.arange(len(split)) if split.recording is None else split.recording
        _absorb(digest.update, (split.x, split.y, recording))
        said.append(str((tuple(split.x.shape), split.x.dtype)))
    digest.update("\n".join(said).encode())
    return digest.hexdigest()


def _absorb(update: Callable[[memoryview], None], tensors: Sequence[Tensor]) -> None:
    for tensor in tensors:
        rows = max(1, _HASHED // max(1, tensor[:1].numel() * tensor.element_size()))
        for part in tensor.split(rows):  # so that a memory-mapped file is never in memory as a whole
            update(part.contiguous().numpy().data)
