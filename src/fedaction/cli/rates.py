"""`fedaction rates`: which learning rate is best on people who are kept out of training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedaction.cli.common import (
    JsonFlag,
    announce,
    err,
    join_overrides,
    load,
    parse_numbers,
    report_progress,
    say,
    show,
)
from fedaction.federation.recipes import find_recipe


def rates(
    recipe: Annotated[Path, typer.Argument(help="A recipe: its name, such as fsar/demo, or a TOML file.")],
    values: Annotated[
        str, typer.Option("--lr", metavar="A,B,...", help="Rates to try; default: a quarter to 4 times the recipe's.")
    ] = "",
    overrides: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a key.")] = [],  # noqa: B006
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0,1; default: the recipe's first.")] = "",
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="A run for each rate; default: runs/rates-NAME, resumed if it is there."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Choose a learning rate on training people: the test has no say.

    Every method of the recipe trains with each rate without a fifth of its training people (`validation` says how
    many), and is asked about those.
    """
    load(find_recipe, recipe)
    announce(f"loading PyTorch and the recipe {recipe}")
    from fedaction.runs.rates import RateChoice, choose_rate
    from fedaction.runs.recipe import load_recipe

    parsed = load(load_recipe, recipe, join_overrides(overrides, seeds=seeds and f"[{seeds}]"))
    if not seeds:
        parsed = load(load_recipe, recipe, join_overrides(overrides, seeds=f"[{parsed.run.seeds[0]}]"))
    tried = (
        parse_numbers(values, "--lr") if values else [factor * parsed.run.lr for factor in (0.25, 0.5, 1.0, 2.0, 4.0)]
    )
    folder = folder or Path("runs") / f"rates-{parsed.run.name}"
    say(f"runs: {folder}", err)
    with report_progress("the same command resumes it", KeyError) as bar:
        result: RateChoice = choose_rate(parsed, tried, folder, bar)
    if as_json:
        print(json.dumps(result))
        return
    table = Table(title=f"accuracy on {result['n']} samples kept out of training, %")
    table.add_column("lr")
    for method in result["methods"]:
        table.add_column(escape(method), justify="right")
    table.add_column("mean", justify="right")
    columns = [*result["methods"].values(), result["mean"]]
    for place, rate in enumerate(result["rates"]):
        cells = (f"{100 * own[place]:.1f}{' *' if own[place] == max(own) else ''}" for own in columns)
        table.add_row(f"{rate:g}", *cells)
    show(table)
    say(
        f"best on the mean of the methods: lr = {result['best']:g} "
        f"(other samples might move a value by {100 * result['points']:.1f} points)"
    )
    for warning in result["warnings"]:
        say(f"warning: {warning}")
