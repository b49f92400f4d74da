"""Text tables as people have them: how one is written is found out, and rows are read a block at a time."""

from __future__ import annotations

import csv
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.text import MOST_CELL, read_lines
from fedaction.federation.outside import shorten
from fedaction.federation.settings import nearest

_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*|\s*[-+]?(nan|inf)\s*", re.IGNORECASE)
_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")  # a decimal comma
_LOOK = 50  # lines that tell how a file is written
_ALIKE = 0.8  # share of these lines that have as many cells, if a mark separates them
_MOST_BYTES = 16 * 2**30  # of a file, which is read a block at a time
_BLOCK, _BLOCK_CHARACTERS = 8192, 2**22  # rows read at once, and their characters
_DELIMITERS = ("\t", ";", ",")

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TableForm:
    """How a text table is written."""

    delimiter: str  # tab, semicolon or comma; "": blanks
    names: tuple[str, ...]  # of its columns; numbers from 1 where it has no header
    header: bool  # whether its first line names them
    comma: bool  # whether numbers have a decimal comma
    numeric: tuple[bool, ...]  # whether each column holds numbers
    counts: tuple[bool, ...]  # whether each column only counts rows: whole numbers, one more in each

    def find(self, name: str, what: str, where: object) -> int:
        """The place of a column by its name, or by its number from 1; an error lists what there is."""
        lower = [own.lower() for own in self.names]
        if name.lower() in lower:
            return lower.index(name.lower())
        if name.isdecimal() and 1 <= int(name) <= len(self.names):
            return int(name) - 1
        raise ValueError(f"{where} has no {what} column {name!r}{nearest(name, self.names)}; it has {self.listing}")

    @property
    def listing(self) -> str:
        """The columns, for a message."""
        text = ", ".join(self.names[:20]) + (", ..." if len(self.names) > 20 else "")
        return (
            shorten(text) if self.header else f"{len(self.names)} columns without names: call them by number, from 1"
        )


def find_form(path: Path) -> TableForm:
    """How a file is written: what separates its cells, whether it has a header, which columns are numbers."""
    lines = list(itertools.islice(_lines(path), _LOOK))
    if not lines:
        raise ValueError("the file is empty")
    delimiter, rows = "", [line.split() for line in lines]
    for mark in _DELIMITERS:
        cells = _cells(lines, mark)
        width, often = Counter(len(row) for row in cells).most_common(1)[0]
        if width > 1 and often >= _ALIKE * len(cells):
            delimiter, rows = mark, cells
            break
    width = Counter(len(row) for row in rows).most_common(1)[0][0]
    comma = delimiter != "," and any(_COMMA.fullmatch(cell) for row in rows for cell in row)
    header = len(rows) > 1 and not any(_is_number(cell, comma) for cell in rows[0] if cell.strip())
    body = [row for row in rows[header:] if len(row) == width]
    names = [cell.strip() for cell in rows[0]] if header else [str(i) for i in range(1, width + 1)]
    names = [name or f"column {i}" for i, name in enumerate(names, 1)]
    if len(names) != width or len(set(names)) != width:
        raise ValueError(
            f"its first line names {len(names)} columns ({len(set(names))} of them different) of {width}"
        )
    columns = [[row[i] for row in body] for i in range(width)]
    numeric = tuple(
        any(cell.strip() for cell in cells) and all(_is_number(cell, comma) for cell in cells if cell.strip())
        for cells in columns
    )
    return TableForm(delimiter, tuple(names), header, comma, numeric, tuple(map(_is_count, columns)))


def read_blocks(path: Path, form: TableForm) -> Iterator[tuple[list[list[str]], int]]:
    """The rows of a file, some at a time, and how many rows of another width were left out among them."""
    lines = _lines(path)
    if form.header:
        next(lines, None)
    while block := list(_take_block(lines)):
        rows = _cells(block, form.delimiter)
        kept = [row for row in rows if len(row) == len(form.names)]
        yield kept, len(rows) - len(kept)


def _take_block(lines: Iterator[str]) -> Iterator[str]:
    """The next lines, so many that their cells fit into memory."""
    characters = 0
    for line in itertools.islice(lines, _BLOCK):
        yield line
        characters += len(line)
        if characters > _BLOCK_CHARACTERS:
            return


def to_numbers(rows: Sequence[Sequence[str]], column: int, comma: bool = False) -> Floats:
    """A column as numbers, (rows,); what is none is NaN."""
    cells = [row[column] for row in rows]
    if comma:
        cells = [cell.replace(",", ".") for cell in cells]
    cells = [
        cell if len(cell) <= MOST_CELL else "nan" for cell in cells
    ]  # NumPy gives all cells the longest one's room
    try:
        return np.array(cells, dtype=np.str_).astype(np.float64)
    except ValueError:
        return np.array([float(cell) if _NUMBER.fullmatch(cell) else np.nan for cell in cells])


def _lines(path: Path) -> Iterator[str]:
    """Lines with something in them that are not remarks."""
    for text in read_lines(path, _MOST_BYTES):
        if not text.lstrip().startswith(("#", "%")) and not text.lower().startswith("sep="):
            yield text


def _cells(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    if not delimiter:
        return [line.split() for line in lines]
    try:
        return list(csv.reader(lines, delimiter=delimiter))
    except csv.Error as error:
        raise ValueError(f"its rows cannot be read: {error}") from None


def _is_number(cell: str, comma: bool = False) -> bool:
    return len(cell) <= MOST_CELL and bool(_NUMBER.fullmatch(cell.replace(",", ".") if comma else cell))


def _is_count(cells: Sequence[str]) -> bool:
    """Whether cells are whole numbers, each one more than the one before; at least three."""
    if len(cells) < 3 or not all(len(cell) <= MOST_CELL and cell.strip().isdecimal() for cell in cells):
        return False
    numbers = [int(cell) for cell in cells]
    return all(after - before == 1 for before, after in itertools.pairwise(numbers))
