"""Tables of results: clients down, runs across, on a terminal of any width, in a file, or as CSV."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.table import Table

from fedaction.cli.common import literal
from fedaction.federation.order import order_names

MOST_ROWS = 60
"""Clients that a terminal shows one by one; of more it shows quantiles."""
_PADDING = 3  # cells between two columns: two of padding, one of border

Study = Mapping[str, Any]
"""A study's result.json, see `runs.study.RunResult`."""


@dataclass(frozen=True)
class ResultColumn:
    """A run, or a control, in a table of results."""

    method: str
    run: str
    clients: Mapping[str, float | None]
    feet: Mapping[str, str]

    def cells(self, rows: Mapping[str, Sequence[str]]) -> list[str]:
        """Per cent, by row: of one client, or the quantile over all that a row is named after."""
        if not rows:
            known = sorted(value for value in self.clients.values() if value is not None)
            return [_percent(value) for value in _quantiles(known)] if known else [""] * len(QUANTILES)
        return [_percent(self.clients.get(client)) for client in rows]


QUANTILES = ("worst client", "10 % of clients below", "median client", "10 % of clients above", "best client")


def result_tables(
    studies: Sequence[Study], *, named: bool = False, when: str = "", width: int | None = None
) -> Iterator[Table]:
    """The results of studies, their baselines and controls: one table, or several that fit a terminal's width.

    Args:
        studies: results.
        named: whether columns say which run they are of.
        when: what the title adds.
        width: of the terminal; None: no limit, and every client has its row.
    """
    from fedaction.runs.metrics import metric_name

    columns = list(_columns(studies, named))
    results = [run for study in studies for run in (study, *study.get("baselines", {}).values())]
    counts = {client: n for result in results for client, n in result.get("n", {}).items()}
    tests = {client: test for result in results for client, test in result.get("tests", {}).items()}
    apart = {tests.get(client) or (client,): n for client, n in counts.items()}  # those of one test count once
    names = order_names(client for result in results for client in result["clients"])
    short = width is not None and len(names) > MOST_ROWS
    rows = {} if short else {name: [str(counts.get(name, ""))] for name in names}
    labels = [*(QUANTILES if short else names), *columns[0].feet]
    title = f"test {metric_name(result['method'] for result in results)}{when}, %"
    room = None if width is None else width - max(map(cell_len, labels)) - _PADDING - 1 - (8 if counts else 0)
    for part in _fit(columns, rows, room):
        table = Table(title=title)
        table.add_column("client", overflow="fold")
        for column in part:
            table.add_column(_head(column), justify="right", overflow="fold")
        if counts:
            table.add_column("n", justify="right")
        cells = [column.cells(rows) for column in part]
        for place, name in enumerate(QUANTILES if short else names):
            n = ["" if short else rows[name][0]] if counts else []
            table.add_row(literal(name), *(own[place] for own in cells), *n)
        table.add_section()
        for label in columns[0].feet:  # rows, not a footer of many lines: a line that is folded moves its whole row
            n = [str(sum(apart.values())) if label == "mean" else ""] if counts else []
            table.add_row(label, *(column.feet.get(label, "") for column in part), *n)
        if short:
            table.caption = f"{len(names)} clients; into a file or with --csv, each has its row"
        yield table


def result_csv(studies: Sequence[Study]) -> str:
    """One line for each client of each run: run, method, client, test samples, accuracy (a share, 0 to 1)."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "method", "client", "n", "accuracy"])
    for study in studies:
        counts: dict[str, int] = study.get("n", {})
        for column in _columns([study], named=True):
            for client in order_names(column.clients):
                value = column.clients[client]
                row = [column.run or study["run"], column.method, client, counts.get(client, "")]
                writer.writerow([*row, "" if value is None else value])
    return text.getvalue()


def _columns(studies: Sequence[Study], named: bool) -> Iterator[ResultColumn]:
    """Every run's, with the study that it is of, then the controls of all of them, equal ones once."""
    controls: list[ResultColumn] = []
    for study in studies:
        for result in (study, *study.get("baselines", {}).values()):
            yield ResultColumn(result["method"], study["run"] if named else "", result["clients"], _feet(result))
        for name, control in study.get("controls", {}).items():
            column = ResultColumn(name, "", control["clients"], {"mean": _percent(control["mean"])})
            if column not in controls:
                controls.append(column)
    yield from controls


def _fit(
    columns: list[ResultColumn], rows: Mapping[str, Sequence[str]], room: int | None
) -> Iterator[list[ResultColumn]]:
    """Columns in parts that fit side by side; one that is too wide by itself is a part of its own."""
    part: list[ResultColumn] = []
    used = 0
    for column in columns:
        texts = [*_head(column).split("\n"), *column.cells(rows), *column.feet.values()]
        wide = max(map(cell_len, texts)) + _PADDING
        if part and room is not None and used + wide > room:
            yield part
            part, used = [], 0
        part.append(column)
        used += wide
    yield part


def _head(column: ResultColumn) -> str:
    return "\n".join(literal(line) for line in (column.method, column.run) if line)


def _feet(result: Study) -> dict[str, str]:
    """What a run's column ends with, by the row's name."""
    spread = "" if result["std"] is None else f" ± {100 * result['std']:.1f}"
    scores = {"balanced": result.get("balanced_accuracy"), "macro-F1": result.get("macro_f1")}
    traffic = {"MB up": result["bytes_up"], "MB down": result["bytes_down"]}
    return {
        "mean": f"{100 * result['mean']:.1f}{spread}",
        "95 % interval": " to ".join(f"{100 * bound:.0f}" for bound in result.get("interval") or ()),
        **{label: _percent(score) for label, score in scores.items()},
        **{label: "" if size is None else f"{size / 1e6:.1f}" for label, size in traffic.items()},
        "seconds": f"{result['seconds']:.0f}",
    }


def _quantiles(ordered: list[float]) -> list[float]:
    """The least, the 10 % point, the median, the 90 % point and the greatest of ordered values."""
    if len(ordered) < 2:
        return ordered * len(QUANTILES)
    tenths = statistics.quantiles(ordered, n=10, method="inclusive")
    return [ordered[0], tenths[0], tenths[4], tenths[8], ordered[-1]]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"
