"""Folders that are either whole or not there, whatever happens while they are written."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from fedaction.federation.files import LOCK

_OLD = ".old"  # the end of the name of what was at a place, while something new takes it
_GONE = ".gone"  # and of what is being removed


class NewFolder:
    """A folder to write in, under a hidden name beside its place, until it is whole.

    Whoever makes it ends with `put_in_place`, or with `remove`, after which nothing is left of it. What a process
    that was killed has left is removed by the next one that writes to the same place; a folder in which somebody is
    writing is known by the lock in it.
    """

    def __init__(self, out: Path) -> None:
        """Makes the folder, and those above it; `out` is its place."""
        self.out = out
        self._made = [parent for parent in out.parents if not parent.exists()]  # the deepest first
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            clear_leftovers(out)
            while True:
                self.path = out.with_name(f".{out.name}.{uuid.uuid4().hex[:12]}")
                self.path.mkdir()
                self._lock = FileLock(self.path / LOCK)
                with suppress(FileNotFoundError):  # somebody took it for a leftover before it was locked
                    self._lock.acquire()
                    if (self.path / LOCK).exists():
                        break
        except BaseException:
            if hasattr(self, "path"):
                shutil.rmtree(self.path, ignore_errors=True)
            self._remove_made()
            raise

    def open(self, name: str) -> BinaryIO:
        """A new file in it, to write; where it cannot be made, nothing is left of the folder."""
        try:
            return (self.path / name).open("wb")
        except BaseException:
            self.remove()
            raise

    def put_in_place(self, *, replace: bool = True) -> None:
        """Renames the folder to its place; what is there is replaced, or where it is not to be, an OSError."""
        (self.path / LOCK).unlink()
        old = self.path.with_name(self.path.name + _OLD)
        if replace and self.out.exists():
            os.rename(self.out, old)
        try:
            os.rename(self.path, self.out)
        except OSError:
            if old.exists():
                os.rename(old, self.out)
            raise
        self._lock.release()
        shutil.rmtree(old, ignore_errors=True)

    def remove(self) -> None:
        """Removes the folder where it was not put in its place, and whatever was made for it."""
        self._lock.release()
        if self.path.exists():
            shutil.rmtree(self.path, ignore_errors=True)
            self._remove_made()

    def _remove_made(self) -> None:
        for parent in self._made:
            with suppress(OSError):  # those that are not empty stay
                parent.rmdir()


@contextmanager
def new_folder(out: Path, replace: bool = True) -> Generator[Path]:
    """A folder to write to under a hidden name, which is renamed to `out` where the block ends without an error.

    What is at `out` is replaced, or where it is not to be, an OSError.
    """
    new = NewFolder(out)
    try:
        yield new.path
        new.put_in_place(replace=replace)
    finally:
        new.remove()


def clear_leftovers(out: Path) -> None:
    """Removes what processes that were killed have left beside a place; what they had moved out of it comes back."""
    # Older versions had 32 digits, also in the name of what they had moved out of its place.
    digits = r"([0-9a-f]{12}|[0-9a-f]{32})" if out.exists() else r"[0-9a-f]{12}"
    name = re.compile(rf"\.{re.escape(out.name)}\.{digits}({re.escape(_OLD)}|{re.escape(_GONE)})?")
    for path in sorted(path for path in out.parent.iterdir() if name.fullmatch(path.name) and path.is_dir()):
        if path.suffix == _OLD and not out.exists():
            with suppress(OSError):
                os.rename(path, out)
            continue
        lock = FileLock(path / LOCK)
        try:
            lock.acquire(timeout=0)
        except (Timeout, OSError):  # it is being written; or somebody else has removed it
            continue
        gone = path if path.suffix == _GONE else path.with_name(path.name + _GONE)
        with suppress(OSError):
            os.rename(path, gone)  # at once, so that whoever has just made it cannot put half of it in its place
        lock.release()
        shutil.rmtree(gone, ignore_errors=True)
