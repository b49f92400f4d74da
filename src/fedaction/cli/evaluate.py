"""`fedaction evaluate`: accuracy on labelled recordings; of video, retrieval, a linear probe and fine-tuning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedaction.cli.common import (
    JsonFlag,
    announce,
    err,
    exit_on_refusal,
    fail,
    join_overrides,
    literal,
    refuse_pipe,
    report_progress,
    say,
    show,
    warn,
)
from fedaction.cli.predict import ClientOption, FormatOption

if TYPE_CHECKING:  # torch takes seconds to load, and `--help` should not wait for it
    from fedaction.serve.score import ScoreResult
    from fedaction.training.evaluate import EvaluateResult


def evaluate(
    model: Annotated[
        str,
        typer.Argument(
            help="A model file (.safetensors), a run's directory, or one of its checkpoints/*.safetensors; or the "
            "word random: random weights."
        ),
    ],
    recipe: Annotated[Path | None, typer.Option(help="Keys, in one flat TOML file; all have defaults.")] = None,
    overrides: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Set a key.")] = [],  # noqa: B006
    protocols: Annotated[str, typer.Option(help="Of retrieval, probe, finetune, with commas; default: all.")] = "",
    perturb: Annotated[bool, typer.Option("--perturb", help="Retrieval under noise on the weights, too.")] = False,
    depth: Annotated[int | None, typer.Option(help="Of a network with random weights; default: 18.")] = None,
    width: Annotated[int | None, typer.Option(help="Of a network with random weights; default: 64.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0,1,2: mean and deviation are over them.")] = "",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "",
    on: Annotated[
        list[Path],
        typer.Option(
            "--on", help="Accuracy on labelled recordings: a store, or a folder with a folder for each class."
        ),
    ] = [],  # noqa: B006
    client: ClientOption = None,
    rate: Annotated[float | None, typer.Option(min=1e-3, help="With --on: signals' readings a second.")] = None,
    form: FormatOption = "",
    folder: Annotated[
        Path | None, typer.Option("--out", help="Directory for the result; the same command resumes it.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Measure a network: its accuracy on labelled recordings (--on), or what a video backbone has learnt.

    With --on, any network is tested as it is, with balanced accuracy, macro-F1, recall by class and the commonest
    class beside it; recordings that cannot be read are named, and the exit status is then 1. Without, a video network
    is judged by its nearest recordings, a linear probe, and fine-tuning.

    Recordings come from where the keys say: `--set data=video --set video_root=FOLDER`, or `--set data=arrays --set
    arrays=FOLDER`; without any, a few synthetic ones are made. Progress goes to standard error. With --out, the
    directory gets result.json; a command that was interrupted is resumed when it is repeated.
    """
    refuse_pipe(Path(model))
    if folder is not None and folder.exists() and not folder.is_dir():
        raise fail(f"{folder} is a file; --out takes a directory")
    if on:
        _score(model, on, client, rate, form, folder, as_json)
        return
    announce("loading PyTorch and the network")
    from fedaction.training.evaluate import run_evaluate
    from fedaction.training.evaluate_recipe import load_evaluate_recipe

    names = ", ".join(json.dumps(name.strip()) for name in protocols.split(","))
    overrides = join_overrides(
        overrides,
        protocols=protocols and f"[{names}]",
        perturb="true" if perturb else "",
        depth="" if depth is None else str(depth),
        width="" if width is None else str(width),
        seeds=seeds and f"[{seeds}]",
        device=device,
    )
    stopped = "nothing was written" if folder is None else "the same command resumes it"
    with report_progress(stopped) as bar:
        result = run_evaluate(model, load_evaluate_recipe(recipe, overrides), None, bar, folder=folder)
    if as_json:
        print(json.dumps(result))
        return
    show(_table(result))
    if result["perturb"]:
        show(_perturbations(result))
    if folder is not None:
        say(f"result: {folder / 'result.json'}")


def _score(
    model: str, on: list[Path], client: str | None, rate: float | None, form: str, folder: Path | None, as_json: bool
) -> None:
    """Accuracy on labelled recordings."""
    from fedaction.federation.files import write_json
    from fedaction.serve.network import find_model, load_network
    from fedaction.serve.score import score_network

    with err.status("testing") as status, exit_on_refusal():
        if folder is not None:
            _refuse_other(folder)
        for place in on:
            refuse_pipe(place)
        path = find_model(model, client)
        network = load_network(path)
        result = score_network(
            network, on, form=form, rate_hz=rate, tell=lambda done: status.update(f"testing: {done} recordings")
        )
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "result.json", {"model": str(path), **result})
    if as_json:
        print(json.dumps({"model": str(path), **result}))
    else:
        _show_score(path, result)
    for item in result["broken"]:
        warn(f"left out: {item['file']}: {item['error']}")
    if result["broken"]:
        raise typer.Exit(1)


def _refuse_other(folder: Path) -> None:
    """Refuses the directory of something else, whose result would be lost."""
    from fedaction.federation.files import read_json
    from fedaction.training.folders import RECORD

    result = folder / "result.json"
    before = read_json(result) if result.exists() else {"broken": []}
    own = isinstance(before, dict) and "broken" in before
    if not own or any((folder / name).exists() for name in ("recipe.toml", RECORD)):
        raise ValueError(f"{folder} is the directory of something else; choose another --out")


def _show_score(path: Path, result: ScoreResult) -> None:
    low, high = result["interval"]
    table = Table("", "%", title=literal(f"{path}: {result['n']} recordings"))
    table.columns[1].justify = "right"
    table.add_row("accuracy", f"{100 * result['accuracy']:.1f}")
    table.add_row("  its 95 % interval", f"{100 * low:.0f} to {100 * high:.0f}")
    table.add_row("balanced over classes", f"{100 * result['balanced_accuracy']:.1f}")
    table.add_row("macro-F1", f"{100 * result['macro_f1']:.1f}")
    table.add_row(
        literal(f"always {result['commonest']!r}, the commonest"), f"{100 * result['majority']:.1f}", end_section=True
    )
    for name, share in result["recall"].items():
        table.add_row(literal(f"recall of {name}"), f"{100 * share:.1f}")
    show(table)
    if result["unknown"]:
        counts = ", ".join(f"{name or 'no label'} ({count})" for name, count in result["unknown"].items())
        warn(f"left out, since the network does not name their classes: {counts}")


_TRAINED = {"probe": "linear probe", "probe_drawn": "linear probe on drawn clips", "finetune": "fine-tuning"}
_SCORES = {"clip": "per clip", "video": "per video", "balanced": "balanced over classes", "macro_f1": "macro-F1"}
_WORDS = {f"{key}_{score}": f"{a}, {b}" for key, a in _TRAINED.items() for score, b in _SCORES.items()}


def _table(result: EvaluateResult) -> Table:
    gallery, queries = result["data"]["recordings"]
    recipe = result["recipe"]
    table = Table("", "%", "95 % interval", "deviation")
    for column in table.columns[1:]:
        column.justify = "right"
    table.title = literal(f"{result['model']['model']}: {queries} test recordings, {gallery} for training")
    for key, value in result["mean"].items():
        words = _WORDS.get(key, f"retrieval {key} ({recipe['retrieval_rule']}, {recipe['pooling']})")
        spread = "" if result["std"] is None else f"{100 * result['std'][key]:.1f}"
        table.add_row(words, f"{100 * value:.1f}", _interval(key, value, result), spread)
        protocol = key.removesuffix("_macro_f1")
        if protocol != key and (recall := result["recall"].get(protocol)):
            name, least = min(recall.items(), key=lambda item: item[1])
            said = f"{words.removesuffix('macro-F1')}least recall of a class ({name})"
            table.add_row(literal(said), f"{100 * least:.1f}")
    return table


def _interval(key: str, value: float, result: EvaluateResult) -> str:
    """What other test samples might have given, where the value is a share of right answers."""
    from fedaction.evaluation.accuracy import wilson

    if key.endswith(("_balanced", "_macro_f1")):
        return ""
    low, high = wilson(value, result["data"]["clips" if key.endswith("_clip") else "recordings"][1])
    return f"{100 * low:.0f} to {100 * high:.0f}"


def _perturbations(result: EvaluateResult) -> Table:
    levels = list(dict.fromkeys(point["level"] for point in result["perturb"]))
    table = Table("noise on the weights", *(f"{level:g}" for level in levels), title="retrieval R@1, %")
    for column in table.columns[1:]:
        column.justify = "right"
    for kind in dict.fromkeys(point["kind"] for point in result["perturb"]):
        by_level = {point["level"]: point["mean"] for point in result["perturb"] if point["kind"] == kind}
        table.add_row(kind, *(f"{100 * by_level[level]:.1f}" for level in levels))
    return table
