"""`fedaction export`: a model as a file that other programs run."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedaction.cli.common import JsonFlag, err, exit_on_refusal, fail, say
from fedaction.cli.predict import ClientOption


class _Format(StrEnum):
    """What to export to."""

    onnx = "onnx"
    torch = "torch"


def export(
    model: Annotated[Path, typer.Argument(help="A model file (.safetensors), or a run's directory.", exists=True)],
    client: ClientOption = None,
    formats: Annotated[
        list[_Format], typer.Option("--format", help="onnx (.onnx) or torch (torch.export's .pt2); both by default.")
    ] = [_Format.onnx, _Format.torch],  # noqa: B006
    to: Annotated[
        Path | None, typer.Option("--out", help="Folder to write to; default: beside the model file.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Export a model to ONNX and torch.export, checked: its outputs must match the network's, or nothing is written.

    What is exported takes recordings of the right length, any number at once: skeletons (N, bodies, frames, joints,
    coordinates), signals (N, readings, channels), features (N, width), all float32; clips uint8 (N, frames, height,
    width, 3). Centring and scaling are inside. examples/onnx_numpy.py runs such a file with NumPy alone.
    """
    from fedaction.models.files import load_model  # torch takes seconds to load
    from fedaction.serve.export import export_model
    from fedaction.serve.network import find_model

    if to is not None and to.exists() and not to.is_dir():
        raise fail(f"{to} is a file; --out takes a folder")
    with err.status("exporting"), exit_on_refusal():
        model = find_model(model, client)
        stem = (model.parent if to is None else to) / model.name.removesuffix(".safetensors")
        network, card = load_model(model)
        made = export_model(network, card, stem, [chosen.value for chosen in formats])
    if as_json:
        files = {
            name: {"file": str(f.path), "sha256": f.sha256, "bytes": f.bytes, "difference": f.difference}
            for name, f in made.items()
        }
        print(json.dumps({"model": str(model), "classes": list(card.classes), "exported": files}))
        return
    for name, file in made.items():
        say(f"{name}: {file.path}, {file.bytes / 1e6:.1f} MB, logits within {file.difference:.0e} of the network's")
