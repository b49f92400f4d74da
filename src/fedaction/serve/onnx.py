"""Models that `fedaction export` wrote as ONNX, run by onnxruntime."""

# onnxruntime has no type stubs.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportMissingImports=false

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedaction.federation.files import read_json
from fedaction.federation.outside import describe, refuse_damage, shorten
from fedaction.models.files import KEY, Card, ModelFileError

OUTPUT = "logits"


def input_name(card: Card) -> str:
    """What an exported model calls its input."""
    return "clips" if card.input.kind == "video" else "recordings"


def open_onnx(path: Path) -> tuple[Card, None, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]]:
    """An exported model's card and what gives its logits; what is wrong with the file is a ModelFileError."""
    try:
        import onnxruntime
    except ImportError:
        raise ImportError("a model in .onnx needs onnxruntime: pip install 'fedaction[export]'") from None
    try:
        blob = path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error}") from None
    beside = path.with_name(path.name + ".json")
    if beside.exists():
        description: Any = read_json(beside)
        if not isinstance(description, dict) or description.get("sha256") != hashlib.sha256(blob).hexdigest():
            raise ModelFileError(
                f"{path} is not the file that {beside.name} describes; copy both again, or remove the .json"
            )
    try:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # clips are looked at side by side instead
        options.log_severity_level = 4  # what is wrong is said in our words
        session: Any = onnxruntime.InferenceSession(blob, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no base of their own
        raise ModelFileError(f"{path} cannot be read as an ONNX model: {describe(error)}") from None
    card = _card_of(path, session)
    with refuse_damage(path, "an exported model", ModelFileError):
        _check(path, session, card)
    name = input_name(card)

    def logits(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        try:
            return session.run([OUTPUT], {name: np.ascontiguousarray(x)})[0]
        except Exception as error:
            raise ModelFileError(f"{path} fails on recordings of shape {x.shape}: {describe(error)}") from None

    return card, None, logits


def _card_of(path: Path, session: Any) -> Card:
    with refuse_damage(path, "an exported model", ModelFileError):
        text = session.get_modelmeta().custom_metadata_map.get(KEY)
        if text is None:
            raise ModelFileError(f"{path} was not made by `fedaction export`: it does not say what it takes")
        return Card.model_validate_json(json.dumps(json.loads(text)["card"]))


def _check(path: Path, session: Any, card: Card) -> None:
    """The file's input and output against its card."""
    actual = [(x.name, x.type, list(x.shape)[1:]) for x in (*session.get_inputs(), *session.get_outputs())]
    expected = [
        (input_name(card), f"tensor({'uint8' if card.input.kind == 'video' else 'float'})", list(card.input.shape)),
        (OUTPUT, "tensor(float)", [len(card.classes)]),
    ]
    if actual != expected:
        raise ModelFileError(f"{path} takes and gives {shorten(actual)}, its card says {shorten(expected)}")
