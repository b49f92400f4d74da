"""`fedaction data`: look at and bring in data."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from fedaction.cli.common import JsonFlag, err, fail, out

data_app = typer.Typer(no_args_is_help=True, help="Look at and bring in data.")


@data_app.command("list")
def data_list(as_json: JsonFlag = False) -> None:
    """List the skeleton layouts, the public datasets that can be read, and the actions of the embedded stage."""
    from fedaction.data.layout import LAYOUTS
    from fedaction.data.public.readers import READERS
    from fedaction.stage import NAMES

    if as_json:
        layouts = [item.to_dict() for item in LAYOUTS.values()]
        public = [
            {
                "name": item.name,
                "layout": item.layout.name,
                "joints": len(item.layout),
                "rate_hz": item.rate_hz,
                "protocols": list(item.protocols),
                "about": item.about,
            }
            for item in READERS.values()
        ]
        print(json.dumps({"layouts": layouts, "public": public, "stage_actions": list(NAMES)}))
        return
    table = Table("layout", "joints", "centre", "first joints", box=None)
    for item in LAYOUTS.values():
        table.add_row(item.name, str(len(item)), item.joints[item.centre], ", ".join(item.joints[:4]) + ", ...")
    out.print(table, "")
    table = Table("public dataset", "joints", "Hz", "splits", "what it is", box=None)
    for item in READERS.values():
        rate = "" if item.rate_hz is None else f"{item.rate_hz:g}"
        table.add_row(item.name, str(len(item.layout)), rate, ", ".join(item.protocols), escape(item.about))
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
        found = imports.inspect(path, layout=layout or None, subject=subject or None)
    except (ValueError, OSError) as error:
        raise fail(str(error)) from None
    out.print(str(found), highlight=False, markup=False, soft_wrap=True)


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


@data_app.command("prepare")
def data_prepare(
    name: Annotated[str, typer.Argument(help="A public dataset that `fedaction data list` lists.")],
    root: Annotated[Path, typer.Argument(help="The folder you keep it in.", exists=True, file_okay=False)],
    workers: Annotated[int, typer.Option(min=0, help="Processes that read files; 0: one for each core.")] = 0,
    cache: Annotated[
        Path | None,
        typer.Option(help="Where to keep the result; default: $FEDACTION_CACHE, else ~/.cache/fedaction."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Read a public dataset once, for use as a store: prints its folder, what it holds and what was skipped.

    If it has been read before and has not changed since, this only checks it.
    """
    from fedaction.data import imports
    from fedaction.data.public.cache import prepare_public

    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("files"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=err,
        disable=not err.is_terminal,
    )
    task = bars.add_task(name, total=None)

    def progress(done: int, total: int) -> None:
        bars.update(task, completed=done, total=total)
        if (
            not err.is_terminal and total >= 1000 and done * 10 // total > (done - 1) * 10 // total
        ):  # a log: ten lines
            err.print(f"{name}: {done} of {total} files", highlight=False)

    with bars, warnings.catch_warnings():
        warnings.showwarning = lambda message, *_args, **_kwargs: err.print(
            f"[yellow]note:[/yellow] {escape(str(message))}", highlight=False, soft_wrap=True
        )
        try:
            path = prepare_public(name, root, cache=cache, workers=workers, progress=progress)
            found = imports.inspect(path)
        except (ValueError, OSError) as error:
            raise fail(str(error)) from None
    if as_json:
        splits = {name: {"train": train, "test": test} for name, (train, test) in found.splits.items()}
        issues = [issue.model_dump() for issue in found.issues]
        result = {"store": str(path), "samples": found.samples, "classes": found.classes, "splits": splits}
        print(json.dumps({**result, "counts": found.counts, "issues": issues}))
        return
    out.print(str(found), highlight=False, markup=False, soft_wrap=True)
