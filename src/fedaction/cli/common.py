"""What all commands share: consoles, progress, errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
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
    TimeRemainingColumn,
)

Loaded = TypeVar("Loaded")
_LOGGED_FROM = 1000  # work on fewer files or recordings has no lines in a log

err = Console(stderr=True)
out = Console()

JsonFlag = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on standard output.")]
RunDir = Annotated[Path, typer.Argument(help="A run directory.", exists=True, file_okay=False)]


def bars() -> Progress:
    """Progress bars on standard error. Their tasks have two texts: the `unit` of what is counted, and a `result`."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
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
    with bars() as shown:
        task = shown.add_task(label, total=None, unit=unit, result="")

        def progress(done: int, total: int) -> None:
            shown.update(task, completed=done, total=total)
            if total >= _LOGGED_FROM and is_tenth(done, total):
                say(f"{label}: {done} of {total} {unit}", err)

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
        self._work: dict[str, tuple[TaskID, int, str, str]] = {}  # by label: its bar, total, unit and metric

    def __enter__(self) -> Bar:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def start(self, label: str, done: int, total: int, *, unit: str = "", metric: str = "") -> None:
        """See `Progress`."""
        task = self._bars.add_task(label, total=total, completed=done, result="", unit=f"{unit}s" if unit else "")
        self._work[label] = task, total, unit, metric

    def advance(self, label: str, done: int, value: float | None = None) -> None:
        """See `Progress`."""
        task, total, unit, metric = self._work[label]
        self._bars.update(task, completed=done)
        result = "" if value is None else f"{metric} {value:.1%}"
        if result:
            self._bars.update(task, result=result)
        if is_tenth(done, total):
            say(f"{label}: {unit and f'{unit} '}{done} of {total}{result and f', {result}'}", err)

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


def free_folder(parent: Path, name: str) -> Path:
    """The first of NAME-1, NAME-2, ... that is not there yet."""
    number = 1
    while (parent / f"{name}-{number}").exists():
        number += 1
    return parent / f"{name}-{number}"
