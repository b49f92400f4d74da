"""Decoded clips on disk, up to a limit: what was not used for the longest time goes first.

An entry is one .npy file, called by a digest of what it was made of: the source's path, size and time, the clips'
specification, and how they were drawn. A checksum behind the array tells a damaged entry, which is made again.
Entries appear by renaming, so that another process never sees half of one. One that is removed while it is being read
stays whole for its reader on POSIX systems; on Windows it is not removed until it is no longer read.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import uuid
import warnings
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from fedaction.data.clips.picture import Pixels
from fedaction.data.files import cache_root

_VERSION = 1  # raised whenever the same files give other clips
_MARK = b"CRC\n"
_FOOT = len(_MARK) + 4
_ROOM = 0.9  # of the limit is left when it has been passed, so that not every new entry makes room for itself alone
_ABANDONED = 3600.0  # seconds after which an unfinished file is nobody's


class ClipCache:
    """A bounded folder of decoded clips, for any number of threads and processes."""

    def __init__(self, cache: str | Path | None = None, limit_bytes: int = 20 * 2**30) -> None:
        """Makes the folder `clips` in that of the cache, if it is not there.

        The cache is $FEDACTION_CACHE, else ~/.cache/fedaction, where none is given. `limit_bytes` are all entries'.
        """
        if limit_bytes < 1:
            raise ValueError(f"the cache needs a limit of at least 1 byte, got {limit_bytes}")
        self.folder = cache_root(cache) / "clips"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._bytes = self.size_bytes()  # as of the last look; other processes may add to it
        self._added = 0

    def clips(self, source: str | Path, how: Mapping[str, object], make: Callable[[], Pixels]) -> Pixels:
        """Clips of a source, (N, T, H, W, 3) uint8: from the cache, mapped into memory and read-only, or made.

        `how` is all besides the source's file that decides them, as JSON values. What `make` raises is passed
        on, and nothing is kept.
        """
        path = self.folder / f"{_digest(Path(source), how)}.npy"
        clips = self._read(path)
        if clips is not None:
            return clips
        clips = make()
        if clips.dtype != np.uint8:
            raise ValueError(f"only clips of uint8 are kept, got {clips.dtype}")
        if self._write(path, clips):
            self._make_room()
        return clips

    def size_bytes(self) -> int:
        """Bytes of all entries and unfinished files."""
        return sum(size for _, size, _ in self._entries())

    def _read(self, path: Path) -> Pixels | None:
        try:
            with path.open("rb") as file:
                version = npy.read_magic(file)
                read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, fortran, dtype = read_header(file)
                start = file.tell()
                size = os.fstat(file.fileno()).st_size
            count = int(np.prod(shape, dtype=np.int64))
            if dtype != np.uint8 or fortran or len(shape) != 5 or size != start + count + _FOOT:
                raise ValueError("its header does not fit it")
            whole = np.memmap(path, dtype=np.uint8, mode="r", offset=start)
            if whole[count:].tobytes() != _foot(whole[:count]):
                raise ValueError("its checksum does not fit")
            os.utime(path)  # its time says when it was last used
            return whole[:count].reshape(shape)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, EOFError) as error:
            warnings.warn(f"clips in the cache are made again: {path.name} is damaged: {error}", stacklevel=4)
            return None

    def _write(self, path: Path, clips: Pixels) -> bool:
        """Keeps clips; False where the disk does not let it, which only costs the next reader time."""
        new = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        clips = np.ascontiguousarray(clips)
        try:
            with new.open("wb") as file:
                npy.write_array(file, clips, allow_pickle=False)
                file.write(_foot(clips))
            os.replace(new, path)
        except OSError as error:
            new.unlink(missing_ok=True)
            warnings.warn(f"clips could not be kept in the cache: {error}", stacklevel=4)
            return False
        with self._lock:
            self._bytes += clips.nbytes
            self._added += clips.nbytes
        return True

    def _make_room(self) -> None:
        """Removes the entries that were not used for the longest time, where the limit is passed."""
        with self._lock:
            # Looks again now and then: another process may have filled the folder.
            if self._bytes <= self.limit_bytes and self._added <= 0.05 * self.limit_bytes:
                return
            entries = self._entries()
            total = sum(size for _, size, _ in entries)
            if total > self.limit_bytes:
                for path, size, _ in sorted(entries, key=lambda entry: entry[2]):
                    if path.name.startswith("."):
                        continue
                    try:
                        path.unlink()
                    except FileNotFoundError:  # another process was quicker
                        pass
                    except OSError:
                        continue
                    total -= size
                    if total <= _ROOM * self.limit_bytes:
                        break
            self._bytes, self._added = total, 0

    def _entries(self) -> list[tuple[Path, int, float]]:
        """Files with their bytes and the time of their last use; what a killed process left behind is removed."""
        entries: list[tuple[Path, int, float]] = []
        with os.scandir(self.folder) as files:
            for file in files:
                try:
                    about = file.stat()
                    if file.name.startswith(".") and time.time() - about.st_mtime > _ABANDONED:
                        os.unlink(file.path)
                        continue
                except OSError:
                    continue
                entries.append((Path(file.path), about.st_size, about.st_mtime))
        return entries


def _digest(source: Path, how: Mapping[str, object]) -> str:
    source = source.absolute()
    about = source.stat()
    made_of = [_VERSION, str(source), about.st_size, about.st_mtime_ns, dict(how)]
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _foot(data: Pixels) -> bytes:
    return _MARK + zlib.crc32(data.data).to_bytes(4, "little")
