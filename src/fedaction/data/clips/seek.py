"""Which frame a time stamp is: what makes seeking exact, where a file allows it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# Only where each packet is one shown frame with its own time. Not AVI: it has no times of presentation, and its
# "packed" MPEG-4 puts two frames into one packet and none into the next (most of HMDB-51 is such).
_CONTAINERS = frozenset({"mov", "mp4", "matroska", "webm"})
_CODECS = frozenset({"h264", "hevc", "vp9", "av1"})
_REORDERED = 64  # packets; how much later than its turn a frame can be stored, with a wide margin


@dataclass(frozen=True)
class KeyFrame:
    """Where decoding can begin."""

    number: int  # of the frame
    dts: int  # what to seek to; the time it is shown would find a later key frame where frames are reordered


class FrameIndex:
    """Numbers of frames by the time they are shown.

    Attributes:
        frames: how many are known.
        complete: whether these are all.
    """

    def __init__(self, times: list[int], keys: list[KeyFrame], complete: bool) -> None:
        self._numbers = {time: number for number, time in enumerate(times)}
        self._keys = keys
        self.frames = len(times)
        self.complete = complete

    def number(self, pts: int | None) -> int | None:
        """Which frame is shown at a time."""
        return None if pts is None else self._numbers.get(pts)

    def key_before(self, number: int) -> KeyFrame:
        """The last key frame that is not after a frame."""
        return self._keys[bisect_right(self._keys, number, key=lambda key: key.number) - 1]


def index_of(container: str, codec: str, packets: Iterable[Any], last: int) -> FrameIndex | None:
    """An index up to frame `last`, from packets alone; None: this file's times are not to be trusted.

    `container` is the names of the format, separated by commas; PyAV's packets are in the order of the file.
    """
    if not _CONTAINERS.intersection(container.split(",")) or codec not in _CODECS:
        return None
    times: list[int] = []
    keys: list[tuple[int, int]] = []
    complete = True
    for packet in packets:
        if not packet.size:
            continue
        if packet.pts is None or packet.dts is None or packet.is_discard or packet.is_corrupt:
            return None
        if packet.is_keyframe:
            keys.append((packet.pts, packet.dts))
        times.append(packet.pts)
        if len(times) > last + _REORDERED:
            complete = False
            break
    # Frames shown before the first key frame may or may not be decodable.
    if not keys or keys[0][0] != min(times) or len(set(times)) != len(times):
        return None
    times.sort()
    place = {time: number for number, time in enumerate(times)}
    return FrameIndex(
        times, sorted((KeyFrame(place[pts], dts) for pts, dts in keys), key=lambda k: k.number), complete
    )
