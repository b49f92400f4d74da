"""`fedaction init`: a recipe for one's own data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedaction.cli.common import (
    JsonFlag,
    announce,
    exit_on_refusal,
    fail,
    literal,
    say,
    show,
    show_progress,
    show_warnings,
)


def init(
    stores: Annotated[
        list[Path],
        typer.Argument(
            help="Stores of one kind, made by `fedaction data import` or `fedaction features`.",
            exists=True,
            file_okay=False,
        ),
    ],
    to: Annotated[Path, typer.Option("--out", help="The recipe's new file.")] = Path("my.toml"),
    as_json: JsonFlag = False,
) -> None:
    """Write a commented recipe for your own data: method, hold-out, batch size and schedule by what the stores hold.

    Nothing is trained; `fedaction run my.toml` does that.
    """
    if to.exists():
        raise fail(f"{to} exists; choose another --out, or remove it")
    announce(f"loading PyTorch and {', '.join(map(str, stores))}")
    from fedaction.federation.files import write_atomically
    from fedaction.runs.draft import draft_recipe

    with show_progress("data", "recordings") as progress, show_warnings(), exit_on_refusal():
        draft = draft_recipe(stores, to.stem, progress)
        write_atomically(to, draft.text.encode())
    found = [
        {
            "client": client.info.id,
            "group": client.info.group,
            "train": len(client.train),
            "test": len(client.test),
            "classes": len(client.info.classes),
        }
        for client in draft.clients
    ]
    if as_json:
        print(json.dumps({"recipe": str(to), "clients": found}))
        return
    table = Table("client", "group", "training", "test", "classes", box=None)
    for item in found:
        table.add_row(*(literal(value) for value in item.values()))
    show(table)
    say(f"\n{to}: look through it, then `fedaction run {to}`")
