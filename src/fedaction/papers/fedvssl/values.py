"""Reading the values of FedVSSL's items from runs and evaluations that are done."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import accumulate

from fedaction.evaluation.divergence import SENT, consistency, deviations
from fedaction.papers.cells import ItemCell, Workbench
from fedaction.papers.fedvssl.items import CENTRAL, DOWNSTREAM, LEVELS
from fedaction.papers.fedvssl.models import Assessment, assess, assessments, networks, row_configuration, runs_of
from fedaction.papers.fedvssl.setting import FedvsslSetting
from fedaction.papers.item import Column, Item
from fedaction.papers.measure import Values
from fedaction.papers.outcome import Value
from fedaction.papers.work import Run
from fedaction.runs.metrics import read_rows

PARTS = ("backbone", "head")
"""Figure 5: the two modules of a network."""


def read_downstream(item: Item, bench: Workbench[FedvsslSetting], cells: Sequence[ItemCell]) -> list[Value]:
    """Tables 1 to 4: every score in per cent."""
    table: list[Value] = []
    for row in item.rows:
        works = [work for network in networks(item, bench, cells, row) for work in assess(item, bench, network)]
        configuration = row_configuration(bench, cells, row)
        for column, paper in zip(item.columns, row.paper, strict=True):
            table.append(Value(row.label, column.label, _scores(works, column), paper, "", configuration))
    return table


def read_perturbation(item: Item, bench: Workbench[FedvsslSetting], cells: Sequence[ItemCell]) -> Values:
    """Figure 3: R@1 by kind of noise, dataset and model at every level; the same as points of curves."""
    table: list[Value] = []
    points: list[Value] = []
    works = assessments(item, bench, cells)
    kinds = dict.fromkeys(kind for work in works for kind, _ in work.noisy)
    for kind in kinds:
        for dataset in bench.setting.downstream:
            for row in item.rows:
                own = [w for w in works if (w.network.label, w.dataset) == (item.run_label(row), dataset)]
                label, configuration = (kind, dataset, *row.label), row_configuration(bench, cells, row)
                for column, level in zip(item.columns, LEVELS, strict=True):
                    values = tuple(100 * work.noisy[kind, level] for work in own)
                    table.append(Value(label, column.label, values, None, "", configuration))
                    points.append(Value(label, "R@1", values, None, "", configuration, {"k": level}))
    return table, points


def read_traffic(item: Item, bench: Workbench[FedvsslSetting], cells: Sequence[ItemCell]) -> Values:
    """Figure 4: R@1 at the end, and rounds and traffic to the centralised model's; R@1 over rounds."""
    curves: dict[tuple[str, ...], dict[str, list[dict[int, float]]]] = {}  # row, dataset, seed, round: R@1 in %
    for row in item.rows:
        rounds = {run.seed: run.recipe.run.rounds for run in runs_of(cells, row)}
        for network in networks(item, bench, cells, row):
            for work in assess(item, bench, network):
                seeds = curves.setdefault(row.label, {}).setdefault(work.dataset, [{} for _ in bench.seeds])
                round = network.round or rounds[network.seed]
                seeds[bench.seeds.index(network.seed)][round] = 100 * work.scores["R@1"]
    central = next((row.label for row in item.rows if row.method == CENTRAL), ())
    table: list[Value] = []
    points: list[Value] = []
    for row in item.rows:
        spent = [megabytes(run) for run in runs_of(cells, row)]
        configuration = row_configuration(bench, cells, row)
        for column, paper in zip(item.columns, row.paper, strict=True):
            dataset = DOWNSTREAM[column.client]
            own, target = (curves.get(label, {}).get(dataset, []) for label in (row.label, central))
            values = [seed[max(seed)] for seed in own]
            if column.metric != "R@1":
                ends = [seed[max(seed)] for seed in target]
                reached = [first_at(seed, end) for seed, end in zip(own, ends, strict=False)]
                if row.label == central:
                    reached = []
                values = [float(round) for round in reached if round is not None]
                if column.metric == "megabytes":
                    pairs = zip(reached, spent, strict=False)
                    values = [sums[round] for round, sums in pairs if round is not None]
            table.append(Value(row.label, column.label, tuple(values), paper, "", configuration))
            if column.metric == "R@1":
                for round in sorted({round for seed in own for round in seed}):
                    shown, at = tuple(seed[round] for seed in own if round in seed), {"round": round}
                    points.append(Value(row.label, column.label, shown, None, "", configuration, at))
    return table, points


def first_at(curve: dict[int, float], target: float) -> int | None:
    """The first round in which a curve is at a target or above; None where it never is."""
    return next((round for round in sorted(curve) if curve[round] >= target), None)


def megabytes(run: Run) -> dict[int, float]:
    """What a run's clients have sent and received up to each round, in 10^6 bytes."""
    each = dict.fromkeys(range(1, run.recipe.run.rounds + 1), 0.0)
    for row in read_rows(run.folder / "metrics.jsonl"):
        if row.name in ("bytes_up", "bytes_down"):
            each[row.round] += (row.value or 0.0) / 1e6
    return dict(zip(each, accumulate(each.values()), strict=True))


def read_distances(item: Item, cells: Sequence[ItemCell]) -> Values:
    """Figure 5: how unequal the clients of a round are in how far they go, by module; over rounds, and in numbers."""
    runs = runs_of(cells, item.rows[0])
    configuration = runs[0].configuration if runs else ""
    table: list[Value] = []
    points: list[Value] = []
    for part in PARTS:
        distances = [_distances(run, part) for run in runs]
        curves = [deviations(rounds) for rounds in distances]
        numbers = [consistency(curve) for curve in curves if curve]
        columns = (
            [one.mean for one in numbers],
            [one.variation for one in numbers],
            [100 * one.variation / one.mean for one in numbers if one.mean],
            [
                statistics.fmean(value for values in rounds.values() for value in values)
                for rounds in distances
                if rounds
            ],
        )
        for column, values in zip(item.columns, columns, strict=True):
            table.append(Value((part,), column.label, tuple(values), None, "", configuration))
        for round in sorted({round for curve in curves for round in curve}):
            values = tuple(curve[round] for curve in curves if round in curve)
            points.append(Value((part,), "deviation", values, None, "", configuration, {"round": round}))
    return table, points


def _distances(run: Run, part: str) -> dict[int, list[float]]:
    """Clients' distances by round."""
    rounds: dict[int, list[float]] = {}
    for row in read_rows(run.folder / "metrics.jsonl"):
        if row.name == f"{SENT}{part}" and row.value is not None:
            rounds.setdefault(row.round, []).append(float(row.value))
    return rounds


def note_datasets(item: Item, bench: Workbench[FedvsslSetting], cells: Sequence[ItemCell]) -> list[str]:
    """Notes on what networks were evaluated on."""
    notes: dict[str, str] = {}
    for work in assessments(item, bench, cells):
        if work.dataset not in notes:
            (gallery, queries), classes = work.data["recordings"], len(work.data["classes"])
            notes[work.dataset] = (
                f"{work.dataset}: {queries} test recordings (queries), {gallery} for training (the gallery), "
                f"{classes} classes; guessing is right in {100 / classes:.1f} %."
            )
    return list(notes.values())


def _scores(works: Sequence[Assessment], column: Column) -> tuple[float, ...]:
    own = [work for work in works if work.dataset == DOWNSTREAM[column.client]]
    return tuple(100 * work.scores[column.metric] for work in own)
