"""`fedaction data`: look at and bring in data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fedaction.cli.common import JsonFlag, fail, out

data_app = typer.Typer(no_args_is_help=True, help="Look at and bring in data.")


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
