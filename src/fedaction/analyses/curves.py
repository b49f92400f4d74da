"""Accuracy over rounds, method beside baselines, and how steadily it rose (FSAR, Figs. 2 and 7)."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedaction.analyses.draw import COLOURS, canvas, label, whole_rounds
from fedaction.analyses.finding import Finding, Table, points
from fedaction.analyses.study import NotApplicable, Study, plain
from fedaction.evaluation.stability import Stability, stability
from fedaction.methods import title_of
from fedaction.runs.metrics import read_rows
from fedaction.runs.study import METRIC, list_runs

Series = dict[int, float]
_CLIENTS = 6  # of which a curve of their own is drawn


def curves(study: Study) -> Finding:
    """See the module."""
    runs: dict[str, list[dict[str, Series]]] = defaultdict(list)  # method, seed, client ("" is the mean)
    for method, _, home in list_runs(study.recipe, study.folder):
        series = series_of(home / "metrics.jsonl")
        if series:
            runs[method].append(series)
    numbers = {method: [_numbers(seed[""]) for seed in seeds] for method, seeds in runs.items()}
    numbers = {method: [n for n in seeds if n is not None] for method, seeds in numbers.items()}
    if not any(numbers.values()):
        raise NotApplicable(f"a curve needs the test {study.measure} of two rounds or more")
    table: list[tuple[str, ...]] = []
    values: dict[str, Any] = {}
    for method, seeds in runs.items():
        found = numbers[method]
        mean = (
            {f.name: statistics.fmean(getattr(n, f.name) for n in found) for f in fields(Stability)} if found else {}
        )
        curve = over_seeds([seed[""] for seed in seeds])
        last = curve[max(curve)][0]
        values[method] = {
            "rounds": list(curve),
            "accuracy": [value for value, _ in curve.values()],
            "last": last,
            "seeds": [asdict(n) for n in found],
            "stability": mean,
        }
        cells = [points(mean.get(f.name), 2) for f in fields(Stability)]
        table.append((title_of(method), points(last), *cells))
    heads = ("mean change", "mean drop", "largest drop", "std at the end", "mean height")  # as in `Stability`
    several = max(map(len, runs.values()))
    seeds = f"means of {several} seeds, bands one standard deviation" if several > 1 else f"seed {study.seed}"
    return Finding(
        title=f"{study.measure.capitalize()} over rounds, and how steadily it rose",
        caption=f"Test {study.measure} after each round: the mean over clients, and single clients ({seeds}). "
        f"{study.words}",
        table=Table(("method", "last, %", *(f"{head}, pp" for head in heads)), tuple(table)),
        values={"methods": plain(values)},
        figure=_picture(runs, study.measure),
        notes=(
            "The numbers, in percentage points, are of the mean over clients, per seed, then averaged over seeds. "
            "Mean change: mean absolute difference between one evaluation and the next. Mean drop: the same of falls "
            "alone, rises counting as 0. Largest drop: the worst single fall. Std at the end: standard deviation "
            "over the last fifth of the evaluations. Mean height: area under the curve over its length.",
        ),
    )


def series_of(path: Path) -> dict[str, Series]:
    """Each client's test accuracy by round, and under "" their mean at rounds that tested all of them."""
    found: dict[str, Series] = defaultdict(dict)
    for row in read_rows(path) if path.exists() else []:
        if row.split == "test" and row.name == METRIC and row.client and row.value is not None:
            found[row.client][row.round] = float(row.value)
    if not found:
        return {}
    common = sorted(set[int].intersection(*(set(series) for series in found.values())))
    mean = {r: statistics.fmean(series[r] for series in found.values()) for r in common}
    return {"": mean, **found} if mean else {}


def _numbers(series: Series) -> Stability | None:
    return stability(list(series), list(series.values())) if len(series) > 1 else None


def over_seeds(seeds: Sequence[Series]) -> dict[int, tuple[float, float]]:
    """Mean and standard deviation (0 for one seed) at the rounds that all seeds have."""
    common = sorted(set[int].intersection(*(set(seed) for seed in seeds)))
    columns = {r: [seed[r] for seed in seeds] for r in common}
    return {r: (statistics.fmean(v), statistics.stdev(v) if len(v) > 1 else 0.0) for r, v in columns.items()}


def _picture(runs: Mapping[str, list[dict[str, Series]]], measure: str) -> Figure:
    clients = sorted({client for seeds in runs.values() for seed in seeds for client in seed if client})
    shown = clients[:_CLIENTS] if len(clients) > 1 else []
    columns, rows = 3, -(-len(shown) // 3)
    figure = canvas(9, 3.6 + 2.1 * rows)
    grid = figure.add_gridspec(1 + rows, columns, height_ratios=[3.4] + [2.0] * rows)
    whole = figure.add_subplot(grid[0, :])
    _lines(whole, runs, "", measure)
    whole.set_title("Mean over clients" if len(clients) > 1 else label(clients[0], 40), loc="left")
    whole.legend(loc="lower right")
    whole_rounds(whole)
    for place, client in enumerate(shown):
        axes = figure.add_subplot(grid[1 + place // columns, place % columns], sharex=whole, sharey=whole)
        _lines(axes, runs, client, measure)
        axes.set_title(label(client, 30), loc="left", fontweight="normal")
        if place + columns >= len(shown):
            whole_rounds(axes)
        if place % columns:
            axes.set_ylabel("")
            axes.tick_params(labelleft=False)
    return figure


def _lines(axes: Axes, runs: Mapping[str, list[dict[str, Series]]], client: str, measure: str) -> None:
    for place, (method, seeds) in enumerate(runs.items()):
        curve = over_seeds([seed[client] for seed in seeds if client in seed]) if seeds else {}
        x, y = list(curve), [100 * mean for mean, _ in curve.values()]
        spread = [100 * std for _, std in curve.values()]
        colour = COLOURS[place % len(COLOURS)]
        dash = "-" if place < len(COLOURS) else "--"
        axes.plot(x, y, dash, color=colour, label=title_of(method), linewidth=2.2 if place == 0 else 1.5)
        if any(spread):
            low, high = ([a + sign * b for a, b in zip(y, spread, strict=True)] for sign in (-1, 1))
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_ylabel(f"test {measure}, %")
    axes.grid(axis="y")
