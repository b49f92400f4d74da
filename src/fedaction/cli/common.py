"""What all commands share: consoles, progress, errors."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, TypeVar

import click
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
from typer.core import TyperCommand, TyperGroup

from fedaction.cli.pace import TimeLeftColumn
from fedaction.federation.files import take_folder
from fedaction.federation.loading import load_torch
from fedaction.federation.pace import Pace
from fedaction.federation.processes import is_out_of_memory
from fedaction.federation.progress import CONTROLS, DATA
from fedaction.federation.words import is_text, quote

Loaded = TypeVar("Loaded")
_UNLIMITED = 100_000  # cells in a line of a file
_LOGGED_FROM = 1000  # work on fewer files or recordings has no lines in a log
_SLOW = 5.0  # seconds of a first round, after which a log says how many more there may be
_LOGGED_AFTER = 2.0  # seconds; nor have data and controls that are there sooner
_LONGEST = 4000  # characters of a message; names and numbers in it may be of any length

err = Console(stderr=True)
out = Console()

JsonFlag = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on standard output.")]
RunDir = Annotated[Path, typer.Argument(help="A run directory.", exists=True, file_okay=False)]


def bars() -> Progress:
    """Progress bars on standard error. Their tasks have the `unit` of what is counted, a `result` and a `pace`."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
        TimeLeftColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[result]}", markup=False),
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
    """What the package refuses (a ValueError, an OSError, or what is given) becomes a printed error, status 2.

    So does what it says of an extra that is not installed. Anything else is a fault of the package, and ends with a
    traceback.
    """
    try:
        yield
    except BrokenPipeError:  # nobody reads what is printed any more
        raise
    except (ValueError, OSError, *kinds) as error:
        raise fail(explain(error)) from None
    except ImportError as error:
        if error.name is not None:  # by Python, of a module that should be there
            raise
        raise fail(explain(error)) from None
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        words = " ".join(
            [str(error).strip().split("\n")[0] or "no more is to be had", *getattr(error, "__notes__", [])]
        )
        raise fail(f"memory ran out: {words} (fewer workers, smaller batches or networks need less)") from None


def explain(error: Exception) -> str:
    """What a refusal says, in words."""
    message = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        message = f"{os.fsdecode(error.filename)}: {error.strerror}"
    return " ".join([message, *getattr(error, "__notes__", [])])


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
def report_progress(resume: str | Callable[[], str], *kinds: type[Exception]) -> Generator[Bar]:
    """A `Bar` for long work, with warnings and refusals as `show_warnings` and `exit_on_refusal` have them.

    Stopped (Ctrl-C or SIGTERM), the command says what was done of the work, or how to `resume` it, and ends with
    status 130 or 143. Where the machine stops it (a full disk, no memory, a worker that was killed), it says so, too.
    """

    def say_how() -> str:
        return resume if isinstance(resume, str) else resume()

    with Bar() as bar, show_warnings(), exit_on_refusal(*kinds), exit_when_stopped(say_how):
        try:
            yield bar
        except (OSError, MemoryError, RuntimeError) as error:
            if is_out_of_memory(error) or isinstance(error, ChildProcessError) or _of_disk(error):
                error.add_note(f"Once that is mended: {say_how()}")
            raise


_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG, errno.EACCES)


def _of_disk(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in _DISK


class Stopped(KeyboardInterrupt):
    """SIGTERM: the command ends as with Ctrl-C, after cleaning up, but with the signal's own status."""


def _stop(*_: object) -> None:
    raise Stopped


def listen_for_stops() -> None:
    """From here on SIGTERM raises `Stopped`, as Ctrl-C raises KeyboardInterrupt."""
    signal.signal(signal.SIGTERM, _stop)


def stop_listening() -> None:
    """From here on either ends the process at once: what is left to do is Python's own, and it would show where."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def exit_when_stopped(say_how: Callable[[], str] | None = None) -> Generator[None]:
    """Where somebody stops the command: one message, with how to go on, and status 130 (Ctrl-C) or 143 (SIGTERM)."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise typer.Exit(say_stopped(stop, say_how)) from None


def say_stopped(stop: KeyboardInterrupt, say_how: Callable[[], str] | None = None) -> int:
    """Says in one message that somebody has stopped the command; gives the exit status."""
    warn(f"stopped; {say_how()}" if say_how else "stopped before it was done; nothing half-written is left")
    return 128 + (signal.SIGTERM if isinstance(stop, Stopped) else signal.SIGINT)


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
    """Says on standard error what is being done, and loads torch, which takes seconds."""
    err.print(f"{quote(text)} ...", style="dim", highlight=False, markup=False, soft_wrap=True)
    load_torch()


def _log(*parts: str) -> None:
    """One line about work that goes on."""
    say(", ".join(part for part in parts if part), err)


def say(text: str, console: Console = out) -> None:
    """Prints lines as they are: no markup, no colours, no breaks; control characters of names are spelled out."""
    text = "\n".join(quote(line, len(line)) for line in text.split("\n"))
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _mark(word: str, colour: str, message: str) -> None:
    """Prints a message after a word that says what it is. Whatever is in it, no other of its lines begins so."""
    lines = [quote(line, _LONGEST) for line in message.split("\n")]
    text = escape("\n  ".join(lines))
    err.print(f"[{colour}]{word}:[/{colour}] {text}", highlight=False, soft_wrap=True)


def literal(value: object) -> str:
    """A name as the cell of a table: what looks like markup in it is text, control characters are spelled out."""
    text = str(value)
    return escape(quote(text, len(text)))


def warn(message: str) -> None:
    """Prints a warning on standard error."""
    _mark("warning", "yellow", message)


def fail(message: str) -> typer.Exit:
    """Prints an error and gives the exit to raise: status 2."""
    _mark("error", "red", message)
    return typer.Exit(2)


def run_folder(given: Path | None, name: str) -> AbstractContextManager[Path]:
    """The directory of a run: the one that was given, or a new one in `runs` that no other run has."""
    return take_folder(Path("runs"), name) if given is None else nullcontext(given)


class Command(TyperCommand):
    """A command that is given no pipes, sockets or devices where it takes a file or a folder.

    A pipe that nobody writes to would keep it waiting, a device might never end, and a file that is to be written
    takes the place of what has its name.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Looks at every path that was given, then does the work. Of many files, each is looked at in its turn."""
        for parameter in self.params:
            value = ctx.params.get(parameter.name or "")
            if isinstance(parameter.type, click.Path) and isinstance(value, str | Path):
                refuse_pipe(Path(value))
                if {"--out", "--copy", "--state"} & {*parameter.opts}:
                    refuse_unwritable(Path(value))
        return super().invoke(ctx)


def refuse_pipe(path: Path) -> None:
    """Refuses what is there, and is neither a file nor a folder."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"{path} is neither a file nor a folder, but a pipe, a socket or a device")


def refuse_unwritable(path: Path) -> None:
    """Refuses a place that nothing could be written to, before the work whose result it is for.

    A name that is not UTF-8 could be made, but no JSON file of a run could say it.
    """
    if not is_text(str(path)):
        raise ValueError(f"{path} is not a name in UTF-8: name another place")
    if path.is_symlink() and not path.exists():
        raise ValueError(f"{path} is a link that leads nowhere: name another place")
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir():
        raise ValueError(f"{above} is a file, so that nothing can be written below it: name another place")


class Commands(TyperGroup):
    """All commands. Whatever one of them refuses, and whatever is wrong with its options: one line and status 2."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """See click: with streams that print every name, be it in no known encoding."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        return super().main(*args, **kwargs)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """See click."""
        with exit_on_misuse(), exit_when_stopped():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """See click."""
        with exit_on_misuse(), exit_on_refusal(), exit_when_stopped():
            return super().invoke(ctx)


@contextmanager
def exit_on_misuse() -> Generator[None]:
    """Unknown commands and options, and values that they do not take, become a printed error, status 2."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise  # the help is shown
    except click.UsageError as error:
        where = f"; `{error.ctx.command_path} --help` says what it takes" if error.ctx else ""
        raise fail(f"{error.format_message().rstrip('.')}{where}") from None


class App(typer.Typer):
    """Commands of the kinds above."""

    def __init__(self, **options: Any) -> None:
        super().__init__(cls=Commands, no_args_is_help=True, suggest_commands=False, **options)

    def command(self, name: str | None = None, **options: Any) -> Any:
        """See typer."""
        return super().command(name, cls=Command, **options)


def parse_numbers(text: str, option: str) -> list[float]:
    """Numbers with commas between; none of an empty text."""
    try:
        return [float(part) for part in text.split(",")] if text else []
    except ValueError:
        raise fail(f"{option} takes numbers with commas between, such as 0.01,0.02; got {text!r}") from None


def parse_counts(text: str, option: str) -> list[int]:
    """Whole numbers above 0 with commas between."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isascii() and word.isdecimal() and 0 < int(word) < 10**9 for word in words):
        raise fail(f"{option} takes whole numbers above 0 with commas between, such as 2,4; got {text!r}")
    return [int(word) for word in words]
