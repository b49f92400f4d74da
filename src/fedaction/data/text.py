"""Text files from outside: lines, rows and numbers, each no longer than is allowed."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from fedaction.federation.outside import allow, check_size, describe, refuse_damage

MOST_LINE = 2**17
"""Characters of a line."""
MOST_CELL = 64
"""Characters of a number."""


def read_lines(path: Path, most: int, errors: str = "strict") -> Iterator[str]:
    """Lines of a text in UTF-8 that have something in them, without their ends; one at a time is in memory.

    `most` are the bytes that the file may have. One with a line of more than `MOST_LINE` characters is refused.
    """
    check_size(path, most)
    with refuse_damage(path, "text in UTF-8"), path.open(encoding="utf-8-sig", errors=errors) as file:
        longest = allow(MOST_LINE)
        while line := file.readline(longest + 1):
            if len(line) > longest:
                raise ValueError(f"a line has more than {longest} characters")
            if line.strip():
                yield line.rstrip("\r\n")


def read_csv(path: Path, most: int, delimiter: str = ",", errors: str = "strict") -> Iterator[tuple[int, list[str]]]:
    """Rows of a CSV file in UTF-8 that are not empty, each with the number of its first line.

    `most` are the bytes that the file may have.
    """
    check_size(path, most)
    with path.open(encoding="utf-8-sig", errors=errors, newline="") as file:
        rows, line = csv.reader(file, delimiter=delimiter, strict=errors == "strict"), 1
        while True:
            try:
                row = next(rows, None)
            except (csv.Error, UnicodeDecodeError) as error:
                raise ValueError(
                    f"{path} is not a CSV file in UTF-8, from line {line} on: {describe(error)}"
                ) from None
            if row is None:
                return
            if row:
                yield line, row
            line = rows.line_num + 1


def parse_number(cell: str) -> float:
    """A number; a cell of more characters than one has is a ValueError, whatever they are."""
    if len(cell) > MOST_CELL:
        raise ValueError(f"{cell[:20]!r} and {len(cell) - 20} more characters are no number")
    return float(cell)
