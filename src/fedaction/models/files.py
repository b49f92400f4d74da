"""Model files: a network for video and what one must know to use it, in one .safetensors file.

    save_model(path, network, card)             network: a ResNet3D; card: a Card
    load_model(path) -> (network, card)         the network in evaluation mode, in float32 on the CPU
    read_card(path) -> (card, arguments)        without reading the weights

    Card(classes=("wave", "walk"), frames=8, stride=1, resize=128, crop=112, provenance={"recipe": "..."})

The file holds the network's tensors under their own names and one string of metadata, under the key "fedaction":
JSON with "format" (1), "architecture" ("resnet3d"), "arguments" (of its constructor) and "card". The sizes in it are
checked against the tensors before anything is allocated.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, create_model, field_validator
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fedaction.federation.files import write_atomically
from fedaction.models.resnet3d import ResNet3D

KEY = "fedaction"
FORMAT = 1
_CONFIG = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
_DTYPES = {"F64", "F32", "F16", "BF16"}


class ModelFileError(ValueError):
    """A model file that cannot be used, and why."""


class Card(BaseModel):
    """What a model recognises, and which clips it was trained on."""

    model_config = _CONFIG

    classes: Annotated[tuple[str, ...], Field(strict=False)]
    """Names of the actions, in the order of the logits; none of a network without a classifier."""
    frames: PositiveInt
    """Per clip."""
    stride: PositiveInt = 1
    """Frames of the video from one frame of a clip to the next."""
    resize: PositiveInt
    """The shorter side that frames are brought to, in pixels, before they are cropped."""
    crop: PositiveInt
    """Side of the square that is cut from their centre, in pixels."""
    provenance: dict[str, Any] = {}
    """Where it comes from: anything that JSON can say ("configuration": a hash of the recipe, ...)."""

    @field_validator("classes")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise ValueError("two classes have one name")
        return value

    @field_validator("crop")
    @classmethod
    def _fits(cls, value: int, info: Any) -> int:
        if value > info.data.get("resize", value):
            raise ValueError(f"a crop of {value} pixels does not fit into frames of {info.data['resize']}")
        return value


_hints = get_type_hints(ResNet3D.__init__)
_fields: dict[str, Any] = {
    name: (_hints[name], parameter.default)
    for name, parameter in inspect.signature(ResNet3D.__init__).parameters.items()
    if name != "self"
}
_Arguments = create_model("Arguments", __config__=_CONFIG, **_fields)


class _Metadata(BaseModel):
    model_config = _CONFIG

    format: int
    architecture: str
    arguments: _Arguments  # pyright: ignore[reportInvalidTypeForm]
    card: Card


def save_model(path: str | Path, network: ResNet3D, card: Card) -> None:
    """Writes a model file; it is whole or not there."""
    path = Path(path)
    _check_classes(network.arguments["classes"], card)
    metadata = {
        "format": FORMAT,
        "architecture": "resnet3d",
        "arguments": network.arguments,
        "card": card.model_dump(),
    }
    tensors = {n: t.detach().to("cpu", copy=True).contiguous() for n, t in network.state_dict().items()}
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ModelFileError(f"{name!r} has values that are not finite; nothing was written to {path}")
    blob = save(tensors, {KEY: json.dumps(metadata, allow_nan=False)})
    write_atomically(path, blob)


def read_card(path: str | Path) -> tuple[Card, dict[str, Any]]:
    """A model file's card and the arguments of its network; its tensors are not read."""
    try:
        with safe_open(path, "pt") as file:
            return _metadata(path, file.metadata())
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{path} cannot be read as a .safetensors file: {error}") from None


def load_model(path: str | Path) -> tuple[ResNet3D, Card]:
    """A model file's network and card; anything wrong with the file is a ModelFileError."""
    try:
        with safe_open(path, "pt") as file:
            card, arguments = _metadata(path, file.metadata())
            expected = {n: tuple(t.shape) for n, t in _build(path, arguments, "meta").state_dict().items()}
            _check_tensors(path, file, expected)
            network = _build(path, arguments, "cpu")
            own = network.state_dict()
            for name in expected:
                own[name].copy_(_check_tensor(path, name, file.get_tensor(name)))
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{path} cannot be read as a .safetensors file: {error}") from None
    return network.eval(), card


def _metadata(path: str | Path, strings: dict[str, str] | None) -> tuple[Card, dict[str, Any]]:
    text = (strings or {}).get(KEY)
    if text is None:
        raise ModelFileError(
            f"{path} has tensors but no {KEY!r} metadata, so it is not a model file; build the network and read the "
            "tensors with fedaction.models.weights.load_weights, then write one with save_model"
        )
    try:
        values = json.loads(text)
        if isinstance(values, dict) and values.get("format") != FORMAT:
            raise ModelFileError(f"{path} has format {values.get('format')!r}; this version reads {FORMAT}")
        if isinstance(values, dict) and values.get("architecture") != "resnet3d":
            raise ModelFileError(f"{path} has architecture {values.get('architecture')!r}; known is 'resnet3d'")
        metadata = _Metadata.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "metadata"
        raise ModelFileError(f"{path} is not a usable model file: {place}: {first['msg']}") from None
    except json.JSONDecodeError as error:
        raise ModelFileError(f"{path} has {KEY!r} metadata that is not JSON: {error}") from None
    arguments: dict[str, Any] = metadata.arguments.model_dump()
    try:
        _check_classes(arguments["classes"], metadata.card)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
    return metadata.card, arguments


def _check_classes(outputs: int, card: Card) -> None:
    if outputs != len(card.classes):
        raise ModelFileError(f"the network has {outputs} classes, the card names {len(card.classes)}")


def _build(path: str | Path, arguments: dict[str, Any], device: str) -> ResNet3D:
    try:
        with torch.device(device):
            return ResNet3D(**arguments)
    except (ValueError, RuntimeError, OverflowError) as error:
        raise ModelFileError(f"{path} describes a network that cannot be built: {error}") from None


def _check_tensors(path: str | Path, file: Any, expected: dict[str, tuple[int, ...]]) -> None:
    names = set(file.keys())
    missing, unknown = sorted(expected.keys() - names), sorted(names - expected.keys())
    if missing or unknown:
        words = [f"lacks {', '.join(missing[:3])}"] if missing else []
        words += [f"has unknown {', '.join(unknown[:3])}"] if unknown else []
        raise ModelFileError(f"{path} does not hold the network that it describes: it {' and '.join(words)}")
    for name, shape in expected.items():
        part = file.get_slice(name)
        if tuple(part.get_shape()) != shape or part.get_dtype() not in _DTYPES:
            raise ModelFileError(
                f"{path}: {name!r} is {part.get_dtype()} {tuple(part.get_shape())}, needed are floats {shape}"
            )


def _check_tensor(path: str | Path, name: str, tensor: Tensor) -> Tensor:
    if not torch.isfinite(tensor).all():
        raise ModelFileError(f"{path}: {name!r} has values that are not finite")
    if name.endswith("running_var") and (tensor < 0).any():
        raise ModelFileError(f"{path}: {name!r}, a variance, has values below 0")
    return tensor
