"""A directory that keeps what an evaluation has measured, so that one that was interrupted is resumed.

`evaluation.json` says of what network, clips and keys; `seed-<seed>/<part>.json` is what a part measured, and is
there only when the part is finished; `seed-<seed>/finetune/` has metrics and, until the part is finished,
checkpoints.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from fedaction.federation.files import lock_folder, read_json, remove_partial, write_json
from fedaction.training.trainer import seconds_of

_RECORD = "evaluation.json"


class Parts:
    """What is done of an evaluation, and what is done now."""

    def __init__(self, folder: Path | None, configuration: str) -> None:
        """`folder`: where it is kept, with a hash of what decides it; None: nowhere."""
        self._folder, self.configuration = folder, configuration
        self.seconds = 0.0
        """Wall seconds of all parts, whenever they were done."""

    def done(self, seed: int, part: str) -> bool:
        """Whether a part is finished."""
        return self._folder is not None and self._file(self._folder, seed, part).exists()

    def of(self, seed: int, part: str, compute: Callable[[Path], Any]) -> Any:
        """What a part measured: read, or computed and kept.

        `compute` gets a folder of its own and returns JSON values. What it has done there when it is interrupted is
        there again the next time.
        """
        if self._folder is None:
            clock = time.perf_counter()
            with tempfile.TemporaryDirectory(prefix="fedaction-") as work:
                value = compute(Path(work))
            self.seconds += time.perf_counter() - clock
            return value
        path = self._file(self._folder, seed, part)
        if not path.exists():
            work = path.with_suffix("")
            clock, before = time.perf_counter(), seconds_of(work)  # of epochs before it was interrupted
            value = compute(work)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, {"found": value, "seconds": round(before + time.perf_counter() - clock, 3)})
            shutil.rmtree(work / "checkpoints", ignore_errors=True)
        kept = read_json(path)
        if not isinstance(kept, dict) or not {"found", "seconds"} <= {*kept}:  # pyright: ignore[reportUnknownArgumentType]
            raise ValueError(f"{path} is not what an evaluation wrote; remove it, and the part is done again")
        self.seconds += float(kept["seconds"])  # pyright: ignore[reportUnknownArgumentType]
        return kept["found"]  # pyright: ignore[reportUnknownVariableType]

    @staticmethod
    def _file(folder: Path, seed: int, part: str) -> Path:
        return folder / f"seed-{seed}" / f"{part}.json"


@contextmanager
def keep_parts(folder: Path | None, about: Mapping[str, Any], keys: Mapping[str, Any]) -> Generator[Parts]:
    """The parts of an evaluation in a new or empty directory, or in that of the same one.

    Args:
        folder: the directory; None: nothing is kept.
        about: what is evaluated on what: names with hashes.
        keys: what decides results besides, as JSON values.
    """
    record = {**about, "keys": dict(keys)}
    configuration = hashlib.blake2b(json.dumps(record, sort_keys=True).encode(), digest_size=6).hexdigest()
    if folder is None:
        yield Parts(None, "")
        return
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        remove_partial(folder)
        if (folder / _RECORD).exists():
            _compare(folder, read_json(folder / _RECORD), record)
        write_json(folder / _RECORD, record)
        yield Parts(folder, configuration)


def check_folder(folder: Path) -> None:
    """Refuses a directory that is something else."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; choose a directory")
    if not folder.exists() or (folder / _RECORD).exists():
        return
    if any(not path.name.endswith(".part") for path in folder.iterdir()):
        raise ValueError(f"{folder} is not empty and holds no evaluation; choose another directory")


def _compare(folder: Path, before: Any, now: Mapping[str, Any]) -> None:
    if not isinstance(before, dict) or not isinstance(before.get("keys"), dict):  # pyright: ignore[reportUnknownMemberType]
        raise ValueError(f"{folder / _RECORD} is not what an evaluation wrote; choose another directory")
    was = cast("dict[str, Any]", before)
    said = [(f"{name} (SHA-256)", was.get(name), now[name]) for name in now if name != "keys"]
    said += [(key, was["keys"].get(key), value) for key, value in now["keys"].items()]
    for what, old, new in said:
        if old != new:
            raise ValueError(
                f"{folder} was begun with {what} = {old!r}, but now it is {new!r}; put it back as it was, or choose "
                "another directory"
            )
