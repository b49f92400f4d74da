"""What passes between a server and a site, as bytes: JSON and safetensors, which cannot execute code.

A message is its kind, scalars and named trees of tensors. Nothing else crosses: no sample, no label, no LOCAL tensor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedaction.data.client import ClientInfo
from fedaction.data.layout import Layout
from fedaction.evaluation.site import Evaluation, Neighbours, Question
from fedaction.federation.state import Job, Update
from fedaction.federation.tree import Tree

MOST_BYTES = 4 << 30
"""Of a message; a larger one is refused before it is read."""
_MOST_HEADER = 64 << 20
_LENGTH = 8  # bytes in front of the header, which say how long it is


class MessageError(ValueError):
    """Bytes that are no message, and why."""


@dataclass(frozen=True)
class Message:
    """A message taken apart.

    Attributes:
        kind: what it is.
        values: scalars, as JSON has them.
        trees: tensors by the name of their tree and their own.
    """

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    trees: Mapping[str, Tree] = field(default_factory=dict[str, Tree])

    def pack(self) -> bytes:
        """The message as bytes."""
        names = [(tree, name) for tree, tensors in self.trees.items() for name in tensors]
        header = json.dumps({"kind": self.kind, "values": self.values, "names": names}).encode()
        flat: dict[str, Tensor] = {}
        for number, (tree, name) in enumerate(names):
            flat[str(number)] = self.trees[tree][name].detach().to("cpu", copy=True).contiguous()
        return len(header).to_bytes(_LENGTH, "little") + header + save(flat)

    @classmethod
    def unpack(cls, content: bytes) -> Message:
        """Reads what `pack` gave; anything else is a MessageError."""
        if len(content) > MOST_BYTES:
            raise MessageError(f"a message of {len(content)} bytes is larger than the {MOST_BYTES} that are allowed")
        size = int.from_bytes(content[:_LENGTH], "little")
        if len(content) < _LENGTH or size > min(_MOST_HEADER, len(content) - _LENGTH):
            raise MessageError(f"these {len(content)} bytes are no message: their header would have {size}")
        try:
            header: Any = json.loads(content[_LENGTH : _LENGTH + size])
            flat = load(content[_LENGTH + size :])
            trees: dict[str, dict[str, Tensor]] = {}
            if len(flat) != len(header["names"]):
                raise MessageError(f"a message names {len(header['names'])} tensors, but holds {len(flat)}")
            for number, (tree, name) in enumerate(header["names"]):
                trees.setdefault(str(tree), {})[str(name)] = flat[str(number)]
            return cls(str(header["kind"]), dict(header["values"]), cast("Mapping[str, Tree]", trees))
        except (ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
            raise MessageError(f"these {len(content)} bytes are no message: {error}") from None


def pack_job(job: Job) -> bytes:
    """A job as a message."""
    values = {"client": job.client, "group": job.group, "version": job.version, "round": job.round}
    return Message("job", {**values, "number": job.number}, {"payload": job.payload}).pack()


def unpack_job(content: bytes) -> Job:
    """A job from a message."""
    message = _expect("job", content)
    values = message.values
    try:
        version, round, number = (int(values[key]) for key in ("version", "round", "number"))
        payload = message.trees.get("payload", {})
        return Job(str(values["client"]), str(values["group"]), version, round, payload, number)
    except (KeyError, TypeError, ValueError) as error:
        raise MessageError(f"a job's message is not whole: {error}") from None


def pack_update(update: Update) -> bytes:
    """An update as a message."""
    values = {"client": update.client, "group": update.group, "version": update.version, "samples": update.samples}
    values |= {"metrics": dict(update.metrics), "fault": update.fault}
    return Message("update", values, {"tree": update.tree}).pack()


def unpack_update(content: bytes) -> Update:
    """An update from a message."""
    message = _expect("update", content)
    values = message.values
    try:
        metrics = {str(name): float(value) for name, value in values["metrics"].items()}
        client, group, version = str(values["client"]), str(values["group"]), int(values["version"])
        tree, samples = message.trees.get("tree", {}), float(values["samples"])
        return Update(client, group, version, tree, samples, metrics, str(values["fault"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MessageError(f"an update's message is not whole: {error}") from None


def pack_evaluation(evaluation: Evaluation) -> bytes:
    """What a site reports, as a message."""
    return Message("evaluation", asdict(evaluation)).pack()


def unpack_evaluation(content: bytes) -> Evaluation:
    """What a site reports, from a message."""
    values = _expect("evaluation", content).values
    try:
        metrics = {str(name): float(value) for name, value in values["metrics"].items()}
        return Evaluation(str(values["client"]), metrics, dict(values["evidence"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MessageError(f"an evaluation's message is not whole: {error}") from None


def pack_question(question: Question) -> bytes:
    """What a site is asked for, as a message."""
    return Message("question", asdict(question)).pack()


def unpack_question(content: bytes) -> Question:
    """What a site is asked for, from a message."""
    values = _expect("question", content).values
    try:
        neighbours = values["neighbours"] and Neighbours(**values["neighbours"])
        return Question(tuple(values["evidence"]), int(values["samples"]), neighbours)
    except (KeyError, TypeError, ValueError) as error:
        raise MessageError(f"a question's message is not whole: {error}") from None


def pack_client(info: ClientInfo) -> bytes:
    """What a server may know of a client, as a message."""
    values = {"id": info.id, "group": info.group, "samples": info.samples, "classes": info.classes}
    layout = None if info.layout is None else info.layout.to_dict()
    return Message("client", {**values, "shape": info.shape, "layout": layout}).pack()


def unpack_client(content: bytes) -> ClientInfo:
    """What a server may know of a client, from a message."""
    values = _expect("client", content).values
    try:
        layout = None if values["layout"] is None else Layout.from_dict(values["layout"])
        classes, shape = tuple(map(str, values["classes"])), tuple(map(int, values["shape"]))
        return ClientInfo(str(values["id"]), str(values["group"]), int(values["samples"]), classes, shape, layout)
    except (KeyError, TypeError, ValueError) as error:
        raise MessageError(f"a client's message is not whole: {error}") from None


def _expect(kind: str, content: bytes) -> Message:
    message = Message.unpack(content)
    if message.kind != kind:
        raise MessageError(f"expected a message of kind {kind!r}, got {message.kind!r}")
    return message
