"""Reading the values of FSAR's items from finished runs, where they are no accuracies."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from fedaction.data.layout import Layout
from fedaction.evaluation.topology import shared_cosine
from fedaction.federation.files import read_json
from fedaction.papers.cells import ItemCell, Workbench
from fedaction.papers.fsar.setting import FsarSetting
from fedaction.papers.fsar.tables import CHANGES, DATASETS
from fedaction.papers.item import Item, ItemRow
from fedaction.papers.measure import Say, Values, drop_unknown, read_analysis, value_of
from fedaction.papers.outcome import Value
from fedaction.papers.work import Run


def read_coefficients(cells: Sequence[ItemCell]) -> list[Value]:
    """Every client's learned alpha, beta or gamma, as the row says, and how far they are from 1."""
    rows: dict[tuple[str, ...], list[Value]] = {}
    for cell in cells:
        values = [_graphs(run).get(cell.client, {}).get(cell.row.label[0]) for run in cell.runs]
        rows.setdefault(cell.row.label, []).append(value_of(cell, values))
    table: list[Value] = []
    for row, values in rows.items():
        table += values
        seeds = zip(*(value.values for value in values if value.values), strict=True)
        ends = [sorted((one - 1 for one in seed), key=abs) for seed in seeds]
        for column, place, paper in zip(("largest Δ", "smallest Δ"), (-1, 0), CHANGES[row[0]], strict=True):
            changes = tuple(end[place] for end in ends)
            table.append(Value(row, column, changes, paper, configuration=values[0].configuration))
    return table


def read_sizes(item: Item, bench: Workbench[FsarSetting]) -> list[Value]:
    """How much each client holds; rows are the paper's clients, whether or not one stands in."""
    clients = bench.clients(bench.recipe(ItemRow((item.name,), "fedavg")))
    sizes = dict(zip(bench.setting.positions, clients, strict=True))
    table: list[Value] = []
    for row in item.rows:
        size = sizes.get(DATASETS.index(row.label[0]))
        amounts = (size.train, size.test, size.classes) if size else (None,) * 3
        label = (f"{row.label[0]} / {size.id}",) if size else row.label
        for column, paper, amount in zip(item.columns, row.paper, amounts, strict=True):
            table.append(Value(label, column.label, () if amount is None else (amount,), paper))
    return table


def read_cka(cells: Sequence[ItemCell], say: Say) -> Values:
    """CKA between clients, block by block: the mean over pairs, and every pair."""
    names = {cell.client: cell.column.label for cell in cells if cell.runs}
    cell = next(cell for cell in cells if cell.runs)
    seeds = [read_analysis(run, "cka", say)["methods"][cell.row.method] for run in cell.runs]
    table: list[Value] = []
    pairs: list[Value] = []
    for block in range(len(seeds[0]["blocks"])):
        row = (str(block + 1),)
        means = drop_unknown([seed["mean"][block] for seed in seeds])
        table.append(Value(row, "mean over pairs of clients", means, configuration=cell.configuration))
        for i, client in enumerate(seeds[0]["clients"]):
            for j, other in enumerate(seeds[0]["clients"]):
                values = drop_unknown([seed["blocks"][block][i][j] for seed in seeds])
                column, at = names[client], {"with": names[other]}
                pairs.append(Value(row, column, values, None, client, cell.configuration, at))
    return table, pairs


def read_topology(item: Item, cells: Sequence[ItemCell]) -> Values:
    """How alike clients' matrices are at the first and the last round, and the first seed's matrices themselves."""
    from fedaction.analyses.topology import read_snapshots  # matplotlib takes a while to load

    shown = [cell for cell in cells if cell.runs]
    runs, configuration = shown[0].runs, shown[0].configuration
    snapshots = [read_snapshots(run.folder / "snapshots") for run in runs]
    layouts = [{name: Layout.from_dict(graph["layout"]) for name, graph in _graphs(run).items()} for run in runs]
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
            table.append(Value(row, column, drop_unknown(values), configuration=configuration))
        for cell in shown:
            graph = snapshots[0][round][matrix].get(cell.client)
            for i, line in enumerate([] if graph is None else graph.sum(0)):
                for j, entry in enumerate(map(float, line)):
                    at = {"from_joint": j, "to_joint": i}
                    entries.append(Value(row, cell.column.label, (entry,), None, cell.client, configuration, at))
    return table, entries


def read_epsilon(cells: Sequence[ItemCell], say: Say) -> Values:
    """The empirical epsilon beside what chance gives, and the first seed's two histograms."""
    table: list[Value] = []
    bars: list[Value] = []
    for cell in cells:
        seeds = [
            read_analysis(run, "epsilon", say)["methods"][cell.row.method].get(cell.client, {}) for run in cell.runs
        ]
        table.append(value_of(cell, [seed.get("epsilon") for seed in seeds]))
        chance = drop_unknown([seed.get("chance") for seed in seeds])
        table.append(Value(cell.row.label, "chance alone", chance, configuration=cell.configuration))
        for column, key in (("D", "D"), ("D'", "replaced")):
            edges: list[float] = seeds[0].get("edges", []) if seeds else []
            for low, high, share in zip(edges, edges[1:], seeds[0][key] if edges else [], strict=False):
                at = {"from": low, "to": high}
                bars.append(Value(cell.row.label, column, (100 * share,), None, cell.client, cell.configuration, at))
    return table, bars


def _graphs(run: Run) -> dict[str, Any]:
    """A finished run's graphs and coefficients by client."""
    return read_json(run.folder / "evidence.json")["topology"]
