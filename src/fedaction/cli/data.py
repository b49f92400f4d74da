"""`fedaction data`: look at and bring in data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer
from rich.markup import escape
from rich.table import Table

from fedaction.cli.common import App, JsonFlag, exit_on_refusal, say, show, show_progress, show_warnings, warn

if TYPE_CHECKING:  # numpy would load before `--help` is shown
    from fedaction.data.axes import Up

data_app = App(help="Look at and bring in data.")


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
    show(table)
    say("")
    table = Table("public dataset", "joints", "Hz", "splits", "what it is", box=None)
    for item in READERS.values():
        rate = "" if item.rate_hz is None else f"{item.rate_hz:g}"
        table.add_row(item.name, str(len(item.layout)), rate, ", ".join(item.protocols), escape(item.about))
    show(table)
    say(f"\n{len(NAMES)} actions on the stage: {', '.join(NAMES)}")


LayoutOption = Annotated[str, typer.Option(help="A built-in layout's name, or a JSON file with joints and edges.")]
LabelPattern = Annotated[
    str,
    typer.Option(help="Folders: a regular expression that finds the class in a file's name, as `^([a-z]+)_`."),
]
LabelTable = Annotated[
    Path | None, typer.Option(help="A table with the columns file, label and perhaps subject.", exists=True)
]
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
    labels: LabelTable = None,
    label_pattern: LabelPattern = "",
) -> None:
    """Say what a dataset holds and what is wrong with it. Writes nothing."""
    from fedaction.data import imports
    from fedaction.data.signals.store import is_signal_store
    from fedaction.data.signals.summary import inspect_signals

    with exit_on_refusal():
        if is_signal_store(path):
            say(str(inspect_signals(path)))
        else:
            summary = imports.inspect(
                path,
                layout=layout or None,
                labels=labels,
                label_pattern=label_pattern or None,
                subject=subject or None,
            )
            say(str(summary))


class _Kind(StrEnum):
    """What was recorded."""

    skeleton = "skeleton"
    inertial = "inertial"


_Up = StrEnum("_Up", {"auto": "auto", "y": "y", "-y": "-y", "z": "z", "-z": "-z", "x": "x", "-x": "-x"})


class _TimeUnit(StrEnum):
    """What a column of numbers counts."""

    s = "s"
    ms = "ms"
    us = "us"
    ns = "ns"


_INERTIAL = "Inertial: "


@data_app.command("import")
def data_import(
    source: Annotated[
        Path,
        typer.Argument(
            help="A folder per class, a folder or file of CSVs, or an .npz file with x and y.", exists=True
        ),
    ],
    to: Annotated[Path, typer.Option("--out", help="The dataset's new folder.")],
    kind: Annotated[_Kind, typer.Option(help="What was recorded: skeletons, or a worn sensor's signals.")] = (
        _Kind.skeleton
    ),
    layout: LayoutOption = "",
    subject: SubjectOption = "",
    labels: LabelTable = None,
    label_pattern: LabelPattern = "",
    coordinates: Annotated[int, typer.Option(min=2, max=3, help="Skeletons: numbers per joint in text files.")] = 3,
    rate: Annotated[float | None, typer.Option(min=0.1, help="Frames or readings a second.")] = None,
    scale: Annotated[
        str, typer.Option(help="Skeletons: factor to metres, as 0.001 of millimetres; auto: by how tall a body is.")
    ] = "auto",
    up: Annotated[
        _Up, typer.Option(help="Skeletons: the axis that points up, which becomes y; auto: from feet to head.")
    ] = _Up.auto,
    label: Annotated[str, typer.Option(help=f"{_INERTIAL}the column that has the label.")] = "",
    time: Annotated[str, typer.Option(help=f"{_INERTIAL}the column that has the time.")] = "",
    time_unit: Annotated[
        _TimeUnit | None, typer.Option(help=f"{_INERTIAL}its unit, where it is guessed wrong.")
    ] = None,
    subject_column: Annotated[str, typer.Option(help=f"{_INERTIAL}the column that has the person.")] = "",
    columns: Annotated[str, typer.Option(help=f"{_INERTIAL}channels, such as acc_x,acc_y,acc_z; default: all.")] = "",
    window: Annotated[
        float, typer.Option(min=0, help=f"{_INERTIAL}seconds of a sample; 0: a whole recording.")
    ] = 0.0,
    hop: Annotated[float, typer.Option(min=0, help=f"{_INERTIAL}seconds to the next; default: half a window.")] = 0.0,
    ignore: Annotated[str, typer.Option(help=f"{_INERTIAL}labels that are no activity, such as 0,other.")] = "",
    device: Annotated[
        str, typer.Option(help=f"{_INERTIAL}the device's name, such as watch: its clients' group.")
    ] = "",
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse the whole source if anything in it is faulty.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a dataset at --out.")] = False,
) -> None:
    """Bring in recordings of your own.

    Use skeletons in a recipe with data = "store" and store_paths = [DIR], and signals (--kind inertial) with data =
    "signals" and signal_paths = [DIR]. Missing values, gaps, empty recordings and wrong joint counts are counted and
    named, never silently used. Where whole files or recordings were left out, the exit status is 1.
    """
    with exit_on_refusal():
        _check_options(
            kind,
            {
                _Kind.skeleton: {
                    "--layout": layout,
                    "--scale": scale != "auto",
                    "--up": up is not _Up.auto,
                    "--coordinates": coordinates != 3,
                },
                _Kind.inertial: {
                    "--label": label,
                    "--time": time,
                    "--time-unit": time_unit,
                    "--subject-column": subject_column,
                    "--columns": columns,
                    "--window": window,
                    "--hop": hop,
                    "--ignore": ignore,
                    "--device": device,
                },
            },
        )
        if kind is _Kind.inertial:
            from fedaction.data.signals.imports import SignalOptions, import_signals

            options = SignalOptions(
                label=label,
                time=time,
                subject_column=subject_column,
                columns=_words(columns),
                time_unit=time_unit.value if time_unit else None,
                rate_hz=rate,
                window_s=window,
                hop_s=hop,
                ignore=_words(ignore),
            )
            summary = import_signals(
                source,
                to,
                options=options,
                labels=labels,
                label_pattern=label_pattern or None,
                subject=subject or None,
                device=device,
                strict=strict,
                overwrite=overwrite,
            )
        else:
            from fedaction.data import imports

            if not layout:
                raise ValueError(
                    "skeletons need --layout: a built-in one (`fedaction data list`) or a JSON file; signals of a "
                    "worn sensor need --kind inertial"
                )
            summary = imports.import_recordings(
                source,
                to,
                layout=layout,
                labels=labels,
                label_pattern=label_pattern or None,
                subject=subject or None,
                coordinates=coordinates,
                rate_hz=rate,
                scale=_scale(scale),
                up=cast("Up", up.value),
                strict=strict,
                overwrite=overwrite,
            )
    say(f"{summary}\nimported to {to}")
    left = sum(issue.count for issue in summary.issues if issue.kind in _LEFT_OUT)
    if left:
        warn(f"{left} files or recordings could not be used, and are named above; --strict refuses them all")
        raise typer.Exit(1)


_LEFT_OUT = ("unreadable", "joint_count", "empty")  # kinds of issues that cost a whole recording


def _check_options(kind: _Kind, of_kinds: Mapping[_Kind, Mapping[str, object]]) -> None:
    """Refuses what was given and belongs to another kind of recording: it would be passed over."""
    for other, options in of_kinds.items():
        given = [name for name, value in options.items() if value]
        if other is not kind and given:
            raise ValueError(f"{given[0]} goes with --kind {other.value}, and this is --kind {kind.value}")


def _scale(text: str) -> float | Literal["auto"]:
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--scale {text}: give a number, such as 0.001, or auto") from None


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


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

    with show_progress(name, "files") as progress, show_warnings(), exit_on_refusal():
        path = prepare_public(name, root, cache=cache, workers=workers, progress=progress)
        summary = imports.inspect(path)
    if as_json:
        splits = {name: {"train": train, "test": test} for name, (train, test) in summary.splits.items()}
        issues = [issue.model_dump() for issue in summary.issues]
        result = {"store": str(path), "samples": summary.samples, "classes": summary.classes, "splits": splits}
        print(json.dumps({**result, "counts": summary.counts, "issues": issues}))
        return
    say(str(summary))


class _Staged(StrEnum):
    """What the synthetic places record."""

    skeleton = "skeleton"
    video = "video"
    features = "features"


@data_app.command("stage")
def data_stage(
    to: Annotated[Path, typer.Option("--out", help="Where the datasets go, each in a folder of its own.")],
    kind: Annotated[
        _Staged, typer.Option(help="What is recorded: skeletons, video, or features of one modality at each place.")
    ] = _Staged.skeleton,
    seed: Annotated[int, typer.Option(min=0, help="Of the synthetic world.")] = 0,
) -> None:
    """Make datasets to try things with, of three synthetic places, each with its own people and device."""
    from fedaction.stage.stores import write_stage_features, write_stage_stores, write_stage_videos

    write = {
        _Staged.skeleton: write_stage_stores,
        _Staged.video: write_stage_videos,
        _Staged.features: write_stage_features,
    }[kind]
    with exit_on_refusal():
        for path in write(to, seed=seed).values():
            say(str(path))
