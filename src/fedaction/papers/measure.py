"""Reading values from finished runs, as several papers' items show them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedaction.federation.files import read_sealed_json
from fedaction.papers.cells import Draft, ItemCell, Say
from fedaction.papers.outcome import Value
from fedaction.papers.work import RowRun
from fedaction.runs.metrics import read_rows
from fedaction.runs.seal import OF
from fedaction.runs.standing import read_standing
from fedaction.runs.study import METRIC
from fedaction.server.state import Row


def read_accuracies(draft: Draft[Any]) -> Iterator[Value]:
    """Every cell's test accuracy at the end, in per cent; with each row's mean where the item has it."""
    rows: dict[tuple[str, ...], list[Value]] = {}
    for cell in draft.cells:
        value = value_of(cell, [to_percent(_accuracy(cell, run)) for run in cell.runs])
        rows.setdefault(cell.row.label, []).append(value)
    for row, values in rows.items():
        yield from values
        if draft.item.has_mean:
            yield _mean(row, values)


def _mean(row: tuple[str, ...], values: Sequence[Value]) -> Value:
    """A row's mean over its columns, seed by seed; empty where a column is."""
    seeds = zip(*(value.values for value in values), strict=True) if all(value.values for value in values) else ()
    papers = [value.paper for value in values if value.paper is not None]
    paper = statistics.fmean(papers) if len(papers) == len(values) else None
    hashes = {value.configuration for value in values}
    configuration = hashes.pop() if len(hashes) == 1 else ""
    return Value(row, "mean", tuple(map(statistics.fmean, seeds)), paper, configuration=configuration)


def read_curves(draft: Draft[Any]) -> Iterator[Value]:
    """Every cell's test accuracy at the end and over rounds, in per cent."""
    yield from read_accuracies(draft)
    for cell in draft.cells:

        def is_own(row: Row, cell: ItemCell = cell) -> bool:
            whose = {"client": row.client, "group": row.group, "all": ""}[cell.column.of]
            return (whose, row.split, row.name) == (cell.client, "test", cell.column.metric)

        curves = [by_round(run.folder, is_own) for run in cell.runs]
        means = [{round: 100 * statistics.fmean(values) for round, values in curve.items()} for curve in curves]
        yield from points_of(means, cell.row.label, cell.column.label, cell.configuration, cell.client)


def by_round(folder: Path, wanted: Callable[[Row], bool]) -> dict[int, list[float]]:
    """The numbers of a run's metrics that are wanted, by round."""
    rounds: dict[int, list[float]] = {}
    for row in read_rows(folder / "metrics.jsonl"):
        if wanted(row) and row.value is not None:
            rounds.setdefault(row.round, []).append(row.value)
    return rounds


def points_of(
    curves: Iterable[Mapping[int, float]], label: tuple[str, ...], column: str, configuration: str, client: str = ""
) -> Iterator[Value]:
    """A value for each round of the seeds' curves."""
    curves = list(curves)
    for round in sorted({round for curve in curves for round in curve}):
        values = drop_unknown([curve.get(round) for curve in curves])
        yield Value(label, column, values, None, client, configuration, {"round": round})


def read_landscape(draft: Draft[Any]) -> Iterator[Value]:
    """How rough each model's loss is around its weights, and the first seed's surface; means over clients."""
    for cell in {cell.row.label: cell for cell in draft.cells if cell.runs}.values():  # one of each row
        label, configuration = cell.row.label, cell.configuration
        analyses = [read_analysis(run, "landscape", draft.say) for run in cell.runs]
        means = [analysis["methods"][cell.row.method]["mean"] for analysis in analyses]
        unit = "nats" if "nats" in analyses[0].get("loss", "nats") else "loss"
        heads = {"centre": f"centre, {unit}", "curvature": f"curvature, {unit}/unit²"}
        heads |= {"concave": "concave, %", "flat": "flat, %"}
        for key, head in heads.items():
            values = [to_percent(mean[key]) if head.endswith("%") else mean[key] for mean in means]
            yield Value(label, head, drop_unknown(values), configuration=configuration)
        radius, surface = analyses[0]["radius"], means[0]["surface"]
        places = [radius * (2 * step / (len(surface) - 1) - 1) for step in range(len(surface))]
        head = "loss" if unit == "loss" else f"loss, {unit}"
        for first, line in zip(places, surface, strict=True):
            for second, loss in zip(places, line, strict=True):
                at = {"first": round(first, 6), "second": round(second, 6)}
                yield Value(label, head, drop_unknown([loss]), None, "", configuration, at)


def value_of(cell: ItemCell, values: Sequence[float | None]) -> Value:
    """A cell's value."""
    known, head, configuration = drop_unknown(values), cell.column.label, cell.configuration
    return Value(cell.row.label, head, known, cell.paper, cell.client, configuration, spread=cell.spread)


def drop_unknown(values: Sequence[float | None]) -> tuple[float, ...]:
    """Those that are numbers."""
    return tuple(value for value in values if value is not None and math.isfinite(value))


def read_analysis(run: RowRun, name: str, say: Say) -> dict[str, Any]:
    """An analysis of a finished run; made once, then read. One of another end, or of another run, is made again."""
    path = run.folder / "analyses" / f"{name}.json"
    if not _is_own(path, run):
        from fedaction.analyses import analyse

        say(f"{name} of {run.label}")
        left_out = analyse(run.folder, [name], lambda _: None).left_out
        if name in left_out:
            raise ValueError(f"{run.folder}: {left_out[name]}")
    return read_sealed_json(path)["values"]


def _is_own(path: Path, run: RowRun) -> bool:
    """Whether an analysis is there, as it was written, of the run as it is; older ones do not say of which."""
    try:
        record, standing = read_sealed_json(path), read_standing(run.folder)
    except (OSError, ValueError):
        return False
    of = record.get(OF)
    return record.get("round") == run.recipe.run.rounds and (
        of is None or (standing is not None and of == standing.seal.word)
    )


def to_percent(share: float | None) -> float | None:
    """A share, 0 to 1, in per cent."""
    return None if share is None else 100 * share


def _accuracy(cell: ItemCell, run: RowRun) -> float | None:
    """Of the client, the group of clients, or all clients that a cell is about."""
    if cell.column.metric != METRIC:
        rounds = by_round(run.folder, lambda row: row.name == cell.column.metric)
        return statistics.fmean(rounds[max(rounds)]) if rounds else None
    if cell.column.of == "all":
        return run.result["mean"]
    return run.result["groups" if cell.column.of == "group" else "clients"].get(cell.client)
