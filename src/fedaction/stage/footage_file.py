"""Footage on disk: many clips of one size in one file, mapped into memory.

A set is a folder with two files:

- `footage.json`: format version, settings, classes, people, for each clip its label, recording, person, place and
  whether it is for test, and the CRC-32 of the other file;
- `clips.npy`: uint8 (clips N, frames T, height H, width W, 3) red, green, blue.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from fedaction.data.store_file import beside, move_into_place

HEADER, CLIPS = "footage.json", "clips.npy"
FORMAT, VERSION = "fedaction-footage", 1
_MOST_HEADER_BYTES = 256 * 2**20
_CRC_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Footage:
    """Clips of video with what they show.

    Attributes:
        clips: (N, T, H, W, 3) uint8, mapped from the file; writing to it changes memory only, never the file.
        labels: (N,) int64, indices into `classes`.
        recording: (N,) int64, which recording each is a clip of.
        person: (N,) int64, indices into `people`.
        place: (N,) int64, where it was recorded.
        test: (N,) bool, whether it is of people who are for test only.
        classes: action names.
        people: their names.
        settings: what it was made with.
    """

    clips: NDArray[np.uint8] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    recording: NDArray[np.int64] = field(repr=False)
    person: NDArray[np.int64] = field(repr=False)
    place: NDArray[np.int64] = field(repr=False)
    test: NDArray[np.bool_] = field(repr=False)
    classes: tuple[str, ...]
    people: tuple[str, ...] = field(repr=False)
    settings: Mapping[str, Any] = field(repr=False)

    def __len__(self) -> int:
        return len(self.labels)


class Contents(BaseModel):
    """The contents of footage.json, without the checksum that only finished clips have."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["fedaction-footage"] = FORMAT
    version: int = VERSION
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

    Args:
        out: folder to create or replace.
        contents: what the clips are.
        fill: called with the file of the clips and the byte at which the first one begins; writes them all, clip
            after clip.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    new = beside(out)
    try:
        new.mkdir()
        shape = (len(contents.labels), *contents.shape, 3)
        with (new / CLIPS).open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
            begin = file.tell()
            file.truncate(begin + int(np.prod(shape)))
        fill(new / CLIPS, begin)
        with (new / CLIPS).open("rb+") as file:
            os.fsync(file.fileno())
        whole = contents.model_copy(update={"crc": _checksum(new / CLIPS)})
        (new / HEADER).write_text(json.dumps(whole.model_dump(mode="json")), encoding="utf-8")
        load_footage(new)
        move_into_place(new, out)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def load_footage(path: Path) -> Footage:
    """Opens a set after checking all of it. Clips stay on disk until used."""
    try:
        size = (path / HEADER).stat().st_size
        if size > _MOST_HEADER_BYTES:
            raise ValueError(f"{path / HEADER} has {size} bytes, more than the {_MOST_HEADER_BYTES} allowed")
        held = Contents.model_validate_json((path / HEADER).read_bytes())
    except OSError as error:
        raise ValueError(f"{path} is not footage: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ValueError(f"{path / HEADER} is not a valid header of footage: {where}: {first['msg']}") from None
    _check(held, path / HEADER)
    try:
        # Copy on write: torch takes writable arrays only, and the file must not change.
        clips = np.asarray(np.lib.format.open_memmap(path / CLIPS, mode="c"))
    except (ValueError, OSError, EOFError, SyntaxError) as error:
        raise ValueError(f"{path / CLIPS} is damaged or is not a NumPy file: {error}") from None
    if clips.dtype != np.uint8 or clips.shape != (len(held.labels), *held.shape, 3):
        raise ValueError(f"{path / CLIPS} holds {clips.dtype} {clips.shape}, not what {HEADER} says")
    if _checksum(path / CLIPS) != held.crc:
        raise ValueError(f"{path / CLIPS} is damaged: its checksum is not the one in {HEADER}")
    return Footage(
        clips=clips,
        labels=np.array(held.labels, np.int64),
        recording=np.array(held.recording, np.int64),
        person=np.array(held.person, np.int64),
        place=np.array(held.place, np.int64),
        test=np.array(held.test, np.bool_),
        classes=tuple(held.classes),
        people=tuple(held.people),
        settings=held.settings,
    )


def _check(held: Contents, where: Path) -> None:
    """Refuses a header whose parts do not fit together."""
    if held.version != VERSION:
        raise ValueError(f"{where} has format version {held.version}; this release reads version {VERSION}")
    count = len(held.labels)
    for name, listed in (("labels", held.classes), ("person", held.people), ("recording", None), ("place", None)):
        values = getattr(held, name)
        if len(values) != count:
            raise ValueError(f"{where} has {len(values)} entries of {name} for {count} clips")
        most = count if listed is None else len(listed)
        if count and not 0 <= min(values) <= max(values) < most:
            raise ValueError(f"{where} has {name} from {min(values)} to {max(values)}; there are only {most}")
    if not count or len(held.test) != count:
        raise ValueError(f"{where} lists {count} clips and says of {len(held.test)} whether they are for test")


def _checksum(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(_CRC_BYTES):
            value = zlib.crc32(block, value)
    return value
