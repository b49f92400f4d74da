"""Model files: a network and what one must know to use it, in one .safetensors file.

    save_model(path, network, card)             network: any nn.Module; card: a Card
    load_model(path) -> (network, card)         the network in evaluation mode, on the CPU; a ResNet3D or a Program
    load_resnet(path) -> (network, card)        the same of a 3D ResNet alone
    read_card(path) -> (card, arguments)        without reading the weights

    Card(classes=("wave", "walk"), input=Input(kind="features", shape=(64,)), provenance={"recipe": "..."})

The file holds the network's tensors under their own names and strings of metadata. Under "fedaction" is JSON with
"format" (2; 1, of clips alone, is read too), "architecture" and "card". A "resnet3d" is built from its "arguments";
of any other network, a "program", what it does is under "fedaction.program" (`models.program`). The sizes in it are
checked against the tensors before anything is allocated.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, cast, get_type_hints

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from fedaction.data.inputs import Input, clip_input
from fedaction.federation.files import write_atomically
from fedaction.federation.outside import check_size, parse_json, refuse_damage
from fedaction.federation.seeds import generator
from fedaction.models.program import MOST_CHARACTERS, Graph, Program, ProgramError, record
from fedaction.models.resnet3d import ResNet3D

KEY = "fedaction"
PROGRAM = "fedaction.program"
FORMAT = 2
_CONFIG = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
_DTYPES = {"F64", "F32", "F16", "BF16"}
_MORE_DTYPES = _DTYPES | {"I64", "I32", "I16", "I8", "U8", "BOOL"}


class ModelFileError(ValueError):
    """A model file that cannot be used, and why."""


class Card(BaseModel):
    """What a model recognises, and how a recording becomes what it takes."""

    model_config = _CONFIG

    classes: Annotated[tuple[str, ...], Field(strict=False)]
    """Names of the actions, in the order of the logits; none of a network without a classifier."""
    input: Input
    """What it takes."""
    provenance: dict[str, Any] = {}
    """Where it comes from: anything that JSON can say ("configuration": a hash of the recipe, ...)."""

    @field_validator("classes")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise ValueError("two classes have one name")
        return value

    @property
    def frames(self) -> int:
        """Of clips: per clip."""
        return self._clip.shape[0]

    @property
    def stride(self) -> int:
        """Of clips: frames of the video from one frame of a clip to the next."""
        return self._clip.stride

    @property
    def resize(self) -> int:
        """Of clips: the shorter side that frames are brought to, in pixels, before they are cropped."""
        return cast("int", self._clip.resize)

    @property
    def crop(self) -> int:
        """Of clips: side of the square that is cut from their centre, in pixels."""
        return self._clip.shape[1]

    @property
    def _clip(self) -> Input:
        if self.input.kind != "video":
            raise ModelFileError(f"this model takes {self.input.kind} {self.input.shape}, not video")
        return self.input


def clip_card(
    *,
    classes: tuple[str, ...],
    frames: int,
    stride: int = 1,
    resize: int,
    crop: int,
    provenance: dict[str, Any] | None = None,
) -> Card:
    """The card of a network for video; see `Card.frames`, `stride`, `resize` and `crop`."""
    given = clip_input((frames, crop, crop, 3), stride, resize)
    return Card(classes=classes, input=given, provenance=provenance or {})


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
    arguments: _Arguments | None = None  # pyright: ignore[reportInvalidTypeForm]
    card: Card


def save_model(path: str | Path, network: nn.Module, card: Card) -> None:
    """Writes a model file; it is whole or not there. A network that cannot be written is a ProgramError."""
    if isinstance(network, ResNet3D):
        _check_classes(network.arguments["classes"], card)
        tensors, extra = network.state_dict(), {}
        about: dict[str, Any] = {"architecture": "resnet3d", "arguments": network.arguments}
    else:
        if isinstance(network, Program):
            graph, tensors = network.graph, network.state_dict()
        else:
            device = next((t.device for t in (*network.parameters(), *network.buffers())), torch.device("cpu"))
            graph, tensors = record(network, make_example(card.input).to(device))
        about, extra = {"architecture": "program"}, {PROGRAM: graph.to_json()}
    save_tensors(path, tensors, about, card, extra)


def make_example(given: Input) -> Tensor:
    """A few samples to record a network with."""
    shape = 3, *given.network_shape
    random = generator(0, "example")
    if given.kind == "video":
        return torch.randint(0, 256, shape, generator=random, dtype=torch.uint8)
    return torch.randn(shape, generator=random)


def save_tensors(
    path: str | Path, tensors: dict[str, Tensor], about: dict[str, Any], card: Card, extra: dict[str, str]
) -> None:
    """Writes tensors with what they belong to, see the module; values that are not finite are refused."""
    kept = {n: t.detach().to("cpu", copy=True).contiguous() for n, t in tensors.items()}
    for name, tensor in kept.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all() and not name.startswith("constant."):
            raise ModelFileError(f"{name!r} has values that are not finite; nothing was written to {path}")
    metadata = {"format": FORMAT, **about, "card": card.model_dump()}
    write_atomically(Path(path), _order(save(kept, {KEY: json.dumps(metadata, allow_nan=False), **extra})))


def _order(blob: bytes) -> bytes:
    """A safetensors file whose metadata are in order: the library writes them in any, another in each process."""
    length = int.from_bytes(blob[:8], "little")
    header: dict[str, Any] = json.loads(blob[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight bytes
    return len(text).to_bytes(8, "little") + text + blob[8 + length :]


def read_card(path: str | Path) -> tuple[Card, dict[str, Any] | None]:
    """A model file's card and the arguments of a 3D ResNet, None of others; its tensors are not read."""
    with _open(path) as file:
        return _metadata(path, file.metadata())


@contextmanager
def _open(path: str | Path) -> Generator[Any]:
    """A .safetensors file; whatever goes wrong with it in the block is a ModelFileError."""
    with refuse_damage(path, "a .safetensors file", ModelFileError):
        check_size(Path(path), sys.maxsize, ModelFileError)  # of any size, but a file
        with safe_open(path, "pt") as file:
            yield file


def describe_resnet(path: str | Path) -> str:
    """What a model file says of its 3D ResNet, as JSON without a tensor; `shape_resnet` reads it elsewhere.

    Where the network comes from (the card's provenance) is left out.
    """
    card, arguments = read_card(path)
    if arguments is None:
        raise ModelFileError(f"{path} holds a network for {card.input.kind}; needed is a 3D ResNet for video")
    about = {"format": FORMAT, "architecture": "resnet3d", "arguments": arguments}
    return json.dumps({**about, "card": card.model_copy(update={"provenance": {}}).model_dump()}, allow_nan=False)


def shape_resnet(text: str, origin: str) -> tuple[ResNet3D, Card]:
    """The 3D ResNet that `describe_resnet` has described, with shapes but without memory, and its card."""
    card, arguments = _metadata(origin, {KEY: text})
    if arguments is None:
        raise ModelFileError(f"{origin} holds a network for {card.input.kind}; needed is a 3D ResNet for video")
    return _build(origin, arguments, "meta"), card


def load_model(path: str | Path) -> tuple[ResNet3D | Program, Card]:
    """A model file's network and card; anything wrong with the file is a ModelFileError."""
    with _open(path) as file:
        card, arguments = _metadata(path, file.metadata())
        network = _program(path, file, card) if arguments is None else _resnet(path, file, arguments)
    return network.eval(), card


def load_resnet(path: str | Path) -> tuple[ResNet3D, Card]:
    """A model file's 3D ResNet and card; a file of another network is a ModelFileError."""
    network, card = load_model(path)
    if not isinstance(network, ResNet3D):
        raise ModelFileError(f"{path} holds a network for {card.input.kind}; needed is a 3D ResNet for video")
    return network, card


def _resnet(path: str | Path, file: Any, arguments: dict[str, Any]) -> ResNet3D:
    expected = {n: tuple(t.shape) for n, t in _build(path, arguments, "meta").state_dict().items()}
    _check_tensors(path, file, expected)
    network = _build(path, arguments, "cpu")
    own = network.state_dict()
    for name in expected:
        own[name].copy_(_check_tensor(path, name, file.get_tensor(name)))
    return network


def _program(path: str | Path, file: Any, card: Card) -> Program:
    text = file.metadata().get(PROGRAM)
    if text is None or len(text) > MOST_CHARACTERS:
        raise ModelFileError(f"{path} does not say what its network does, or says too much")
    try:
        graph = Graph.from_json(text)
        names = graph.names()
        missing = sorted(names - set(file.keys()))
        if missing:
            raise ProgramError(f"it lacks {', '.join(missing[:3])}")
        for name in names:
            if (found := file.get_slice(name).get_dtype()) not in _MORE_DTYPES:
                raise ProgramError(f"{name!r} is {found}")
        program = Program(graph, {n: _check_tensor(path, n, file.get_tensor(n)) for n in sorted(names)})
        given = card.input
        shape = program.check_size(given.network_shape, torch.uint8 if given.kind == "video" else torch.float32)
    except ProgramError as error:
        raise ModelFileError(f"{path} is not a usable model file: {error}") from None
    if card.classes and shape != (len(card.classes),):
        raise ModelFileError(f"{path}: the network gives {shape} for a sample, its card names {len(card.classes)}")
    return program


def _metadata(path: str | Path, strings: dict[str, str] | None) -> tuple[Card, dict[str, Any] | None]:
    text = (strings or {}).get(KEY)
    if text is None:
        raise ModelFileError(
            f"{path} has tensors but no {KEY!r} metadata, so it is not a model file; of a run's checkpoint, use the "
            "run's directory, or its model.safetensors or models/clients/*.safetensors"
        )
    try:
        values = parse_json(text, f"{path} ({KEY!r} metadata)", ModelFileError)
        if isinstance(values, dict):
            if values.get("format") not in (1, FORMAT):
                raise ModelFileError(f"{path} has format {values.get('format')!r}; this version reads 1 and {FORMAT}")
            if values.get("architecture") not in ("resnet3d", "program"):
                raise ModelFileError(
                    f"{path} has architecture {values.get('architecture')!r}; known are 'resnet3d' and 'program'"
                )
            if values["format"] == 1 and isinstance(values.get("card"), dict):
                values["card"] = _card_of_before(values["card"])
        metadata = _Metadata.model_validate_json(json.dumps(values))
        if (metadata.arguments is None) != (metadata.architecture == "program"):
            raise ModelFileError(f"{path} is not a usable model file: a {metadata.architecture} lacks its arguments")
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "metadata"
        raise ModelFileError(f"{path} is not a usable model file: {place}: {first['msg']}") from None
    if metadata.arguments is None:
        return metadata.card, None
    arguments: dict[str, Any] = metadata.arguments.model_dump()
    try:
        _check_classes(arguments["classes"], metadata.card)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
    return metadata.card, arguments


def _card_of_before(card: dict[str, Any]) -> dict[str, Any]:
    """The card of a file of format 1, which was about clips."""
    rest = {key: value for key, value in card.items() if key not in ("frames", "stride", "resize", "crop")}
    crop = card.get("crop")
    shape = [card.get("frames"), crop, crop, 3]
    return {
        **rest,
        "input": {"kind": "video", "shape": shape, "resize": card.get("resize"), "stride": card.get("stride", 1)},
    }


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
