"""Making an item: its runs, its values, its files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedaction.federation.files import write_atomically
from fedaction.federation.progress import Progress
from fedaction.papers.cells import Draft, ItemCell, Say, Workbench, empty_cells
from fedaction.papers.item import Item
from fedaction.papers.measure import read_accuracies
from fedaction.papers.outcome import Origin, Outcome, Value
from fedaction.papers.work import RowRun, Work, carry_out


def runs_of(item: Item, bench: Workbench[Any]) -> list[RowRun]:
    """The runs that an item needs, each once, done or not.

    Where runs start from a network that is trained first, they are named by what is in its file: they are these once
    it is there.
    """
    return _distinct_runs(_cells(item, bench)[0])


def regenerate(
    item: Item, bench: Workbench[Any], progress: Progress, say: Say = lambda _: None, command: str = "", jobs: int = 1
) -> Outcome:
    """Makes an item: carries out the runs that are missing, then reads its values.

    Args:
        item: what to make.
        bench: on which data, at which scale, with which seeds, where the runs are kept.
        progress: callback for the runs.
        say: callback for messages about analyses.
        command: what the footer gives as the way to make it again.
        jobs: runs carried out side by side.
    """
    paper = bench.paper
    cells, absent = _cells(item, bench)
    draft = Draft(item, bench, cells, say)
    works: list[Work] = []
    if absent:
        values = list(read_accuracies(draft))
    else:
        for batch in paper.before_runs(item, bench):
            carry_out(batch, progress, jobs)
        draft = Draft(item, bench, _cells(item, bench)[0], say)
        runs = _distinct_runs(draft.cells)
        carry_out(runs, progress, jobs)
        for batch in paper.after_runs(draft):
            carry_out(batch, progress, jobs)
        values = list(paper.read(draft))
        batches = [*paper.before_runs(item, bench), runs, *paper.after_runs(draft)]  # of what is done: all of it
        works = [work for batch in batches for work in batch]
    table = tuple(value for value in values if not value.at)
    return Outcome(
        item,
        bench.setting,
        bench.seeds,
        table,
        tuple(value for value in values if value.at),
        rounds=0 if absent else paper.length(item, bench),
        command=command,
        runs=_list_rows(item, draft.cells, table),
        origins=tuple(dict.fromkeys(Origin(work.label, work.configuration, work.environment) for work in works)),
        absent=absent,
        notes=() if absent else tuple(paper.notes(draft, table)),
    )


def write_outcome(outcome: Outcome, out: Path) -> dict[str, Path]:
    """Writes an outcome's files below a folder, and says by kind (csv, md, json, svg, png) where they are."""
    word = Path(outcome.setting.data).resolve().name
    stem = out / f"{outcome.item.name}-{word}-{outcome.setting.scale}"
    contents: dict[str, bytes] = {}
    if outcome.item.kind == "figure" and not outcome.absent:
        from fedaction.papers.draw import draw_files  # matplotlib takes a while to load

        contents |= draw_files(outcome)
    figure = f"{stem.name}.svg" if "svg" in contents else ""
    contents["csv"] = outcome.csv().encode()
    contents["md"] = outcome.markdown(figure).encode()
    contents["json"] = (json.dumps(outcome.document(), indent=1, allow_nan=False) + "\n").encode()
    paths = {kind: stem.with_name(f"{stem.name}.{kind}") for kind in contents}
    for kind, content in contents.items():
        write_atomically(paths[kind], content)
    return paths


def _cells(item: Item, bench: Workbench[Any]) -> tuple[list[ItemCell], str]:
    """An item's cells, and why nothing can be run for them, if so."""
    keys, absent = bench.setting.split(item.protocol)
    bench.check(item)
    if not item.federated:
        return [], ""
    if absent:
        return empty_cells(item), absent
    cells = bench.cells(item, **keys, **bench.paper.run_keys(item, bench))
    if any(cell.runs for cell in cells):
        return cells, ""
    return cells, "none of the clients that it shows has a stand-in among the data."


def _list_rows(item: Item, cells: Sequence[ItemCell], table: Sequence[Value]) -> tuple[tuple[str, str, str], ...]:
    """Label, method and configuration of every row's runs, then of rows that are something else."""
    runs = [(cell.runs[0].label, cell.row.method, cell.configuration) for cell in cells if cell.runs]
    others = [row for row in item.rows if row.method and row not in item.federated]
    hashes = {value.row[-len(row.label) :]: value.configuration for row in others for value in table}
    rows = [(item.describe(row.label), row.method, hashes.get(row.label, "")) for row in others]
    return tuple(dict.fromkeys((*runs, *rows)))


def _distinct_runs(cells: Sequence[ItemCell]) -> list[RowRun]:
    """In the cells' order; of those in one folder the first."""
    runs: dict[Path, RowRun] = {}
    for cell in cells:
        for run in cell.runs:
            runs.setdefault(run.folder, run)
    return list(runs.values())
