"""`fedaction paper`: the tables and figures of the papers, made again."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedaction.cli.common import JsonFlag, err, fail, out, report_progress, show

if TYPE_CHECKING:
    from fedaction.papers import Outcome


def paper(
    name: Annotated[
        str, typer.Argument(metavar="ITEM", help="Such as fsar/table1 or fedvssl/table4; `list` names all.")
    ],
    data: Annotated[
        str, typer.Option(metavar="stage|real|PATH", help="Synthetic, public recordings, or a folder with datasets.")
    ] = "stage",
    scale: Annotated[
        str, typer.Option(metavar="tiny|small|paper", help="Size of networks, data and runs.")
    ] = "small",
    seeds: Annotated[str, typer.Option(help="Such as 0,1,2: mean and standard deviation are over them.")] = "0",
    folder: Annotated[Path, typer.Option("--out", help="Runs and results; give the same again to resume.")] = Path(
        "runs/paper"
    ),
    rows: Annotated[
        list[str],
        typer.Option(
            metavar="TEXT", help="Only rows that begin so, as ST-GCN, or one, as ST-GCN/FSAR; again for more."
        ),
    ] = [],  # noqa: B006
    engine: Annotated[str, typer.Option(help="auto, sequential or vectorised.")] = "",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "",
    jobs: Annotated[
        int, typer.Option(min=1, help="Runs carried out side by side, each in a process of its own.")
    ] = 1,
    overrides: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a key.")] = [],  # noqa: B006
    as_json: JsonFlag = False,
) -> None:
    """Make a table or figure of FSAR, its supplement, FDARN, Edge or FedVSSL again, each value beside the paper's.

    Runs, distilled networks and evaluations are kept below --out and shared between items: what is done is not run
    again, and after an interruption the same command resumes.
    """
    if name == "list":
        _list(as_json)
        return
    from fedaction import papers
    from fedaction.runs.recipe import read_overrides

    try:
        item = papers.find_item(name, *rows)
        options = {key: value for key, value in (("engine", engine), ("device", device)) if value}
        keys = {**read_overrides(overrides), **options}
        bench = papers.Workbench(papers.paper_of(item), data, scale, folder, _parse_seeds(seeds), keys)
    except (ValueError, OSError) as error:
        raise fail(str(error)) from None
    command = _command(name, data, scale, seeds, rows, engine, overrides)
    with report_progress("the same command resumes from the last checkpoint", KeyError) as bar:
        outcome = papers.regenerate(item, bench, bar, _say, command, jobs)
        files = papers.write_outcome(outcome, folder)
    if as_json:
        print(json.dumps({**outcome.document(), "files": {kind: str(path) for kind, path in files.items()}}))
        return
    _show(outcome, files)


def _list(as_json: bool) -> None:
    from fedaction.papers import ITEMS, PAPERS, SCALES, paper_of

    if as_json:
        items = [
            {
                "id": item.name,
                "title": item.title,
                "kind": item.kind,
                "needs": paper_of(item).needs(item),
                "runs": len(item.runs),
                "cost": {scale: paper_of(item).cost(item, scale) for scale in SCALES},
            }
            for item in ITEMS.values()
        ]
        print(json.dumps({"items": items}))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("item", no_wrap=True)
    table.add_column("what it is")
    table.add_column("runs", justify="right")
    table.add_column("small", justify="right", no_wrap=True)
    for item in ITEMS.values():
        # Whose table or figure it is, and which, its name says.
        what, whose = item.title.partition(". ")[2].replace(" (%)", ""), paper_of(item)
        table.add_row(item.name, escape(what), str(whose.work_count(item)), whose.cost(item, "small"))
    show(table)
    efforts = ". ".join(f"{paper.title}: {paper.rounds} rounds a run{paper.effort}" for paper in PAPERS)
    out.print(
        "\nsmall: how long that scale takes with one seed on two cores where no run is there yet; items share runs. "
        f"tiny takes seconds. At the paper's scale: {efforts}. `--json` has all of it.",
        highlight=False,
    )


def _show(outcome: Outcome, files: dict[str, Path]) -> None:
    table = Table(title=escape(outcome.item.title), caption=escape(outcome.caption), caption_justify="left")
    for head in outcome.item.heads:
        table.add_column(escape(head))
    for head in outcome.columns:
        table.add_column(escape(head.replace(" / ", "\n")), justify="right", overflow="fold")
    for label, texts in outcome.lines:
        table.add_row(*map(escape, label), *map(escape, texts))
    show(table)
    for note in (*outcome.item.notes, *outcome.notes):
        out.print(f"- {note}", highlight=False, markup=False)
    for row, method, configuration in outcome.runs:
        out.print(f"configuration of {row}: {method} {configuration}", highlight=False, markup=False, soft_wrap=True)
    if outcome.footer:
        out.print(outcome.footer, highlight=False, markup=False, soft_wrap=True)
    out.print(f"command: {outcome.command}", highlight=False, markup=False, soft_wrap=True)
    out.print(f"files: {', '.join(map(str, files.values()))}", highlight=False, markup=False, soft_wrap=True)


def _say(what: str) -> None:
    err.print(what, highlight=False, markup=False)


def _parse_seeds(text: str) -> tuple[int, ...]:
    try:
        seeds = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--seeds takes whole numbers with commas between, such as 0,1,2; got {text!r}") from None
    if len(set(seeds)) != len(seeds):
        raise ValueError(f"--seeds names a seed twice: {text}")
    return seeds


def _command(name: str, data: str, scale: str, seeds: str, rows: list[str], engine: str, overrides: list[str]) -> str:
    """What makes the item again; where the runs are kept and which device carries them out change nothing."""
    words = ["fedaction", "paper", name, "--data", data, "--scale", scale, "--seeds", seeds]
    for row in rows:
        words += ["--rows", row]
    words += ["--engine", engine] if engine else []
    for override in overrides:
        words += ["--set", override]
    return shlex.join(words)
