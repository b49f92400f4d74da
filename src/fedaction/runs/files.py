"""A run directory's files: written whole, by one process at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedaction.data.atomic import write_atomically

try:
    import fcntl
except ImportError:  # not on Windows, where nothing keeps two runs apart
    fcntl = None


@contextmanager
def only_one(folder: Path) -> Generator[None]:
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


def clear_partial(folder: Path) -> None:
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
