"""Numeric arrays out of MATLAB files, without running anything that is in them.

Reads what `save` writes by default since MATLAB 5: a 128-byte header, then data elements, each usually compressed.
Only the one kind needed is understood, a full real array of numbers; cells, structures, objects and text are passed
over. Files saved with `-v7.3` are HDF5 and are refused.
"""

from __future__ import annotations

import itertools
import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.federation.outside import check_amount, check_size, most_unpacked, refuse_damage, shorten

_HEADER_BYTES = 128
_MOST_BYTES = 512 * 2**20  # of a file
_NAMED = 20  # variables that a message lists
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_FIRST_NUMERIC, _LAST_NUMERIC = 6, 15  # array classes: double, single, and integers of 8 to 64 bits
_COMPLEX = 0x0800


def read_matrix(path: Path, variable: str) -> npt.NDArray[np.float64]:
    """One numeric array of a MATLAB 5 file as float64, with its own shape, whatever number type it was saved as.

    Values are not checked for being finite. A file that is no such file, is damaged or lacks the variable is a
    ValueError.
    """
    check_size(path, _MOST_BYTES)
    with refuse_damage(path, "a MATLAB 5 file"):
        return _read(path, variable)


def _read(path: Path, variable: str) -> npt.NDArray[np.float64]:
    data, most = path.read_bytes(), most_unpacked(path)
    if data[:4] == b"\x89HDF" or data[:10] == b"MATLAB 7.3":
        raise ValueError(f"{path} is a MATLAB 7.3 (HDF5) file: save it again in MATLAB without '-v7.3'")
    marks = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}
    order = marks.get(data[124:_HEADER_BYTES])
    if order is None:
        raise ValueError(f"{path} is not a MATLAB 5 file: its header does not end in a version and a byte order")
    names: list[str] = []
    for kind, body in _elements(memoryview(data)[_HEADER_BYTES:], order):
        if kind == _COMPRESSED:
            kind, body = _inflate(body, order, most, path)
        if kind != _MATRIX:
            continue
        name, numeric, parts = _head(body, order)
        if name == variable and numeric:
            return _values(name, parts, order, most, path)
        names.append(name)
    has = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    raise ValueError(f"{path} has no array of numbers called {variable!r}; it has {shorten(has) or 'nothing'}")


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """(type, contents) of the data elements laid end to end."""
    place = 0
    while place < len(data):
        kind, count = struct.unpack_from(f"{order}II", data, place)
        if kind >> 16:  # a small element: both numbers in the first four bytes, contents in the next four
            kind, count, first, place = kind & 0xFFFF, kind >> 16, place + 4, place + 8
        else:
            first = place + 8
            place = first + count + (0 if kind == _COMPRESSED else -count % 8)
        if first + count > len(data):
            raise ValueError(f"an element of {count} bytes reaches past the end")
        yield kind, data[first : first + count]


def _inflate(body: memoryview, order: str, most: int, path: Path) -> tuple[int, memoryview]:
    """The element that is packed in another: its own beginning says how large it is, and no more is unpacked."""
    stream = zlib.decompressobj()
    kind, count = struct.unpack_from(f"{order}II", stream.decompress(body, 8))
    check_amount(count, most, path, "unpacks to")
    data = stream.decompress(stream.unconsumed_tail, count) if count else b""
    if len(data) < count:
        raise ValueError(f"a variable of {count} bytes is cut short")
    return kind, memoryview(data)


def _head(body: memoryview, order: str) -> tuple[str, bool, Iterator[tuple[int, memoryview]]]:
    """A matrix element's name, whether it is a full real array of numbers, and its parts from the sizes on."""
    parts = _elements(body, order)
    flags = struct.unpack_from(f"{order}I", _next(parts)[1])[0]
    sizes = _next(parts)
    name = bytes(_next(parts)[1]).decode("latin-1")
    numeric = _FIRST_NUMERIC <= flags & 0xFF <= _LAST_NUMERIC and not flags & _COMPLEX
    return name, numeric, itertools.chain([sizes], parts)


def _values(
    name: str, parts: Iterator[tuple[int, memoryview]], order: str, most: int, path: Path
) -> npt.NDArray[np.float64]:
    """A matrix element's array."""
    _, sizes = _next(parts)
    shape = struct.unpack(f"{order}{len(sizes) // 4}i", sizes)
    kind, numbers = _next(parts)
    if kind not in _NUMBERS:
        raise ValueError(f"variable {name!r} has numbers of the unknown kind {kind}")
    values = np.frombuffer(numbers, dtype=np.dtype(f"{order}{_NUMBERS[kind]}"))
    if min(shape, default=-1) < 0 or math.prod(shape) != values.size:
        raise ValueError(f"variable {name!r} has {values.size} numbers for shape {shape}")
    check_amount(8 * values.size, most, path, "unpacks to")
    return values.reshape(shape, order="F").astype(np.float64, copy=False)


def _next(parts: Iterator[tuple[int, memoryview]]) -> tuple[int, memoryview]:
    part = next(parts, None)
    if part is None:
        raise ValueError("a variable ends too early")
    return part
