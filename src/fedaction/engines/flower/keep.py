"""What a site keeps on its own disk: its LOCAL tensors after every job, and what it is sent once.

Tensors after a job are a whole file under the job's number.

Nothing is marked as pending or committed here. The server says in every message which job's tensors count (the
`basis`), so a message that comes twice, or a server that was set back to an older checkpoint, finds what it means.
What counted when a run came to its end is written once more: see `earlier`.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedaction.engines.messages import Message, MessageError
from fedaction.federation.files import remove_partial, write_atomically
from fedaction.federation.tree import Tree

_FILE = re.compile(r"^job-(\d{9,16})\.kept$")
_INSTALL = "install.kept"
LAST = "last.kept"
"""What counted when a run came to its end."""
_FIRST = "first.kept"
_DIGEST = 32  # bytes of a SHA-256 behind the message


class LostError(ValueError):
    """Tensors that a site should have and has not, and what to do."""


class SiteStore:
    """The LOCAL tensors of one client in one run, a file for each job that it has done."""

    def __init__(self, folder: Path, client: str) -> None:
        """`folder` is this run's and this client's alone; it is made when there is something to keep."""
        self._folder, self._client = folder, client
        if folder.exists():
            remove_partial(folder)

    def write(self, job: int, tree: Tree) -> None:
        """Keeps what a job (counted from 1) has left; whole or not at all. What it had left before is replaced."""
        self._write(self._path(job), {"client": self._client, "job": job}, tree)

    def read(self, job: int) -> Tree:
        """What a job has left; a LostError where it is not there, is damaged or is somebody else's."""
        return self._read(self._path(job), {"client": self._client, "job": job}, f"after job {job}")

    def write_last(self, about: str, tree: Tree) -> None:
        """Keeps what counted when the run ended; `about` says what it belongs to."""
        self._write(self._folder / LAST, {"client": self._client, "about": about}, tree)

    def read_last(self, about: str) -> Tree:
        """What counted when the run ended; a LostError where there is nothing, or it belongs to something else."""
        return self._read(self._folder / LAST, {"client": self._client, "about": about}, "at the end of a run")

    def write_first(self, tree: Tree) -> None:
        """Keeps what the run begins with in the place of a method's first values."""
        self._write(self._folder / _FIRST, {"client": self._client}, tree)

    def read_first(self) -> Tree:
        """What the run begins with; nothing where that is the method's first values."""
        path = self._folder / _FIRST
        return self._read(path, {"client": self._client}, "from an earlier run") if path.exists() else {}

    def _write(self, path: Path, values: Mapping[str, Any], tree: Tree) -> None:
        content = Message("kept", values, {"tree": tree}).pack()
        write_atomically(path, content + hashlib.sha256(content).digest())

    def _read(self, path: Path, values: Mapping[str, Any], when: str) -> Tree:
        what = f"what client {self._client!r} kept {when}"
        try:
            content = path.read_bytes()
        except OSError as error:
            raise LostError(
                f"client {self._client!r} has lost what it kept {when}: {error.strerror}; put back its "
                "state folder from a backup, or begin a new run"
            ) from None
        content, digest = content[:-_DIGEST], content[-_DIGEST:]
        if hashlib.sha256(content).digest() != digest:
            raise LostError(f"{what} is damaged on its disk")
        try:
            message = Message.unpack(content)
        except MessageError as error:
            raise LostError(f"{what} cannot be read: {error}") from None
        if message.kind != "kept" or message.values != values:
            other = "another method, other classes or shapes" if "about" in values else message.values
            raise LostError(f"{what} belongs to {other}")
        return message.trees.get("tree", {})

    def write_install(self, content: bytes) -> None:
        """Keeps what this site is sent once in a run; whole or not at all."""
        write_atomically(self._folder / _INSTALL, content + hashlib.sha256(content).digest())

    def read_install(self) -> bytes:
        """What was kept of that; nothing where there is none, or it is damaged: then it is sent again."""
        try:
            content = (self._folder / _INSTALL).read_bytes()
        except OSError:
            return b""
        content, digest = content[:-_DIGEST], content[-_DIGEST:]
        return content if hashlib.sha256(content).digest() == digest else b""

    def jobs(self) -> list[int]:
        """The jobs whose tensors are kept, in order."""
        if not self._folder.exists():
            return []
        return sorted(int(match[1]) for path in self._folder.iterdir() if (match := _FILE.match(path.name)))

    def forget(self, before: int) -> None:
        """Removes what jobs before one have left."""
        for job in self.jobs():
            if job < before:
                self._path(job).unlink(missing_ok=True)

    def _path(self, job: int) -> Path:
        return self._folder / f"job-{job:09d}.kept"


def read_site_key(path: Path) -> bytes:
    """The site's own secret, drawn the first time."""
    if not path.exists():
        write_atomically(path, secrets.token_bytes(32))
        path.chmod(0o600)
    key = path.read_bytes()
    if len(key) != 32:
        raise LostError(f"{path} is no site key: it has {len(key)} bytes, not 32")
    return key
