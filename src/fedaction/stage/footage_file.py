"""Footage on disk: many clips of one size in one file, mapped into memory.

A set is a folder with two files:

- `footage.json`: format version, settings, classes, people, for each clip its label, recording, person, place and
  whether it is for test, and the CRC-32 of the other file;
- `clips.npy`: uint8 (clips N, frames T, height H, width W, 3) red, green, blue.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from fedaction.data.files import Header, check_columns, checksum, open_npy, read_header, write_header
from fedaction.data.folders import new_folder

HEADER, CLIPS = "footage.json", "clips.npy"


@dataclass(frozen=True)
class Footage:
    """Clips of video with what they show."""

    # (N, T, H, W, 3) uint8, mapped from the file; writing to it changes memory only, never the file
    clips: NDArray[np.uint8] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)  # (N,) int64, indices into `classes`
    recording: NDArray[np.int64] = field(repr=False)  # (N,) int64, which recording each is a clip of
    person: NDArray[np.int64] = field(repr=False)  # (N,) int64, indices into `people`
    place: NDArray[np.int64] = field(repr=False)  # (N,) int64, where it was recorded
    test: NDArray[np.bool_] = field(repr=False)  # (N,) bool, whether it is of people who are for test only
    classes: tuple[str, ...]  # action names
    people: tuple[str, ...] = field(repr=False)  # their names
    settings: Mapping[str, Any] = field(repr=False)  # what it was made with

    def __len__(self) -> int:
        return len(self.labels)


class Contents(Header):
    """The contents of footage.json; only finished clips have the checksum."""

    current: ClassVar[int] = 1

    format: Literal["fedaction-footage"] = "fedaction-footage"
    version: int = current
    settings: dict[str, JsonValue]
    classes: list[str]
    people: list[str]
    labels: list[int]
    recording: list[int]
    person: list[int]
    place: list[int]
    test: list[bool]
    shape: tuple[int, int, int]
    """Frames, height, width."""
    crc: int = -1


def write_footage(out: Path, contents: Contents, fill: Callable[[Path, int], None]) -> None:
    """Writes a set, whole or not at all.

    `fill` is called with the file of the clips and the byte at which the first one begins; it writes them all,
    clip after clip.
    """
    shape = (len(contents.labels), *contents.shape, 3)
    with new_folder(out) as new:
        with (new / CLIPS).open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
            begin = file.tell()
            file.truncate(begin + int(np.prod(shape)))
        fill(new / CLIPS, begin)
        with (new / CLIPS).open("rb+") as file:
            os.fsync(file.fileno())
        write_header(new / HEADER, contents.model_copy(update={"crc": checksum(new / CLIPS)}))
        load_footage(new)


def load_footage(path: Path) -> Footage:
    """Opens a set after checking all of it. Clips stay on disk until used."""
    try:
        held = read_header(path / HEADER, Contents, "header of footage")
    except OSError as error:
        raise ValueError(f"{path} is not footage: {error}") from None
    _check(held, path / HEADER)
    clips = open_npy(path / CLIPS, "c")
    if clips.dtype != np.uint8 or clips.shape != (len(held.labels), *held.shape, 3):
        raise ValueError(f"{path / CLIPS} holds {clips.dtype} {clips.shape}, not what {HEADER} says")
    if checksum(path / CLIPS) != held.crc:
        raise ValueError(f"{path / CLIPS} is damaged: its checksum is not the one in {HEADER}")
    columns = {name: np.array(getattr(held, name), np.int64) for name in ("labels", "recording", "person", "place")}
    people, test = tuple(held.people), np.array(held.test, np.bool_)
    return Footage(
        clips=clips, test=test, classes=tuple(held.classes), people=people, settings=held.settings, **columns
    )


def _check(held: Contents, where: Path) -> None:
    """Refuses a header whose parts do not fit together."""
    count = len(held.labels)
    if not count:
        raise ValueError(f"{where} lists no clips")
    most = {"labels": len(held.classes), "person": len(held.people), "recording": count, "place": count}
    check_columns(where, count, {name: getattr(held, name) for name in (*most, "test")})
    for name, limit in most.items():
        values = getattr(held, name)
        if not 0 <= min(values) <= max(values) < limit:
            raise ValueError(f"{where} has {name} from {min(values)} to {max(values)}; there are only {limit}")
