"""Numeric arrays out of MATLAB files, without running anything that is in them.

Reads what `save` writes by default since MATLAB 5: a 128-byte header, then data elements, each usually compressed.
Only the one kind needed is understood, a full real array of numbers; cells, structures, objects and text are passed
over. Files saved with `-v7.3` are HDF5 and are refused.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.files import check_size

_HEADER_BYTES = 128
_MOST_BYTES = 512 * 2**20  # of a file, and of any one variable after decompression
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
    data = path.read_bytes()
    if data[:4] == b"\x89HDF" or data[:10] == b"MATLAB 7.3":
        raise ValueError(f"{path} is a MATLAB 7.3 (HDF5) file: save it again in MATLAB without '-v7.3'")
    marks = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}
    order = marks.get(data[124:_HEADER_BYTES])
    if order is None:
        raise ValueError(f"{path} is not a MATLAB 5 file: its header does not end in a version and a byte order")
    names: list[str] = []
    try:
        for kind, body in _elements(data[_HEADER_BYTES:], order):
            if kind == _COMPRESSED:
                kind, body = next(_elements(_inflate(body), order))
            if kind != _MATRIX:
                continue
            name, array = _matrix(body, order)
            if name == variable and array is not None:
                return array
            names.append(name)
    except (struct.error, zlib.error, StopIteration, KeyError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error or type(error).__name__}") from None
    raise ValueError(f"{path} has no array of numbers called {variable!r}; it has {', '.join(names) or 'nothing'}")


def _elements(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
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


def _inflate(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    data = stream.decompress(body, _MOST_BYTES)
    if not stream.eof:
        raise ValueError(f"a variable is cut short or has more than {_MOST_BYTES} bytes")
    return data


def _matrix(body: bytes, order: str) -> tuple[str, npt.NDArray[np.float64] | None]:
    """A matrix element's name, and its values where it is a full real array of numbers."""
    parts = _elements(body, order)
    flags = struct.unpack_from(f"{order}I", next(parts)[1])[0]
    _, sizes = next(parts)
    name = next(parts)[1].decode("latin-1")
    if not _FIRST_NUMERIC <= flags & 0xFF <= _LAST_NUMERIC or flags & _COMPLEX:
        return name, None
    shape = struct.unpack(f"{order}{len(sizes) // 4}i", sizes)
    kind, numbers = next(parts)
    values = np.frombuffer(numbers, dtype=np.dtype(f"{order}{_NUMBERS[kind]}"))
    if min(shape, default=-1) < 0 or math.prod(shape) != values.size:
        raise ValueError(f"variable {name!r} has {values.size} numbers for shape {shape}")
    return name, values.reshape(shape, order="F").astype(np.float64)
