"""Reading an item's values from finished runs."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from fedaction.data.layout import Layout
from fedaction.evaluation.topology import shared_cosine
from fedaction.federation.files import read_json
from fedaction.papers.cells import Cell, ClientSize, Run
from fedaction.papers.fsar.tables import CHANGES
from fedaction.papers.item import Item
from fedaction.papers.outcome import Value
from fedaction.runs.metrics import read_rows
from fedaction.runs.study import METRIC

Say = Callable[[str], None]


def accuracies(cells: Sequence[Cell], mean: bool) -> list[Value]:
    """Every cell's test accuracy at the end, in per cent; with each row's mean where it is asked for."""
    found = [_value(cell, [_percent(_accuracy(cell, run)) for run in cell.runs]) for cell in cells]
    if not mean:
        return found
    rows: dict[tuple[str, ...], list[Value]] = {}
    for value in found:
        rows.setdefault(value.row, []).append(value)
    out: list[Value] = []
    for row, values in rows.items():
        whole = all(value.values for value in values)
        seeds = zip(*(value.values for value in values), strict=True) if whole else ()
        papers = [value.paper for value in values if value.paper is not None]
        paper = statistics.fmean(papers) if len(papers) == len(values) else None
        hashes = {value.configuration for value in values}
        out += values
        out.append(
            Value(
                row,
                "mean",
                tuple(map(statistics.fmean, seeds)),
                paper,
                configuration=hashes.pop() if len(hashes) == 1 else "",
            )
        )
    return out


def curves(cells: Sequence[Cell]) -> list[Value]:
    """Every cell's test accuracy over rounds, in per cent."""
    found: list[Value] = []
    for cell in cells:
        rounds: dict[int, list[float | None]] = {}
        for run in cell.runs:
            clients: dict[int, list[float]] = {}
            for row in read_rows(run.folder / "metrics.jsonl"):
                mine = {"client": row.client, "group": row.group, "all": ""}[cell.column.of] == cell.client
                if mine and (row.split, row.name) == ("test", cell.column.metric) and row.value is not None:
                    clients.setdefault(row.round, []).append(row.value)
            for round, values in clients.items():
                rounds.setdefault(round, []).append(_percent(statistics.fmean(values)))
        found += [_value(cell, values, round=round) for round, values in sorted(rounds.items())]
    return found


def coefficients(cells: Sequence[Cell]) -> list[Value]:
    """Every client's learned alpha, beta or gamma, as the row says, and how far they are from 1."""
    rows: dict[tuple[str, ...], list[Value]] = {}
    for cell in cells:
        values = [_evidence(run).get(cell.client, {}).get(cell.row.label[0]) for run in cell.runs]
        rows.setdefault(cell.row.label, []).append(_value(cell, values))
    found: list[Value] = []
    for row, values in rows.items():
        found += values
        seeds = zip(*(value.values for value in values if value.values), strict=True)
        ends = [sorted((one - 1 for one in seed), key=abs) for seed in seeds]
        for column, place, paper in zip(("largest Δ", "smallest Δ"), (-1, 0), CHANGES[row[0]], strict=True):
            changes = tuple(end[place] for end in ends)
            found.append(Value(row, column, changes, paper, configuration=values[0].configuration))
    return found


def sizes(item: Item, clients: Sequence[ClientSize | None]) -> list[Value]:
    """How much each client holds; rows are clients, None where the data have none."""
    found: list[Value] = []
    for row, size in zip(item.rows, clients, strict=True):
        amounts = (size.train, size.test, size.classes) if size else (None,) * 3
        label = (f"{row.label[0]} / {size.id}",) if size else row.label
        for column, paper, amount in zip(item.columns, row.paper, amounts, strict=True):
            found.append(Value(label, column.label, () if amount is None else (amount,), paper))
    return found


def cka(cells: Sequence[Cell], say: Say) -> tuple[list[Value], list[Value]]:
    """CKA between clients, block by block: the mean over pairs, and every pair."""
    names = {cell.client: cell.column.label for cell in cells if cell.runs}
    one = next(cell for cell in cells if cell.runs)
    found = [_analysis(run, "cka", say)["methods"][one.row.method] for run in one.runs]
    table: list[Value] = []
    pairs: list[Value] = []
    for block in range(len(found[0]["blocks"])):
        row = (str(block + 1),)
        means = _known([seed["mean"][block] for seed in found])
        table.append(Value(row, "mean over pairs of clients", means, configuration=one.configuration))
        for i, client in enumerate(found[0]["clients"]):
            for j, other in enumerate(found[0]["clients"]):
                values = _known([seed["blocks"][block][i][j] for seed in found])
                column, at = names[client], {"with": names[other]}
                pairs.append(Value(row, column, values, None, client, one.configuration, at))
    return table, pairs


def topology(item: Item, cells: Sequence[Cell]) -> tuple[list[Value], list[Value]]:
    """How alike clients' matrices are at the first and the last round, and the first seed's matrices themselves."""
    from fedaction.analyses.topology import read_snapshots  # matplotlib takes a while to load

    shown = [cell for cell in cells if cell.runs]
    runs, configuration = shown[0].runs, shown[0].configuration
    snapshots = [read_snapshots(run.folder / "snapshots") for run in runs]
    layouts = [{name: Layout.from_dict(graph["layout"]) for name, graph in _evidence(run).items()} for run in runs]
    table: list[Value] = []
    entries: list[Value] = []
    for matrix, round in itertools.product(item.matrix, dict.fromkeys((min(snapshots[0]), max(snapshots[0])))):
        row = (f"{matrix}M", str(round))
        for one, other in itertools.combinations(shown, 2):
            values: list[float | None] = []
            for seed, layout in zip(snapshots, layouts, strict=True):
                a, b = (seed[round][matrix].get(cell.client) for cell in (one, other))
                if a is not None and b is not None:
                    values.append(shared_cosine(a, layout[one.client], b, layout[other.client]))
            column = f"{one.column.label} with {other.column.label}"
            table.append(Value(row, column, _known(values), configuration=configuration))
        for cell in shown:
            graph = snapshots[0][round][matrix].get(cell.client)
            for i, line in enumerate([] if graph is None else graph.sum(0)):
                for j, entry in enumerate(map(float, line)):
                    at = {"from_joint": j, "to_joint": i}
                    entries.append(Value(row, cell.column.label, (entry,), None, cell.client, configuration, at))
    return table, entries


def landscape(cells: Sequence[Cell], say: Say) -> tuple[list[Value], list[Value]]:
    """How rough each model's loss is around its weights, and the first seed's surface; means over clients."""
    table: list[Value] = []
    points: list[Value] = []
    for cell in {cell.row.label: cell for cell in cells if cell.runs}.values():  # one of each row
        label, configuration = cell.row.label, cell.configuration
        found = [_analysis(run, "landscape", say) for run in cell.runs]
        means = [one["methods"][cell.row.method]["mean"] for one in found]
        unit = "nats" if "nats" in found[0].get("loss", "nats") else "loss"
        heads = {"centre": f"centre, {unit}", "curvature": f"curvature, {unit}/unit²"}
        heads |= {"concave": "concave, %", "flat": "flat, %"}
        for key, head in heads.items():
            values = [mean[key] for mean in means]
            if head.endswith("%"):
                values = [_percent(value) for value in values]
            table.append(Value(label, head, _known(values), configuration=configuration))
        radius, surface = found[0]["radius"], means[0]["surface"]
        places = [radius * (2 * step / (len(surface) - 1) - 1) for step in range(len(surface))]
        for first, line in zip(places, surface, strict=True):
            for second, loss in zip(places, line, strict=True):
                at = {"first": round(first, 6), "second": round(second, 6)}
                head = "loss" if unit == "loss" else f"loss, {unit}"
                points.append(Value(label, head, _known([loss]), None, "", configuration, at))
    return table, points


def epsilon(cells: Sequence[Cell], say: Say) -> tuple[list[Value], list[Value]]:
    """The empirical epsilon beside what chance alone gives, and the first seed's two histograms."""
    table: list[Value] = []
    bars: list[Value] = []
    for cell in cells:
        found = [_analysis(run, "epsilon", say)["methods"][cell.row.method].get(cell.client, {}) for run in cell.runs]
        table.append(_value(cell, [one.get("epsilon") for one in found]))
        chance = _known([one.get("chance") for one in found])
        table.append(Value(cell.row.label, "chance alone", chance, configuration=cell.configuration))
        for column, key in (("D", "D"), ("D'", "replaced")):
            edges: list[float] = found[0].get("edges", []) if found else []
            for low, high, share in zip(edges, edges[1:], found[0][key] if edges else [], strict=False):
                at = {"from": low, "to": high}
                bars.append(Value(cell.row.label, column, (100 * share,), None, cell.client, cell.configuration, at))
    return table, bars


def _accuracy(cell: Cell, run: Run) -> float | None:
    """Of the client, the group of clients, or all clients that a cell is about."""
    if cell.column.metric != METRIC:
        rows = [row for row in read_rows(run.folder / "metrics.jsonl") if row.name == cell.column.metric]
        last = [row.value for row in rows if row.round == rows[-1].round and row.value is not None]
        return statistics.fmean(last) if last else None
    if cell.column.of == "all":
        return run.result["mean"]
    return run.result["groups" if cell.column.of == "group" else "clients"].get(cell.client)


def _value(cell: Cell, values: Sequence[float | None], **at: Any) -> Value:
    paper, spread = (None, None) if at else (cell.paper, cell.spread)
    known, head, configuration = _known(values), cell.column.label, cell.configuration
    return Value(cell.row.label, head, known, paper, cell.client, configuration, at, spread)


def _known(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(value for value in values if value is not None and math.isfinite(value))


def _evidence(run: Run) -> dict[str, Any]:
    """A finished run's graphs by client."""
    return read_json(run.folder / "evidence.json")["topology"]


def _analysis(run: Run, name: str, say: Say) -> dict[str, Any]:
    """An analysis of a finished run; made once, then read."""
    path = run.folder / "analyses" / f"{name}.json"
    if not path.exists() or read_json(path)["round"] != run.recipe.run.rounds:
        from fedaction.analyses import analyse

        say(f"{name} of {run.label}")
        left_out = analyse(run.folder, [name], lambda _: None).left_out
        if name in left_out:
            raise ValueError(f"{run.folder}: {left_out[name]}")
    return read_json(path)["values"]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
