"""`fedaction features`: turn recordings into feature stores."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedaction.cli.common import JsonFlag, exit_on_refusal, refuse_pipe, say, show_progress, show_warnings, warn

if TYPE_CHECKING:  # torch takes seconds to load, and `--help` should not wait for it
    from fedaction.data.features import Collection, FeatureSet, Modality


def features(
    source: Annotated[
        str,
        typer.Argument(
            help="A skeleton or signal store, a folder per class of .npy or .wav files, or a public dataset such as "
            "epic."
        ),
    ],
    modality: Annotated[
        str, typer.Option(help="What was recorded: skeleton, inertial, audio, video, flow or image.")
    ],
    to: Annotated[Path, typer.Option("--out", help="The feature store's folder.")],
    root: Annotated[
        Path | None, typer.Argument(help="A public dataset: the folder you keep it in.", exists=True, file_okay=False)
    ] = None,
    extractor: Annotated[
        str, typer.Option(help="kernels, cells, your own package.module:function, or an .onnx file.")
    ] = "",
    width: Annotated[int, typer.Option(min=0, help="Numbers per recording; 0: 1024, or what yours gives.")] = 0,
    subject: Annotated[
        str, typer.Option(help="Folders: a regular expression that finds the person in a file's name.")
    ] = "",
    device: Annotated[
        str, typer.Option(help="The device's name, such as watch: what its clients' group is called.")
    ] = "",
    frames: Annotated[int, typer.Option(min=8, max=1000, help="Skeletons are resized to so many frames.")] = 50,
    align: Annotated[bool, typer.Option(help="Turn skeletons so that the shoulders lie along x.")] = True,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a feature store at --out.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Turn recordings into vectors of one width; use them in a recipe with data = "features".

    If the store at --out was made of the same files in the same way, nothing is done again. Files that cannot be read
    are left out and named, and the exit status is then 1.
    """
    from fedaction.data.features import FeatureSet, find_extractor, keep_features, make_features

    with show_progress(modality, "recordings") as progress, show_warnings(), exit_on_refusal():
        refuse_pipe(Path(source))
        kind = _modality(modality)
        recordings = _recordings(source, root, kind, subject)
        if device:
            recordings = replace(recordings, device=device)
        if isinstance(recordings, FeatureSet):
            if extractor or width not in (0, recordings.width):
                raise ValueError(
                    f"{root} holds {kind} features of {recordings.width} numbers, which are taken as they "
                    "are: leave out --extractor and --width"
                )
            about = {**recordings.provenance, "device": device} if device else recordings.provenance
            given = replace(recordings, provenance=about)
            made, new = keep_features(lambda: given, about, to, overwrite=overwrite)
        else:
            chosen = find_extractor(
                kind, extractor, width=width, frames=frames, align=align, bodies=recordings.bodies
            )
            made, new = make_features(recordings, chosen, to, overwrite=overwrite, progress=progress)
    kept = {*made.names}
    left = [name for name in recordings.names if name not in kept]
    if as_json:
        facts = {
            "features": str(to),
            "new": new,
            "modality": made.modality,
            "device": made.device,
            "samples": len(made),
            "width": made.width,
            "classes": list(made.classes),
            "subjects": sorted(set(made.subjects)),
            "provenance": made.provenance,
        }
        print(json.dumps(facts))
        _end(left)
        return
    people = f", {len(set(made.subjects))} people" if made.subjects else ""
    done = "written to" if new else "nothing to do, the same features are already in"
    what = (made.device and f"{made.device} ({made.modality})") or made.modality
    say(
        f"{what}: {len(made)} recordings, {len(made.classes)} classes{people}, {made.width} numbers each; {done} {to}"
    )
    _end(left)


def _end(left: list[str]) -> None:
    """Names recordings that were left out, and ends with status 1 where there are any."""
    if left:
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        warn(f"{len(left)} recordings could not be used and were left out: {', '.join(left[:_NAMED])}{more}")
        raise typer.Exit(1)


_NAMED = 20  # recordings left out that are named


def _modality(word: str) -> Modality:
    """What was recorded; a device's name in its place is told where it belongs."""
    from fedaction.data.features import MODALITIES

    for modality in MODALITIES:
        if word == modality:
            return modality
    raise ValueError(
        f"--modality {word}: a modality is one of {', '.join(MODALITIES)}; the name of a device stands beside it: "
        f"--modality inertial --device {word}"
    )


def _recordings(source: str, root: Path | None, modality: Modality, subject: str) -> Collection | FeatureSet:
    """The recordings that a source names, or the features where it has them."""
    from fedaction.data.features import (
        EGOCENTRIC,
        SENSORS,
        from_egocentric,
        from_folder,
        from_public,
        from_signals,
        from_store,
    )
    from fedaction.data.public.readers import READERS
    from fedaction.data.signals.store import is_signal_store
    from fedaction.data.store import is_store

    if root is not None or (source in {**READERS, **SENSORS, **EGOCENTRIC} and not Path(source).exists()):
        if root is None:
            raise ValueError(f"say where {source} lies: fedaction features {source} ROOT ...")
        if source in EGOCENTRIC:
            return from_egocentric(source, root, modality)
        recordings = from_public(source, root)
    elif is_store(Path(source)):
        recordings = from_store(source)
    elif is_signal_store(Path(source)):
        recordings = from_signals(source)
    else:
        recordings = from_folder(source, modality, subject=subject or None)
    if recordings.modality != modality:
        raise ValueError(f"{source} holds {recordings.modality} recordings, not {modality}")
    return recordings
