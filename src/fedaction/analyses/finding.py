"""What an analysis gives back, and how its numbers are written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor


@dataclass(frozen=True)
class Finding:
    """One analysis of one run.

    Attributes:
        title: what it is.
        caption: what the picture shows, a line or two; which data and run it is of is added.
        columns: heads of the table of the main numbers, with units.
        rows: its cells, written out.
        values: all numbers; `plain` makes JSON of them.
        figure: the picture.
        notes: what a reader must know: how it was measured, what was left out.
    """

    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, ...]]
    values: Mapping[str, Any]
    figure: Figure
    notes: Sequence[str] = ()


def number(value: float | None, digits: int = 3) -> str:
    """A number in a table's cell; a dash where there is none."""
    return "–" if value is None or value != value else f"{value:.{digits}f}"


def significant(value: float, digits: int = 3) -> str:
    """A number of any size in a table's cell."""
    return "–" if value != value else f"{value:.{digits}g}"


def points(share: float | None, digits: int = 1) -> str:
    """A share, 0 to 1, in per cent or percentage points."""
    return "–" if share is None else number(100 * share, digits)


def plain(value: Any) -> Any:
    """A value as JSON has it: six significant digits, None for what is not finite."""
    if isinstance(value, Tensor):
        return plain(value.detach().cpu().tolist())  # pyright: ignore[reportUnknownMemberType]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
