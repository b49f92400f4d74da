"""What a site is sent once: FROZEN tensors and, of a model file that a run starts from, what the site keeps.

A simulated client has both from the start, and its first download is counted with the bytes of the FROZEN ones. A
real site gets them with the message that begins its run, checks them as it checks a job, and keeps them on its disk.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from fedaction.data.client import ClientInfo
from fedaction.engines.messages import Message, MessageError
from fedaction.federation.scope import Scope
from fedaction.federation.tree import Tree, largest_values, tensors_of
from fedaction.methods.base import Method, Plan
from fedaction.methods.settings import NetworkSettings
from fedaction.methods.start import first_tensors, start_key
from fedaction.methods.video import pretrained_values
from fedaction.models.files import describe_resnet, save_model, shape_resnet

_KIND = "install"


@dataclass(frozen=True)
class Install:
    """What a client's network has before its first job."""

    tensors: Tree = field(default_factory=dict[str, Tensor], repr=False)
    """FROZEN ones; with a model file also LOCAL ones that start from it. All others come with every job."""
    model: str = ""
    """What the model file says of its network, as `models.files.describe_resnet` has it; "": there is no file."""

    def pack(self) -> bytes:
        """As bytes; of nothing, none. The same for the same tensors."""
        if not self.tensors and not self.model:
            return b""
        return Message(_KIND, {"model": self.model}, {"tensors": self.tensors}).pack()

    @classmethod
    def unpack(cls, content: bytes) -> Install:
        """Reads what `pack` gave; anything else is a MessageError."""
        if not content:
            return cls()
        message = Message.unpack(content)
        model = message.values.get("model")
        if message.kind != _KIND or not isinstance(model, str):
            raise MessageError(f"expected what a site is to install, got {message.kind[:100]!r}")
        return cls(message.trees.get("tensors", {}), model)

    def check(self, plan: Plan) -> None:
        """Refuses tensors that a plan has no place for, and FROZEN ones that are missing."""
        frozen = {name for name, scope in plan.scopes.items() if scope is Scope.FROZEN}
        kept = {name for name, scope in plan.scopes.items() if scope is Scope.LOCAL}
        if missing := sorted(frozen - self.tensors.keys()):
            raise MessageError(f"{missing[0]!r} does not change, and was not sent with what does not")
        if odd := sorted(self.tensors.keys() - frozen - (kept if self.model else set())):
            raise MessageError(f"{odd[0]!r} was sent to be installed, but it is not what a site is sent once")
        for name, tensor in self.tensors.items():
            leaf = plan.leaves[name]
            if (tuple(tensor.shape), tensor.dtype) != (leaf.shape, leaf.dtype):
                raise MessageError(
                    f"{name!r} was sent as {tensor.dtype} {tuple(tensor.shape)}; expected {leaf.dtype} {leaf.shape}"
                )
        floats = {name: tensor for name, tensor in self.tensors.items() if tensor.is_floating_point()}
        for name, largest in zip(floats, largest_values(floats), strict=True):
            if not math.isfinite(largest):
                raise MessageError(f"{name!r} was sent with values that are NaN or infinite")

    def write_model(self, folder: Path) -> Path:
        """A model file to start from, below a folder: with these tensors, and zeros for what comes with every job."""
        network, card = shape_resnet(self.model, "the server's model")
        own = tensors_of(network.to_empty(device="cpu"))
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(self.tensors[name]) if _fits(self.tensors.get(name), tensor) else tensor.zero_()
        path = folder / f"start-{digest_install(self.pack())[:16]}.safetensors"
        save_model(path, network, card)
        return path


def digest_install(content: bytes) -> str:
    """What an install is known by; of nothing, ""."""
    return hashlib.sha256(content).hexdigest() if content else ""


def installer(method: Method, seed: int) -> Callable[[str], bytes]:
    """The server's side: what makes each client's install, as bytes; those of one architecture are made once."""
    made: dict[tuple[object, ...], bytes] = {}

    def install(client: str) -> bytes:
        info = method.clients[client]
        key = start_key(method, info)
        if key not in made:
            made[key] = make_install(method, info, seed).pack()
        return made[key]

    return install


def make_install(method: Method, client: ClientInfo, seed: int) -> Install:
    """What a client is sent once, from the server's own seed and model file."""
    scopes, settings = method.plan(client).scopes, method.settings
    given: Tree = pretrained_values(client, settings) if isinstance(settings, NetworkSettings) else {}
    wanted = [n for n, s in scopes.items() if s is Scope.FROZEN or (s is Scope.LOCAL and n in given)]
    tensors = first_tensors(method, client, seed, torch.device("cpu")) if wanted else {}
    model = describe_resnet(settings.pretrained) if given else ""
    return Install({name: tensors[name] for name in wanted}, model)


def _fits(given: Tensor | None, tensor: Tensor) -> bool:
    return given is not None and given.shape == tensor.shape
