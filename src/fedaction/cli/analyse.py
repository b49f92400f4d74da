"""`fedaction analyse`: look into a finished run."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from fedaction.cli.common import JsonFlag, RunDir, err, exit_on_refusal, literal, say, show, show_warnings


def analyse(
    folder: RunDir,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Which: curves, clock, target, confusion, topology, coefficients, cka, landscape, divergence, "
            "epsilon, subspaces, discriminator; all by default."
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            help="For clock and target: the mean test accuracy, or recall at 1, to reach (0 to 1). By default 0.9 of "
            "the best; for target, what a centralised baseline has at its end, where there is one."
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Analyse a finished run: tables here, pictures in its folder `analyses` and in its report.

    An analysis that the run has nothing for is left out, with the reason.
    """
    from fedaction import analyses  # torch and matplotlib take seconds to load

    with err.status("analysing") as status, show_warnings(), exit_on_refusal():

        def progress(what: str) -> None:
            status.update(literal(what))
            if not err.is_terminal:
                say(what, err)

        done = analyses.analyse(folder, names or (), progress, target)
    for name, reason in done.left_out.items():
        say(f"left out: {name}: {reason}", err)
    if as_json:
        facts = {
            "run": str(folder),
            "analyses": done.records,
            "pictures": {name: str(path) for name, path in done.pictures.items()},
            "left_out": done.left_out,
            "report": str(done.report),
        }
        print(json.dumps(facts))
        return
    for name, analysis in done.records.items():
        columns = map(literal, analysis["table"]["columns"])
        table = Table(*columns, title=literal(analysis["title"]), title_justify="left")
        for row in analysis["table"]["rows"]:
            table.add_row(*map(literal, row))
        show(table)
        say(f"picture: {done.pictures[name]}\n")
    say(f"report: {done.report}")
