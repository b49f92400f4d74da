"""Tables of numbers in text files, with or without names of columns."""

from __future__ import annotations

import itertools
import re
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.text import MOST_CELL, read_lines
from fedaction.federation.outside import refuse_damage, shorten

_MOST_BYTES = 256 * 2**20
_TIME = {"t", "time", "timestamp", "seconds", "time_s", "time (s)"}


def read_columns(
    path: Path, count: int, names: Sequence[str] = (), what: str = ""
) -> tuple[npt.NDArray[np.float64], float | None]:
    """A recording's columns, (rows, count), and its rate in hertz where a column of times says it.

    Args:
        path: a file with a row for each reading, cells divided by commas, semicolons, tabs or blanks; the first row
            may name the columns.
        count: columns wanted.
        names: what they are called, in order. Where the file names its columns, they are taken by name, whatever
            other columns there are; else it must have `count`, and may have one of times besides, by its name.
        what: what the columns are, for the message.
    """
    with refuse_damage(path, "a table of numbers"):
        lines = read_lines(path, _MOST_BYTES)
        first = next(lines, None)
        if first is None:
            raise ValueError(f"{path} is empty")
        mark = next((mark for mark in (",", ";", "\t") if mark in first), None)
        begin = _split(first, mark)
        header = None if any(_is_number(cell) for cell in begin) else begin
        width = len(begin)
        chosen, times = _choose(path, header, width, count, names, what)
        columns = [*chosen, *([] if times is None else [times])]
        values, rows = array("d"), 0
        for row in itertools.chain([] if header else [begin], (_split(line, mark) for line in lines)):
            rows += 1
            if len(row) != width:
                raise ValueError(f"{path} has rows of {width} and {len(row)} cells; they must all have as many")
            values.extend(_number(path, rows, row[column]) for column in columns)
        if not rows:
            raise ValueError(f"{path} has no row of numbers")
        table = np.array(values).reshape(rows, len(columns))
        return table[:, : len(chosen)], None if times is None else _rate(table[:, -1])


def _split(line: str, mark: str | None) -> list[str]:
    return [cell.strip() for cell in (line.split(mark) if mark else line.split())]


def _choose(
    path: Path, header: Sequence[str] | None, width: int, count: int, names: Sequence[str], what: str
) -> tuple[list[int], int | None]:
    """The columns that are wanted, and that of times; see `read_columns`."""
    times = None
    if header is not None:
        lower = [cell.strip("\"'").lower() for cell in header]
        times = next((place for place, cell in enumerate(lower) if cell in _TIME), None)
        wanted = [name.lower() for name in names]
        if wanted and set(wanted) <= set(lower):
            return [lower.index(name) for name in wanted], times
    chosen = [place for place in range(width) if place != times]
    if len(chosen) != count:
        has = f" ({shorten(', '.join(header[:12]))})" if header else ""
        need = f": {', '.join(names)}" if names else ""
        raise ValueError(f"{path} has {width} columns{has}, the model takes {what or count}{need}")
    return chosen, times


def _number(path: Path, row: int, cell: str) -> float:
    try:
        return float(cell) if cell and len(cell) <= MOST_CELL else np.nan
    except ValueError:
        raise ValueError(f"{path}: row {row} has {cell[:40]!r} where a number should be") from None


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", cell) is not None


def _rate(times: npt.NDArray[np.float64]) -> float | None:
    """Readings a second, where times are seconds that grow evenly enough; None: they are something else."""
    steps = np.diff(times)
    if not len(steps) or not np.isfinite(steps).all() or not (steps > 0).all():
        return None
    step = float(np.median(steps))
    return 1 / step if 1e-4 < step < 10 else None
