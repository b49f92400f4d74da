"""Files from outside, bounded in size, never unpickled, refused with a message that names them; stores; the cache.

A store is a folder with a JSON header and an .npy file, written whole or not at all.

Loads no torch: processes that read public datasets start afresh, and would each load it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import zipfile
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, ValidationError

from fedaction.data.folders import clear_leftovers
from fedaction.federation.outside import MOST_JSON, check_amount, check_size, most_unpacked, refuse_damage, shorten

_CRC_BYTES = 4 * 2**20
_CHECK_ROWS = 4096
NPY_HEADER_BYTES = 128
"""Kept free at the start of an .npy file that is written before the number of its rows is known."""


class Header(BaseModel):
    """What the JSON file of every store begins with; a kind of store adds its own."""

    model_config = ConfigDict(extra="forbid")
    current: ClassVar[int]
    """The version that is written and read."""
    remedy: ClassVar[str] = ""
    """What to do about a store of another version."""

    version: int


AnyHeader = TypeVar("AnyHeader", bound=Header)


def first_fault(error: ValidationError) -> str:
    """The place and the words of the first thing that a model refused."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc']) or 'the file'}: {shorten(first['msg'])}"


def read_header(path: Path, kind: type[AnyHeader], what: str) -> AnyHeader:
    """The JSON file of a store; `what` is what a message calls it."""
    check_size(path, MOST_JSON)
    with refuse_damage(path, f"a {what}"):
        try:
            header = kind.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise ValueError(f"{path} is not a valid {what}: {first_fault(error)}") from None
    if header.version != kind.current:
        raise ValueError(
            f"{path} has format version {shorten(header.version, 40)}; this release reads version {kind.current}"
            f"{kind.remedy}"
        )
    return header


def write_header(path: Path, header: Header) -> None:
    """The JSON file of a store."""
    values = header.model_dump(mode="json", warnings=False)
    path.write_text(json.dumps(values, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def check_columns(where: object, count: int, columns: Mapping[str, Sized | None]) -> None:
    """Refuses a header with a list that has no value for each of `count` samples; None: it has no such list."""
    for name, values in columns.items():
        if values is not None and len(values) != count:
            raise ValueError(f"{where} has {len(values)} {name} for {count} samples")


def check_labels(labels: Sequence[int], classes: Sequence[str], where: object) -> None:
    """Refuses labels that are not positions in a list of different classes."""
    if len(set(classes)) != len(classes):
        raise ValueError(f"{where} names a class twice")
    wrong = [label for label in labels if not 0 <= label < len(classes)]
    if wrong:
        raise ValueError(f"{where} has label {shorten(wrong[0], 40)}, but only {len(classes)} classes")


def refuse_existing(out: Path, overwrite: bool, is_known: bool, kind: str) -> None:
    """Refuses to write over anything but a store of a kind, and over such a store unless `overwrite` is set."""
    if out.parent.is_dir():
        clear_leftovers(out)
    if out.exists() and not is_known:
        raise FileExistsError(f"{out} is not a {kind}, so it is not overwritten: choose another folder")
    if out.exists() and not overwrite:
        raise FileExistsError(f"{out} exists already: choose another folder, or ask to overwrite it")


def checksum(path: Path) -> int:
    """CRC-32 of a file."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(_CRC_BYTES):
            value = zlib.crc32(block, value)
    return value


def npy_header(shape: tuple[int, ...]) -> bytes:
    """The header (format 1.0) of an .npy file of float32, of fixed size: it can be written last."""
    text = repr({"descr": "<f4", "fortran_order": False, "shape": shape}).ljust(NPY_HEADER_BYTES - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("ascii")


def open_npy(path: Path, mode: Literal["r", "c"] = "r") -> npt.NDArray[Any]:
    """The array of an .npy file, mapped into memory: no pickle, no zip, and a false header allocates nothing.

    With "c" it can be written to, as torch wants it, and the file never changes.
    """
    check_size(path, sys.maxsize)  # of any size, but a file
    with refuse_damage(path, "a NumPy file"):
        array = np.asarray(np.lib.format.open_memmap(path, mode=mode))
        _check_whole(array, path.stat().st_size)
        return array


def read_npz(path: Path, names: Collection[str] | None = None) -> tuple[dict[str, npt.NDArray[Any]], tuple[str, ...]]:
    """The named arrays of an .npz file, or all, and the names of those that were not read.

    Pickled objects are refused, and files whose named arrays would unpack to more than is allowed.
    """
    check_size(path, sys.maxsize)
    with refuse_damage(path, "an .npz file without pickled objects"), zipfile.ZipFile(path) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        wanted = [name for name in members if names is None or name in names]
        check_amount(sum(members[n].file_size for n in wanted), most_unpacked(path), path, "unpacks to")
        arrays = {name: _read_member(archive, members[name]) for name in wanted}
        return arrays, tuple(name for name in members if name not in arrays)


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """One array. It has no more bytes than its file in the archive says that it unpacks to, and no fewer."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # NumPy writes no other
        raise ValueError(f"{member.filename!r} is packed in a way that NumPy does not use")
    with archive.open(member) as file:
        array: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        _check_whole(array, member.file_size)
        if file.read(1):  # at the end, the archive compares checksums
            raise ValueError(f"{member.filename!r} goes on after its array")
        return array


def _check_whole(array: npt.NDArray[Any], size: int) -> None:
    """Refuses an array of more values than its file has bytes, and texts that are none.

    A header may name any number of values of no bytes.
    """
    if array.size > size or max(array.shape, default=0) > size:
        raise ValueError(f"its header says {array.shape}, for a file of {size} bytes")
    if array.dtype.kind == "U" and array.nbytes:  # NumPy makes texts of them whatever they are, and Python then fails
        codes = np.ascontiguousarray(array).reshape(-1).view(np.dtype("u4").newbyteorder(array.dtype.byteorder))
        if codes.max() > sys.maxunicode:
            raise ValueError("its texts have characters that there are not")


def check_finite(values: npt.NDArray[Any], where: object) -> None:
    """Refuses an array with a NaN or an infinity, a few rows at a time: the array may be larger than memory."""
    for first in range(0, len(values), _CHECK_ROWS):
        rows = values[first : first + _CHECK_ROWS]
        finite = np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
        if not finite.all():
            raise ValueError(f"{where}: row {first + int(np.argmin(finite))} has a value that is not finite")


def to_float32(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """The values as float32; one that is too large becomes infinity, which counts as missing."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32, copy=False)


def digest_code(paths: Iterable[Path]) -> str:
    """A digest of files of code: what other code made is not taken from a cache."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def key_of(settings: Mapping[str, Any]) -> str:
    """A short digest of JSON values, to name a folder of the cache after."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def fingerprint(root: Path, paths: Iterable[Path]) -> str:
    """A digest of the name (below `root`), size and time of every file."""
    digest = hashlib.sha256()
    for path in paths:
        status = path.stat()
        name = os.path.relpath(path, root)
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "replace"))
    return digest.hexdigest()


def look_over(root: Path) -> str:
    """A digest of the name, size, time and inode of every file below a folder, links followed; none is opened."""
    digest, folders, been = hashlib.sha256(), [root], set[tuple[int, int]]()
    while folders:
        folder = folders.pop()
        status = folder.stat()
        if (status.st_dev, status.st_ino) in been:  # a link to a folder above it
            continue
        been.add((status.st_dev, status.st_ino))
        try:
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except PermissionError:  # a disk's lost+found, say; whoever needs what is in it will say so
            if folder == root:
                raise
            listed = []
        for entry in listed:
            if entry.is_dir():
                folders.append(Path(entry.path))
                continue
            try:
                status = entry.stat()
                about = f"{status.st_size}\0{status.st_mtime_ns}\0{status.st_ino}"
            except OSError:  # a link to nothing, or a file that has just gone
                about = "not there"
            digest.update(f"{os.path.relpath(entry.path, root)}\0{about}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


_PIECES, _PIECE = 4096, 64 * 1024  # of large sets, so many pieces of so many bytes are read


def digest_files(root: Path, paths: Iterable[Path]) -> str:
    """A digest of files' names (below `root`), sizes and contents, wherever the root lies and whenever it was copied.

    At most 256 MiB are read: everything where that is all there is; else 4,096 pieces of 64 KiB, spread evenly over
    the files, of more than 4,096 files the beginnings of as many. So of a larger set every other name and size is
    noticed, and another content where it differs in a piece that is read.
    """
    files = sorted((os.path.relpath(path, root).replace(os.sep, "/"), path) for path in {*paths})
    sizes = [path.stat().st_size for _, path in files]
    whole, step = sum(sizes) <= _PIECES * _PIECE, max(1, -(-len(files) // _PIECES))
    digest = hashlib.sha256()
    for place, ((name, path), size) in enumerate(zip(files, sizes, strict=True)):
        digest.update(f"{name}\0{size}\n".encode("utf-8", "surrogatepass"))
        if whole or place % step == 0:
            count = size if whole else max(1, _PIECES // len(files))
            try:
                with path.open("rb") as file:
                    for start, length in _choose_pieces(size, count):
                        file.seek(start)
                        digest.update(file.read(length))
            except OSError:  # a video, say, that is left out with a warning
                digest.update(b"cannot be read")
    return digest.hexdigest()


def _choose_pieces(size: int, count: int) -> Iterable[tuple[int, int]]:
    """Where some pieces of a file begin, and their bytes: its first and its last ones, and others evenly between."""
    if size <= count * _PIECE:
        return ((start, min(_PIECE, size - start)) for start in range(0, size, _PIECE))
    return ((place * (size - _PIECE) // max(1, count - 1), _PIECE) for place in range(count))


def cache_root(cache: str | Path | None) -> Path:
    """The folder of the cache: the one given, or $FEDACTION_CACHE, or ~/.cache/fedaction."""
    return Path(cache or os.environ.get("FEDACTION_CACHE") or Path.home() / ".cache" / "fedaction").absolute()
