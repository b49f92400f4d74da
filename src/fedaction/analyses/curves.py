"""Accuracy over rounds, method beside baselines, and how steadily it rose (FSAR, Figs. 2 and 7)."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedaction.analyses.draw import canvas, draw_accuracy, label, whole_rounds
from fedaction.analyses.finding import Finding, points
from fedaction.analyses.study import NotApplicable, Study
from fedaction.evaluation.stability import Stability, stability
from fedaction.federation.order import natural_key
from fedaction.methods import title_of
from fedaction.report.series import Series, average, mean_over_clients, tabulate
from fedaction.runs.metrics import Row
from fedaction.runs.study import METRIC

Runs = Mapping[str, list[dict[str, Series]]]
"""By method the seeds, each with its clients' accuracies by round; "" is the mean."""
_CLIENTS = 6  # of which a curve of their own is drawn


def curves(study: Study) -> Finding:
    """See the module."""
    runs: dict[str, list[dict[str, Series]]] = defaultdict(list)
    for run in study.runs:
        if series := read_accuracies(run.rows):
            runs[run.method].append(series)
    numbers = {
        method: [stability(list(mean), list(mean.values())) for seed in seeds if len(mean := seed[""]) > 1]
        for method, seeds in runs.items()
    }
    if not any(numbers.values()):
        raise NotApplicable(f"a curve needs the test {study.measure} of two rounds or more")
    table: list[tuple[str, ...]] = []
    values: dict[str, Any] = {}
    names = [field.name for field in fields(Stability)]
    for method, seeds in runs.items():
        each = [asdict(one) for one in numbers[method]]
        mean = {name: statistics.fmean(one[name] for one in each) for name in names} if each else {}
        curve = average(seed[""] for seed in seeds)
        last = curve[max(curve)][0]
        values[method] = {"rounds": list(curve), "accuracy": [value for value, _ in curve.values()]}
        values[method] |= {"last": last, "seeds": each, "stability": mean}
        table.append((title_of(method), points(last), *(points(mean.get(name), 2) for name in names)))
    heads = ("mean change", "mean drop", "largest drop", "std at the end", "mean height")  # as in `Stability`
    return Finding(
        title=f"{study.measure.capitalize()} over rounds, and how steadily it rose",
        caption=f"Test {study.measure} after each round: the mean over clients, and single clients "
        f"({study.describe_seeds(runs)}).",
        columns=("method", "last, %", *(f"{head}, pp" for head in heads)),
        rows=table,
        values={"methods": values},
        figure=_draw(runs, study.measure),
        notes=(
            "The numbers, in percentage points, are of the mean over clients, per seed, then averaged over seeds. "
            "Mean change: mean absolute difference between one evaluation and the next. Mean drop: the same of falls "
            "alone, rises counting as 0. Largest drop: the worst single fall. Std at the end: standard deviation "
            "over the last fifth of the evaluations. Mean height: area under the curve over its length.",
        ),
    )


def read_accuracies(rows: Iterable[Row]) -> dict[str, Series]:
    """Each client's test accuracy by round, and under "" their mean at rounds that tested all of them."""
    by_client = {client: own for client, own in tabulate(rows)["test", METRIC].items() if client}
    mean = mean_over_clients(by_client)
    return {"": mean, **by_client} if mean else {}


def _draw(runs: Runs, measure: str) -> Figure:
    names = {client for seeds in runs.values() for seed in seeds for client in seed if client}
    clients = sorted(names, key=natural_key)
    shown = clients[:_CLIENTS] if len(clients) > 1 else []
    columns, rows = 3, -(-len(shown) // 3)
    figure = canvas(9, 3.6 + 2.1 * rows)
    grid = figure.add_gridspec(1 + rows, columns, height_ratios=[3.4] + [2.0] * rows)
    whole = figure.add_subplot(grid[0, :])
    _draw_lines(whole, runs, "", measure)
    whole.set_title("Mean over clients" if len(clients) > 1 else label(clients[0], 40), loc="left")
    whole.legend(loc="lower right")
    whole_rounds(whole)
    for place, client in enumerate(shown):
        axes = figure.add_subplot(grid[1 + place // columns, place % columns], sharex=whole, sharey=whole)
        _draw_lines(axes, runs, client, measure)
        axes.set_title(label(client, 30), loc="left", fontweight="normal")
        if place + columns >= len(shown):
            whole_rounds(axes)
        if place % columns:
            axes.set_ylabel("")
            axes.tick_params(labelleft=False)
    return figure


def _draw_lines(axes: Axes, runs: Runs, client: str, measure: str) -> None:
    for place, (method, seeds) in enumerate(runs.items()):
        curve = average(seed[client] for seed in seeds if client in seed)
        draw_accuracy(axes, list(curve), curve.values(), place, title_of(method))
    axes.set_ylabel(f"test {measure}, %")
