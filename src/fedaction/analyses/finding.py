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
    """One analysis of one run."""

    title: str  # what it is
    caption: str  # what the picture shows, a line or two; which data and run it is of is added
    columns: Sequence[str]  # heads of the table of the main numbers, with units
    rows: Sequence[tuple[str, ...]]  # its cells, written out
    values: Mapping[str, Any]  # all numbers; `plain` makes JSON of them
    figure: Figure  # the picture
    notes: Sequence[str] = ()  # what a reader must know: how it was measured, what was left out


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
