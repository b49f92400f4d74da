"""The pictures of the figures, in the paper's arrangement."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import io
import math
from collections.abc import Sequence

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


def _head(value: Value, most: int = 24) -> str:
    return f"{value.column}\n{label(value.client, most)}" if value.client else value.column


def _heads(values: Sequence[Value]) -> dict[str, str]:
    """Columns in order, with what stands in."""
    return {value.column: _head(value) for value in values}


def _draw_curves(outcome: Outcome) -> Figure:
    """One panel per column, one line per row, a band of one standard deviation."""
    heads, colours = _heads(outcome.series), _colours(outcome)
    beside = len(colours) > 6  # a legend that would hide the lines
    figure = canvas(2.6 * len(heads) + (2.6 if beside else 0.6), 3.0)
    left = None
    for place, (column, head) in enumerate(heads.items()):
        axes = figure.add_subplot(1, len(heads), place + 1, sharey=left)
        left = left or axes
        for row, colour in colours.items():
            line = [v for v in outcome.series if (v.row, v.column) == (row, column)]
            _draw_line(axes, line, "round", colour, outcome.item.describe(row), marker="")
        axes.set_title(head, loc="left", fontsize=9)
        whole_rounds(axes)
        axes.set_xlabel(outcome.item.across)
        axes.grid(axis="y")
        if place:
            axes.tick_params(labelleft=False)
        else:
            axes.set_ylabel("test accuracy, %")
            if not beside:
                axes.legend(loc="best", fontsize=8)
    if beside and left:
        figure.legend(*left.get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    return figure


def _draw_sweep(outcome: Outcome) -> Figure:
    """One panel per column, one line per row's first label over its second, a number; bars of one deviation."""
    known = [v for v in outcome.table if v.values]
    heads, colours = _heads(known), _colours(outcome)
    figure = canvas(4.2 * len(heads) + 0.6, 3.6)
    for place, (column, head) in enumerate(heads.items()):
        axes = figure.add_subplot(1, len(heads), place + 1)
        for name in dict.fromkeys(v.row[0] for v in known):
            line = [v for v in known if (v.row[0], v.column) == (name, column)]
            x, spread = [int(v.row[1]) for v in line], [v.std or 0.0 for v in line]
            errors, colour = spread if any(spread) else None, colours[line[0].row]
            axes.errorbar(x, [v.mean or 0.0 for v in line], errors, color=colour, marker="o", label=name)
        axes.set_title(head, loc="left", fontsize=9)
        axes.set_xticks(sorted({int(v.row[1]) for v in known}))
        axes.set_xlabel(outcome.item.heads[1])
        axes.set_ylabel("test accuracy, %")
        axes.grid(axis="y")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    return figure


def _draw_bars(outcome: Outcome) -> Figure:
    """Groups of bars, one per column; the paper's values as black marks."""
    heads, colours = _heads(outcome.table), _colours(outcome)
    figure = canvas(1.5 * len(heads) + 1.6, 3.2)
    axes = figure.add_subplot()
    width = 0.8 / len(colours)
    marked = False
    for place, (row, colour) in enumerate(colours.items()):
        own = {v.column: v for v in outcome.table if v.row == row}
        x = [i + (place - (len(colours) - 1) / 2) * width for i in range(len(heads))]
        name = f"{outcome.item.heads[-1]} = {row[-1]}"
        means = [own[column].mean for column in heads]
        heights = [math.nan if mean is None else mean for mean in means]
        errors = [own[column].std or 0.0 for column in heads]
        axes.bar(x, heights, 0.9 * width, yerr=errors if any(errors) else None, color=colour, label=name)
        papers = [(at, own[c].paper) for at, c in zip(x, heads, strict=True)]
        for at, paper in papers:
            if paper is not None:
                mark = [at - width / 2, at + width / 2]
                axes.plot(mark, [paper, paper], color="black", label=None if marked else "the paper's")
                marked = True
    axes.set_xticks(range(len(heads)), list(heads.values()))
    axes.set_ylabel("test accuracy, %")
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    figure.legend(loc="outside upper center", ncols=len(colours) + 1, fontsize=8)
    return figure


def _draw_cka(outcome: Outcome) -> Figure:
    """One heat map per block, clients on both axes."""
    blocks = list(dict.fromkeys(v.row for v in outcome.series))
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
    heads = _heads(outcome.series)
    rows = list(dict.fromkeys(v.row for v in outcome.series))
    figure = canvas(2.4 * max(len(heads), 1) + 0.9, 2.4 * len(rows) + 0.3)
    for place, row in enumerate(rows):
        grids = {c: _matrix([v for v in outcome.series if (v.row, v.column) == (row, c)]) for c in heads}
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
    if not values:
        return torch.zeros(0, 0)
    joints = max(v.at["to_joint"] for v in values) + 1
    return torch.tensor([v.mean for v in values], dtype=torch.float64).view(joints, joints)


def _draw_landscape(outcome: Outcome) -> Figure:
    """One surface per model, on one scale: the logarithm of the loss."""
    rows = list(dict.fromkeys(v.row for v in outcome.series))
    figure = canvas(4.2 * len(rows), 3.9)
    known = [math.log10(max(v.mean, 1e-6)) for v in outcome.series if v.mean is not None]
    low, high = min(known), max(known)
    for place, row in enumerate(rows):
        points = [v for v in outcome.series if v.row == row]
        side = math.isqrt(len(points))
        heights = [high if v.mean is None else math.log10(max(v.mean, 1e-6)) for v in points]
        first, second, height = (
            torch.tensor(values, dtype=torch.float64).view(side, side).numpy()
            for values in ([v.at["first"] for v in points], [v.at["second"] for v in points], heights)
        )
        axes = figure.add_subplot(1, len(rows), place + 1, projection="3d")
        axes.plot_surface(  # pyright: ignore[reportAttributeAccessIssue]
            first, second, height, cmap="viridis", vmin=low, vmax=high, rcount=side, ccount=side, linewidth=0.1
        )
        axes.set_zlim(low, high if high > low else low + 1)  # pyright: ignore[reportAttributeAccessIssue]
        axes.set_zlabel(f"log10 of the {outcome.series[0].column}")  # pyright: ignore[reportAttributeAccessIssue]
        axes.set_xlabel("first direction")
        axes.set_ylabel("second direction")
        axes.set_xticks((-1, 0, 1))
        axes.set_yticks((-1, 0, 1))
        axes.set_title(row[-1])
    return figure


def _draw_epsilon(outcome: Outcome) -> Figure:
    """One panel per model: how probabilities are distributed on D and on D'."""
    rows = list(dict.fromkeys(v.row for v in outcome.series))
    colours = _colours(outcome)
    figure = canvas(3.4 * max(len(rows), 1), 3.2)
    epsilons = {v.row: v.mean for v in outcome.table if v.client}
    left = None
    for place, row in enumerate(rows):
        axes = figure.add_subplot(1, len(rows), place + 1, sharey=left)
        left = left or axes
        for column, style in (("D", "-"), ("D'", "--")):
            bins = [v for v in outcome.series if (v.row, v.column) == (row, column)]
            middles = [50 * (v.at["from"] + v.at["to"]) for v in bins]
            axes.plot(middles, [v.mean or 0.0 for v in bins], style, color=colours[row], label=column)
        mean = epsilons[row]
        axes.set_title(row[-1] if mean is None else f"{row[-1]}: epsilon {mean:.2f}", loc="left")
        axes.set_xlabel("probability of the predicted class, %")
        axes.grid(axis="y")
        axes.legend(loc="best")
        if place == 0:
            axes.set_ylabel("share of samples, %")
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
    colours = _colours(outcome)
    panels = list(dict.fromkeys(v.row[:2] for v in outcome.series))
    figure = canvas(2.7 * max(len(panels), 1) + 2.4, 3.2)
    for place, panel in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), place + 1)
        for row, colour in colours.items():
            _draw_line(axes, [v for v in outcome.series if v.row == (*panel, *row)], "k", colour, row[-1])
        axes.set_title(f"{panel[1]}, {panel[0]} noise", loc="left", fontsize=9)
        axes.set_xlabel("k")
        axes.set_ylim(bottom=0)
    return _finish_recall_panels(figure)


def _draw_traffic(outcome: Outcome) -> Figure:
    """One panel per dataset, one line per federated model; the centralised model's value is a dashed line."""
    colours = _colours(outcome)
    columns = list(dict.fromkeys(v.column for v in outcome.series))
    figure = canvas(3.6 * max(len(columns), 1) + 2.4, 3.2)
    central = {row.label for row in outcome.item.rows if row.method == "centralvssl"}
    for place, column in enumerate(columns):
        axes = figure.add_subplot(1, len(columns), place + 1)
        for row, colour in colours.items():
            own = [v for v in outcome.series if (v.row, v.column) == (row, column)]
            if row not in central:
                _draw_line(axes, own, "round", colour, row[-1])
            elif own and own[-1].mean is not None:
                axes.axhline(own[-1].mean, color=colour, linestyle="--", label=row[-1])
        axes.set_title(column, loc="left", fontsize=9)
        whole_rounds(axes)
        axes.set_xlabel(outcome.item.across)
    return _finish_recall_panels(figure)


def _finish_recall_panels(figure: Figure) -> Figure:
    """Panels side by side with what they have in common: the upright axis, its lines, one legend."""
    for axes in figure.axes:
        axes.grid(axis="y")
    if figure.axes:
        figure.axes[0].set_ylabel("R@1, %")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    return figure


def _draw_distances(outcome: Outcome) -> Figure:
    """The deviation over a round's clients, one line per module."""
    figure = canvas(5.6, 3.2)
    axes = figure.add_subplot()
    for place, part in enumerate(dict.fromkeys(v.row for v in outcome.series)):
        _draw_line(axes, [v for v in outcome.series if v.row == part], "round", COLOURS[place], part[-1])
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))  # a few, where decades are few
    whole_rounds(axes)
    axes.set_xlabel(outcome.item.across)
    axes.set_ylabel("deviation of the clients' distances")
    axes.grid(axis="y")
    axes.legend(loc="best", fontsize=8)
    return figure
