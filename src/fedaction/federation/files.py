"""Files that are either whole or not there, and folders that one process at a time writes."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import sys
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from filelock import FileLock, Timeout

from fedaction.federation.outside import check_size, parse_json, read_text
from fedaction.federation.processes import has_ended, refuse_in_import

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


@contextmanager
def open_atomically(path: Path) -> Generator[BinaryIO]:
    """A file to write beside, which is flushed to disk and then renamed to its place.

    A reader, or a run after a crash, never sees half of it; where writing fails, nothing has changed, and the error
    names the file. What writers of the same file that were killed have left is removed first.
    """
    make_folder(path.parent)
    if not any(folder in _held for folder in path.parents):  # there it was done when the folder was locked
        _remove_leftovers(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with name_file(path):
            with beside.open("wb") as file:
                _lock_file(file)
                yield file
                file.flush()
                os.fsync(file.fileno())
            try:
                os.replace(beside, path)
            except OSError as error:  # which names the file beside it first, and nobody knows that
                raise OSError(error.errno, error.strerror, str(path)) if error.errno else error from None
    finally:
        beside.unlink(missing_ok=True)


def _remove_leftovers(path: Path) -> None:
    """Removes what writers of one file left that were killed: their processes are gone, and nobody has it locked."""
    name = re.compile(rf"\.{re.escape(path.name)}\.(\d{{1,9}})\.part")
    with suppress(OSError):  # a folder that may not be listed can still be written to
        for entry in os.scandir(path.parent):
            if (left := name.fullmatch(entry.name)) and has_ended(int(left[1])):
                with suppress(OSError), open(entry.path, "rb") as file:
                    if _lock_file(file):
                        os.unlink(entry.path)


def _lock_file(file: BinaryIO) -> bool:
    """Locks a file that is being written; whether that could be done. Processes of another machine see only this."""
    if fcntl is None:  # on Windows, where a file that is open cannot be removed
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def name_file(path: Path) -> Generator[None]:
    """An error of the operating system says which file it is about: that of a full disk does not."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def write_atomically(path: Path, content: bytes) -> None:
    """A file's content, whole or not at all; see `open_atomically`."""
    with open_atomically(path) as file:
        file.write(content)


SHA256 = "sha256"
"""The key of a sealed JSON file's own hash."""
_MOST_OWN = 512 * 2**20  # bytes of a JSON file of a run: evidence of ten thousand clients is large
LOCK = ".lock"
"""The file of a folder that is locked; it stays, and that it is there means nothing."""


def is_empty(folder: Path) -> bool:
    """Whether a folder holds nothing but what a process that was killed at its start has left."""
    return all(path.name == LOCK or path.name.endswith(".part") for path in folder.iterdir())


@contextmanager
def lock_folder(folder: Path) -> Generator[None]:
    """Keeps a second process out of a folder; however the first one ends, the folder is free again.

    The lock is the operating system's, on the folder's file `LOCK`. The folder is held, too; see `hold_folder`.
    """
    lock = FileLock(folder / LOCK)
    with hold_folder(folder):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ValueError(f"{folder} is being written by another process; wait for it, or stop it") from None
        try:
            _check_held(folder)
            yield
        finally:
            lock.release()


_held: dict[Path, list[int]] = {}
"""The folders that this process holds, each open: as long as it is, no other folder gets its number on the disk."""


@contextmanager
def hold_folder(folder: Path) -> Generator[None]:
    """While the block works in a folder: where somebody removes, moves or replaces it, the work ends.

    Nothing is written where the folder was, nor is it made anew (`make_folder`), and whatever can then not be done
    becomes one error, which says what has happened.
    """
    if os.name == "nt":  # which opens no folders; nor does it let one be moved while a file in it is open
        yield
        return
    try:
        number = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        raise _gone(folder) from None
    _held.setdefault(folder, []).append(number)
    try:
        yield
    except (OSError, ValueError):
        _check_held(folder)
        raise
    finally:
        _held[folder].remove(number)
        if not _held[folder]:
            del _held[folder]
        os.close(number)


def make_folder(folder: Path) -> None:
    """Makes a folder, and those above it; but none that this process holds (`hold_folder`), if that has gone."""
    places = (folder, *folder.parents)
    held = next((place for place in places if place in _held), None)
    if held is None:
        folder.mkdir(parents=True, exist_ok=True)
        return
    _check_held(held)
    for place in reversed(places[: places.index(held)]):
        if not place.is_dir():
            place.mkdir(exist_ok=True)


def _check_held(folder: Path) -> None:
    if folder in _held:
        try:
            same = os.path.samestat(folder.stat(), os.fstat(_held[folder][0]))
        except OSError:
            same = False
        if not same:
            raise _gone(folder)


def _gone(folder: Path) -> FileNotFoundError:
    return FileNotFoundError(
        f"{folder} is not there any more: somebody has removed, moved or replaced it while it was being written. "
        "What is elsewhere now is as the last checkpoint left it"
    )


def remove_partial(folder: Path) -> None:
    """Removes what writers that were killed left behind, in a folder and all below it."""
    for path in folder.rglob(".*.part"):
        path.unlink(missing_ok=True)


def free_bytes(place: Path) -> int:
    """What the disk of a place has left; the place itself need not be there yet."""
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def write_json(path: Path, value: Any) -> None:
    """A JSON file, written atomically."""
    write_atomically(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def write_sealed_json(path: Path, value: Mapping[str, Any]) -> None:
    """A JSON object with a hash of itself beside its own keys, so that a reader knows it as it was written."""
    write_json(path, {**value, SHA256: _hash(value)})


def read_sealed_json(path: Path) -> dict[str, Any]:
    """What `write_sealed_json` has written, without the hash; one that does not fit is an error that names the file.

    A file without a hash is taken as it is: older versions wrote none.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path} is no JSON object")
    rest: dict[str, Any] = {key: item for key, item in cast("dict[str, Any]", value).items() if key != SHA256}
    if value.get(SHA256, "") not in ("", _hash(rest)):  # pyright: ignore[reportUnknownMemberType]
        raise ValueError(f"{path} is not as it was written")
    return rest


def _hash(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, allow_nan=False).encode()).hexdigest()


def read_json(path: Path) -> Any:
    """A JSON file's value; a broken file is an error that names it."""
    return parse_json(read_text(path, _MOST_OWN), path)


def hash_file(path: Path) -> str:
    """SHA-256 of a file."""
    check_size(path, sys.maxsize)  # of any size, but a file
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def lock_path(place: Path) -> Generator[None]:
    """One process at a time makes what is to be at a place; however it ends, the next may go on."""
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(place.with_name(f".{place.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        refuse_in_import()  # its parent has it, and waits for this process
        warnings.warn(f"another process is making {place}: waiting for it", stacklevel=4)
        lock.acquire()
    try:
        for left in place.parent.glob(f".{glob.escape(place.name)}.*/"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        lock.release()


@contextmanager
def take_folder(parent: Path, name: str) -> Generator[Path]:
    """A new folder NAME-1, NAME-2, ... that no other process has; it goes again if nothing was written in it."""
    number, taken = 1, False
    folder = parent / f"{name}-{number}"
    try:
        while True:
            parent.mkdir(parents=True, exist_ok=True)
            try:
                folder.mkdir()
                taken = True
                break
            except FileExistsError:
                number += 1
                folder = parent / f"{name}-{number}"
            except FileNotFoundError:  # somebody else found the parent empty, and removed it
                continue
        yield folder
    finally:
        for path in (folder, parent) if taken else (parent,):
            with suppress(OSError):  # those that are not empty stay
                path.rmdir()
