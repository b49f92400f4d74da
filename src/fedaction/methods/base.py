"""What a method is: an objective and a scope table. The engine owns the loop, the schedule owns the rounds."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from fedaction.data.client import ClientInfo
from fedaction.federation.average import scoped_average
from fedaction.federation.scope import Scope, ScopeTable
from fedaction.federation.state import Part, ServerState, Update
from fedaction.federation.tree import Leaf, Tree, describe

Metrics = Mapping[str, Tensor]
"""Scalars worth recording, by name; they may carry gradients, which are ignored."""


class Settings(BaseModel):
    """Keys of a recipe: frozen and validated; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


@dataclass(frozen=True)
class Batch:
    """What one local step sees: `x` (N, *sample shape) and `y` (N,) labels."""

    x: Tensor
    y: Tensor


class Net(Protocol):
    """Weights that can be applied: the network's `forward`, and its tensors by name.

    A method never knows whether it holds one client's network or, under the vectorised engine, many at once.
    """

    @property
    def tensors(self) -> Tree:
        """Parameters and buffers by name."""
        ...

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        """The network's forward."""
        ...


class Method(ABC):
    """A federated method, one file each. Subclasses say what to build, what to share and what to minimise."""

    name: ClassVar[str]
    settings_type: ClassVar[type[Settings]]
    """The keys of a recipe that the method reads."""
    needs_anchor: ClassVar[bool] = False
    """Whether `loss` reads the anchor. If not, engines save the second network."""

    def __init__(self, clients: Iterable[ClientInfo], settings: Any) -> None:
        """Args: everyone in the federation; settings of `settings_type`."""
        self.settings = settings
        self.clients = {client.id: client for client in clients}
        self._plans: dict[tuple[object, ...], Plan] = {}

    @abstractmethod
    def build(self, client: ClientInfo) -> nn.Module:
        """The client's network; its values are filled in later, from the run's seed."""

    @abstractmethod
    def scopes(self) -> ScopeTable:
        """Who shares which tensor."""

    @abstractmethod
    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """The local objective, a pure function. `net` is being trained, `anchor` is what was received (eval mode)."""

    def predict(self, net: Net, x: Tensor) -> Tensor:
        """(N, classes) logits of (N, *shape) samples, at test time. Default: the network's output."""
        return net(x)

    def parts(self, client: ClientInfo) -> Mapping[str, Part]:
        """Which of a client's shared tensors are parts of larger ones on the server. Default: none."""
        return {}

    def undecayed(self) -> tuple[str, ...]:
        """Patterns of parameters that weight decay leaves alone. Default: none."""
        return ()

    def initial_memory(self, shared: Tree) -> Tree:
        """What the server carries from round to round, before the first. Default: nothing."""
        return {}

    def payload(self, server: ServerState, client: ClientInfo) -> Tree:
        """What a client is sent to train from. Default: the shared tensors and its own group's."""
        return self.served(server, client)

    def served(self, server: ServerState, client: ClientInfo, shared: Tree | None = None) -> dict[str, Tensor]:
        """A client's view of the server's tensors: its own names, cut to its parts."""
        layout = self.plan(client)
        group = server.groups.get(client.group, {})
        shared = server.shared if shared is None else shared
        view: dict[str, Tensor] = {}
        for name, scope in layout.scopes.items():
            if scope in (Scope.GLOBAL, Scope.GROUP):
                tensor = (shared if scope is Scope.GLOBAL else group)[name]
                part = layout.parts.get(name)
                view[name] = tensor if part is None else tensor[part.grid(tensor.device)]
        return view

    def combine(self, server: ServerState, updates: Iterable[Update]) -> ServerState:
        """The server's step; consumes updates one by one. Default: weighted averages within scopes."""
        return scoped_average(server, updates, self.scopes_of, self.parts_of)

    # What follows is derived from the above and the same for every method.

    def plan(self, client: ClientInfo) -> Plan:
        """Names, scopes and parts of a client's tensors; computed once per architecture."""
        key = client.architecture
        if key not in self._plans:
            leaves = describe(blank(self, client))
            self._plans[key] = Plan(leaves, self.scopes().resolve(leaves), self.parts(client))
        return self._plans[key]

    def scopes_of(self, client: str) -> Mapping[str, Scope]:
        """The scopes of a client's tensors."""
        return self.plan(self.clients[client]).scopes

    def parts_of(self, client: str) -> Mapping[str, Part]:
        """The parts a client holds."""
        return self.plan(self.clients[client]).parts


@dataclass(frozen=True)
class Plan:
    """A client's tensors: what each is, its scope, and which are parts of larger ones."""

    leaves: Mapping[str, Leaf]
    scopes: Mapping[str, Scope]
    parts: Mapping[str, Part]


def blank(method: Method, client: ClientInfo) -> nn.Module:
    """A client's network before it has values. Layers that draw them when built leave no trace in the global RNG."""
    with torch.random.fork_rng(devices=[]):
        return method.build(client)
