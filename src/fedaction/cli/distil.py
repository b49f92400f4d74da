"""`fedaction distil`: a small network taught by a large one, through assistants."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as Remaining
from rich.table import Table

from fedaction.cli.common import JsonFlag, err, fail, free_folder, out

if TYPE_CHECKING:
    from fedaction.runs.distil import DistilResult


def distil(
    recipe: Annotated[Path, typer.Argument(help="A recipe (one flat TOML file), or a directory to go on with.")],
    overrides: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a key.")] = [],  # noqa: B006
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0,1,2: one chain for each.")] = "",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "",
    folder: Annotated[Path | None, typer.Option("--out", help="Directory; default: runs/NAME-N.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Train a teacher, then each assistant, then the student, every one taught by the one before it.

    Progress goes to standard error. The directory gets a folder for each network, with model.safetensors and
    metrics.jsonl, and result.json. One that was interrupted goes on with `fedaction distil DIR`; what is finished
    in it is not done again.
    """
    from fedaction.runs.distil import run_distil  # torch takes seconds to load
    from fedaction.runs.distil_recipe import load_distil_recipe

    if recipe.is_dir():
        if not (recipe / "recipe.toml").exists():
            raise fail(f"{recipe} is not a directory of a distillation: it has no recipe.toml")
        folder, recipe = folder or recipe, recipe / "recipe.toml"
    overrides = [*overrides, *([f"seeds=[{seeds}]"] if seeds else []), *([f'device="{device}"'] if device else [])]
    home = folder
    with _Epochs() as bar, warnings.catch_warnings():
        warnings.showwarning = lambda message, *_args, **_kwargs: bar.warned(str(message))
        try:
            parsed = load_distil_recipe(recipe, overrides)
            home = home or free_folder(Path("runs"), parsed.settings.name)
            result = run_distil(parsed, home, bar)
        except (ValueError, OSError) as error:
            raise fail(str(error)) from None
        except KeyboardInterrupt:
            bar.warned(f"stopped; `fedaction distil {home}` goes on from the last checkpoint")
            raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(result))
        return
    out.print(_table(result))
    out.print(f"models and results: {home}", highlight=False, markup=False, soft_wrap=True)


class _Epochs:
    """Progress on standard error: one bar per network. A `runs.single.Progress` that counts epochs."""

    def __init__(self) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("epochs"),
            TimeElapsedColumn(),
            Remaining(),
            TextColumn("{task.fields[accuracy]}"),
            console=err,
            disable=not err.is_terminal,
        )
        self._tasks: dict[str, tuple[TaskID, int]] = {}

    def __enter__(self) -> _Epochs:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def started(self, label: str, round: int, rounds: int) -> None:
        """See `runs.single.Progress`."""
        self._tasks[label] = (self._bars.add_task(label, total=rounds, completed=round, accuracy=""), rounds)

    def advanced(self, label: str, round: int, accuracy: float | None) -> None:
        """See `runs.single.Progress`."""
        task, rounds = self._tasks[label]
        self._bars.update(task, completed=round)
        if accuracy is not None:
            self._bars.update(task, accuracy=f"accuracy {accuracy:.1%}")
        if not err.is_terminal and (round * 10 // rounds > (round - 1) * 10 // rounds):  # in a log: ten lines each
            said = "" if accuracy is None else f", accuracy {accuracy:.1%}"
            err.print(f"{label}: epoch {round} of {rounds}{said}", highlight=False)

    def warned(self, message: str) -> None:
        """See `runs.single.Progress`."""
        self._bars.console.print(f"[yellow]warning:[/yellow] {escape(message)}", highlight=False)


def _table(result: DistilResult) -> Table:
    table = Table("seed", "network", "parameters", "taught by", "epochs", "per clip", "per video", "seconds")
    for column in table.columns[2:3] + table.columns[4:]:
        column.justify = "right"
    table.title = f"test accuracy, %, width {result['width']}"
    for seed, stages in result["stages"].items():
        for stage in stages:
            table.add_row(
                seed,
                f"ResNet-{stage['depth']} ({stage['role']})",
                f"{stage['parameters']:,}",
                stage["teacher"] or "",
                str(stage["epochs"] or "given"),
                f"{100 * stage['clip_accuracy']:.1f}",
                f"{100 * stage['video_accuracy']:.1f}",
                f"{stage['seconds']:.0f}",
            )
    return table
