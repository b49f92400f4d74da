"""A set of video files as clips in one place: held in memory where there is room, else decoded as they are wanted."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.clips.clips import Clips
from fedaction.data.clips.recordings import Recordings, Streamed, Tell, read_spans, read_whole
from fedaction.data.clips.spec import ClipSpec, draw_clips
from fedaction.data.dataset import Issue
from fedaction.federation.processes import in_order
from fedaction.federation.seeds import derive, generator

if TYPE_CHECKING:  # needs PyAV, which is not always installed
    from fedaction.data.clips.cache import ClipCache
    from fedaction.data.clips.videos import Side, VideoSet

GROUP = "video"
MEMORY = 8 * 2**30
"""Bytes of decoded video that are held in memory, unless another number is given."""


@dataclass(frozen=True)
class Choice:
    """Which clips of recordings are taken."""

    train_clips: int = 1  # of each recording for training; 0: as many as do not overlap
    # Whether these are from other places of the recording whenever they are trained on; else they are drawn once,
    # from a generator of the recording's own, by its name
    fresh: bool = True
    test_clips: int = 0  # of each recording for test, evenly spread; 0: all that do not overlap, as the papers test
    whole: bool = False  # none of this, but whole recordings of any length, for `recordings_of`
    seed: int = 0  # of clips that are drawn once

    def __post_init__(self) -> None:
        if min(self.train_clips, self.test_clips) < 0:
            raise ValueError(
                "train_clips and test_clips must be at least 1, or 0 for all; "
                f"got {self.train_clips} and {self.test_clips}"
            )

    def cut(self, videos: VideoSet, side: Side, recordings: Recordings, frames: int, stride: int) -> Clips:
        """The clips of a split; numbers of recordings are positions in the videos' samples."""
        if self.whole:
            return Clips.spread(recordings, frames, 1, 1, anew=True)
        count = self.train_clips if side == "train" else self.test_clips
        if side == "test" or self.fresh or not count:
            return Clips.spread(recordings, frames, stride, count, anew=side == "train" and self.fresh)
        names = [videos.samples[number].name for number in recordings.numbers.tolist()]
        random = [generator(derive(self.seed, "clips", name)) for name in names]
        return Clips(recordings, draw_clips(recordings.lengths, frames, stride, count, random), frames)


def pool_recordings(
    videos: VideoSet, splits: Mapping[Side, Recordings], frames: int, stride: int, choice: Choice
) -> ClientData:
    """One client, called as the set, that has all clips; with `choice.whole`, each as long as the longest."""
    if choice.whole:
        frames = max(int(recordings.lengths.max()) for recordings in splits.values())
    train, test = (choice.cut(videos, side, recordings, frames, stride) for side, recordings in splits.items())
    return ClientData(ClientInfo(videos.name, GROUP, len(train), videos.classes, train.shape), train, test)


def pool_videos(
    videos: VideoSet,
    spec: ClipSpec,
    choice: Choice | None = None,
    *,
    cache: ClipCache | None = None,
    memory: int = MEMORY,
    workers: int = 0,
    progress: Tell | None = None,
) -> tuple[ClientData, list[Issue]]:
    """One client, called as the set, that has all clips of a set of videos.

    Every file is opened once: its packets are counted and its first frame is decoded. The first three arguments
    decide what clips there are, and nothing else does.

    Args:
        videos: the labelled videos, with what is for training and for test.
        spec: what a clip is.
        choice: which clips of the videos.
        cache: of decoded clips that will be wanted again.
        memory: bytes up to which what is trained and tested on is held in memory.
        workers: threads that open files; 0: one for each core.
        progress: called with the work done and the work there is, half of which is opening files.

    Returns:
        The client, and the files that cannot be read, with the reason. `recording` is the position of a clip's video
        in `videos.samples`.
    """
    splits, marks, issues = _open(videos, spec, cache, workers, progress)
    pool = pool_recordings(videos, splits, spec.frames, spec.stride, choice or Choice())
    assert isinstance(pool.train, Clips) and isinstance(pool.test, Clips)
    parts, done, total = [pool.train, pool.test], len(videos), 2 * len(videos)
    needed = sum(map(_bytes, parts))
    if needed > memory:
        warnings.warn(
            f"{needed / 2**30:.1f} GiB of video are not held in memory: each batch is read from the files",
            stacklevel=4,
        )
    for number, (clips, known_by) in enumerate(zip(parts, marks, strict=True)):
        digest, files = _digest(clips, known_by, spec), len(clips.recordings)
        if needed <= memory:
            clips = clips.hold(progress and partial(_tell_part, progress, done, files, total))
        parts[number] = replace(clips, digest=digest)
        done += files
    if progress is not None:
        progress(total, total)
    return replace(pool, train=parts[0], test=parts[1]), issues


def _bytes(clips: Clips) -> int:
    """What is to be held of clips: the recordings where they are drawn anew."""
    frames = int(clips.recordings.lengths.sum()) if clips.anew else len(clips) * clips.frames
    height, width = clips.recordings.store.square
    return frames * height * width * 3


def _open(
    videos: VideoSet, spec: ClipSpec, cache: ClipCache | None, workers: int, progress: Tell | None
) -> tuple[dict[Side, Recordings], list[list[str]], list[Issue]]:
    """Recordings of both splits; what the files of each are known by; those that cannot be read, with the reason."""
    read: dict[Side, list[tuple[int, int, str]]] = {"train": [], "test": []}
    issues: list[Issue] = []
    jobs = (partial(_look_at, sample.path, spec.side, spec.square) for sample in videos.samples)
    for number, (sample, (length, seen)) in enumerate(zip(videos.samples, in_order(jobs, workers), strict=True)):
        if length:
            about = [sample.name, sample.path.stat().st_size, sample.label, length, seen]
            read[sample.split].append((number, length, repr(about)))
        else:
            issues.append(Issue(kind="unreadable", where=sample.name, detail=seen))
        if progress is not None:
            progress(number + 1, 2 * len(videos))
    splits: dict[Side, Recordings] = {}
    for side, files in read.items():
        if not files:
            first = "".join(f"\n  {issue.where}: {issue.detail}" for issue in issues[:5])
            raise ValueError(f"{videos.name} has no videos for {side} that can be used; {len(issues)} issues:{first}")
        samples = [videos.samples[number] for number, _, _ in files]
        people = tuple(sample.person for sample in samples)
        splits[side] = Recordings(
            Streamed([sample.path for sample in samples], spec.side, spec.square, cache),
            torch.arange(len(files)),
            torch.tensor([length for _, length, _ in files]),
            torch.tensor([sample.label for sample in samples]),
            torch.tensor([number for number, _, _ in files]),
            people if all(people) else (),
        )
    return splits, [[mark for *_, mark in files] for files in read.values()], issues


def _look_at(path: Path, side: int, crop: int) -> tuple[int, str]:
    """A file's frames, by its packets, and a hash of the first; or 0, and why it cannot be used."""
    from fedaction.data.clips.decode import count_packets

    try:
        if path.suffix.lower() == ".mat":
            frames = read_whole(path, side, crop)
            return len(frames), hashlib.sha256(frames[:1].tobytes()).hexdigest()
        first = read_spans(path, [0], 1, 1, side, crop)
        return max(count_packets(path), 1), hashlib.sha256(first.tobytes()).hexdigest()
    except Exception as error:  # a file from outside may be anything: it is reported, and the others are used
        kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
        return 0, f"{kind}{error}" or type(error).__name__


def _digest(clips: Clips, marks: list[str], spec: ClipSpec) -> str:
    """A hash of the files' names, sizes, labels, lengths and first frames, and of where clips lie in them."""
    digest = hashlib.sha256(repr((spec.side, spec.square, clips.frames, clips.anew)).encode())
    digest.update("\n".join(marks).encode("utf-8", "surrogatepass"))
    for column in clips.spans:
        digest.update(column.numpy().data)
    return digest.hexdigest()


def _tell_part(progress: Tell, before: int, share: int, total: int, done: int, there_are: int) -> None:
    """Tells of a part of the work as of so much of the whole."""
    progress(before + share * done // there_are, total)
