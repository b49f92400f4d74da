"""`fedaction analyse`: look into a finished run."""

from __future__ import annotations

import json
import warnings
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedaction.cli.common import JsonFlag, RunDir, err, fail, out


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

    with err.status("analysing") as status, warnings.catch_warnings():
        warnings.showwarning = lambda message, *_args, **_kwargs: err.print(
            f"[yellow]warning:[/yellow] {escape(str(message))}", highlight=False
        )

        def say(what: str) -> None:
            status.update(escape(what))
            if not err.is_terminal:
                err.print(what, highlight=False, markup=False)

        try:
            done = analyses.analyse(folder, names or (), say, target)
        except (ValueError, OSError) as error:
            raise fail(str(error)) from None
    for name, reason in done.left_out.items():
        err.print(f"left out: {name}: {reason}", highlight=False, markup=False, soft_wrap=True)
    if as_json:
        said = {
            "run": str(folder),
            "analyses": done.found,
            "pictures": {name: str(path) for name, path in done.pictures.items()},
            "left_out": done.left_out,
            "report": str(done.report),
        }
        print(json.dumps(said))
        return
    for name, found in done.found.items():
        table = Table(*map(escape, found["table"]["columns"]), title=escape(found["title"]), title_justify="left")
        for row in found["table"]["rows"]:
            table.add_row(*map(escape, row))
        out.print(table)
        out.print(f"picture: {done.pictures[name]}\n", highlight=False, markup=False, soft_wrap=True)
    out.print(f"report: {done.report}", highlight=False, markup=False, soft_wrap=True)
