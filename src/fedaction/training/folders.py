"""Directories that keep what was done, so that work that was interrupted is resumed.

Of an evaluation, `evaluation.json` says of what network, clips and keys; `seed-<seed>/<protocol>.json` is what a
protocol measured, and is there only when it is finished; `seed-<seed>/finetune/` has metrics and, until then,
checkpoints.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from fedaction.federation.files import (
    is_empty,
    lock_folder,
    make_folder,
    read_sealed_json,
    remove_partial,
    write_sealed_json,
)
from fedaction.federation.settings import hash_values
from fedaction.runs.seal import OF
from fedaction.training.trainer import seconds_of

RECORD = "evaluation.json"


def check_folder(folder: Path, record: str, what: str) -> bool:
    """Refuses a directory that holds anything, but no `record`, the file that says what it is of.

    Says whether it is there.
    """
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file; choose a directory")
    if not (folder / record).exists() and not is_empty(folder):
        raise ValueError(f"{folder} is not empty and holds no {what}; choose another directory")
    return True


@contextmanager
def open_folder(folder: Path, record: str, what: str, begun: bool) -> Generator[None]:
    """A directory for this process alone: a new or empty one, or one that has the record.

    `begun`: what `check_folder` said at first. A directory that was there then is not made anew.
    """
    if not begun:
        make_folder(folder)
    with lock_folder(folder):
        check_folder(folder, record, what)
        remove_partial(folder)
        yield


def check_unchanged(folder: Path, items: Iterable[tuple[str, Any, Any]]) -> None:
    """Refuses work that was begun with something else: each item is its name, what it was, and what it is."""
    for name, before, now in items:
        if before != now:
            raise ValueError(
                f"{folder} was begun with {name} = {before!r}, but now it is {now!r}; put it back as it was, or "
                "choose another directory"
            )


class EvaluationPart(BaseModel):
    """What a protocol measured: scores by name, recall of classes among them; of noise, a row for each draw."""

    model_config = ConfigDict(extra="forbid")
    value: dict[str, float | list[float | None]] | list[tuple[str, float, float, float]]
    seconds: float
    of: str = ""
    """The evaluation's hash; "": of an older version."""


def read_part(path: Path) -> EvaluationPart:
    """A part of an evaluation, as it was written."""
    try:
        return EvaluationPart.model_validate(read_sealed_json(path))
    except ValueError:
        raise ValueError(f"{path} is not what an evaluation wrote; remove it, and it is done again") from None


class Parts:
    """What is done of an evaluation, and what is done now."""

    def __init__(self, folder: Path | None, configuration: str) -> None:
        """`folder`: where it is kept, with a hash of what decides it; None: nowhere."""
        self._folder, self.configuration = folder, configuration
        self.seconds = 0.0  # wall time of all parts, whenever they were done

    def of(self, seed: int, name: str, compute: Callable[[Path], Any]) -> Any:
        """What a protocol measured: read, or computed and kept.

        `compute` gets a folder of its own and returns JSON values. What it has done there when it is interrupted is
        there again the next time.
        """
        if self._folder is None:
            clock = time.perf_counter()
            with tempfile.TemporaryDirectory(prefix="fedaction-") as work:
                value = compute(Path(work))
            self.seconds += time.perf_counter() - clock
            return value
        work = self._folder / f"seed-{seed}" / name
        path = work.with_suffix(".json")
        if not path.exists():
            clock, before = time.perf_counter(), seconds_of(work)  # of epochs before it was interrupted
            value = compute(work)
            seconds = round(before + time.perf_counter() - clock, 3)
            write_sealed_json(path, {"value": value, "seconds": seconds, OF: self.configuration})
        shutil.rmtree(work / "checkpoints", ignore_errors=True)  # also of one that was killed right before it did so
        part = read_part(path)
        if part.of not in ("", self.configuration):
            raise ValueError(f"{path} is of another evaluation; remove it, and it is done again")
        self.seconds += part.seconds
        return part.value


@contextmanager
def keep_parts(
    folder: Path | None,
    about: Mapping[str, Any],
    keys: Mapping[str, Any],
    begun: bool,
    source: Mapping[str, str] | None = None,
) -> Generator[Parts]:
    """The parts of an evaluation in a new or empty directory, or in that of the same one; None: nothing is kept.

    `about` says what is evaluated on what: names with hashes; `keys` what decides results besides, as JSON values;
    `begun`: see `open_folder`; `source`: what the recordings were made of, which is not compared here.
    """
    record = {**about, "keys": dict(keys)}
    if folder is None:
        yield Parts(None, "")
        return
    with open_folder(folder, RECORD, "evaluation", begun):
        path = folder / RECORD
        if path.exists():
            try:
                before = read_sealed_json(path)
                items = [(f"{name} (SHA-256)", before.get(name), now) for name, now in about.items()]
                items += [(key, before["keys"].get(key), now) for key, now in keys.items()]
            except (AttributeError, KeyError, TypeError, ValueError):
                raise ValueError(f"{path} is not what an evaluation wrote; choose another directory") from None
            check_unchanged(folder, items)
        write_sealed_json(path, {**record, "source": dict(source or {})})
        yield Parts(folder, hash_values(record))
