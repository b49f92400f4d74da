"""Sets of video files as recordings: decoded into memory where there is room, else read from the files as needed."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedaction.data.client import ClientData
from fedaction.data.clips.batches import Clips, Window, check_clips, digest_of, fits, may_stay
from fedaction.data.clips.recordings import Held, Pixels, Recordings, Spans, Streamed, read_spans, read_whole
from fedaction.data.dataset import Issue
from fedaction.data.samples import in_memory
from fedaction.federation.processes import in_order

if TYPE_CHECKING:  # needs PyAV, which is not always installed
    from fedaction.data.clips.cache import ClipCache
    from fedaction.data.clips.videos import VideoSet

Warn = Callable[[str], None]


@dataclass(frozen=True)
class FileSplit:
    """One split of a set of videos.

    Attributes:
        names: (R,) stable names of the files.
        paths: (R,) the files.
        y: (R,) int64 labels.
        lengths: (R,) int64 frames, by the files' packets.
        spans: the clips, where they are fixed.
    """

    names: tuple[str, ...]
    paths: tuple[Path, ...]
    y: Tensor
    lengths: Tensor
    spans: Spans | None = None


@dataclass(frozen=True)
class VideoFiles:
    """Labelled video files, none of which is in memory.

    Attributes:
        classes: names, in label order.
        train: files to learn from.
        test: files to be tested on.
        side: frames are brought to this shorter side, in pixels, and their middle square is kept.
        digest: a hash of names, sizes, labels, lengths and first frames, and of fixed clips.
        frames: of fixed clips.
        cache: of decoded clips.
        memory: bytes up to which whole recordings are decoded into memory.
    """

    classes: tuple[str, ...]
    train: FileSplit
    test: FileSplit
    side: int
    digest: str
    frames: int = 0
    cache: ClipCache | None = None
    memory: int = 0

    @property
    def bytes_of_clips(self) -> int:
        """What all fixed clips would take."""
        clips = sum(len(split.spans.row) for split in (self.train, self.test) if split.spans is not None)
        return clips * self.frames * 3 * self.side**2

    def recordings(self, device: torch.device, warn: Warn) -> tuple[Recordings, Recordings]:
        """Both splits."""
        needed = sum(int(split.lengths.sum()) for split in (self.train, self.test)) * 3 * self.side**2
        if needed > self.memory:
            warn(f"{needed / 2**30:.1f} GiB of video are not held in memory: each batch is read from the files")
            return self._streamed(self.train, device), self._streamed(self.test, device)
        resident = may_stay(needed, device)
        return self._held(self.train, device, resident), self._held(self.test, device, resident)

    def _streamed(self, split: FileSplit, device: torch.device) -> Streamed:
        return Streamed(
            split.paths, split.y, torch.arange(len(split.y)), split.lengths, self.side, device, self.cache
        )

    def _held(self, split: FileSplit, device: torch.device, resident: bool) -> Held:
        """All frames, decoded once. A file may turn out to have fewer than it has packets."""
        pixels = torch.empty((int(split.lengths.sum()), self.side, self.side, 3), dtype=torch.uint8)
        lengths, done = split.lengths.clone(), 0
        for number, found in enumerate(in_order(partial(self._whole, path) for path in split.paths)):
            count = min(len(found), int(lengths[number]))
            pixels[done : done + count] = torch.from_numpy(np.array(found[:count]))
            lengths[number] = count
            done += count
        return Held(pixels[:done], lengths, split.y, None, device, resident)

    def _whole(self, path: Path) -> Pixels:
        def make() -> Pixels:
            return read_whole(path, self.side)[None]

        return (make() if self.cache is None else self.cache.clips(path, {"whole": self.side}, make))[0]


ClipData = ClientData | VideoFiles


def look_over(
    videos: VideoSet,
    side: int,
    cache: ClipCache | None,
    memory: int,
    fixed: Callable[[str, str, int], list[int]] | None = None,
    clip: tuple[int, int] = (0, 1),
) -> tuple[VideoFiles, list[Issue]]:
    """Opens every file once, decodes its first frame, and counts its packets.

    Args:
        videos: the files, with their labels and splits.
        side: see `VideoFiles`, as for `cache` and `memory`.
        cache: of decoded clips.
        memory: bytes.
        fixed: where clips are fixed: the first frames of those of a file, by its split, its name and its length.
        clip: frames and stride of fixed clips.

    Returns:
        The files, and those that cannot be read, with the reason.
    """
    digest = hashlib.sha256("\n".join([str((side, clip)), *videos.classes]).encode())
    found: dict[str, list[tuple[str, Path, int, int]]] = {"train": [], "test": []}
    starts: dict[str, list[list[int]]] = {"train": [], "test": []}
    issues: list[Issue] = []
    seen_of = in_order(partial(_look_at, sample.path, side) for sample in videos.samples)
    for sample, (length, seen) in zip(videos.samples, seen_of, strict=True):
        if not length:
            issues.append(Issue(kind="unreadable", where=sample.name, detail=seen))
            continue
        found[sample.split].append((sample.name, sample.path, sample.label, length))
        if fixed is not None:
            starts[sample.split].append(fixed(sample.split, sample.name, length))
        about = [sample.split, sample.name, sample.path.stat().st_size, sample.label, length, seen]
        digest.update(repr([about, starts[sample.split][-1:]]).encode("utf-8", "surrogatepass"))
    for split, those in found.items():
        if not those:
            first = "".join(f"\n  {issue.where}: {issue.detail}" for issue in issues[:5])
            raise ValueError(
                f"{videos.name} has no videos for {split} that can be used; {len(issues)} issues:{first}"
            )
    splits = {
        split: FileSplit(
            tuple(name for name, *_ in those),
            tuple(path for _, path, *_ in those),
            torch.tensor([label for *_, label, _ in those]),
            torch.tensor([length for *_, length in those]),
            _spans(starts[split], clip[1]) if fixed is not None else None,
        )
        for split, those in found.items()
    }
    files = VideoFiles(
        videos.classes, splits["train"], splits["test"], side, digest.hexdigest(), clip[0], cache, memory
    )
    return files, issues


def _look_at(path: Path, side: int) -> tuple[int, str]:
    """A file's frames and a hash of the first; or 0, and why it cannot be used."""
    from fedaction.data.clips.decode import count_packets

    try:
        if path.suffix.lower() == ".mat":
            whole = read_whole(path, side)
            return len(whole), hashlib.sha256(whole[:1].tobytes()).hexdigest()
        first = read_spans(path, [0], 1, 1, side)
        return max(count_packets(path), 1), hashlib.sha256(first.tobytes()).hexdigest()
    except Exception as error:  # a file from outside may be anything: it is reported, and the others are used
        kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
        return 0, f"{kind}{error}" or type(error).__name__


def _spans(starts: list[list[int]], stride: int) -> Spans:
    counts = torch.tensor([len(those) for those in starts])
    row = torch.arange(len(starts)).repeat_interleave(counts)
    return Spans(row, torch.tensor([start for those in starts for start in those]), torch.full_like(row, stride))


def classes_of(data: ClipData) -> tuple[str, ...]:
    """Names of the classes, in label order."""
    return data.classes if isinstance(data, VideoFiles) else data.info.classes


def window_of(data: ClipData, crop: int, pad: int = 0, flip: bool = False) -> Window:
    """What networks see of the frames: a square of `crop` pixels, or with 0 the largest that fits; see `Window`."""
    if isinstance(data, VideoFiles):
        height = width = data.side
    else:
        height, width = data.train.shape[1:3]
    side = crop or min(height, width)
    if side > min(height, width):
        raise ValueError(f"crop = {side}, but frames are {height} x {width} pixels; make it smaller, or 0")
    return Window((side, side), (height, width), pad, flip)


def check_data(data: ClipData, origin: str) -> None:
    """Raises ValueError where there is nothing to be trained on; of files it is known what they give."""
    if isinstance(data, ClientData):
        check_clips(data, origin)
    elif len(data.classes) < 2:
        raise ValueError(f"{origin}: there are {len(data.classes)} classes; training needs two or more")


def identity_of(data: ClipData) -> str:
    """A hash that tells clips from others; of files, see `VideoFiles.digest`."""
    return data.digest if isinstance(data, VideoFiles) else digest_of(data)


def recordings_of(data: ClipData, device: torch.device, warn: Warn) -> tuple[Recordings, Recordings]:
    """Recordings to learn from and to be tested on."""
    if isinstance(data, VideoFiles):
        return data.recordings(device, warn)
    resident = fits(data, device)
    if not resident:
        warn("the clips take more than half of the device's memory; each batch is copied there")
    return Held.of(in_memory(data.train), device, resident), Held.of(in_memory(data.test), device, resident)


def clips_of(data: ClipData, device: torch.device, warn: Warn) -> tuple[Clips, Clips]:
    """Clips that are always the same, to learn from and to be tested on."""
    train, test = recordings_of(data, device, warn)
    if not isinstance(data, VideoFiles):
        return Clips.whole(train), Clips.whole(test)
    assert data.train.spans is not None and data.test.spans is not None
    return Clips(train, data.train.spans, data.frames), Clips(test, data.test.spans, data.frames)
