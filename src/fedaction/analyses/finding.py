"""What an analysis gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure


@dataclass(frozen=True)
class Table:
    """A small table, cells already written out; units are in the heads."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Finding:
    """One analysis of one run.

    Attributes:
        title: what it is.
        caption: what the picture shows, of which data: a line or two.
        table: the main numbers.
        values: all numbers, as JSON has them.
        figure: the picture.
        notes: what a reader must know: how it was measured, what was left out.
    """

    title: str
    caption: str
    table: Table
    values: Mapping[str, Any]
    figure: Figure
    notes: tuple[str, ...] = ()


def number(value: float | None, digits: int = 3) -> str:
    """A number in a table's cell; a dash where there is none."""
    return "–" if value is None or value != value else f"{value:.{digits}f}"


def significant(value: float, digits: int = 3) -> str:
    """A number of any size in a table's cell."""
    return "–" if value != value else f"{value:.{digits}g}"


def points(share: float | None, digits: int = 1) -> str:
    """A share, 0 to 1, in per cent or percentage points."""
    return "–" if share is None else number(100 * share, digits)
