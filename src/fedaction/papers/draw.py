"""The pictures of the figures, in the paper's arrangement."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter
from torch import Tensor

from fedaction.analyses.draw import COLOURS, canvas, drawing, heat, label, svg, whole_rounds
from fedaction.papers.outcome import Outcome, Value


def draw_files(outcome: Outcome) -> dict[str, bytes]:
    """An outcome's figure as files, by suffix."""
    makers = {"accuracy": _draw_bars, "curves": _draw_curves, "sweep": _draw_sweep, "landscape": _draw_landscape}
    makers |= {"cka": _draw_cka, "topology": _draw_topology, "epsilon": _draw_epsilon}
    makers |= {"perturbation": _draw_perturbation, "traffic": _draw_traffic, "distances": _draw_distances}
    with drawing():
        figure = makers[outcome.item.shows](outcome)
        image = svg(figure, outcome.caption)
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=120)
        return {"svg": image, "png": png.getvalue()}


def _colours(outcome: Outcome) -> dict[tuple[str, ...], str]:
    """A row's own colour, as in the paper where its text names them."""
    rows = enumerate(outcome.item.rows)
    return {row.label: row.colour or COLOURS[place % len(COLOURS)] for place, row in rows}


def _heads(values: Sequence[Value]) -> dict[str, str]:
    """Columns in order, with what stands in."""
    return {v.column: f"{v.column}\n{label(v.client, 24)}" if v.client else v.column for v in values}


def _rows(outcome: Outcome) -> list[tuple[str, ...]]:
    """Labels of the series' rows, in order."""
    return list(dict.fromkeys(v.row for v in outcome.series))


def _series(outcome: Outcome, row: tuple[str, ...], column: str) -> list[Value]:
    return [v for v in outcome.series if (v.row, v.column) == (row, column)]


def _panels(
    figure: Figure, titles: Sequence[str], y: str = "", *, share: bool = False, size: int = 9
) -> Iterator[Axes]:
    """Panels side by side with titles of a size; `y`: what the upright axis of the first, or a shared one, shows."""
    first = None
    for place, title in enumerate(titles):
        axes = figure.add_subplot(1, len(titles), place + 1, sharey=first if share else None)
        first = first or axes
        axes.set_title(title, loc="left", fontsize=size)
        axes.grid(axis="y")
        if y and not place:
            axes.set_ylabel(y)
        yield axes


def _legend_beside(figure: Figure) -> Figure:
    """One legend for all panels."""
    if figure.axes:
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    return figure


def _draw_curves(outcome: Outcome) -> Figure:
    """One panel per column, one line per row, a band of one standard deviation."""
    heads, colours = _heads(outcome.series), _colours(outcome)
    beside = len(colours) > 6  # a legend that would hide the lines
    figure = canvas(2.6 * len(heads) + (2.6 if beside else 0.6), 3.0)
    panels = _panels(figure, list(heads.values()), "test accuracy, %", share=True)
    for place, (column, axes) in enumerate(zip(heads, panels, strict=True)):
        for row, colour in colours.items():
            name = outcome.item.describe(row)
            _draw_line(axes, _series(outcome, row, column), "round", colour, name, marker="")
        whole_rounds(axes)
        axes.set_xlabel(outcome.item.across)
        if place:
            axes.tick_params(labelleft=False)
        elif not beside:
            axes.legend(loc="best", fontsize=8)
    return _legend_beside(figure) if beside else figure


def _draw_sweep(outcome: Outcome) -> Figure:
    """One panel per column, one line per row's first label over its second, a number; bars of one deviation."""
    known = [v for v in outcome.table if v.values]
    heads, colours = _heads(known), _colours(outcome)
    figure = canvas(4.2 * len(heads) + 0.6, 3.6)
    for column, axes in zip(heads, _panels(figure, list(heads.values())), strict=True):
        for name in dict.fromkeys(v.row[0] for v in known):
            line = [v for v in known if (v.row[0], v.column) == (name, column)]
            x, spread = [int(v.row[1]) for v in line], [v.std or 0.0 for v in line]
            errors, colour = spread if any(spread) else None, colours[line[0].row]
            axes.errorbar(x, [v.mean or 0.0 for v in line], errors, color=colour, marker="o", label=name)
        axes.set_xticks(sorted({int(v.row[1]) for v in known}))
        axes.set_xlabel(outcome.item.heads[1])
        axes.set_ylabel("test accuracy, %")
    return _legend_beside(figure)


def _draw_bars(outcome: Outcome) -> Figure:
    """Groups of bars, one per column; the paper's values as black marks."""
    heads, colours = _heads(outcome.table), _colours(outcome)
    figure = canvas(1.5 * len(heads) + 1.6, 3.2)
    axes = figure.add_subplot()
    width = 0.8 / len(colours)
    mark_label: str | None = "the paper's"
    for place, (row, colour) in enumerate(colours.items()):
        own = {v.column: v for v in outcome.table if v.row == row}
        x = [i + (place - (len(colours) - 1) / 2) * width for i in range(len(heads))]
        name = f"{outcome.item.heads[-1]} = {row[-1]}"
        means = [own[column].mean for column in heads]
        heights = [math.nan if mean is None else mean for mean in means]
        errors = [own[column].std or 0.0 for column in heads]
        axes.bar(x, heights, 0.9 * width, yerr=errors if any(errors) else None, color=colour, label=name)
        for at, column in zip(x, heads, strict=True):
            if (paper := own[column].paper) is not None:
                axes.plot([at - width / 2, at + width / 2], [paper, paper], color="black", label=mark_label)
                mark_label = None
    axes.set_xticks(range(len(heads)), list(heads.values()))
    axes.set_ylabel("test accuracy, %")
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    figure.legend(loc="outside upper center", ncols=len(colours) + 1, fontsize=8)
    return figure


def _draw_cka(outcome: Outcome) -> Figure:
    """One heat map per block, clients on both axes."""
    blocks = _rows(outcome)
    names = list(dict.fromkeys(v.column for v in outcome.series))
    figure = canvas(2.7 * len(blocks) + 1.2, 3.2)
    image = None
    for place, block in enumerate(blocks):
        axes = figure.add_subplot(1, len(blocks), place + 1)
        matrix = torch.full((len(names), len(names)), math.nan)
        for v in outcome.series:
            if v.row == block and v.mean is not None:
                matrix[names.index(v.column), names.index(v.at["with"])] = v.mean
        image = heat(axes, matrix, low=0, high=1, colours="viridis", names=names, down=place == 0, digits=2)
        axes.set_title(f"block {block[0]}", loc="left")
    if image is not None:
        figure.colorbar(image, ax=figure.axes, shrink=0.7, aspect=28).set_label("linear CKA")
    return figure


def _draw_topology(outcome: Outcome) -> Figure:
    """Rows: matrix and round; columns: clients. One scale per row: entries grow during training."""
    heads, rows = _heads(outcome.series), _rows(outcome)
    figure = canvas(2.4 * max(len(heads), 1) + 0.9, 2.4 * len(rows) + 0.3)
    for place, row in enumerate(rows):
        grids = {column: _matrix(_series(outcome, row, column)) for column in heads}
        most = max((float(grid.abs().max()) for grid in grids.values() if len(grid)), default=0.0) or 1.0
        image, panels = None, []
        for position, (column, grid) in enumerate(grids.items()):
            axes = figure.add_subplot(len(rows), len(heads), place * len(heads) + position + 1)
            panels.append(axes)
            if len(grid):
                image = heat(axes, grid, low=-most, high=most, colours="RdBu_r")
            if place == 0:
                axes.set_title(heads[column], loc="left", fontsize=9)
            if position == 0:
                axes.set_ylabel(f"{row[0]}, round {row[1]}")
        if image is not None:
            figure.colorbar(image, ax=panels, shrink=0.8, aspect=18).ax.tick_params(labelsize=7)
    return figure


def _matrix(values: Sequence[Value]) -> Tensor:
    joints = math.isqrt(len(values))
    return torch.tensor([v.mean for v in values], dtype=torch.float64).view(joints, joints)


def _draw_landscape(outcome: Outcome) -> Figure:
    """One surface per model, on one scale: the logarithm of the loss."""
    rows = _rows(outcome)
    figure = canvas(4.2 * len(rows), 3.9)
    known = [math.log10(max(v.mean, 1e-6)) for v in outcome.series if v.mean is not None]
    low, high = min(known), max(known)
    for place, row in enumerate(rows):
        points = [v for v in outcome.series if v.row == row]
        side = math.isqrt(len(points))
        heights = [high if v.mean is None else math.log10(max(v.mean, 1e-6)) for v in points]
        grids = ([v.at["first"] for v in points], [v.at["second"] for v in points], heights)
        surface = (torch.tensor(values, dtype=torch.float64).view(side, side).numpy() for values in grids)
        axes: Any = figure.add_subplot(1, len(rows), place + 1, projection="3d")
        axes.plot_surface(*surface, cmap="viridis", vmin=low, vmax=high, rcount=side, ccount=side, linewidth=0.1)
        axes.set_zlim(low, high if high > low else low + 1)
        axes.set_zlabel(f"log10 of the {outcome.series[0].column}")
        axes.set_xlabel("first direction")
        axes.set_ylabel("second direction")
        axes.set_xticks((-1, 0, 1))
        axes.set_yticks((-1, 0, 1))
        axes.set_title(row[-1])
    return figure


def _draw_epsilon(outcome: Outcome) -> Figure:
    """One panel per model: how probabilities are distributed on D and on D'."""
    rows, colours = _rows(outcome), _colours(outcome)
    figure = canvas(3.4 * max(len(rows), 1), 3.2)
    epsilons = {v.row: v.mean for v in outcome.table if v.client}
    titles = [row[-1] if (mean := epsilons[row]) is None else f"{row[-1]}: epsilon {mean:.2f}" for row in rows]
    for row, axes in zip(rows, _panels(figure, titles, "share of samples, %", share=True, size=10), strict=True):
        for column, style in (("D", "-"), ("D'", "--")):
            bins = _series(outcome, row, column)
            middles = [50 * (v.at["from"] + v.at["to"]) for v in bins]
            axes.plot(middles, [v.mean or 0.0 for v in bins], style, color=colours[row], label=column)
        axes.set_xlabel("probability of the predicted class, %")
        axes.legend(loc="best")
    return figure


def _draw_line(
    axes: Axes, values: Sequence[Value], key: str, colour: str, name: str, marker: str | None = None
) -> None:
    """A line over `at[key]` with a band of one standard deviation; short lines have dots where no marker is given."""
    line = [v for v in values if v.mean is not None]
    places, means, spread = [v.at[key] for v in line], [v.mean or 0.0 for v in line], [v.std or 0.0 for v in line]
    dots = "." if len(places) < 30 else ""
    axes.plot(places, means, color=colour, label=name, marker=dots if marker is None else marker)
    if any(spread):
        low, high = ([m + sign * s for m, s in zip(means, spread, strict=True)] for sign in (-1, 1))
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)


def _draw_perturbation(outcome: Outcome) -> Figure:
    """One panel per kind of noise and dataset, one line per model."""
    panels = list(dict.fromkeys(v.row[:2] for v in outcome.series))
    figure = canvas(2.7 * max(len(panels), 1) + 2.4, 3.2)
    titles = [f"{dataset}, {kind} noise" for kind, dataset in panels]
    for panel, axes in zip(panels, _panels(figure, titles, "R@1, %"), strict=True):
        for row, colour in _colours(outcome).items():
            _draw_line(axes, _series(outcome, (*panel, *row), "R@1"), "k", colour, row[-1])
        axes.set_xlabel("k")
        axes.set_ylim(bottom=0)
    return _legend_beside(figure)


def _draw_traffic(outcome: Outcome) -> Figure:
    """One panel per dataset, one line per federated model; the centralised model's value is a dashed line."""
    columns = list(dict.fromkeys(v.column for v in outcome.series))
    figure = canvas(3.6 * max(len(columns), 1) + 2.4, 3.2)
    central = {row.label for row in outcome.item.rows if row.method == "centralvssl"}
    for column, axes in zip(columns, _panels(figure, columns, "R@1, %"), strict=True):
        for row, colour in _colours(outcome).items():
            own = _series(outcome, row, column)
            if row not in central:
                _draw_line(axes, own, "round", colour, row[-1])
            elif own and own[-1].mean is not None:
                axes.axhline(own[-1].mean, color=colour, linestyle="--", label=row[-1])
        whole_rounds(axes)
        axes.set_xlabel(outcome.item.across)
    return _legend_beside(figure)


def _draw_distances(outcome: Outcome) -> Figure:
    """The deviation over a round's clients, one line per module."""
    figure = canvas(5.6, 3.2)
    axes = figure.add_subplot()
    for colour, part in zip(COLOURS, _rows(outcome), strict=False):
        _draw_line(axes, _series(outcome, part, "deviation"), "round", colour, part[-1])
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))  # a few, where decades are few
    whole_rounds(axes)
    axes.set_xlabel(outcome.item.across)
    axes.set_ylabel("deviation of the clients' distances")
    axes.grid(axis="y")
    axes.legend(loc="best", fontsize=8)
    return figure
