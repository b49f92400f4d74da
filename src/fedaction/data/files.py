"""Files from outside, bounded in size, never unpickled, refused with a message that names them; and the cache.

Loads no torch: processes that read public datasets start afresh, and would each load it.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ValidationError

Model = TypeVar("Model", bound=BaseModel)
_MOST_HEADER_BYTES = 256 * 2**20
_CHECK_ROWS = 4096


def check_size(path: Path, most: int) -> None:
    """Refuses a file of more than so many bytes."""
    size = path.stat().st_size
    if size > most:
        raise ValueError(f"{path} has {size} bytes, more than the {most} allowed")


def first_fault(error: ValidationError) -> str:
    """The place and the words of the first thing that a model refused."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc']) or 'the file'}: {first['msg']}"


def read_header(path: Path, kind: type[Model], what: str) -> Model:
    """A JSON file as a model; `what` is what a message calls it."""
    check_size(path, _MOST_HEADER_BYTES)
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ValueError(f"{path} is not a valid {what}: {first_fault(error)}") from None


def open_npy(path: Path) -> npt.NDArray[Any]:
    """The array of an .npy file, mapped into memory: no pickle, no zip, and a false header allocates nothing."""
    try:
        return np.asarray(np.lib.format.open_memmap(path, mode="r"))
    except (ValueError, OSError, EOFError, SyntaxError) as error:
        raise ValueError(f"{path} is damaged or is not a NumPy file: {error}") from None


def read_npz(
    path: Path, names: Collection[str] | None = None, most: int | None = None
) -> tuple[dict[str, npt.NDArray[Any]], tuple[str, ...]]:
    """The named arrays of an .npz file, or all, and the names of those that were not read.

    Args:
        path: the file. Pickled objects in it are refused.
        names: of the arrays to read; None: all.
        most: bytes that it may unpack to; None: any number.
    """
    try:
        if most is not None:
            with zipfile.ZipFile(path) as archive:
                size = sum(member.file_size for member in archive.infolist())
            if size > most:
                raise ValueError(f"it unpacks to {size} bytes, more than the {most} allowed")
        with np.load(path, allow_pickle=False) as arrays:
            wanted = [name for name in arrays.files if names is None or name in names]
            return {name: arrays[name] for name in wanted}, tuple(n for n in arrays.files if n not in wanted)
    except (ValueError, OSError, EOFError, AttributeError, TypeError, MemoryError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as an .npz file without pickled objects: {error}") from None


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


def fingerprint(root: Path, paths: Iterable[Path]) -> str:
    """A digest of the name (below `root`), size and time of every file."""
    digest = hashlib.sha256()
    for path in paths:
        status = path.stat()
        name = os.path.relpath(path, root)
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "replace"))
    return digest.hexdigest()


def cache_root(cache: str | Path | None) -> Path:
    """The folder of the cache: the one given, or $FEDACTION_CACHE, or ~/.cache/fedaction."""
    return Path(cache or os.environ.get("FEDACTION_CACHE") or Path.home() / ".cache" / "fedaction").absolute()
