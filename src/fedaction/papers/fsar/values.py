"""Reading the values of FSAR's items from finished runs, where they are no accuracies."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from fedaction.data.layout import Layout
from fedaction.evaluation.topology import shared_cosine
from fedaction.federation.files import read_json
from fedaction.papers.cells import Draft
from fedaction.papers.fsar.setting import FsarSetting
from fedaction.papers.fsar.tables import CHANGES, DATASETS
from fedaction.papers.item import ItemRow
from fedaction.papers.measure import drop_unknown, read_analysis, value_of
from fedaction.papers.outcome import Value
from fedaction.papers.work import RowRun


def read_coefficients(draft: Draft[FsarSetting]) -> Iterator[Value]:
    """Every client's learned alpha, beta or gamma, as the row says, and how far they are from 1."""
    rows: dict[tuple[str, ...], list[Value]] = {}
    for cell in draft.cells:
        values = [_graphs(run).get(cell.client, {}).get(cell.row.label[0]) for run in cell.runs]
        rows.setdefault(cell.row.label, []).append(value_of(cell, values))
    for row, values in rows.items():
        yield from values
        seeds = zip(*(value.values for value in values if value.values), strict=True)
        ends = [sorted((one - 1 for one in seed), key=abs) for seed in seeds]
        for column, place, paper in zip(("largest Δ", "smallest Δ"), (-1, 0), CHANGES[row[0]], strict=True):
            changes = tuple(end[place] for end in ends)
            yield Value(row, column, changes, paper, configuration=values[0].configuration)


def read_sizes(draft: Draft[FsarSetting]) -> Iterator[Value]:
    """How much each client holds; rows are the paper's clients, whether or not one stands in."""
    item, bench = draft.item, draft.bench
    clients = bench.clients(bench.recipe(ItemRow((item.name,), "fedavg")))
    sizes = dict(zip(bench.setting.positions, clients, strict=True))
    for row in item.rows:
        size = sizes.get(DATASETS.index(row.label[0]))
        amounts = (size.train, size.test, size.classes) if size else (None,) * 3
        label = (f"{row.label[0]} / {size.id}",) if size else row.label
        for column, paper, amount in zip(item.columns, row.paper, amounts, strict=True):
            yield Value(label, column.label, drop_unknown([amount]), paper)


def read_cka(draft: Draft[FsarSetting]) -> Iterator[Value]:
    """CKA between clients, block by block: the mean over pairs, and every pair."""
    shown = [cell for cell in draft.cells if cell.runs]
    names, configuration = {cell.client: cell.column.label for cell in shown}, shown[0].configuration
    seeds = [read_analysis(run, "cka", draft.say)["methods"][shown[0].row.method] for run in shown[0].runs]
    clients: list[str] = seeds[0]["clients"]
    for block in range(len(seeds[0]["blocks"])):
        row = (str(block + 1),)
        means = drop_unknown([seed["mean"][block] for seed in seeds])
        yield Value(row, "mean over pairs of clients", means, configuration=configuration)
        for (i, client), (j, other) in itertools.product(enumerate(clients), repeat=2):
            values = drop_unknown([seed["blocks"][block][i][j] for seed in seeds])
            yield Value(row, names[client], values, None, client, configuration, {"with": names[other]})


def read_topology(draft: Draft[FsarSetting]) -> Iterator[Value]:
    """How alike clients' matrices are at the first and the last round, and the first seed's matrices themselves."""
    from fedaction.analyses.topology import read_snapshots  # matplotlib takes a while to load

    shown = [cell for cell in draft.cells if cell.runs]
    runs, configuration = shown[0].runs, shown[0].configuration
    snapshots = [read_snapshots(run.folder / "snapshots") for run in runs]
    layouts = [{name: Layout.from_dict(graph["layout"]) for name, graph in _graphs(run).items()} for run in runs]
    rounds = dict.fromkeys((min(snapshots[0]), max(snapshots[0])))
    for matrix, round in itertools.product(draft.item.matrix, rounds):
        row = (f"{matrix}M", str(round))
        for one, other in itertools.combinations(shown, 2):
            values: list[float | None] = []
            for seed, layout in zip(snapshots, layouts, strict=True):
                a, b = (seed[round][matrix].get(cell.client) for cell in (one, other))
                if a is not None and b is not None:
                    values.append(shared_cosine(a, layout[one.client], b, layout[other.client]))
            column = f"{one.column.label} with {other.column.label}"
            yield Value(row, column, drop_unknown(values), configuration=configuration)
        for cell in shown:
            graph = snapshots[0][round][matrix].get(cell.client)
            for i, line in enumerate([] if graph is None else graph.sum(0)):
                for j, entry in enumerate(map(float, line)):
                    at = {"from_joint": j, "to_joint": i}
                    yield Value(row, cell.column.label, (entry,), None, cell.client, configuration, at)


def read_epsilon(draft: Draft[FsarSetting]) -> Iterator[Value]:
    """The empirical epsilon beside what chance gives, and the first seed's two histograms."""
    for cell in draft.cells:
        analyses = [read_analysis(run, "epsilon", draft.say)["methods"][cell.row.method] for run in cell.runs]
        seeds = [analysis.get(cell.client, {}) for analysis in analyses]
        yield value_of(cell, [seed.get("epsilon") for seed in seeds])
        chance = drop_unknown([seed.get("chance") for seed in seeds])
        yield Value(cell.row.label, "chance alone", chance, configuration=cell.configuration)
        edges: list[float] = seeds[0].get("edges", []) if seeds else []
        for column, key in (("D", "D"), ("D'", "replaced")):
            for low, high, share in zip(edges, edges[1:], seeds[0][key] if edges else [], strict=False):
                at = {"from": low, "to": high}
                yield Value(cell.row.label, column, (100 * share,), None, cell.client, cell.configuration, at)


def _graphs(run: RowRun) -> dict[str, Any]:
    """A finished run's graphs and coefficients by client."""
    return read_json(run.folder / "evidence.json")["topology"]
