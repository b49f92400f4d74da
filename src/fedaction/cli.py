"""The `fedaction` command."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

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
from rich.table import Table

from fedaction import __version__

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Train and serve human action recognition across people, sites and devices that may not share their data.",
    epilog="Start with `fedaction recipes`, then `fedaction run recipes/fsar/demo.toml`.",
)
data_app = typer.Typer(no_args_is_help=True, help="Look at and bring in data.")
bench_app = typer.Typer(no_args_is_help=True, help="Measure speed: ratios within one run.")
app.add_typer(data_app, name="data")
app.add_typer(bench_app, name="bench")

err = Console(stderr=True)
out = Console()

JsonFlag = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on standard output.")]
RunDir = Annotated[Path, typer.Argument(help="A run directory.", exists=True, file_okay=False)]


class Bar:
    """Progress on standard error: one bar per run."""

    def __init__(self) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[accuracy]}"),
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
        self._tasks[label] = self._bars.add_task(label, total=rounds, completed=round, accuracy="")

    def advanced(self, label: str, round: int, accuracy: float | None) -> None:
        """See `runs.single.Progress`."""
        task = self._tasks[label]
        self._bars.update(task, completed=round)
        if accuracy is not None:
            self._bars.update(task, accuracy=f"accuracy {accuracy:.1%}")
        rounds = self._rounds[label]
        if not err.is_terminal and (round * 10 // rounds > (round - 1) * 10 // rounds):  # in a log: ten lines a run
            said = "" if accuracy is None else f", accuracy {accuracy:.1%}"
            err.print(f"{label}: round {round} of {rounds}{said}", highlight=False)

    def warned(self, message: str) -> None:
        """See `runs.single.Progress`."""
        self._bars.console.print(f"[yellow]warning:[/yellow] {escape(message)}", highlight=False)


def fail(message: str) -> typer.Exit:
    """Prints an error and gives the exit to raise: status 2."""
    err.print(f"[red]error:[/red] {escape(message)}", highlight=False, soft_wrap=True)
    return typer.Exit(2)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        out.print(__version__)
        raise typer.Exit


@app.command()
def run(
    recipe: Annotated[Path, typer.Argument(help="A recipe: one flat TOML file.")],
    overrides: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a key.")] = [],  # noqa: B006
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0,1,2: mean and standard deviation are over them.")] = "",
    engine: Annotated[str, typer.Option(help="sequential or vectorised.")] = "",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "",
    folder: Annotated[Path | None, typer.Option("--out", help="Run directory; default: runs/NAME-N.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a recipe: its method, beside its baselines, over its seeds.

    Progress goes to standard error. The run directory gets metrics.jsonl, checkpoints, result.json and report.html;
    a run that was interrupted goes on with `fedaction resume DIR`.
    """
    from fedaction.runs.recipe import RecipeError, load_recipe

    if seeds:
        overrides = [*overrides, f"seeds=[{seeds}]"]
    overrides = [*overrides, *(f'{k}="{v}"' for k, v in {"engine": engine, "device": device}.items() if v)]
    try:
        parsed = load_recipe(recipe, overrides)
    except RecipeError as error:
        raise fail(str(error)) from None
    home = folder or _free(Path("runs"), parsed.run.name)
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise fail(f"{home} exists and is not empty; choose another --out, or go on with `fedaction resume {home}`")
    _carry_out(lambda bar: _study().run_study(parsed, home, bar), home, as_json)


@app.command()
def resume(folder: RunDir, as_json: JsonFlag = False) -> None:
    """Go on with a run where it stopped: the result is the same to the last bit."""
    _carry_out(lambda bar: _study().resume_study(folder, bar), folder, as_json)


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(help="Run directories.", exists=True, file_okay=False)],
    as_json: JsonFlag = False,
) -> None:
    """Show several finished runs, and their baselines, side by side."""
    from fedaction.runs.files import read_json

    results: list[dict[str, Any]] = []
    for folder in folders:
        path = folder / "result.json"
        if not path.exists():
            raise fail(f"{folder} has no result.json; is it a finished run? `fedaction resume {folder}` finishes one")
        found = read_json(path)
        results += [found, *found.get("baselines", {}).values()]
    if as_json:
        print(json.dumps({"runs": results}))
    else:
        out.print(_table(results, "run"))


@app.command()
def report(
    folder: RunDir,
    to: Annotated[Path | None, typer.Option("--out", help="Where to write it; default: DIR/report.html.")] = None,
) -> None:
    """Write a run's report: one HTML file that opens offline."""
    from fedaction.runs.report import write_report

    try:
        out.print(str(write_report(folder, to)), highlight=False, soft_wrap=True)
    except (ValueError, OSError) as error:
        raise fail(str(error)) from None


@app.command()
def recipes(
    keys: Annotated[bool, typer.Option("--keys", help="List every key a recipe may have, with its default.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List the recipes in ./recipes, with what each one is; or the keys of recipes."""
    if keys:
        _show_keys()
        return
    found: list[dict[str, str]] = []
    for path in sorted(Path("recipes").rglob("*.toml")):
        first = path.read_text(encoding="utf-8").splitlines()[:1]
        found.append({"recipe": str(path), "about": first[0].lstrip("# ") if first else ""})
    if not found:
        raise fail("there is no folder `recipes` here; run this from a checkout of the project")
    if as_json:
        print(json.dumps({"recipes": found}))
        return
    table = Table("recipe", "what it is", box=None)
    for item in found:
        table.add_row(item["recipe"], item["about"])
    out.print(table)


@data_app.command("list")
def data_list(as_json: JsonFlag = False) -> None:
    """List the skeleton layouts, and the actions of the embedded stage."""
    from fedaction.data.layout import LAYOUTS
    from fedaction.data.stage import NAMES

    if as_json:
        print(json.dumps({"layouts": [item.to_dict() for item in LAYOUTS.values()], "stage_actions": list(NAMES)}))
        return
    table = Table("layout", "joints", "centre", "first joints", box=None)
    for item in LAYOUTS.values():
        table.add_row(item.name, str(len(item)), item.joints[item.centre], ", ".join(item.joints[:4]) + ", ...")
    out.print(table)
    out.print(f"\n{len(NAMES)} actions on the stage: {', '.join(NAMES)}", highlight=False)


LayoutOption = Annotated[str, typer.Option(help="A built-in layout's name, or a JSON file with joints and edges.")]
SubjectOption = Annotated[
    str,
    typer.Option(help="Folders: a regular expression that finds the person in a file's name, such as `_s([0-9]+)_`."),
]


@data_app.command("inspect")
def data_inspect(
    path: Annotated[
        Path, typer.Argument(help="An imported dataset, an .npz file, or a folder per class.", exists=True)
    ],
    layout: LayoutOption = "",
    subject: SubjectOption = "",
) -> None:
    """Say what a dataset holds and what is wrong with it. Writes nothing."""
    from fedaction.data import imports

    try:
        out.print(
            str(imports.inspect(path, layout=layout or None, subject=subject or None)), highlight=False, markup=False
        )
    except (ValueError, OSError) as error:
        raise fail(str(error)) from None


@data_app.command("import")
def data_import(
    source: Annotated[Path, typer.Argument(help="An .npz file with x and y, or a folder per class.", exists=True)],
    layout: LayoutOption,
    to: Annotated[Path, typer.Option("--out", help="The dataset's new folder.")],
    subject: SubjectOption = "",
    coordinates: Annotated[int, typer.Option(min=2, max=3, help="Folders: numbers per joint in text files.")] = 3,
    rate: Annotated[float | None, typer.Option(min=0.1, help="Frames a second.")] = None,
    scale: Annotated[float, typer.Option(help="Factor to metres: 0.001 for millimetres.")] = 1.0,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse the whole source if anything in it is faulty.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a dataset at --out.")] = False,
) -> None:
    """Bring in recordings of your own; use them in a recipe with data = "store" and store_paths = [DIR].

    NaN frames, empty recordings and wrong joint counts are counted and named, never silently used.
    """
    from fedaction.data import imports

    common: dict[str, Any] = {
        "layout": layout,
        "rate_hz": rate,
        "scale": scale,
        "strict": strict,
        "overwrite": overwrite,
    }
    try:
        if source.is_dir():
            found = imports.import_folder(source, to, subject=subject or None, coordinates=coordinates, **common)
        else:
            found = imports.import_arrays(source, to, **common)
    except (ValueError, OSError) as error:
        raise fail(str(error)) from None
    out.print(str(found), highlight=False, markup=False)
    out.print(f"imported to {to}", highlight=False, soft_wrap=True)


@bench_app.command("loop")
def bench_loop(
    clients: Annotated[int, typer.Option(min=1, help="Clients per round.")] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="Timed turns of each contender.")] = 3,
    as_json: JsonFlag = False,
) -> None:
    """The sequential engine against a bare PyTorch loop over the same clients and batches (1.00 = as fast)."""
    from fedaction.runs import bench

    with err.status("measuring") as status:
        result = bench.bench_loop(clients, rounds, lambda what: status.update(what))
    if as_json:
        print(json.dumps(result))
        return
    table = Table("clients", "parameters", "bare loop, s", "one worker", f"{result['workers']} workers", box=None)
    for name, found in result["workloads"].items():
        table.add_row(
            f"{clients} x {name}",
            f"{found['parameters']:,}",
            f"{found['seconds_bare']:.2f}",
            f"{found['ratio_one_worker']:.2f}",
            f"{found['ratio_all_workers']:.2f}",
        )
    out.print(table)


@bench_app.command("engines")
def bench_engines(
    clients: Annotated[int, typer.Option(min=1, help="Clients per round.")] = 100,
    rounds: Annotated[int, typer.Option(min=1, help="Timed turns of each engine.")] = 3,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    compiled: Annotated[bool, typer.Option("--compile", help="Fuse the stacked step with torch.compile.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """The vectorised engine against the sequential one, on many small ST-GCN clients."""
    from fedaction.runs import bench
    from fedaction.runs.single import choose_device

    with err.status("measuring") as status:
        result = bench.bench_engines(
            clients, rounds, choose_device(device), compiled, lambda what: status.update(what)
        )
    if as_json:
        print(json.dumps(result))
        return
    for name, speed in result["samples_per_second"].items():
        out.print(f"{name}: {speed:,.0f} samples/s on {result['device']}", highlight=False)
    out.print(f"speed-up: {result['speed_up']:.1f}", highlight=False)


def _show_keys() -> None:
    from fedaction.runs.recipe import all_keys

    for reader, fields in all_keys().items():
        table = Table("key", "default", "what it is", title=reader, title_justify="left", box=None)
        for key, field in fields.items():
            default = "(must be given)" if field.is_required() else json.dumps(field.default)
            table.add_row(key, escape(default), escape(field.description or ""))
        out.print(table, "")


def _study() -> Any:
    # Imported late: torch takes seconds to load, and `--help` should not wait for it.
    from fedaction.runs import study

    return study


def _carry_out(work: Any, folder: Path, as_json: bool) -> None:
    with Bar() as bar, warnings.catch_warnings():
        warnings.showwarning = lambda message, *_args, **_kwargs: bar.warned(str(message))
        try:
            result = work(bar)
        except (ValueError, OSError, KeyError) as error:
            message = error.args[0] if isinstance(error, KeyError) and error.args else error
            raise fail(" ".join([str(message), *getattr(error, "__notes__", [])])) from None
        except KeyboardInterrupt:
            bar.warned(f"stopped; `fedaction resume {folder}` goes on from the last checkpoint")
            raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(result))
        return
    out.print(_table([result, *result["baselines"].values()], "method"))
    out.print(f"report: {Path(result['run']) / 'report.html'}", highlight=False, soft_wrap=True)


def _table(results: list[dict[str, Any]], key: str) -> Table:
    """Clients down, runs across: a federation has more clients than a terminal has room for columns."""
    table = Table(title=f"test {results[0]['metric']}, %", show_footer=True)
    clients = list(dict.fromkeys(client for result in results for client in result["clients"]))
    table.add_column("client", footer="mean\nMB up\nMB down\nseconds")
    for result in results:
        spread = "" if result["std"] is None else f" ± {100 * result['std']:.1f}"
        traffic = f"{result['bytes_up'] / 1e6:.1f}\n{result['bytes_down'] / 1e6:.1f}"
        footer = f"{100 * result['mean']:.1f}{spread}\n{traffic}\n{result['seconds']:.0f}"
        label = f"{result['method']}\n{result['run']}" if key == "run" else result["method"]
        table.add_column(label, footer, justify="right", overflow="fold")
    for client in clients:
        values = (result["clients"].get(client) for result in results)
        table.add_row(client, *("" if value is None else f"{100 * value:.1f}" for value in values))
    return table


def _free(parent: Path, name: str) -> Path:
    number = 1
    while (parent / f"{name}-{number}").exists():
        number += 1
    return parent / f"{name}-{number}"


def main() -> None:
    """Entry point."""
    try:
        app()
    except BrokenPipeError:
        sys.exit(1)
