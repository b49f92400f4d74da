"""Extractors that a user brings: a Python function, or a network as an ONNX file.

A function is the user's own code, named on the command line and run as such. An ONNX file is data: a graph of known
operators that onnxruntime carries out; no library of custom operators is loaded for it. TorchScript files and
`torch.export` archives (.pt, .pth, .pt2) are not taken: both can hold pickled objects, and unpickling runs whatever
code the file's author put there.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedaction.data.features.extract import Extractor, Recording, built_in
from fedaction.data.features.store import Modality
from fedaction.federation.files import hash_file
from fedaction.federation.outside import check_size, describe, refuse_damage

_MOST_BYTES = 4 * 2**30
_PICKLED = (".pt", ".pth", ".pt2", ".ts", ".pkl", ".pickle", ".ckpt")
_ONNX_TYPES = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(double)": np.float64}


def find_extractor(modality: Modality, name: str = "", **options: Any) -> Extractor:
    """An extractor by what the user calls it.

    Args:
        modality: of the recordings.
        name: "" or a built-in name; "package.module:function", called with an array and its rate in hertz (or None)
            and giving a vector; or the path of an .onnx file with one input, given one recording at a time with a
            leading axis of 1.
        options: see `built_in`; of these only `width` concerns the user's own.
    """
    if name.lower().endswith(_PICKLED):
        raise ValueError(
            f"{name} may hold pickled objects, which can run any code when they are opened, so it is not opened: "
            "export the network to an .onnx file, or name a function of your own as package.module:function"
        )
    width = int(options.get("width", 0))
    if name.lower().endswith(".onnx"):
        return _onnx(modality, Path(name), width)
    if ":" in name:
        return _function(modality, name, width)
    return built_in(modality, name, **options)


def _function(modality: Modality, name: str, width: int) -> Extractor:
    module_name, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:  # where an installed command does not look by itself
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
        call = getattr(module, attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"the extractor {name!r} cannot be found: {error}") from None
    if not callable(call):
        raise ValueError(f"the extractor {name!r} is not a function")

    def take(given: Sequence[Recording]) -> Tensor:
        return _stack(name, [np.asarray(call(item.array, item.rate_hz)) for item in given])

    source = inspect.getsourcefile(module)
    digest = hash_file(Path(source)) if source else ""
    return Extractor(name, 0, modality, width, {"file": digest}, take)


def _onnx(modality: Modality, path: Path, width: int) -> Extractor:
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    check_size(path, _MOST_BYTES)
    try:
        import onnxruntime  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ValueError(
            f"{path} needs onnxruntime, which is not installed: install it with `pip install onnxruntime`"
        ) from None
    with refuse_damage(path, "a network that onnxruntime can read"):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what is wrong is said in our words
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        inputs = session.get_inputs()
        if len(inputs) != 1 or inputs[0].type not in _ONNX_TYPES:
            has = ", ".join(f"{item.name} {item.type}" for item in inputs)
            raise ValueError(f"{path} must have one input, of floats or bytes; it has {has or 'none'}")
        entry, kind = inputs[0].name, _ONNX_TYPES[inputs[0].type]

    def take(given: Sequence[Recording]) -> Tensor:
        vectors = []
        for item in given:
            try:
                answers = session.run(None, {entry: np.ascontiguousarray(item.array[None], dtype=kind)})
            except Exception as error:  # onnxruntime's own classes, which derive from nothing narrower
                why = describe(error)
                raise ValueError(f"{path} refuses a recording of shape {item.array.shape}: {why}") from None
            vectors.append(np.asarray(answers[0]).reshape(-1))
        return _stack(path.name, vectors)

    return Extractor(path.name, 0, modality, width, {"file": hash_file(path)}, take)


def _stack(name: str, vectors: Sequence[np.ndarray[Any, Any]]) -> Tensor:
    shapes = {vector.shape for vector in vectors}
    if len(shapes) != 1 or vectors[0].ndim != 1 or vectors[0].dtype.kind not in "fiu":
        raise ValueError(f"extractor {name!r} must give one vector of numbers for each recording, all of one width")
    return torch.from_numpy(np.stack(vectors).astype(np.float32))
