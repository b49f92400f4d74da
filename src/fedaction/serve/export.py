"""A trained network as a file that other programs run: ONNX, and torch.export's .pt2.

Both take recordings of the right length, (N, *shape) float32, any number at once, and give (N, classes) logits: what
is arithmetic between a recording and the network (centring, scaling) is inside. Video is clips as a decoder gives
them, (N, T, H, W, 3) uint8. Each is run on random input before it is written, and refused where it does not give what
the network gives.
"""

# torch's type stubs are partial, onnx and onnxruntime have none.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportMissingImports=false, reportUnknownLambdaType=false

from __future__ import annotations

import copy
import hashlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedaction import __version__
from fedaction.federation.files import write_atomically, write_json
from fedaction.federation.seeds import generator
from fedaction.models.files import KEY, Card
from fedaction.models.folded import Folded
from fedaction.models.resnet3d import ResNet3D
from fedaction.models.steps import Prepared, Steps
from fedaction.serve.onnx import OUTPUT, input_name

TOLERANCE = 1e-4
"""The most that a logit may differ from the network's, as a share of the largest logit (of 1, if all are smaller)."""

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}
_BATCHES = (1, 3, 7)  # recordings per trial: the number must not be fixed in the file


class ExportError(ValueError):
    """A network that could not be exported as it is, and why."""


@dataclass(frozen=True)
class Exported:
    """A file that was written."""

    path: Path
    """Where; beside it lies a .json with what it is."""
    sha256: str
    """Of the file."""
    bytes: int
    """Its size."""
    difference: float
    """The largest difference to the network's logits in the trial, as a share like TOLERANCE."""


def export_model(
    network: nn.Module, card: Card, stem: str | Path, formats: Sequence[str] = ("onnx", "torch")
) -> dict[str, Exported]:
    """Exports a network, once for each format.

    Args:
        network: with a classifier; it is left as it is.
        card: what it recognises, and what it takes.
        stem: where to write: a path without a suffix; each format adds its own.
        formats: "onnx" (.onnx), "torch" (.pt2).

    Returns:
        What was written, by format. Where one format fails nothing is written for it, and an ExportError says why.
    """
    unknown = [name for name in formats if name not in SUFFIXES]
    if unknown or not formats:
        raise ExportError(f"format {', '.join(unknown) or 'none'}: known are {', '.join(SUFFIXES)}")
    if not card.classes:
        raise ExportError("the network has no classifier, so it says nothing that could be used")
    resnet = isinstance(network, ResNet3D)
    whole = network if card.input.kind == "video" else Prepared(Steps(card.input), network)
    training = network.training
    network.eval()
    try:
        trials = _trials(whole, card)
        if trials[0][1].shape[1:] != (len(card.classes),):
            raise ExportError(f"the network has {trials[0][1].shape[-1]} classes, its card {len(card.classes)}")
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about torch's own insides
            ready = Folded(network) if resnet else copy.deepcopy(whole)
            program = _program(ready.float().cpu(), trials[-1][0])
            description = metadata(card, network.arguments if resnet else None)
            names = dict.fromkeys(formats)
            return {name: _export(name, program, description, card, trials, Path(stem)) for name in names}
    finally:
        network.train(training)


def metadata(card: Card, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    """What an exported file says of itself; `configuration` is a hash of all the rest."""
    about = {"architecture": "program"} if arguments is None else {"architecture": "resnet3d", "arguments": arguments}
    description = {**about, "card": card.model_dump(), "fedaction": __version__}
    text = json.dumps(description, sort_keys=True, allow_nan=False)
    return {**json.loads(text), "configuration": hashlib.sha256(text.encode()).hexdigest()}


def _trials(network: nn.Module, card: Card) -> list[tuple[Tensor, Tensor]]:
    """Random recordings, and what the network says of them."""
    trials: list[tuple[Tensor, Tensor]] = []
    device = next((t.device for t in (*network.parameters(), *network.buffers())), torch.device("cpu"))
    for count in _BATCHES:
        shape, random = (count, *card.input.shape), generator(0, "export", count)
        if card.input.kind == "video":
            x = torch.randint(0, 256, shape, generator=random, dtype=torch.uint8)
        else:
            x = torch.randn(shape, generator=random)
        with torch.no_grad():
            trials.append((x, network(x.to(device)).float().cpu()))
    return trials


def _export(
    name: str,
    program: torch.export.ExportedProgram,
    description: dict[str, Any],
    card: Card,
    trials: list[tuple[Tensor, Tensor]],
    stem: Path,
) -> Exported:
    try:
        blob, run = (_onnx if name == "onnx" else _torch)(program, json.dumps(description), input_name(card))
    except ImportError:
        raise
    except Exception as error:  # the exporters raise errors of many kinds
        raise ExportError(f"{name}: the network could not be exported: {error}") from error
    difference = max(_difference(run(x), expected) for x, expected in trials)
    if not difference <= TOLERANCE:
        raise ExportError(
            f"{name}: what was exported differs from the network by {difference:.1e} of the largest logit, more than "
            f"{TOLERANCE:.0e}; nothing was written"
        )
    path = stem.with_name(stem.name + SUFFIXES[name])
    digest = hashlib.sha256(blob).hexdigest()
    write_atomically(path, blob)
    beside = {
        **description,
        "file": path.name,
        "sha256": digest,
        "bytes": len(blob),
        "input": {
            "name": input_name(card),
            "shape": [input_name(card), *trials[0][0].shape[1:]],
            "type": str(trials[0][0].dtype).removeprefix("torch."),
        },
        "output": {"name": OUTPUT, "shape": [input_name(card), trials[0][1].shape[1]], "type": "float32"},
        "difference": difference,
        "tolerance": TOLERANCE,
    }
    write_json(path.with_name(path.name + ".json"), beside)
    return Exported(path, digest, len(blob), difference)


def _difference(actual: Tensor, expected: Tensor) -> float:
    if actual.shape != expected.shape:
        raise ExportError(f"the exported file gives {tuple(actual.shape)}, the network {tuple(expected.shape)}")
    return float((actual - expected).abs().max() / expected.abs().max().clamp(min=1.0))


def _program(network: nn.Module, x: Tensor) -> torch.export.ExportedProgram:
    try:
        program = torch.export.export(
            network.eval(), (x,), dynamic_shapes=({0: torch.export.Dim("recordings", min=1)},), strict=False
        )
    except Exception as error:  # errors of many kinds
        raise ExportError(f"the network could not be exported: {error}") from error
    program.example_inputs = None
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it names the folders of the machine that exported
    return program


Run = Callable[[Tensor], Tensor]


def _torch(program: torch.export.ExportedProgram, description: str, name: str) -> tuple[bytes, Run]:
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={f"{KEY}.json": description})
    return file.getvalue(), torch.export.load(io.BytesIO(file.getvalue())).module()


def _onnx(program: torch.export.ExportedProgram, description: str, name: str) -> tuple[bytes, Run]:
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  # pyright: ignore[reportUnusedImport]  # torch's exporter needs it
    except ImportError as error:
        raise ImportError(f"export to ONNX needs {error.name}: pip install 'fedaction[export]'") from None
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    quiet.setLevel(logging.ERROR)  # it would warn of a package that nothing here uses
    try:
        made = torch.onnx.export(
            program, (), input_names=[name], output_names=[OUTPUT], dynamo=True, verbose=False, optimize=True
        )
    finally:
        quiet.setLevel(level)
    assert made is not None
    model = made.model_proto
    for node in model.graph.node:
        node.ClearField("metadata_props")  # traces of the source code
        node.ClearField("doc_string")
    model.metadata_props.add(key=KEY, value=description)
    blob: bytes = model.SerializeToString()
    session = onnxruntime.InferenceSession(blob, providers=["CPUExecutionProvider"])
    return blob, lambda x: torch.from_numpy(session.run([OUTPUT], {name: x.numpy()})[0])
