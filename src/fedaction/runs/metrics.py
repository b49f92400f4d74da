"""The metrics table: one JSON object per line, long format, no wall-clock times in it."""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from fedaction.federation.files import name_file
from fedaction.federation.outside import check_size, read_file
from fedaction.methods import METHODS
from fedaction.server.state import Row


class MetricsFile:
    """An append-only table that can be cut back to where a checkpoint was taken."""

    def __init__(self, path: Path, length: int = 0) -> None:
        """Opens the table and cuts it to `length` bytes; a shorter file is an error."""
        _refuse_pipe(path)
        self._path, self._file = path, path.open("a+b")
        if self._file.seek(0, os.SEEK_END) < length:
            self._file.close()
            raise ValueError(f"{path} is shorter than the checkpoint says ({length} bytes)")
        self._file.truncate(length)
        self._file.seek(0)
        self._digest = hashlib.sha256()
        while block := self._file.read(1 << 20):
            self._digest.update(block)

    def append(self, rows: Iterable[Row]) -> int:
        """Adds rows, flushes them to disk, and returns the table's length in bytes."""
        self._check_place()
        with name_file(self._path):
            for row in rows:
                value = row.value if row.value is None or math.isfinite(row.value) else None
                record = {**row.__dict__, "value": value}
                line = (json.dumps(record, separators=(",", ":")) + "\n").encode()
                self._digest.update(line)
                self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())
        return self._file.tell()

    def _check_place(self) -> None:
        """Refuses to go on where the table was removed, renamed or replaced."""
        try:
            same = os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            same = False
        if not same:
            raise FileNotFoundError(
                f"{self._path} is not there any more: somebody has removed, moved or replaced it while it was "
                "being written"
            )

    @property
    def sha256(self) -> str:
        """Of all that is in the table; it is kept as rows are added, and nothing is read again for it."""
        return self._digest.hexdigest()

    def close(self) -> None:
        """Closes the file. What a full disk did not take is not tried again: `append` has said so."""
        with suppress(OSError):
            self._file.close()


_ROW = TypeAdapter(Row)


def read_rows(path: Path) -> list[Row]:
    """All whole rows of a table, in file order.

    A last line without its newline is left out: the run is still writing it, or was killed while it did. Any other
    line that cannot be read is an error that says which.
    """
    try:
        *lines, _ = read_file(path).split(b"\n")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file; a run directory needs it") from None
    rows: list[Row] = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(_ROW.validate_json(line))
        except ValidationError as error:
            raise ValueError(f"{path}: line {number}: {error.errors()[0]['msg']}") from None
    return rows


def metric_name(methods: Iterable[str]) -> str:
    """What tests of runs measure: "accuracy", or "recall at 1" where methods learn without labels."""
    kinds = {METHODS[name].overrides("task") for name in methods if name in METHODS}
    words = [word for kind, word in ((False, "accuracy"), (True, "recall at 1")) if kind in kinds]
    return " or ".join(words) or "accuracy"


def read_epochs(rows: Iterable[Row], local_epochs: int) -> dict[int, float]:
    """Local epochs by round, of all clients together, whose results came back, whether or not they were used.

    Where devices do unlike numbers of them (`least_epochs`), rows say how many; elsewhere each answer is
    `local_epochs` of them.
    """
    counts: dict[str, dict[int, float]] = {"participants": {}, "refused": {}, "epochs": {}}
    for row in rows:
        if row.split == "server" and not row.client and row.name in counts:
            counts[row.name][row.round] = float(row.value or 0)
    answers, refused, epochs = counts.values()
    return {round: epochs.get(round, local_epochs * (n + refused.get(round, 0))) for round, n in answers.items()}


def read_validation(rows: Iterable[Row]) -> dict[int, float]:
    """The mean over clients of validation accuracies, 0 to 1, by round."""
    by_round: dict[int, list[float]] = {}
    for row in rows:
        if (row.split, row.name) == ("validation", "accuracy"):
            by_round.setdefault(row.round, []).append(row.value or 0.0)
    return {round: fmean(values) for round, values in by_round.items()}


def write_seconds(path: Path, round: int, train: float, total: float) -> None:
    """Adds a round's wall seconds to a clock; not part of the metrics, which are the same on every machine.

    No seal covers them. Each line has a check of its own, by which an altered digit is noticed.
    """
    _refuse_pipe(path)
    with name_file(path), path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        torn = file.read(1) not in (b"", b"\n")  # by a kill, or a disk that was full
        entry = {"round": round, "train": train, "total": total}
        file.write(b"\n" * torn + json.dumps({**entry, "check": _check_line(entry)}).encode() + b"\n")


def read_seconds(path: Path, what: Literal["train", "total"]) -> dict[int, float]:
    """Wall seconds by round, of those lines that are as they were written. Of rounds done again the last counts."""
    rounds: dict[int, float] = {}
    for line in read_file(path).decode("utf-8", "replace").splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
            seconds = float(entry[what])
            if 0 <= seconds < math.inf and entry.get("check") in (None, _check_line(entry)):  # older ones have none
                rounds[int(entry["round"])] = seconds
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError, AttributeError):
            continue  # torn
    return rounds


def _check_line(entry: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps([entry['round'], entry['train'], entry['total']]).encode()):08x}"


def _refuse_pipe(path: Path) -> None:
    """Whoever opens a pipe, to read or to write, waits for somebody at its other end."""
    if path.exists():
        check_size(path, sys.maxsize)
