"""Pictures: one style, written as SVG that is the same to the byte for the same numbers."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

COLOURS = ("#0067a5", "#b6500a", "#0a7f5d", "#a1407a", "#7d6500", "#5a6877")
"""Of methods, in their order; the report's own, told apart by colour-blind readers too."""
MARKS = ("o", "s", "^", "D", "v", "P")
INK, SOFT, RULE = "#1d2530", "#566170", "#d9d8d2"
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, and in the reader's own fonts whatever its script
    "svg.hashsalt": "fedaction",  # else ids are random
    "text.parse_math": False,  # a name with dollar signs is a name
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.labelsize": 9,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": SOFT,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.06,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "image.interpolation": "none",  # cells stay cells
}


@contextmanager
def drawing() -> Generator[None]:
    """The style, for as long as figures are made and written."""
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the reader's fonts may have it
        yield


def canvas(width: float, height: float) -> Figure:
    """An empty figure, in inches, whose parts make room for each other."""
    return Figure(figsize=(width, height), layout="constrained")


def svg(figure: Figure, words: str) -> bytes:
    """A figure as an SVG file, with a line at its foot that says where its numbers come from."""
    inches = float(figure.get_size_inches()[0])
    figure.supxlabel(textwrap.fill(words, int(15 * inches)), x=0.01, ha="left", fontsize=7.5, color=SOFT)
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


def whole_rounds(axes: Axes) -> None:
    """Names the x axis; there is no half a round."""
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def scale(figure: Figure, image: Any, panels: Sequence[Axes], words: str, **options: Any) -> Any:
    """A colour bar beside panels."""
    bar = figure.colorbar(image, ax=panels, **options)
    bar.set_label(words)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    return bar


def colour(place: int) -> str:
    """The colour of the method at a place."""
    return COLOURS[place % len(COLOURS)]


def draw_accuracy(
    axes: Axes, x: Sequence[float], curve: Iterable[tuple[float, float]], place: int, name: str, mark: str = ""
) -> None:
    """A method's line over x, in per cent, from means and standard deviations (shares, 0 to 1), which are a band."""
    y, spread = zip(*((100 * mean, 100 * std) for mean, std in curve), strict=True) if x else ((), ())
    width, dash = 2.2 if place == 0 else 1.5, "-" if place < len(COLOURS) else "--"
    axes.plot(x, y, dash, marker=mark, markersize=3.5, color=colour(place), label=name, linewidth=width)
    if any(spread):
        low, high = ([a + sign * b for a, b in zip(y, spread, strict=True)] for sign in (-1, 1))
        axes.fill_between(x, low, high, color=colour(place), alpha=0.15, linewidth=0)
    axes.grid(visible=True, axis="y")


def draw_target(axes: Axes, target: float) -> None:
    """A dashed line at an accuracy, 0 to 1, on an axis in per cent."""
    axes.axhline(100 * target, color=SOFT, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    words, place = f"target {100 * target:.1f} %", axes.get_yaxis_transform()
    axes.text(0.995, 100 * target, words, ha="right", va="bottom", transform=place, color=SOFT)


def label(text: str, most: int = 20) -> str:
    """A name that fits on a picture: printable, and cut in the middle where it is long."""
    text = "".join(c if c.isprintable() else " " for c in text)
    head = (most - 1) // 2
    return text if len(text) <= most else f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def heat(
    axes: Axes,
    matrix: Tensor,
    *,
    low: float,
    high: float,
    colours: str,
    names: Sequence[str] = (),
    across: bool = True,
    down: bool = True,
    digits: int | None = None,
) -> Any:
    """A (rows, columns) matrix as cells in the colours of a colour map, from `low` to `high`; for a colour bar.

    `names` are of rows and columns alike, written unless `down` or `across` is false; `digits` are the decimals of
    the numbers in the cells, None for no numbers.
    """
    image = axes.imshow(matrix.cpu().numpy(), vmin=low, vmax=high, cmap=colours, aspect="equal")
    short = [label(name) for name in names]
    columns, rows = short if across else [], short if down else []
    axes.set_xticks(range(len(columns)), columns, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set(visible=True, color=RULE)
    if digits is not None:
        for r, row in enumerate(matrix.tolist()):
            for c, value in enumerate(row):
                if math.isfinite(value):
                    red, green, blue, _ = image.cmap(image.norm(value))
                    bright = 0.3 * red + 0.59 * green + 0.11 * blue
                    ink = INK if bright > 0.5 else "white"
                    axes.text(c, r, f"{value:.{digits}f}", ha="center", va="center", fontsize=7.5, color=ink)
    return image
