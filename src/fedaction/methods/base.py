"""What a method is: an objective and a scope table. The engine owns the loop, the schedule owns the rounds."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.layout import Layout
from fedaction.federation.average import scoped_average
from fedaction.federation.scope import Scope, ScopeTable
from fedaction.federation.settings import Settings
from fedaction.federation.state import Part, ServerState, Update
from fedaction.federation.tree import Leaf, Tree, describe
from fedaction.methods.network import body_of, build_network, joint_parts, shared_backbone
from fedaction.methods.settings import NetworkSettings
from fedaction.methods.video import pretrained_values
from fedaction.models.backbone import Backbone

Metrics = Mapping[str, Tensor]
"""Scalars worth recording, by name; they may carry gradients, which are ignored."""


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

    def replaced(self, tensors: Tree) -> Net:
        """The same network with other values for some of its tensors."""
        ...


class Task(Protocol):
    """What makes inputs and targets of recordings: drawn at random on the CPU, then applied where they are."""

    @property
    def frames(self) -> int:
        """Of a clip."""
        ...

    @property
    def size(self) -> int:
        """Rows and columns of a clip."""
        ...

    def draw(self, count: int, shape: tuple[int, ...], random: torch.Generator) -> dict[str, Tensor]:
        """Parameters for `count` samples of a shape, one row for each."""
        ...

    def apply(self, x: Tensor, drawn: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Inputs and targets of (..., *shape) samples."""
        ...


class Method:
    """A federated method, one file each. Subclasses say what to minimise, and what differs from plain averaging.

    By default the network is the recipe's backbone, shared as in Vanilla FSAR (`methods/network.py`).
    """

    name: ClassVar[str]
    settings_type: ClassVar[type[Settings]] = NetworkSettings
    """The keys of a recipe that the method reads."""
    needs_anchor: ClassVar[bool] = False
    """Whether `loss` or `finish` reads the anchor. If not, engines save the second network."""
    asynchronous: ClassVar[bool] = False
    """Whether updates are combined as they come, on the events schedule; otherwise in rounds."""
    snapshots: ClassVar[tuple[str, ...]] = ()
    """Patterns of tensors that a run keeps, as they are after local training, in a few of its rounds."""

    def __init__(self, clients: Iterable[ClientInfo], settings: Any) -> None:
        """Args: everyone in the federation; settings of `settings_type`."""
        self.settings = settings
        self.clients = {client.id: client for client in clients}
        self._plans: dict[tuple[object, ...], Plan] = {}

    @classmethod
    def arrange(cls, clients: Mapping[str, ClientData]) -> Mapping[str, ClientData]:
        """The clients as the method sees them. Default: as they are.

        A client without training samples is never asked to train, one without test samples is not tested.
        """
        return clients

    def build(self, client: ClientInfo) -> nn.Module:
        """The client's network; its values are filled in later, from the run's seed. Default: the backbone."""
        return build_network(client, self.settings)

    def initial(self, client: ClientInfo) -> Tree:
        """What a client's network starts from in place of random values. Default: a pretrained file's tensors."""
        known = isinstance(self.settings, NetworkSettings)
        return pretrained_values(client, self.settings) if known else {}

    @property
    def task(self) -> Task | None:
        """What makes inputs and targets of samples, for methods that learn without labels. Default: none."""
        return None

    @property
    def buffered(self) -> int:
        """Asynchronous: how many updates are combined at a time. Default: each as it comes."""
        return 1

    def scopes(self) -> ScopeTable:
        """Who shares which tensor. Default: the backbone is averaged, the classifier stays."""
        return ScopeTable(shared_backbone(self.settings))

    def step(self, net: Net, anchor: Net, batch: Batch, lr: float) -> tuple[Tree, Metrics]:
        """New values of the tensors that one local step changes; a method that has it does without SGD on `loss`.

        A pure function. Momentum, weight decay and clipping are its own business.
        """
        raise NotImplementedError

    def resting(self, epoch: int, epochs: int) -> tuple[str, ...]:
        """Patterns of parameters that are not trained in a local epoch, counted from 0. Default: none."""
        return ()

    def adapt(self, net: Net, train: Batch) -> Tree:
        """What a client changes before it is tested, from all of its training samples: never from test samples."""
        return {}

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """The local objective, a pure function. Default: cross-entropy.

        `net` is being trained, `anchor` is what was received (in evaluation mode).
        """
        loss = F.cross_entropy(net(batch.x), batch.y)
        return loss, {"ce": loss}

    def begin(self, tensors: Tree) -> Tree:
        """What changes between what a client has received and kept, and what it starts to train from.

        A pure function of all its tensors, which returns those it replaces. Default: none.
        """
        return {}

    def finish(self, begun: Tree, trained: Tree) -> Tree:
        """What changes after the last local step; `begun` is what the client started from. Default: nothing."""
        return {}

    def predict(self, net: Net, x: Tensor) -> Tensor:
        """(N, classes) logits of (N, *shape) samples, at test time. Default: the network's output."""
        return net(x)

    def parts(self, client: ClientInfo, network: nn.Module) -> Mapping[str, Part]:
        """Which of a client's tensors are parts of larger ones on the server. Default: those over joints."""
        return joint_parts(client, self.body, network) if isinstance(network, Backbone) else {}

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
        """Names, scopes and parts of a client's tensors; computed once per kind of client."""
        key = self.kind(client)
        if key not in self._plans:
            network = blank(self, client)
            leaves = describe(network)
            scopes = self.scopes().resolve(leaves)
            shared = (Scope.GLOBAL, Scope.GROUP)
            parts = {n: part for n, part in self.parts(client, network).items() if scopes[n] in shared}
            self._plans[key] = Plan(leaves, scopes, parts)
        return self._plans[key]

    @cached_property
    def body(self) -> Layout:
        """The body that all clients' joints map onto."""
        return body_of(self.clients.values())

    @cached_property
    def trained(self) -> frozenset[str]:
        """Names of all parameters that a client trains."""
        return frozenset(name for name, scope in self._parameters() if scope is not Scope.FROZEN)

    @cached_property
    def weights(self) -> tuple[str, ...]:
        """What the papers call the shared weights W: parameters in GLOBAL scope."""
        return tuple(name for name, scope in self._parameters() if scope is Scope.GLOBAL)

    def _parameters(self) -> list[tuple[str, Scope]]:
        # Any plan will do, and one already made: nothing can be built while clients are stacked.
        plan = next(iter(self._plans.values()), None) or self.plan(next(iter(self.clients.values())))
        return [(n, scope) for n, scope in plan.scopes.items() if plan.leaves[n].kind == "parameter"]

    @classmethod
    def overrides(cls, name: str) -> bool:
        """Whether the method has its own `begin`, `finish`, `step`, `resting` or `adapt`; engines skip the others."""
        return getattr(cls, name) is not getattr(Method, name)

    def kind(self, client: ClientInfo) -> tuple[object, ...]:
        """Clients equal in this have the same network and the same parts. Default: their architecture."""
        return client.architecture

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

    @property
    def traffic(self) -> int:
        """Bytes of what the client shares: they go to it and come back."""
        names = [name for name, scope in self.scopes.items() if scope in (Scope.GLOBAL, Scope.GROUP)]
        return sum(math.prod(self.leaves[n].shape) * self.leaves[n].dtype.itemsize for n in names)


# Two workers that build at once would each put back the other's state of the global generator.
_BUILDING = threading.Lock()


def blank(method: Method, client: ClientInfo) -> nn.Module:
    """A client's network before it has values. Layers that draw them when built leave no trace in the global RNG."""
    with _BUILDING, torch.random.fork_rng(devices=[]):
        return method.build(client)
