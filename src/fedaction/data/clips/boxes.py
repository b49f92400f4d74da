"""What an .mp4 or .mov file declares, before FFmpeg believes it.

Two kilobytes can say that they hold eighty million frames of one byte, and FFmpeg then takes five gigabytes for a
table of them. No file has more samples (frames, or readings of sound) than bytes, so that is what it may declare.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fedaction.federation.outside import check_amount

_KNOWN = frozenset((b"ftyp", b"moov", b"moof", b"mdat", b"free", b"skip", b"wide", b"styp", b"sidx", b"uuid"))
_PASSED = frozenset((b"mdat", b"free", b"skip", b"wide"))
_MOST_HEADER = 64 * 2**20  # bytes of a file that are not pictures or sound
_PACKED = 1024  # readings of sound that FFmpeg puts into one packet


def check_boxes(path: Path, size: int, kind: type[ValueError]) -> None:
    """Refuses a file of the family of .mp4 that declares more samples than it has bytes; other files pass."""
    with path.open("rb") as file:
        if file.read(8)[4:] not in _KNOWN:
            return
        file.seek(0)
        header = b"".join(_headers(file, size, path, kind))
    samples, chunks, most_in_chunk = 0, 0, 0
    for place in _find(header, b"stsz", 12):
        _, length, count = struct.unpack_from(">3I", header, place)
        if length:  # all have one length; else a table of lengths follows, which has to be there
            check_amount(length * count, size, path, "declares samples of", kind=kind)
    for place in _find(header, b"trun", 8):
        samples += struct.unpack_from(">2I", header, place)[1]
    for tag in (b"stco", b"co64"):
        for place in _find(header, tag, 8):
            chunks = max(chunks, min(struct.unpack_from(">2I", header, place)[1], size))
    for place in _find(header, b"stsc", 8):
        entries = min(struct.unpack_from(">2I", header, place)[1], (len(header) - place - 8) // 12)
        counts = (struct.unpack_from(">I", header, place + 12 + 12 * i)[0] for i in range(entries))
        most_in_chunk = max(most_in_chunk, *counts, 0)
    check_amount(max(samples, chunks * most_in_chunk // _PACKED), size, path, "declares", "samples", kind)


def _headers(file: BinaryIO, size: int, path: Path, kind: type[ValueError]) -> Iterator[bytes]:
    """The boxes of a file but for those that hold pictures and sound."""
    place = taken = 0
    while place + 8 <= size:
        file.seek(place)
        length, tag = struct.unpack(">I4s", file.read(8))
        if length == 1:
            length = int.from_bytes(file.read(8), "big")
        rest = size - place
        length = rest if not 8 <= length <= rest else length  # damaged, or up to the end
        if tag not in _PASSED:
            taken += length
            check_amount(taken, _MOST_HEADER, path, "has headers of", kind=kind)
            file.seek(place)
            yield file.read(length)
        place += length


def _find(header: bytes, tag: bytes, needs: int) -> Iterator[int]:
    """Where the contents of boxes of a kind begin, wherever they are; at least so many bytes are there."""
    place = header.find(tag)
    while place >= 0:
        if place + 4 + needs <= len(header):
            yield place + 4
        place = header.find(tag, place + 1)
