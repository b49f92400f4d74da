"""Files that are either whole or not there, and folders that one process at a time writes."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from fedaction.federation.processes import refuse_in_import

try:
    import fcntl
except ImportError:  # not on Windows, where nothing keeps two processes apart
    fcntl = None


@contextmanager
def open_atomically(path: Path) -> Generator[BinaryIO]:
    """A file to write beside, which is flushed to disk and then renamed to its place.

    A reader, or a run after a crash, never sees half of it; where writing fails, nothing has changed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """A file's content, whole or not at all; see `open_atomically`."""
    with open_atomically(path) as file:
        file.write(content)


@contextmanager
def lock_folder(folder: Path) -> Generator[None]:
    """Keeps a second process out of a folder; however the first one ends, the folder is free again."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ValueError(f"{folder} is being written by another process; wait for it, or stop it") from None
        yield
    finally:
        os.close(handle)


def remove_partial(folder: Path) -> None:
    """Removes what writers that were killed left behind, in a folder and all below it."""
    for path in folder.rglob(".*.part"):
        path.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """A JSON file, written atomically."""
    write_atomically(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """A JSON file's value; a broken file is an error that names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None


@contextmanager
def lock_path(place: Path) -> Generator[None]:
    """One process at a time makes what is to be at a place; however it ends, the next may go on."""
    place.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(place.with_name(f".{place.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                refuse_in_import()  # its parent has it, and waits for this process
                warnings.warn(f"another process is making {place}: waiting for it", stacklevel=4)
                fcntl.flock(handle, fcntl.LOCK_EX)
            for left in place.parent.glob(f".{place.name}.*/"):  # by a process that was killed
                shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(handle)
