"""What passes between a server and a site, as bytes: JSON and safetensors, which cannot execute code.

A message is its kind, scalars and named trees of tensors. Nothing else crosses: no sample, no label, no LOCAL tensor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, TypeVar, cast, get_type_hints

from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedaction.data.client import ClientInfo
from fedaction.evaluation.site import Evaluation, Question
from fedaction.federation.outside import shorten
from fedaction.federation.state import Job, Update
from fedaction.federation.tree import Tree, tree_bytes

MOST_BYTES = 4 << 30
"""Of a message; a larger one is refused before it is read."""
MOST_HEADER = 16 << 20
"""Of all in a message that is not a tensor; as Python's objects it may take fifty times as much memory."""
_HEADERS: dict[type, int] = {Evaluation: MOST_HEADER}  # evidence is JSON
_SMALL_HEADER = 2 << 20
_LENGTH = 8  # bytes in front of the header, which say how long it is


class MessageError(ValueError):
    """Bytes that are no message, and why."""


# What reading bytes of any kind may raise; RuntimeError covers torch's own and too deep a nesting.
_MALFORMED = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
    SafetensorError,
)


def _shorten(error: Exception) -> str:
    """What is wrong, without much of what was sent."""
    text = shorten(f"{type(error).__name__} {error}", 500)
    return text.encode("ascii", "backslashreplace").decode()[:500]


@dataclass(frozen=True)
class Message:
    """A message taken apart."""

    kind: str
    """What it is."""
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Scalars, as JSON has them."""
    trees: Mapping[str, Tree] = field(default_factory=dict[str, Tree])
    """Tensors by the name of their tree and their own."""

    def pack(self) -> bytes:
        """The message as bytes."""
        names = [(tree, name) for tree, tensors in self.trees.items() for name in tensors]
        header = json.dumps({"kind": self.kind, "values": self.values, "names": names}).encode()
        flat: dict[str, Tensor] = {}
        for number, (tree, name) in enumerate(names):
            flat[str(number)] = self.trees[tree][name].detach().to("cpu", copy=True).contiguous()
        return len(header).to_bytes(_LENGTH, "little") + header + save(flat)

    @classmethod
    def unpack(cls, content: bytes, most: int = MOST_BYTES, header: int = MOST_HEADER) -> Message:
        """Reads what `pack` gave; anything else is a MessageError.

        Tensors are no larger than the bytes that came, whatever they are declared as: safetensors checks that first.

        Args:
            content: what came.
            most: bytes that it may have.
            header: bytes of it that may not be tensors.
        """
        if len(content) > most:
            raise MessageError(f"a message of {len(content)} bytes is larger than the {most} that are allowed")
        size = int.from_bytes(content[:_LENGTH], "little")
        if len(content) < _LENGTH or size > min(header, len(content) - _LENGTH):
            raise MessageError(
                f"these {len(content)} bytes are no message: their header would have {size}, of at most {header}"
            )
        try:
            read: Any = json.loads(content[_LENGTH : _LENGTH + size])
            flat = load(content[_LENGTH + size :])
            trees: dict[str, dict[str, Tensor]] = {}
            if len(flat) != len(read["names"]):
                raise MessageError(f"a message names {len(read['names'])} tensors, but holds {len(flat)}")
            for number, (tree, name) in enumerate(read["names"]):
                trees.setdefault(str(tree), {})[str(name)] = flat[str(number)]
            return cls(str(read["kind"]), dict(read["values"]), cast("Mapping[str, Tree]", trees))
        except _MALFORMED as error:
            raise MessageError(f"these {len(content)} bytes are no message: {_shorten(error)}") from None


T = TypeVar("T", Job, Update, Question, Evaluation, ClientInfo)
_TREES: dict[type, str] = {Job: "payload", Update: "tree"}
"""The field that holds tensors; all others are scalars, or made of them."""


def pack(thing: Job | Update | Question | Evaluation | ClientInfo) -> bytes:
    """A job, update, question, evaluation or description of a client as a message."""
    tree = _TREES.get(type(thing), "")
    adapters = _adapters(type(thing))
    values = {name: adapter.dump_python(getattr(thing, name)) for name, adapter in adapters.items()}
    return Message(type(thing).__name__, values, {tree: getattr(thing, tree)} if tree else {}).pack()


def largest_answer(job: Job) -> int:
    """The most bytes that an update of a job may have as a message: its tensors are those that were sent."""
    return _SMALL_HEADER + tree_bytes(job.payload) + 1000 * len(job.payload)


def unpack(kind: type[T], content: bytes, most: int = MOST_BYTES) -> T:
    """What a message holds, every field checked; whatever is no message of that kind is a MessageError.

    `most` are the bytes that it may have; `largest_answer` says how many those of an update are.
    """
    message = Message.unpack(content, most, _HEADERS.get(kind, _SMALL_HEADER))
    if message.kind != kind.__name__:
        raise MessageError(f"expected a message of kind {kind.__name__!r}, got {message.kind[:100]!r}")
    values: dict[str, Any] = {_TREES[kind]: message.trees.get(_TREES[kind], {})} if kind in _TREES else {}
    try:
        for name, adapter in _adapters(kind).items():
            values[name] = adapter.validate_python(message.values[name])
        return kind(**values)
    except _MALFORMED as error:
        raise MessageError(f"a message of kind {kind.__name__!r} is not whole: {_shorten(error)}") from None


@cache
def _adapters(kind: type) -> dict[str, TypeAdapter[Any]]:
    """What reads and writes each field of a kind, but for its tensors."""
    hints = get_type_hints(kind)
    return {f.name: TypeAdapter(hints[f.name]) for f in fields(kind) if f.name != _TREES.get(kind)}
