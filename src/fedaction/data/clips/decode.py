"""Frames of video files, exact to the frame: windows of a file, several windows in one pass, or a stream.

Frame n is the n-th picture that a decoder gives when it starts at the file's beginning; what a header says about
lengths, rates or times is never relied on. Pictures are scaled and turned into RGB by the decoder's own scaler, one
file at a time in one thread: read several files in several threads instead.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedaction.data.clips.container import VideoError, decode_frames, open_video, packets, quarter_turns
from fedaction.data.clips.picture import Painter, Pixels
from fedaction.data.clips.seek import FrameIndex, index_of

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

_MOST_OF = 0.9  # of the frames that a header promises
_WORTH_SEEKING = 100  # frames that would be decoded for nothing


class PastEndError(VideoError):
    """A window begins after the last frame.

    Attributes:
        frames: how many the file has.
    """

    def __init__(self, path: Path, start: int, frames: int) -> None:
        super().__init__(f"{path}: a clip was to begin at frame {start}, but the file has {frames} frames")
        self.frames = frames


@dataclass(frozen=True)
class VideoInfo:
    """What a file says of itself, except for height and width, which are those of its first picture."""

    frames: int | None  # as the header says, which may be wrong; None: it does not say
    fps: float | None  # frames a second, on average; None: unknown
    height: int  # in pixels, as displayed
    width: int  # in pixels, as displayed
    seconds: float | None  # None: unknown


def probe(path: str | Path) -> VideoInfo:
    """What a file is; a VideoError where not even one frame can be decoded."""
    with open_video(Path(path), 1) as (container, stream):
        first = next(decode_frames(container, stream), None)
        if first is None:
            raise VideoError(f"{path}: no frame of it can be decoded")
        turned = quarter_turns(first) % 2
        seconds = None
        if stream.duration is not None and stream.time_base is not None:
            seconds = float(stream.duration * stream.time_base)
        elif container.duration is not None:
            seconds = container.duration / 1_000_000
        rate = stream.average_rate
        return VideoInfo(
            frames=stream.frames or None,
            fps=float(rate) if rate else None,
            height=first.width if turned else first.height,
            width=first.height if turned else first.width,
            seconds=seconds,
        )


def count_packets(path: str | Path) -> int:
    """How many frames a file has, by its packets: close, and far quicker than decoding, but not exact for every file.

    Headers lie and may be missing; some packets hold no picture or a broken one.
    """
    with open_video(Path(path), 1) as (container, stream):
        return sum(1 for packet in packets(container, stream) if packet.size)


def stream(
    path: str | Path, *, short_side: int | None = None, crop: int | None = None, threads: int = 1
) -> Iterator[Pixels]:
    """All frames of a file, one after another, each (H, W, 3) uint8 and the caller's own.

    A file that has far fewer than its header says is warned of at its end. It is closed when the last frame has been
    given, or when the iterator is closed. `threads` decode, which helps with a camera's stream; 0: one for each core.
    For the other arguments see `read_clips`.
    """
    path = Path(path)
    painter, count, seconds = Painter(path, short_side, crop), 0, None
    with open_video(path, threads) as (container, source):
        for frame in decode_frames(container, source):
            count, seconds = count + 1, frame.time
            yield painter.cut(painter(frame)).copy()
        if not count:
            raise VideoError(f"{path}: no frame of it can be decoded")
        if fault := _find_end_missing(container, source, count, seconds):
            warnings.warn(f"{path} may be cut off or damaged: {fault}", stacklevel=2)


def _find_end_missing(container: InputContainer, source: VideoStream, count: int, seconds: float | None) -> str:
    """What a file's header promises and its frames do not keep, in words; "": nothing worth a word.

    Headers may be a little wrong, and often are: by a tenth they are not.
    """
    if source.frames:
        few = count < _MOST_OF * source.frames
        return f"its header says {source.frames} frames, {count} can be decoded" if few else ""
    if container.duration is None or seconds is None:
        return ""
    says = container.duration / 1_000_000
    few = says > 1 and seconds - (container.start_time or 0) / 1_000_000 < _MOST_OF * says - 1
    return f"its header says {says:.1f} s, the last frame that can be decoded is at {seconds:.1f} s" if few else ""


def read_clips(
    path: str | Path,
    starts: Sequence[int],
    frames: int,
    stride: int = 1,
    *,
    short_side: int | None = None,
    crop: int | None = None,
) -> Pixels:
    """Windows of a file in one pass over it, (N, frames, H, W, 3) uint8, RGB.

    Frames that the file no longer has are filled by repeating those of the window that it has, from the first: a
    video of 5 frames as a clip of 8 is 0 1 2 3 4 0 1 2. A window that begins past the end is a `PastEndError`.

    Args:
        path: the file.
        starts: first frame of each window, counted from 0; in any order, also overlapping.
        frames: of each window.
        stride: from one frame of a window to its next.
        short_side: pixels of the shorter side after scaling (bilinear over all pixels that fall into one, so that
            nothing flickers); the other follows. None: not scaled.
        crop: side of the square that is cut from the middle; None: the whole picture.
    """
    path = Path(path)
    if frames < 1 or stride < 1 or min(starts, default=-1) < 0:
        raise ValueError(f"need starts from 0, and frames and stride from 1; got {list(starts)}, {frames}, {stride}")
    places: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for clip, start in enumerate(starts):
        for position in range(frames):
            places[start + position * stride].append((clip, position))
    wanted = sorted(places)
    gaps = np.diff([0, *wanted])
    sink = _Sink(path, places, (len(starts), frames), Painter(path, short_side, crop))
    if gaps.max() < _WORTH_SEEKING or not _read_by_seeking(path, wanted, sink):
        _read_from_start(path, wanted[-1], sink)
    return sink.finish(starts)


def read_all(
    path: str | Path, frames: int, stride: int = 1, *, short_side: int | None = None, crop: int | None = None
) -> Pixels:
    """Every non-overlapping window of a file, (N, frames, H, W, 3) uint8; one, looped, where the file is shorter.

    What is left at the end and does not fill a window is dropped. For the arguments see `read_clips`.
    """
    if frames < 1 or stride < 1:
        raise ValueError(f"frames and stride must be at least 1, got {frames} and {stride}")
    path = Path(path)
    painter, kept = Painter(path, short_side, crop), list[Pixels]()
    with open_video(path, 1) as (container, source):
        for number, frame in enumerate(decode_frames(container, source)):
            if number % stride == 0:
                kept.append(painter.cut(painter(frame)).copy())
    if not kept:
        raise VideoError(f"{path}: no frame of it can be decoded")
    clips = max(len(kept) // frames, 1)
    return np.stack([kept[i % len(kept)] for i in range(clips * frames)]).reshape(clips, frames, *kept[0].shape)


class _Sink:
    """Puts frames where they belong in the clips."""

    def __init__(
        self, path: Path, places: dict[int, list[tuple[int, int]]], shape: tuple[int, int], painter: Painter
    ) -> None:
        self._path, self._places, self._shape, self._painter = path, places, shape, painter
        self._clips: Pixels | None = None
        self._filled = np.zeros(shape, dtype=bool)
        self.frames = 0

    def put(self, number: int, frame: VideoFrame) -> None:
        """Takes frame `number` if any window has it."""
        if number not in self._places:
            return
        picture = self._painter.cut(self._painter(frame))
        if self._clips is None:
            self._clips = np.zeros((*self._shape, *picture.shape), dtype=np.uint8)
        for clip, position in self._places[number]:
            self._clips[clip, position] = picture
            self._filled[clip, position] = True

    def finish(self, starts: Sequence[int]) -> Pixels:
        """The clips, with what the file was too short for filled in."""
        for clip, filled in enumerate(self._filled.sum(axis=1).tolist()):
            if not filled or self._clips is None:
                if not self.frames:
                    raise VideoError(f"{self._path}: no frame of it can be decoded")
                raise PastEndError(self._path, starts[clip], self.frames)
            short = self._shape[1] - filled
            if short:
                self._clips[clip, filled:] = self._clips[clip, np.arange(short) % filled]
        assert self._clips is not None
        return self._clips


def _read_from_start(path: Path, last: int, sink: _Sink) -> None:
    with open_video(path, 1) as (container, stream):
        for number, frame in enumerate(decode_frames(container, stream)):
            sink.frames = number + 1
            sink.put(number, frame)
            if number == last:
                return


def _read_by_seeking(path: Path, wanted: Sequence[int], sink: _Sink) -> bool:
    """Goes to the key frame before each gap's end. False: the file's times do not bear it, and nothing is certain."""
    with open_video(path, 1) as (container, stream):
        index = index_of(container.format.name, stream.codec_context.name, packets(container, stream), wanted[-1])
    if index is None:
        return False
    if index.complete:  # what lies beyond is not looked for
        wanted = [number for number in wanted if number < index.frames]
        sink.frames = index.frames
    done = 0
    with open_video(path, 1) as (container, stream):
        while done < len(wanted):
            step = _read_span(container, stream, index, wanted[done:], sink)
            if not step:
                return False
            done += step
    return True


def _read_span(
    container: InputContainer, stream: VideoStream, index: FrameIndex, wanted: Sequence[int], sink: _Sink
) -> int:
    """Reads wanted frames from one key frame on until a seek would be the shorter way; how many, 0: it went wrong."""
    from av.error import FFmpegError

    key = index.key_before(wanted[0])
    try:
        container.seek(key.dts, stream=stream)
    except (FFmpegError, OSError):
        return 0
    expected, done = key.number, 0
    for frame in decode_frames(container, stream):
        number = index.number(frame.pts)
        if number is not None and number < key.number and expected == key.number:
            continue  # shown before the key frame, but stored after it: made from pictures that were passed over
        if number is None or number != expected:
            return 0
        sink.put(number, frame)
        expected += 1
        if number == wanted[done]:
            done += 1
            if done == len(wanted):
                return done
            following = wanted[done]
            if following - number > _WORTH_SEEKING and index.key_before(following).number > number:
                return done
    return 0
