"""MATLAB files: written here by the format's rules, and by SciPy and MATLAB themselves; and what is refused."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from fedaction.data.matlab import read_matrix
from tests.conftest import recordings

HEADER = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
TYPES = {"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "f4": 7, "f8": 9, "i8": 12, "u8": 13}
DOUBLE, CHARACTERS = 6, 4


def element(kind: int, data: bytes, order: str = "<") -> bytes:
    return struct.pack(f"{order}II", kind, len(data)) + data + bytes(-len(data) % 8)


def variable(name: str, array: npt.NDArray[np.generic], order: str = "<", flags: int = DOUBLE) -> bytes:
    return element(
        14,
        element(6, struct.pack(f"{order}II", flags, 0), order)
        + element(5, struct.pack(f"{order}{array.ndim}i", *array.shape), order)
        + element(1, name.encode(), order)
        + element(
            TYPES[array.dtype.str[1:]], array.astype(np.dtype(order + array.dtype.str[1:])).tobytes(order="F"), order
        ),
        order,
    )


def squeezed(data: bytes) -> bytes:
    packed = zlib.compress(data)
    return struct.pack("<II", 15, len(packed)) + packed  # which is not padded


ARRAYS = [
    np.arange(24.0).reshape(2, 3, 4) / 7,
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.array([[-3, 200]], dtype=np.int16),
    np.array([[3, 200]], dtype=np.uint8),
    np.zeros((0, 3)),
    np.full((1, 1), np.nan),
    np.array([[2**40]], dtype=np.int64),
]


@pytest.mark.parametrize("array", ARRAYS)
def test_arrays_of_any_number_type(tmp_path: Path, array: npt.NDArray[np.generic]) -> None:
    path = tmp_path / "some.mat"
    text = variable("text", np.array([[97, 98]], dtype=np.uint16), flags=CHARACTERS)
    complex_one = variable("z", np.ones((1, 1)), flags=DOUBLE | 0x0800)
    path.write_bytes(
        HEADER + text + squeezed(complex_one) + squeezed(variable("v", array)) + variable("w", np.ones((1, 2)))
    )
    got = read_matrix(path, "v")
    assert got.dtype == np.float64 and np.array_equal(got, array.astype(np.float64), equal_nan=True)
    assert read_matrix(path, "w").tolist() == [[1, 1]]
    for name in ("text", "z", "absent"):
        with pytest.raises(ValueError, match=f"no array of numbers called '{name}'; it has text, z, v, w"):
            read_matrix(path, name)


def test_a_big_endian_file_and_a_small_element(tmp_path: Path) -> None:
    path = tmp_path / "big.mat"
    whole = variable("v", np.array([[1.5, -2]]), ">")
    short = struct.pack(">HH4s", 1, 1, b"v")  # the name with size and type in four bytes
    body = whole[8:].replace(element(1, b"v", ">"), short)
    path.write_bytes(HEADER[:124] + b"\x01\x00MI" + element(14, body, ">"))
    assert read_matrix(path, "v").tolist() == [[1.5, -2]]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("array", ARRAYS)
def test_what_scipy_writes(tmp_path: Path, array: npt.NDArray[np.generic], compressed: bool) -> None:
    scipy_io = pytest.importorskip("scipy.io")
    path = tmp_path / "some.mat"
    others = {"text": "abc", "cells": np.array([1, "a"], dtype=object), "fields": {"a": 1}, "z": np.array([1j])}
    scipy_io.savemat(path, {**others, "wanted": array, "after": 1}, do_compression=compressed)
    assert np.array_equal(read_matrix(path, "wanted"), array.astype(np.float64), equal_nan=True)
    assert read_matrix(path, "after").tolist() == [[1]]
    for name in others:
        with pytest.raises(ValueError, match="it has text, cells, fields, z, wanted, after"):
            read_matrix(path, name)


def test_what_matlab_wrote() -> None:
    scipy_io = pytest.importorskip("scipy.io")
    path = recordings("utd_mhad") / "Skeleton" / "a1_s1_t1_skeleton.mat"
    assert np.array_equal(read_matrix(path, "d_skel"), scipy_io.loadmat(path)["d_skel"])


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "some.mat"
    inner = variable("v", np.arange(300.0)[None])
    whole = HEADER + squeezed(inner)
    shape = struct.pack("<ii", 1, 300)
    for data, message in (
        (whole[:-40], "damaged: an element of .* reaches past the end"),
        (whole[:140] + bytes(40) + whole[180:], "damaged"),
        (HEADER + squeezed(inner[:-80]), "damaged: a variable of 2456 bytes is cut short"),
        (HEADER + squeezed(inner.replace(shape, struct.pack("<ii", 2, 300))), r"300 numbers for shape \(2, 300\)"),
        (
            HEADER + squeezed(inner.replace(shape, struct.pack("<ii", -1, -300))),
            r"300 numbers for shape \(-1, -300\)",
        ),
        (HEADER + element(14, b""), "damaged"),
        (HEADER + b"\x01", "damaged"),
        (whole[:60], "not a MATLAB 5 file"),
        (b"", "not a MATLAB 5 file"),
        (b"MATLAB 7.3 MAT-file" + whole[19:], r"7\.3 \(HDF5\)"),
        (HEADER, "it has nothing"),
    ):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=message):
            read_matrix(path, "v")


def test_a_variable_that_would_fill_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedaction.data.matlab._MOST_BYTES", 100_000)
    monkeypatch.setattr("fedaction.federation.outside.UNPACKED", 100_000)
    path = tmp_path / "some.mat"
    path.write_bytes(HEADER + squeezed(variable("v", np.zeros((1, 20_000)))))
    assert path.stat().st_size < 1000
    with pytest.raises(ValueError, match=r"unpacks to \d+ bytes, more than the 100000 allowed.*FEDACTION_LIMITS=2 "):
        read_matrix(path, "v")
    path.write_bytes(HEADER + squeezed(variable("v", np.zeros((1, 20_000), np.uint8))))  # 20 kB, as float64 160 kB
    with pytest.raises(ValueError, match="unpacks to 160000 bytes, more than the 100000 allowed"):
        read_matrix(path, "v")
    monkeypatch.setenv("FEDACTION_LIMITS", "2")
    assert read_matrix(path, "v").shape == (1, 20_000)
    monkeypatch.delenv("FEDACTION_LIMITS")
    path.write_bytes(HEADER + variable("v", np.zeros((1, 20_000))))
    with pytest.raises(ValueError, match="more than the 100000 allowed"):
        read_matrix(path, "v")
