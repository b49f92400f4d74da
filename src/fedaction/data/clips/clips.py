"""Clips cut from recordings: what engines and trainers read, wherever the recordings' frames are."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

import torch
from torch import Tensor

from fedaction.data.client import ClientData
from fedaction.data.clips.draws import below
from fedaction.data.clips.recordings import Held, Recordings, Streamed, Tell
from fedaction.data.clips.spec import Spans, spread_clips
from fedaction.data.samples import Examples, Samples, in_batches, in_memory

_CPU = torch.device("cpu")
_BATCH = 16  # clips that are decoded or hashed at a time


@dataclass(eq=False)
class Clips:
    """Clips of recordings, (frames, H, W, 3) uint8. Is a `Samples`."""

    recordings: Recordings  # what they are cut from
    spans: Spans  # where each one lies; where they are drawn anew, where it lies if nothing is drawn
    frames: int  # of a clip
    anew: bool = False  # whether each is cut from another place of its recording whenever it is trained on
    digest: str = ""  # a hash of what they are, where that is known without looking at every pixel
    labels: Tensor = field(init=False, repr=False)  # see `Samples.labels`
    subjects: tuple[str, ...] = field(init=False, repr=False)  # see `Samples.subjects`
    recording: Tensor = field(init=False, repr=False)  # see `Samples.recording`

    def __post_init__(self) -> None:
        row, who = self.spans.row, self.recordings.subjects
        self.labels, self.recording = self.recordings.labels[row], self.recordings.numbers[row]
        self.subjects = tuple(who[number] for number in row.tolist()) if who else ()

    @classmethod
    def spread(cls, recordings: Recordings, frames: int, stride: int, count: int, anew: bool = False) -> Clips:
        """Clips of each recording, see `spread_clips`; with `anew`, so many from other places each time."""
        return cls(recordings, spread_clips(recordings.lengths, frames, stride, count), frames, anew)

    def __len__(self) -> int:
        return len(self.spans.row)

    @property
    def shape(self) -> tuple[int, ...]:
        """See `Samples.shape`."""
        return (self.frames, *self.recordings.store.square, 3)

    @property
    def fresh(self) -> bool:
        """See `Samples.fresh`: where no recording is longer than a clip there is nothing to draw."""
        return self.anew and bool((self._free > 0).any())

    @property
    def resident(self) -> bool:
        """See `Samples.resident`."""
        return self.recordings.store.resident

    @cached_property
    def _free(self) -> Tensor:
        """(N,) the last frame at which each may begin."""
        lengths = self.recordings.lengths[self.spans.row]
        return (lengths - (self.frames - 1) * self.spans.stride - 1).clamp(min=0)

    @cached_property
    def _placed(self) -> Spans:
        """The spans among all recordings of the store, where they are looked up."""
        store = self.recordings.store
        spans = self.spans._replace(row=self.recordings.rows[self.spans.row])
        return Spans(*(column.to(store.device if store.resident else _CPU) for column in spans))

    def draw(self, rows: Tensor, random: torch.Generator) -> Tensor | None:
        """See `Samples.draw`; rows of any shape."""
        return below(self._free[rows.cpu()] + 1, random) if self.fresh else None

    def take(self, rows: Tensor, starts: Tensor | None = None) -> Tensor:
        """See `Samples.take`."""
        spans = self._placed.pick(rows.to(self._placed.row.device))
        if starts is not None:
            spans = spans._replace(start=starts)
        return self.recordings.store.read(spans, self.frames, keep=starts is None)

    def on(self, device: torch.device) -> Clips:
        """See `Samples.on`."""
        return replace(self, recordings=self.recordings.on(device))

    def pick(self, rows: Tensor) -> Clips:
        """Some of them, (n,) int64 or (N,) bool, with the recordings that these are cut from and no others."""
        spans = self.spans.pick(rows)
        used, row = spans.row.unique(return_inverse=True)
        return Clips(self.recordings.pick(used), spans._replace(row=row), self.frames, self.anew)

    def hold(self, tell: Tell | None = None) -> Clips:
        """The same, decoded now and held in memory: whole recordings where clips are drawn anew, else these clips."""
        store = self.recordings.store
        if not isinstance(store, Streamed):
            return self
        if self.anew:
            picked = replace(store, paths=[store.paths[row] for row in self.recordings.rows.tolist()])
            held = picked.hold(self.recordings.lengths, tell)
            recordings = replace(self.recordings, store=held, rows=torch.arange(len(self.recordings)))
            return replace(self, recordings=recordings)
        pixels = torch.empty((len(self) * self.frames, *store.square, 3), dtype=torch.uint8)
        done = 0
        for batch in in_batches(self, _BATCH):
            pixels[done : done + batch.shape[0] * self.frames] = batch.flatten(0, 1)
            done += batch.shape[0] * self.frames
            if tell is not None:
                tell(done // self.frames, len(self))
        every, lengths = torch.arange(len(self)), torch.full((len(self),), self.frames)
        recordings = Recordings(Held(pixels, lengths), every, lengths, self.labels, self.recording, self.subjects)
        return replace(self, recordings=recordings, spans=Spans(every, 0 * every, 0 * every + 1))


def join(parts: Sequence[Samples]) -> Samples:
    """Several clients' samples as those of one."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    if isinstance(first, Clips):
        clips = [part for part in parts if isinstance(part, Clips)]
        if len(clips) == len(parts) and all(part.recordings.store is first.recordings.store for part in clips):
            return _join_clips(clips)
    held = [in_memory(part) for part in parts]
    x, y = torch.cat([part.x for part in held]), torch.cat([part.y for part in held])
    numbers = [part.recording for part in held if part.recording is not None]
    subjects = tuple(name for part in held for name in part.subjects)
    whose = subjects if len(subjects) == len(y) else ()
    return Examples(x, y, whose, torch.cat(numbers) if len(numbers) == len(held) else None)


def _join_clips(parts: Sequence[Clips]) -> Clips:
    first, all_of = parts[0].recordings, [part.recordings for part in parts]
    subjects = tuple(name for recordings in all_of for name in recordings.subjects)
    recordings = Recordings(
        first.store,
        torch.cat([recordings.rows for recordings in all_of]),
        torch.cat([recordings.lengths for recordings in all_of]),
        torch.cat([recordings.labels for recordings in all_of]),
        torch.cat([recordings.numbers for recordings in all_of]),
        subjects if all(len(recordings.subjects) == len(recordings) for recordings in all_of) else (),
    )
    before = torch.tensor([0, *(len(r) for r in all_of)]).cumsum(0).tolist()
    spans = [part.spans._replace(row=part.spans.row + past) for part, past in zip(parts, before, strict=False)]
    joined = Spans(*(torch.cat(column) for column in zip(*spans, strict=True)))
    return Clips(recordings, joined, parts[0].frames, parts[0].anew)


def recordings_of(samples: Samples) -> Recordings:
    """What samples are cut from; samples that are cut from nothing are recordings themselves."""
    return samples.recordings if isinstance(samples, Clips) else Recordings.of(samples)


def check_clips(data: ClientData, origin: str) -> None:
    """Raises ValueError where there is nothing to be trained on, or labels do not fit."""
    classes = len(data.info.classes)
    if classes < 2:
        raise ValueError(f"{origin}: there are {classes} classes; training needs two or more")
    for name, split in (("train", data.train), ("test", data.test)):
        where, labels = f"{origin}: {name}", split.labels
        if not len(split) or 0 in split.shape:
            raise ValueError(f"{where}: there are no clips")
        if len(split.shape) != 4 or split.shape[-1] != 3:
            raise ValueError(f"{where}: clips must be (T, H, W, 3), these are {split.shape}")
        if int(labels.min()) < 0 or int(labels.max()) >= classes:
            raise ValueError(
                f"{where}: labels run from {int(labels.min())} to {int(labels.max())}, "
                f"but there are {classes} classes"
            )
    if data.train.shape != data.test.shape:
        raise ValueError(
            f"{origin}: clips of train and test differ in shape: {data.train.shape} and {data.test.shape}"
        )


def digest_of(data: ClientData) -> str:
    """A hash of every clip, label and recording of both splits, and of the classes' names."""
    digest = hashlib.sha256("\n".join(data.info.classes).encode())
    for split in (data.train, data.test):
        if isinstance(split, Clips) and split.digest:
            digest.update(split.digest.encode())
            continue
        recording = torch.arange(len(split)) if split.recording is None else split.recording
        digest.update(f"{split.shape}, {len(split)}".encode())
        for tensor in chain((split.labels, recording), in_batches(split, _BATCH)):  # never in memory as a whole
            digest.update(tensor.cpu().contiguous().numpy().data)
    return digest.hexdigest()
