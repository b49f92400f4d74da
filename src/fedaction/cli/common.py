"""What all commands share: consoles, progress, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

err = Console(stderr=True)
out = Console()

JsonFlag = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on standard output.")]
RunDir = Annotated[Path, typer.Argument(help="A run directory.", exists=True, file_okay=False)]


class Bar:
    """Progress on standard error: one bar per run, or per network or part of a command that counts other things."""

    def __init__(self, unit: str = "round") -> None:
        """`unit` is what is counted, in the singular; "": nothing that has a name."""
        self._unit = unit
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[found]}"),
            console=err,
            disable=not err.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._rounds: dict[str, int] = {}

    def __enter__(self) -> Bar:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def started(self, label: str, round: int, rounds: int) -> None:
        """See `runs.single.Progress`."""
        self._rounds[label] = rounds
        unit = f"{self._counted(label)}s" if self._counted(label) else ""
        self._tasks[label] = self._bars.add_task(label, total=rounds, completed=round, found="", unit=unit)

    def advanced(self, label: str, round: int, accuracy: float | None) -> None:
        """See `runs.single.Progress`."""
        task = self._tasks[label]
        self._bars.update(task, completed=round)
        found = "" if accuracy is None else f"{_measure(label)} {accuracy:.1%}"
        if found:
            self._bars.update(task, found=found)
        rounds = self._rounds[label]
        if not err.is_terminal and (round * 10 // rounds > (round - 1) * 10 // rounds):  # in a log: ten lines a run
            what = self._counted(label)
            err.print(f"{label}: {what and f'{what} '}{round} of {rounds}{found and f', {found}'}", highlight=False)

    def _counted(self, label: str) -> str:
        return "" if label.endswith("data") else self._unit  # of data: files or recordings, as they come

    def warned(self, message: str) -> None:
        """See `runs.single.Progress`."""
        self._bars.console.print(f"[yellow]warning:[/yellow] {escape(message)}", highlight=False)


def _measure(label: str) -> str:
    """What the tests of a run measure, by its label: "METHOD" or "METHOD, seed N", in a paper's after "ROW: "."""
    from fedaction.runs.metrics import measure_of  # torch takes seconds to load, and is by now

    if label == "runs":
        return "result"  # of runs of any method, side by side
    return measure_of([label.rpartition(": ")[2].partition(", ")[0]])


def fail(message: str) -> typer.Exit:
    """Prints an error and gives the exit to raise: status 2."""
    err.print(f"[red]error:[/red] {escape(message)}", highlight=False, soft_wrap=True)
    return typer.Exit(2)


def free_folder(parent: Path, name: str) -> Path:
    """The first of NAME-1, NAME-2, ... that is not there yet."""
    number = 1
    while (parent / f"{name}-{number}").exists():
        number += 1
    return parent / f"{name}-{number}"
