"""`fedaction study`: questions that one run does not answer."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedaction.cli.common import (
    App,
    JsonFlag,
    announce,
    err,
    join_overrides,
    load,
    parse_counts,
    parse_numbers,
    report_progress,
    say,
)
from fedaction.federation.files import write_atomically
from fedaction.federation.recipes import find_recipe

study_app = App(help="Questions that take many runs.")


@study_app.callback()
def _root() -> None:
    """Questions that take many runs."""


@study_app.command()
def joining(
    recipe: Annotated[Path, typer.Argument(help="A recipe: its name, such as fsar/demo, or a TOML file.")],
    shares: Annotated[
        str, typer.Option(metavar="A,B,...", help="Shares of each site's own training samples, 0 to 1.")
    ] = "0.05,0.1,0.25,0.5,1",
    sites: Annotated[
        str, typer.Option(metavar="N,M,...", help="Smaller federations: of so many sites; default: none.")
    ] = "",
    draws: Annotated[int, typer.Option(min=1, help="How many federations of each such number.")] = 3,
    rates: Annotated[
        str,
        typer.Option(
            "--lr",
            metavar="A,B,...",
            help="Choose among these for each method and share, on people kept out of training; default: its own.",
        ),
    ] = "",
    plain: Annotated[str, typer.Option(help="The method that stands for plain averaging.")] = "fedavg",
    overrides: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a key.")] = [],  # noqa: B006
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0,1,2; default: the recipe's.")] = "",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "",
    jobs: Annotated[
        int, typer.Option(min=1, help="Runs carried out side by side, each in a process of its own.")
    ] = 1,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Default: runs/joining-NAME; resumed if it is there.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """What joining brings each site: alone, by plain averaging, and with the recipe's method.

    Each is trained with several shares of every site's own training samples, and, if asked, in federations of fewer
    sites. `joining.md` has the tables and says for whom it pays, `joining.svg` the picture. Interrupted, the same
    command goes on.
    """
    load(find_recipe, recipe)
    numbers, counts, tried = (
        parse_numbers(shares, "--shares"),
        parse_counts(sites, "--sites") if sites else [],
        parse_numbers(rates, "--lr"),
    )
    announce(f"loading PyTorch and the recipe {recipe}")
    from fedaction.analyses.joining import draw_joining, write_tables
    from fedaction.runs.joining import JoiningPlan, study_joining
    from fedaction.runs.recipe import load_recipe

    parsed = load(load_recipe, recipe, join_overrides(overrides, seeds=seeds and f"[{seeds}]", device=device))
    plan = load(JoiningPlan, numbers, counts, draws, plain, tried)
    folder = folder or Path("runs") / f"joining-{parsed.run.name}"
    say(f"runs: {folder}", err)
    with report_progress("the same command goes on", KeyError) as bar:
        result = study_joining(parsed, plan, folder, bar, jobs)
        command = shlex.join(["fedaction", *sys.argv[1:]])
        tables = write_tables(result, command)
        write_atomically(folder / "joining.md", tables.encode())
        write_atomically(folder / "joining.svg", draw_joining(result))
    if as_json:
        print(json.dumps(result))
        return
    say(tables)
    say(f"picture: {folder / 'joining.svg'}")
