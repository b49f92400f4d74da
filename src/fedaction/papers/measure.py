"""Reading values from finished runs, as several papers' items show them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from fedaction.federation.files import read_json
from fedaction.papers.cells import ItemCell
from fedaction.papers.item import Item
from fedaction.papers.outcome import Value
from fedaction.papers.work import Run
from fedaction.runs.metrics import read_rows
from fedaction.runs.study import METRIC

Say = Callable[[str], None]
"""Is told of analyses that take a while."""
Values = tuple[list[Value], list[Value]]
"""Those of the table, and further ones that only a figure shows."""


def has_mean(item: Item) -> bool:
    """Whether an item's rows end in their mean."""
    return item.mean and item.kind == "table"


def read_accuracies(item: Item, cells: Sequence[ItemCell]) -> list[Value]:
    """Every cell's test accuracy at the end, in per cent; with each row's mean where the item has it."""
    rows: dict[tuple[str, ...], list[Value]] = {}
    for cell in cells:
        value = value_of(cell, [to_percent(_accuracy(cell, run)) for run in cell.runs])
        rows.setdefault(cell.row.label, []).append(value)
    if has_mean(item):
        for row, values in rows.items():
            values.append(_mean(row, values))
    return [value for values in rows.values() for value in values]


def _mean(row: tuple[str, ...], values: Sequence[Value]) -> Value:
    """A row's mean over its columns, seed by seed; empty where a column is."""
    seeds = zip(*(value.values for value in values), strict=True) if all(value.values for value in values) else ()
    papers = [value.paper for value in values if value.paper is not None]
    paper = statistics.fmean(papers) if len(papers) == len(values) else None
    hashes = {value.configuration for value in values}
    configuration = hashes.pop() if len(hashes) == 1 else ""
    return Value(row, "mean", tuple(map(statistics.fmean, seeds)), paper, configuration=configuration)


def read_curves(cells: Sequence[ItemCell]) -> list[Value]:
    """Every cell's test accuracy over rounds, in per cent."""
    points: list[Value] = []
    for cell in cells:
        rounds: dict[int, list[float | None]] = {}
        for run in cell.runs:
            clients: dict[int, list[float]] = {}
            for row in read_rows(run.folder / "metrics.jsonl"):
                is_own = {"client": row.client, "group": row.group, "all": ""}[cell.column.of] == cell.client
                if is_own and (row.split, row.name) == ("test", cell.column.metric) and row.value is not None:
                    clients.setdefault(row.round, []).append(row.value)
            for round, values in clients.items():
                rounds.setdefault(round, []).append(to_percent(statistics.fmean(values)))
        points += [value_of(cell, values, round=round) for round, values in sorted(rounds.items())]
    return points


def read_landscape(cells: Sequence[ItemCell], say: Say) -> Values:
    """How rough each model's loss is around its weights, and the first seed's surface; means over clients."""
    table: list[Value] = []
    points: list[Value] = []
    for cell in {cell.row.label: cell for cell in cells if cell.runs}.values():  # one of each row
        label, configuration = cell.row.label, cell.configuration
        analyses = [read_analysis(run, "landscape", say) for run in cell.runs]
        means = [analysis["methods"][cell.row.method]["mean"] for analysis in analyses]
        unit = "nats" if "nats" in analyses[0].get("loss", "nats") else "loss"
        heads = {"centre": f"centre, {unit}", "curvature": f"curvature, {unit}/unit²"}
        heads |= {"concave": "concave, %", "flat": "flat, %"}
        for key, head in heads.items():
            values = [mean[key] for mean in means]
            if head.endswith("%"):
                values = [to_percent(value) for value in values]
            table.append(Value(label, head, drop_unknown(values), configuration=configuration))
        radius, surface = analyses[0]["radius"], means[0]["surface"]
        places = [radius * (2 * step / (len(surface) - 1) - 1) for step in range(len(surface))]
        for first, line in zip(places, surface, strict=True):
            for second, loss in zip(places, line, strict=True):
                at = {"first": round(first, 6), "second": round(second, 6)}
                head = "loss" if unit == "loss" else f"loss, {unit}"
                points.append(Value(label, head, drop_unknown([loss]), None, "", configuration, at))
    return table, points


def value_of(cell: ItemCell, values: Sequence[float | None], **at: Any) -> Value:
    """A cell's value; with `at`, a point of a figure, beside which the paper prints nothing."""
    paper, spread = (None, None) if at else (cell.paper, cell.spread)
    known, head, configuration = drop_unknown(values), cell.column.label, cell.configuration
    return Value(cell.row.label, head, known, paper, cell.client, configuration, at, spread)


def drop_unknown(values: Sequence[float | None]) -> tuple[float, ...]:
    """Those that are numbers."""
    return tuple(value for value in values if value is not None and math.isfinite(value))


def read_analysis(run: Run, name: str, say: Say) -> dict[str, Any]:
    """An analysis of a finished run; made once, then read."""
    path = run.folder / "analyses" / f"{name}.json"
    if not path.exists() or read_json(path)["round"] != run.recipe.run.rounds:
        from fedaction.analyses import analyse

        say(f"{name} of {run.label}")
        left_out = analyse(run.folder, [name], lambda _: None).left_out
        if name in left_out:
            raise ValueError(f"{run.folder}: {left_out[name]}")
    return read_json(path)["values"]


def to_percent(share: float | None) -> float | None:
    """A share, 0 to 1, in per cent."""
    return None if share is None else 100 * share


def _accuracy(cell: ItemCell, run: Run) -> float | None:
    """Of the client, the group of clients, or all clients that a cell is about."""
    if cell.column.metric != METRIC:
        rows = [row for row in read_rows(run.folder / "metrics.jsonl") if row.name == cell.column.metric]
        last = [row.value for row in rows if row.round == rows[-1].round and row.value is not None]
        return statistics.fmean(last) if last else None
    if cell.column.of == "all":
        return run.result["mean"]
    return run.result["groups" if cell.column.of == "group" else "clients"].get(cell.client)
