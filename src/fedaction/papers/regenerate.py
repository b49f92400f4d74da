"""Making an item: its runs, its values, its files."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fedaction.federation.files import write_atomically
from fedaction.federation.progress import Progress
from fedaction.papers import measure
from fedaction.papers.cells import Cell, Run, Workbench, carry_out
from fedaction.papers.edge import models as edge_models
from fedaction.papers.edge import times as edge_times
from fedaction.papers.edge.items import EDGE_ITEMS
from fedaction.papers.edge.setting import edge_setting
from fedaction.papers.fdarn.items import COLUMNS, FDARN_ITEMS
from fedaction.papers.fdarn.setting import fdarn_setting
from fedaction.papers.fedvssl import models as fedvssl_models
from fedaction.papers.fedvssl import values as fedvssl_values
from fedaction.papers.fedvssl.items import FEDVSSL_ITEMS
from fedaction.papers.fedvssl.setting import fedvssl_setting
from fedaction.papers.fsar.figures import FIGURES
from fedaction.papers.fsar.tables import TABLES
from fedaction.papers.item import DATASETS, Item, Row
from fedaction.papers.outcome import Outcome, Value
from fedaction.papers.setting import Setting, setting

ITEMS: dict[str, Item] = {item.name: item for item in (*TABLES, *FIGURES, *FDARN_ITEMS, *EDGE_ITEMS, *FEDVSSL_ITEMS)}
"""Every item by the name that the command uses."""


def find_item(name: str, *rows: str) -> Item:
    """An item by name; with texts, its rows whose label (a part of it) begins with one of them, without case.

    A wrong name is a ValueError that names the nearest; so is a text that no row begins with.
    """
    if name not in ITEMS:
        close = difflib.get_close_matches(name, ITEMS, n=1, cutoff=0.4)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"there is no item {name!r}{hint}; `fedaction paper list` names all")
    item = ITEMS[name]
    for text in rows:
        if not any(_begins(row, text) for row in item.rows):
            labels = ", ".join(item.describe(row.label) for row in item.rows)
            raise ValueError(f"{name} has no row that begins with {text!r}; it has {labels}")
    chosen = tuple(row for row in item.rows if any(_begins(row, text) for text in rows))
    return replace(item, rows=chosen) if rows else item


def _begins(row: Row, text: str) -> bool:
    return any(part.lower().startswith(text.lower()) for part in row.label)


def setting_of(item: Item, data: str, scale: str) -> Setting:
    """What the command's `--data` and `--scale` mean for an item's paper. Raises RecipeError."""
    makers = {"fdarn": fdarn_setting, "edge": edge_setting, "fedvssl": fedvssl_setting}
    return makers.get(item.paper, setting)(data, scale)


def runs_of(item: Item, bench: Workbench) -> list[Run]:
    """The runs that an item needs, each once, done or not.

    The edge paper's are named by what is in the student's file: they are these once it has been distilled.
    """
    return _once(_cells(item, bench)[0])


def regenerate(
    item: Item,
    bench: Workbench,
    progress: Progress,
    say: measure.Say = lambda _: None,
    command: str = "",
    jobs: int = 1,
) -> Outcome:
    """Makes an item: carries out the runs that are missing, then reads its values.

    Args:
        item: what to make.
        bench: on which data, at which scale, with which seeds, where the runs are kept.
        progress: hears of the runs.
        say: hears of the analyses.
        command: what the footer gives as the way to make it again.
        jobs: runs carried out side by side.
    """
    cells, absent = _cells(item, bench)
    if not absent:
        edge_models.distil(item, bench, progress, jobs)
        cells, absent = _cells(item, bench)
    carry_out(_once(cells), progress, jobs)
    if not absent:
        fedvssl_models.evaluate(item, bench, cells, progress, jobs)
    table, series = _measured(item, bench, cells, absent, say)
    run = [cell for cell in cells if cell.runs]
    labels = dict.fromkeys((cell.runs[0].label, cell.row.method, cell.configuration) for cell in run)
    return Outcome(
        item,
        bench.setting,
        bench.seeds,
        tuple(table),
        tuple(series),
        rounds=_rounds(item, bench, run),
        command=command,
        runs=(*labels, *edge_models.named(item, bench), *fedvssl_models.named(item, bench)),
        absent=absent,
        notes=_notes(item, bench, table, absent) + _evaluated(item, bench, cells, absent) + _neighbours(run),
    )


def write_outcome(outcome: Outcome, out: Path) -> dict[str, Path]:
    """Writes an outcome's files below a folder, and says by kind (csv, md, json, svg, png) where they are."""
    word = Path(outcome.setting.data).resolve().name
    stem = out / f"{outcome.item.name}-{word}-{outcome.setting.scale}"
    contents: dict[str, bytes] = {}
    if outcome.item.kind == "figure" and not outcome.absent:
        from fedaction.papers.draw import pictures  # matplotlib takes a while to load

        contents |= pictures(outcome)
    figure = f"{stem.name}.svg" if "svg" in contents else ""
    contents["csv"] = outcome.csv().encode()
    contents["md"] = outcome.markdown(figure).encode()
    contents["json"] = (json.dumps(outcome.document(), indent=1, allow_nan=False) + "\n").encode()
    paths = {kind: stem.with_name(f"{stem.name}.{kind}") for kind in contents}
    for kind, content in contents.items():
        write_atomically(paths[kind], content)
    return paths


def _cells(item: Item, bench: Workbench) -> tuple[list[Cell], str]:
    """An item's cells, and why nothing can be run for them, if so."""
    keys, absent = bench.setting.split(item.protocol)
    bench.check(item)
    for chain in item.chains:
        edge_models.chain_of(item, bench, chain, bench.seeds[0])  # whatever is wrong with it
    fedvssl_models.check(bench)
    if not item.tuned:
        return [], ""
    if absent:
        pairs = [(row, *pair) for row in item.rows for pair in zip(item.columns, row.paper, strict=True)]
        return [Cell(row, column, "", paper, ()) for row, column, paper in pairs], absent
    cells = bench.cells(replace(item, rows=item.tuned), **keys, **edge_models.pretrained_by(item, bench))
    if any(cell.runs for cell in cells):
        return cells, ""
    return cells, "none of the clients that it shows has a stand-in among the data."


def _sizes(item: Item, bench: Workbench) -> list[Value]:
    clients = bench.clients(bench.recipe(Row((item.name,), "fedavg")))
    found = dict(zip(bench.setting.positions, clients, strict=True))
    return measure.sizes(item, [found.get(position) for position in range(len(DATASETS))])


def _measured(
    item: Item, bench: Workbench, cells: Sequence[Cell], absent: str, say: measure.Say
) -> tuple[list[Value], list[Value]]:
    """The table's values and the figure's."""
    if absent:
        return measure.accuracies(cells, mean=_averaged(item)), []
    if item.shows == "curves" and item.chains:
        return edge_models.chain_values(item, bench), edge_models.chain_curves(item, bench)
    makers: dict[str, Callable[[], tuple[list[Value], list[Value]]]] = {
        "accuracy": lambda: (measure.accuracies(cells, mean=_averaged(item)), []),
        "sizes": lambda: (_sizes(item, bench), []),
        "sweep": lambda: (measure.accuracies(cells, mean=False), []),
        "curves": lambda: (measure.accuracies(cells, mean=False), measure.curves(cells)),
        "coefficients": lambda: (measure.coefficients(cells), []),
        "cka": lambda: measure.cka(cells, say),
        "topology": lambda: measure.topology(item, cells),
        "landscape": lambda: measure.landscape(cells, say),
        "epsilon": lambda: measure.epsilon(cells, say),
        "chains": lambda: (edge_models.chain_values(item, bench), []),
        "times": lambda: (edge_models.chain_values(item, bench) + edge_times.stage_times(item, bench), []),
        "profiles": lambda: (edge_times.device_times(item, bench), []),
        "downstream": lambda: (fedvssl_values.downstream(item, bench, cells), []),
        "perturbation": lambda: fedvssl_values.perturbation(item, bench, cells),
        "traffic": lambda: fedvssl_values.traffic(item, bench, cells),
        "distances": lambda: fedvssl_values.distances(item, bench, cells),
    }
    return makers[item.shows]()


def _averaged(item: Item) -> bool:
    return item.mean and item.kind == "table"


def _once(cells: Sequence[Cell]) -> list[Run]:
    return list({run.folder: run for cell in reversed(cells) for run in reversed(cell.runs)}.values())[::-1]


def _rounds(item: Item, bench: Workbench, run: Sequence[Cell]) -> int:
    """How long an item's runs are; where some are centralised, those of the federations."""
    if item.paper == "fedvssl":
        return bench.overrides.get("rounds", bench.setting.base["rounds"])
    return run[0].runs[0].recipe.run.rounds if run else edge_models.epochs_of(item, bench)


def _evaluated(item: Item, bench: Workbench, cells: Sequence[Cell], absent: str) -> tuple[str, ...]:
    """What networks were evaluated on."""
    return () if absent or item.paper != "fedvssl" else fedvssl_values.about(item, bench, cells)


def _neighbours(cells: Sequence[Cell]) -> tuple[str, ...]:
    """How an unseen client was tested."""
    runs = [cell.runs[0].recipe.run for cell in cells if cell.column.unseen]
    if not runs:
        return ()
    votes = "equal votes" if not runs[0].knn_temperature else f"votes by temperature {runs[0].knn_temperature:g}"
    return (f"Ours: k = {runs[0].knn_k}, {runs[0].knn_distance} distance, {votes}, on pooled features.",)


def _notes(item: Item, bench: Workbench, table: list[Value], absent: str) -> tuple[str, ...]:
    """What the reader must know about this data and these seeds."""
    notes: list[str] = []
    if absent:
        return ()
    if bench.setting.modalities:
        columns = (COLUMNS[position] for position in bench.setting.positions)
        pairs = zip(bench.setting.modalities, columns, strict=True)
        notes.append(f"Stand-ins: {', '.join(f'{ours} for {theirs}' for ours, theirs in pairs)}.")
    if bench.setting.stand_ins and item.shows != "profiles":
        pairs = bench.setting.stand_ins.items()
        notes.append(f"Stand-ins: {'; '.join(f'{ours} for {theirs}' for theirs, ours in pairs)}.")
    if item.paper == "edge" and item.shows != "profiles":
        notes += edge_models.about_chains(item, bench)
    if item.shows == "times":
        notes += edge_times.savings(item, table)
    if item.shows == "accuracy" and _averaged(item):
        notes.append("mean: over the row, ours and the paper's; the paper does not print it.")
    if bench.setting.rest["data"] == "stage" and any(column.among for column in item.columns):
        notes.append(
            "On the stage the second client of a pair has the layout and the amounts of the one it stands for, but "
            "is another place."
        )
    if len(bench.seeds) > 1 and item.shows in ("topology", "landscape", "epsilon"):
        notes.append(f"The picture shows seed {bench.seeds[0]}; numbers are over all seeds.")
    return tuple(notes)
