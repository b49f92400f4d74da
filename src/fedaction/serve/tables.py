"""Tables of numbers in text files, with or without names of columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedaction.data.files import check_size

_MOST_BYTES = 256 * 2**20
_MOST_CELL = 64  # characters; a number has fewer
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
    check_size(path, _MOST_BYTES)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text file") from None
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"{path} is empty")
    mark = next((mark for mark in (",", ";", "\t") if mark in lines[0]), None)
    rows = [[cell.strip() for cell in (line.split(mark) if mark else line.split())] for line in lines]
    header = None if any(_is_number(cell) for cell in rows[0]) else rows.pop(0)
    widths = {len(row) for row in (rows if header is None else [header, *rows])}
    if not rows or len(widths) != 1:
        raise ValueError(f"{path} has rows of {sorted(widths)[:5]} cells; they must all have one number of them")
    width, chosen, times = widths.pop(), None, None
    if header is not None:
        lower = [cell.strip("\"'").lower() for cell in header]
        times = next((place for place, cell in enumerate(lower) if cell in _TIME), None)
        wanted = [name.lower() for name in names]
        if wanted and set(wanted) <= set(lower):
            chosen = [lower.index(name) for name in wanted]
    if chosen is None:
        chosen = [place for place in range(width) if place != times]
        if len(chosen) != count:
            has = f" ({', '.join(header[:12])})" if header else ""
            need = f": {', '.join(names)}" if names else ""
            raise ValueError(f"{path} has {width} columns{has}, the model takes {what or count}{need}")
    values = _numbers(path, rows, chosen)
    rate = None if times is None else _rate(_numbers(path, rows, [times])[:, 0])
    return values, rate


def _numbers(path: Path, rows: Sequence[Sequence[str]], columns: Sequence[int]) -> npt.NDArray[Any]:
    out = np.empty((len(rows), len(columns)))
    for place, row in enumerate(rows):
        for position, column in enumerate(columns):
            cell = row[column]
            try:
                out[place, position] = float(cell) if cell and len(cell) <= _MOST_CELL else np.nan
            except ValueError:
                raise ValueError(f"{path}: row {place + 1} has {cell[:40]!r} where a number should be") from None
    return out


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", cell) is not None


def _rate(times: npt.NDArray[np.float64]) -> float | None:
    """Readings a second, where times are seconds that grow evenly enough; None: they are something else."""
    steps = np.diff(times)
    if not len(steps) or not np.isfinite(steps).all() or not (steps > 0).all():
        return None
    step = float(np.median(steps))
    return 1 / step if 1e-4 < step < 10 else None
