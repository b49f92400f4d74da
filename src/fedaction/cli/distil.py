"""`fedaction distil`: a small network taught by a large one, through assistants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedaction.cli.common import (
    JsonFlag,
    announce,
    fail,
    join_overrides,
    load,
    report_progress,
    run_folder,
    say,
    show,
)

if TYPE_CHECKING:
    from fedaction.training.distil import DistilResult


def distil(
    recipe: Annotated[Path, typer.Argument(help="A recipe (one flat TOML file), or a directory to resume.")],
    overrides: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a key.")] = [],  # noqa: B006
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0,1,2: one chain for each.")] = "",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "",
    folder: Annotated[Path | None, typer.Option("--out", help="Directory; default: runs/NAME-N.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Train a teacher, then each assistant, then the student, every one taught by the one before it.

    Progress goes to standard error. The directory gets a folder for each network, with model.safetensors and
    metrics.jsonl, and result.json. One that was interrupted is resumed by `fedaction distil DIR`; what is finished in
    it is not done again.
    """
    announce(f"loading PyTorch and {recipe}")
    from fedaction.training.distil import run_distil  # torch takes seconds to load
    from fedaction.training.distil_recipe import load_distil_recipe

    if recipe.is_dir():
        if not (recipe / "recipe.toml").exists():
            raise fail(f"{recipe} is not a directory of a distillation: it has no recipe.toml")
        folder, recipe = folder or recipe, recipe / "recipe.toml"
    overrides = join_overrides(overrides, seeds=seeds and f"[{seeds}]", device=device)
    parsed = load(load_distil_recipe, recipe, overrides)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise fail(f"{folder} is a file; --out takes a directory")
    with (
        run_folder(folder, parsed.settings.name) as home,
        report_progress(f"`fedaction distil {home}` resumes from the last checkpoint") as bar,
    ):
        result = run_distil(parsed, home, bar)
    if as_json:
        print(json.dumps(result))
        return
    show(_table(result))
    say(f"models and results: {home}")


def _table(result: DistilResult) -> Table:
    table = Table("seed", "network", "parameters", "taught by", "epochs", "per clip", "per video", "seconds")
    for column in table.columns[2:3] + table.columns[4:]:
        column.justify = "right"
    table.title = f"test accuracy, %, width {result['width']}"
    for seed, stages in result["stages"].items():
        for stage in stages:
            table.add_row(
                seed,
                f"ResNet-{stage['depth']} ({stage['role']})",
                f"{stage['parameters']:,}",
                stage["teacher"] or "",
                str(stage["epochs"] or "given"),
                f"{100 * stage['clip_accuracy']:.1f}",
                f"{100 * stage['video_accuracy']:.1f}",
                f"{stage['seconds']:.0f}",
            )
    return table
