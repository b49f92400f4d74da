"""The `fedaction` command."""

from __future__ import annotations

import json
import re
import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fedaction import __version__
from fedaction.cli.analyse import analyse
from fedaction.cli.bench import bench_app
from fedaction.cli.common import (
    JsonFlag,
    RunDir,
    fail,
    free_folder,
    join_overrides,
    load,
    out,
    report_progress,
    say,
)
from fedaction.cli.data import data_app
from fedaction.cli.distil import distil
from fedaction.cli.evaluate import evaluate
from fedaction.cli.export import export
from fedaction.cli.features import features
from fedaction.cli.paper import paper
from fedaction.cli.predict import predict

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Train and serve human action recognition across people, sites and devices that may not share their data.",
    epilog="Start with `fedaction recipes`, then `fedaction run recipes/fsar/demo.toml`.",
)
app.add_typer(data_app, name="data")
app.add_typer(bench_app, name="bench")


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

    Progress goes to standard error. The run directory gets metrics.jsonl, checkpoints, model files, result.json
    and report.html; a run that was interrupted is resumed with `fedaction resume DIR`.
    """
    from fedaction.runs.recipe import load_recipe

    overrides = join_overrides(overrides, seeds=seeds and f"[{seeds}]", engine=engine, device=device)
    parsed = load(load_recipe, recipe, overrides)
    home = folder or free_folder(Path("runs"), parsed.run.name)
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise fail(
            f"{home} exists and is not empty; choose another --out, or resume it with `fedaction resume {home}`"
        )
    from fedaction.report import run_and_report  # torch takes seconds to load, and `--help` should not wait for it

    _carry_out(partial(run_and_report, parsed, home), home, as_json)


@app.command()
def resume(folder: RunDir, as_json: JsonFlag = False) -> None:
    """Resume a run where it stopped: the result is the same to the last bit."""
    from fedaction.report import resume_and_report

    _carry_out(partial(resume_and_report, folder), folder, as_json)


class Equal(StrEnum):
    """What methods are compared at."""

    ROUNDS = "rounds"
    EPOCHS = "epochs"
    TIME = "time"


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(help="Run directories.", exists=True, file_okay=False)],
    at: Annotated[
        Equal | None,
        typer.Option(help="As they were after equal rounds, local epochs or time of training; default: the end."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show several finished runs, and their baselines, side by side."""
    from fedaction.federation.files import read_json
    from fedaction.runs.budget import COSTS, equalise
    from fedaction.runs.judge import judge

    studies: list[dict[str, Any]] = []
    for folder in folders:
        path = folder / "result.json"
        if not path.exists():
            raise fail(f"{folder} has no result.json; is it a finished run? `fedaction resume {folder}` finishes one")
        studies.append(read_json(path))
    when = ""
    if at is not None:
        budget, studies = load(equalise, folders, studies, at.value)
        when = f" after {budget:.4g} {COSTS[at.value]}"
    warnings = judge(studies)
    if as_json:
        runs = [run for study in studies for run in (study, *study.get("baselines", {}).values())]
        print(json.dumps({"runs": runs, "warnings": warnings}))
        return
    out.print(_table(studies, "run", when))
    _say_warnings(warnings)


@app.command()
def report(
    folder: RunDir,
    to: Annotated[Path | None, typer.Option("--out", help="Where to write it; default: DIR/report.html.")] = None,
) -> None:
    """Write a run's report: one HTML file that opens offline."""
    from fedaction.report import write_report

    say(str(load(write_report, folder, to)))


for _command in (analyse, paper, features, distil, evaluate, export, predict):
    app.command()(_command)


@app.command()
def recipes(
    words: Annotated[
        list[str], typer.Argument(help="With --keys: only those of a method, a kind of data, a command, or one key.")
    ] = [],  # noqa: B006
    keys: Annotated[bool, typer.Option("--keys", help="List every key a recipe may have, with its default.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List the recipes in ./recipes, with what each one is; or the keys of recipes.

    `fedaction recipes --keys` lists all keys: of runs, of every kind of data and method, of `distil` and `evaluate`.
    `--keys fsar`, `--keys stage_video`, `--keys distil` or `--keys lr` narrow it.
    """
    if keys:
        _show_keys(words)
        return
    if words:
        raise fail(f"{words[0]!r}: words narrow the list of keys; say `fedaction recipes --keys {words[0]}`")
    listed: list[dict[str, str]] = []
    for path in sorted(Path("recipes").rglob("*.toml")):
        first = path.read_text(encoding="utf-8").splitlines()[:1]
        listed.append({"recipe": str(path), "about": first[0].lstrip("# ") if first else ""})
    if not listed:
        raise fail("there is no folder `recipes` here; run this from a checkout of the project")
    if as_json:
        print(json.dumps({"recipes": listed}))
        return
    table = Table("recipe", "what it is", box=None)
    for item in listed:
        table.add_row(item["recipe"], item["about"])
    out.print(table)


def _show_keys(words: list[str]) -> None:
    from fedaction.federation.settings import nearest
    from fedaction.runs.recipe import all_keys
    from fedaction.training.distil_recipe import DistilSettings
    from fedaction.training.evaluate_recipe import EvaluateSettings

    groups = all_keys() | {"distil": DistilSettings.model_fields, "evaluate": EvaluateSettings.model_fields}
    names = {word for reader in groups for word in re.findall(r"\w+", reader)} - {"data", "method"}
    single = {key for fields in groups.values() for key in fields}
    for word in words:
        if word not in names | single:
            raise fail(f"no method, kind of data, command or key is called {word!r}{nearest(word, names | single)}")
    for reader, fields in groups.items():
        whole = not words or any(word in re.findall(r"\w+", reader) for word in words if word in names)
        shown = {key: field for key, field in fields.items() if whole or key in words}
        if not shown:
            continue
        table = Table("key", "default", "what it is", title=reader, title_justify="left", box=None)
        for key, field in shown.items():
            default = "(must be given)" if field.is_required() else json.dumps(field.default)
            table.add_row(key, escape(default), escape(field.description or ""))
        out.print(table, "")


def _carry_out(work: Any, folder: Path, as_json: bool) -> None:
    with report_progress(f"`fedaction resume {folder}` resumes from the last checkpoint", KeyError) as bar:
        result = work(bar)
    if as_json:
        print(json.dumps(result))
        return
    out.print(_table([result], "method"))
    _say_warnings(result["warnings"])
    from fedaction.runs.deploy import describe_models

    if models := describe_models(Path(result["run"])):
        say(models)
    say(f"report: {Path(result['run']) / 'report.html'}")


def _say_warnings(texts: list[str]) -> None:
    """Below a table, so that whoever keeps the table keeps them."""
    for text in texts:
        say(f"warning: {text}")


def _table(studies: list[dict[str, Any]], key: str, when: str = "") -> Table:
    """Clients down, runs across: a federation has more clients than a terminal has room for columns."""
    from fedaction.runs.metrics import metric_name

    results = [run for study in studies for run in (study, *study.get("baselines", {}).values())]
    table = Table(title=f"test {metric_name(result['method'] for result in results)}{when}, %")
    table.add_column("client", overflow="fold")
    columns: list[dict[str, float | None]] = []
    feet: list[dict[str, str]] = []
    for study in studies:
        for result in (study, *study.get("baselines", {}).values()):
            name = result["run"] if key == "run" else ""
            table.add_column(_join(result["method"], name), justify="right", overflow="fold")
            columns.append(result["clients"])
            feet.append(_foot(result))
        for name, control in study.get("controls", {}).items():
            table.add_column(name, justify="right", overflow="fold")
            columns.append(control["clients"])
            feet.append({"mean": f"{100 * control['mean']:.1f}"})
    counts = {client: n for result in results for client, n in result.get("n", {}).items()}
    if counts:
        table.add_column("n", justify="right")
    for client in dict.fromkeys(client for result in results for client in result["clients"]):
        values = ["" if (v := column.get(client)) is None else f"{100 * v:.1f}" for column in columns]
        table.add_row(escape(client), *values, *([str(counts.get(client, ""))] if counts else []))
    table.add_section()
    for label in feet[0]:  # rows, not a footer of many lines: a line that is folded moves its whole row
        more = [str(sum(counts.values())) if label == "mean" else ""] if counts else []
        table.add_row(label, *(foot.get(label, "") for foot in feet), *more)
    return table


def _foot(result: dict[str, Any]) -> dict[str, str]:
    """What a run's column ends with, by the row's name."""
    spread = "" if result["std"] is None else f" ± {100 * result['std']:.1f}"
    scores = {"balanced": result.get("balanced_accuracy"), "macro-F1": result.get("macro_f1")}
    traffic = {"MB up": result["bytes_up"], "MB down": result["bytes_down"]}
    return {
        "mean": f"{100 * result['mean']:.1f}{spread}",
        "95 % interval": " to ".join(f"{100 * bound:.0f}" for bound in result.get("interval") or ()),
        **{label: "" if score is None else f"{100 * score:.1f}" for label, score in scores.items()},
        **{label: "" if size is None else f"{size / 1e6:.1f}" for label, size in traffic.items()},
        "seconds": f"{result['seconds']:.0f}",
    }


def _join(*lines: str) -> str:
    """Lines of one cell, as they are, without empty ones."""
    return "\n".join(escape(line) for line in lines if line)


def main() -> None:
    """Entry point."""
    try:
        app()
    except BrokenPipeError:
        sys.exit(1)
