"""What all commands share: consoles, progress, errors."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, TypeVar

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
)
from rich.table import Column, Table

from fedaction.cli.pace import Pace, TimeLeftColumn
from fedaction.federation.files import take_folder
from fedaction.federation.progress import CONTROLS, DATA

Loaded = TypeVar("Loaded")
_UNLIMITED = 100_000  # cells in a line of a file
_LOGGED_FROM = 1000  # work on fewer files or recordings has no lines in a log
_SLOW = 5.0  # seconds of a first round, after which a log says how many more there may be
_LOGGED_AFTER = 2.0  # seconds; nor have data and controls that are there sooner

err = Console(stderr=True)
out = Console()

JsonFlag = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on standard output.")]
RunDir = Annotated[Path, typer.Argument(help="A run directory.", exists=True, file_okay=False)]


def bars() -> Progress:
    """Progress bars on standard error. Their tasks have the `unit` of what is counted, a `result` and a `pace`."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
        TimeLeftColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[result]}"),
        console=err,
        disable=not err.is_terminal,
    )


def is_tenth(done: int, total: int) -> bool:
    """Whether one more tenth is done: a log has ten lines where a terminal has a bar."""
    return not err.is_terminal and done * 10 // total > (done - 1) * 10 // total


@contextmanager
def show_progress(label: str, unit: str) -> Generator[Callable[[int, int], None]]:
    """A bar for one piece of work on many `unit`s; gives its callback, called with what is done and what there is."""
    pace = Pace(0, None)
    with bars() as shown:
        task = shown.add_task(label, total=None, unit=unit, result="", pace=pace)

        def progress(done: int, total: int) -> None:
            pace.advance(done, total)
            shown.update(task, completed=done, total=total)
            if total >= _LOGGED_FROM and is_tenth(done, total):
                _log(f"{label}: {done} of {total} {unit}", pace.say_left())

        yield progress


@contextmanager
def show_warnings() -> Generator[None]:
    """Python's warnings as lines on standard error."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_args, **_kwargs: warn(str(message))
        yield


@contextmanager
def exit_on_refusal(*kinds: type[Exception]) -> Generator[None]:
    """What the package refuses (a ValueError, an OSError, or what is given) becomes a printed error, status 2."""
    try:
        yield
    except (ValueError, OSError, *kinds) as error:
        message = error.args[0] if isinstance(error, KeyError) and error.args else error
        raise fail(" ".join([str(message), *getattr(error, "__notes__", [])])) from None


class Bar:
    """A `federation.progress.Progress` on standard error: one bar for each piece of work, ten lines in a log."""

    def __init__(self) -> None:
        self._bars = bars()
        self._work: dict[str, tuple[TaskID, Pace, str, str]] = {}  # by label: its bar, pace, unit and metric

    def __enter__(self) -> Bar:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def start(self, label: str, done: int, total: int, *, unit: str = "", metric: str = "") -> None:
        """See `Progress`."""
        pace = Pace(done, total)
        units = f"{unit}s" if unit else ""
        task = self._bars.add_task(label, total=total, completed=done, result="", unit=units, pace=pace)
        self._work[label] = task, pace, unit, metric

    def advance(self, label: str, done: int, value: float | None = None) -> None:
        """See `Progress`."""
        task, pace, unit, metric = self._work[label]
        before, total = pace.done, pace.total or done
        pace.advance(done)
        self._bars.update(task, completed=done)
        result = "" if value is None else f"{metric} {value:.1%}"
        if result:
            self._bars.update(task, result=result)
        if err.is_terminal:
            return
        tenth = done * 10 // total > before * 10 // total  # data come many at a time
        slow = before == pace.begun and pace.elapsed > _SLOW  # then the first line comes before the first tenth
        quick = label.rpartition(": ")[2].startswith((DATA, CONTROLS)) and pace.elapsed < _LOGGED_AFTER
        if (tenth or slow) and not quick:
            _log(f"{label}: {unit and f'{unit} '}{done} of {total}", result, pace.say_left())

    def tell(self, message: str) -> None:
        """See `Progress`."""
        say(message, err)

    def warn(self, message: str) -> None:
        """See `Progress`."""
        warn(message)


@contextmanager
def report_progress(resume: str, *kinds: type[Exception]) -> Generator[Bar]:
    """A `Bar` for long work, with warnings and refusals as `show_warnings` and `exit_on_refusal` have them.

    Stopped by hand, the command ends with status 130 and says what was done of the work, or how to `resume` it.
    """
    with Bar() as bar, show_warnings(), exit_on_refusal(*kinds):
        try:
            yield bar
        except KeyboardInterrupt:
            warn(f"stopped; {resume}")
            raise typer.Exit(130) from None


def load(read: Callable[..., Loaded], *arguments: Any) -> Loaded:
    """What a function reads, such as a recipe, with warnings and refusals printed."""
    with show_warnings(), exit_on_refusal():
        return read(*arguments)


def join_overrides(overrides: list[str], **options: str) -> list[str]:
    """`--set` texts, followed by those of options that have shorter ways to say them; "" is not said."""
    return [*overrides, *(f"{key}={value}" for key, value in options.items() if value)]


def table_width() -> int | None:
    """Cells that a table may have: a terminal's, or what COLUMNS says; None: in a file, as many as it needs."""
    return out.width if out.is_terminal or os.environ.get("COLUMNS") else None


def show(*tables: Table) -> None:
    """Prints tables as wide as `table_width` says; in a file nothing is cut off."""
    console = Console(width=_UNLIMITED) if table_width() is None else out
    for table in tables:
        console.print(table)


def announce(text: str) -> None:
    """Says on standard error what is being done, before the seconds that it takes to load torch."""
    err.print(f"{text} ...", style="dim", highlight=False, markup=False, soft_wrap=True)


def _log(*parts: str) -> None:
    """One line about work that goes on."""
    say(", ".join(part for part in parts if part), err)


def say(text: str, console: Console = out) -> None:
    """Prints a line as it is: no markup, no colours, no breaks."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def warn(message: str) -> None:
    """Prints a warning on standard error."""
    err.print(f"[yellow]warning:[/yellow] {escape(message)}", highlight=False, soft_wrap=True)


def fail(message: str) -> typer.Exit:
    """Prints an error and gives the exit to raise: status 2."""
    err.print(f"[red]error:[/red] {escape(message)}", highlight=False, soft_wrap=True)
    return typer.Exit(2)


def run_folder(given: Path | None, name: str) -> AbstractContextManager[Path]:
    """The directory of a run: the one that was given, or a new one in `runs` that no other run has."""
    return take_folder(Path("runs"), name) if given is None else nullcontext(given)
