"""A teacher's logits of the training clips, computed once and kept in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaction.federation.files import hash_file, open_atomically, read_json, write_json


def keep_logits(
    path: Path, about: dict[str, Any], shape: tuple[int, int], compute: Callable[[], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """Logits from a .npy file, memory-mapped; where it is not there or of something else, they are computed first.

    A JSON file beside it says what it holds: `about` is what decides the logits (hashes of the teacher's file and of
    the clips, settings). They are (clips, classes) float32, finite, to be read only.
    """
    if (kept := _read(path, about, shape)) is not None:
        return kept
    path.with_suffix(".json").unlink(missing_ok=True)  # so that it never vouches for another file
    logits = compute()
    if logits.shape != shape or logits.dtype != np.float32 or not np.isfinite(logits).all():
        raise ValueError(f"the teacher's logits are not finite float32 numbers {shape}; is its model file sound?")
    with open_atomically(path) as file:
        np.save(file, logits, allow_pickle=False)
    write_json(path.with_suffix(".json"), {**about, "sha256": hash_file(path)})
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _read(path: Path, about: dict[str, Any], shape: tuple[int, int]) -> NDArray[np.float32] | None:
    """What is kept, if it is what is wanted and as it was written."""
    record = path.with_suffix(".json")
    if not path.is_file() or not record.is_file():
        return None
    try:
        if read_json(record) != {**about, "sha256": hash_file(path)}:
            return None
        logits = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError):
        return None
    sound = logits.shape == shape and logits.dtype == np.float32 and bool(np.isfinite(logits).all())
    return logits if sound else None
