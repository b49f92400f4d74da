"""The `fedaction` command."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fedaction import __version__
from fedaction.cli.analyse import analyse
from fedaction.cli.bench import bench_app
from fedaction.cli.common import (
    App,
    JsonFlag,
    RunDir,
    announce,
    err,
    fail,
    join_overrides,
    listen_for_stops,
    load,
    out,
    report_progress,
    run_folder,
    say,
    say_stopped,
    show,
    stop_listening,
    table_width,
)
from fedaction.cli.data import data_app
from fedaction.cli.distil import distil
from fedaction.cli.doctor import doctor
from fedaction.cli.evaluate import evaluate
from fedaction.cli.export import export
from fedaction.cli.features import features
from fedaction.cli.init import init
from fedaction.cli.join import join
from fedaction.cli.keys import keys_app
from fedaction.cli.paper import paper
from fedaction.cli.predict import predict
from fedaction.cli.rates import rates
from fedaction.cli.recipes import recipes
from fedaction.cli.results import result_csv, result_tables
from fedaction.cli.serve import serve
from fedaction.cli.status import status
from fedaction.cli.study import study_app
from fedaction.federation.files import is_empty
from fedaction.federation.recipes import find_recipe

ProfileFlag = Annotated[
    bool,
    typer.Option(
        "--profile", help="Say where the time goes, and write profile.json. A GPU is then waited for at every step."
    ),
]
_MOST_DIGITS = 9  # of a number of rounds

app = App(
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Train and serve human action recognition across people, sites and devices that may not share their data.",
    epilog="Start with `fedaction recipes`, then `fedaction run fsar/demo`.",
)
app.add_typer(data_app, name="data")
app.add_typer(bench_app, name="bench")
app.add_typer(keys_app, name="keys")
app.add_typer(study_app, name="study")


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        out.print(__version__)
        raise typer.Exit


@app.command()
def run(
    recipe: Annotated[Path, typer.Argument(help="A recipe: its name, such as fsar/demo, or a TOML file.")],
    overrides: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a key.")] = [],  # noqa: B006
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0,1,2: mean and standard deviation are over them.")] = "",
    engine: Annotated[str, typer.Option(help="auto, sequential or vectorised.")] = "",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "",
    folder: Annotated[Path | None, typer.Option("--out", help="Run directory; default: runs/NAME-N.")] = None,
    profiled: ProfileFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a recipe: its method, beside its baselines, over its seeds.

    Progress goes to standard error. The run directory gets metrics.jsonl, checkpoints, model files, result.json
    and report.html; a run that was interrupted is resumed with `fedaction resume DIR`.
    """
    load(find_recipe, recipe)  # a name that is wrong is said at once
    announce(f"loading PyTorch and the recipe {recipe}")
    from fedaction.runs.recipe import load_recipe

    overrides = join_overrides(overrides, seeds=seeds and f"[{seeds}]", engine=engine, device=device)
    parsed = load(load_recipe, recipe, overrides)
    with run_folder(folder, parsed.run.name) as home:
        if home.exists() and (not home.is_dir() or not is_empty(home)):
            raise fail(
                f"{home} exists and is not empty; choose another --out, or resume it with `fedaction resume {home}`"
            )
        say(f"run directory: {home}", err)
        from fedaction.report import run_and_report

        _carry_out(partial(run_and_report, parsed, home), home, as_json, profiled)


@app.command()
def resume(
    folder: RunDir,
    longer: Annotated[
        str, typer.Option("--extend", metavar="rounds=N", help="Make the run longer first; its result says so.")
    ] = "",
    profiled: ProfileFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Resume a run where it stopped: the result is the same to the last bit.

    A run whose recipe, seed, data or metrics are not those that it was begun with is refused; evidence, model files
    and the report, which follow from them, are made again where they are missing, damaged or of another round.
    """
    rounds = _read_rounds(longer)
    announce(f"loading PyTorch and {folder}")
    from fedaction.report import resume_and_report

    _carry_out(partial(resume_and_report, folder, rounds=rounds), folder, as_json, profiled)


def _read_rounds(longer: str) -> int:
    """The number in "rounds=60"; 0 where nothing is said."""
    key, _, number = (part.strip() for part in longer.partition("="))
    if longer and (key != "rounds" or not number.isascii() or not number.isdecimal()):
        raise fail(f"--extend takes rounds=NUMBER, such as rounds=60, got {longer!r}")
    if len(number) > _MOST_DIGITS:
        raise fail(f"--extend: a number of {len(number)} digits is more rounds than a run can have")
    return int(number) if longer else 0


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
    as_csv: Annotated[bool, typer.Option("--csv", help="Print one line of CSV for each client of each run.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show several finished runs, and their baselines, side by side."""
    from fedaction.runs.budget import COSTS, equalise
    from fedaction.runs.judge import judge
    from fedaction.runs.result import read_result
    from fedaction.runs.standing import check_study

    notes: list[str] = []
    studies: list[dict[str, Any]] = []
    for folder in folders:
        result = load(read_result, folder)
        load(check_study, folder, notes.append)
        studies.append(result)
    when = ""
    if at is not None:
        budget, studies = load(equalise, folders, studies, at.value)
        when = f" after {budget:.4g} {COSTS[at.value]}"
    warnings = [*notes, *judge(studies)]
    if as_json:
        runs = [run for study in studies for run in (study, *study.get("baselines", {}).values())]
        print(json.dumps({"runs": runs, "warnings": warnings}))
        return
    if as_csv:
        print(result_csv(studies), end="")
        return
    show(*result_tables(studies, named=True, when=when, width=table_width()))
    _say_warnings(warnings)


@app.command()
def report(
    folder: RunDir,
    to: Annotated[Path | None, typer.Option("--out", help="Where to write it; default: DIR/report.html.")] = None,
) -> None:
    """Write a run's report: one HTML file that opens offline."""
    from fedaction.report import is_report, write_report

    if to is not None and to.exists() and not is_report(to):
        raise fail(f"{to} exists and is no report; choose another --out")
    say(str(load(write_report, folder, to)))


for _command in (
    analyse,
    rates,
    paper,
    features,
    distil,
    evaluate,
    export,
    predict,
    serve,
    join,
    status,
    recipes,
    init,
    doctor,
):
    app.command()(_command)


def _carry_out(work: Any, folder: Path, as_json: bool, profiled: bool) -> None:
    from fedaction.federation.profile import NOTHING, Profile, say_profile

    profile = Profile() if profiled else NOTHING
    with report_progress(partial(_say_kept, folder), KeyError) as bar:
        result = work(bar, profile=profile)
    if profiled:
        say(say_profile(profile.record()), err)
    if as_json:
        print(json.dumps(result))
        return
    show(*result_tables([result], width=table_width()))
    _say_warnings(result["warnings"])
    from fedaction.runs.deploy import describe_models

    if models := describe_models(Path(result["run"])):
        say(models)
    say(f"report: {Path(result['run']) / 'report.html'}")


def _say_kept(folder: Path) -> str:
    """How far a run has come that was stopped, and how it goes on."""
    from fedaction.runs.standing import list_homes, read_standing

    if not (folder / "recipe.toml").exists():
        return "nothing was kept; the same command begins it again"
    standings = {home: read_standing(home) for home in list_homes(folder)}
    done = [
        f"round {standing.round}" if home == folder else f"round {standing.round} of {home.relative_to(folder)}"
        for home, standing in standings.items()
        if standing is not None
    ]
    kept = f"kept up to {', '.join(done)}" if done else "no round is kept yet"
    return f"{kept}; `fedaction resume {folder}` resumes from the last checkpoint"


def _say_warnings(texts: list[str]) -> None:
    """Below a table, so that whoever keeps the table keeps them."""
    for text in texts:
        say(f"warning: {text}")


def main() -> None:
    """Entry point."""
    try:
        listen_for_stops()
        app()
    except BrokenPipeError:
        sys.exit(1)
    except KeyboardInterrupt as stop:  # before the command has begun, or after it has ended
        sys.exit(say_stopped(stop))
    finally:
        stop_listening()
