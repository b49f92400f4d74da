"""`fedaction paper` as the tests of its items call it, and what they read from its answer."""

import json
from pathlib import Path
from typing import Any

import typer
from click.testing import Result
from typer.testing import CliRunner

from fedaction.bench.video import make_video
from fedaction.cli.paper import paper

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(paper)


def call(*arguments: object) -> Result:
    """`fedaction paper ...` at the tiny scale."""
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(app, [*words, "--scale", "tiny"], env={"COLUMNS": "200"})


def document(*arguments: object) -> dict[str, Any]:
    """The same, seen to succeed; its JSON object."""
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def values(found: dict[str, Any]) -> dict[tuple[str, str], float | None]:
    """Our values by row and column."""
    return {(record["row"], record["column"]): record["ours_mean"] for record in found["table"]}


def write_videos(root: Path, names: dict[str, list[str]], frames: int, height: int, width: int) -> None:
    """Small videos in a folder for each action; each of a folder is a frame longer than the one before."""
    for action, files in names.items():
        (root / action).mkdir(parents=True)
        for number, name in enumerate(files):
            make_video(root / action / name, frames=frames + number, height=height, width=width)
