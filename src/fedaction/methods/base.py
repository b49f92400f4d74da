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

from fedaction.data.client import ClientInfo
from fedaction.data.layout import Layout
from fedaction.federation.average import Averages, Mean
from fedaction.federation.scope import Rule, Scope, ScopeTable
from fedaction.federation.settings import Settings
from fedaction.federation.state import Part, Report, ServerState, Weight
from fedaction.federation.tree import Leaf, Tree, describe
from fedaction.methods.network import body_of, build_network, class_parts, joint_parts, shared_backbone
from fedaction.methods.own import is_own, replace_dropout, share_own
from fedaction.methods.settings import NetworkSettings
from fedaction.models.backbone import Backbone
from fedaction.models.heads import Classifier

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

    def with_tensors(self, tensors: Tree) -> Net:
        """The same network with other values for some of its tensors."""
        ...

    def by_batch(self) -> Net:
        """The same network, normalising by the batch's statistics; the running ones stay as they are."""
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

    def draw(
        self, count: int, shape: tuple[int, ...], random: torch.Generator, round: int | None = None
    ) -> dict[str, Tensor]:
        """Parameters for `count` samples of a shape, one row for each; a task may begin with easy ones.

        `round` is the one that they are learnt from in; None: they are not learnt from.
        """
        ...

    def apply(self, x: Tensor, drawn: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Inputs and targets of (..., *shape) samples."""
        ...


class Method:
    """A federated method, one file each. Subclasses say what to minimise, and what differs from plain averaging.

    By default the network is the recipe's backbone, shared as in Vanilla FSAR (`methods/network.py`).
    """

    title: ClassVar[str]
    """Its name as its authors write it."""
    settings_type: ClassVar[type[Settings]] = NetworkSettings
    """The keys of a recipe that the method reads."""
    needs_anchor: ClassVar[bool] = False
    """Whether `loss` or `finish` reads the anchor. If not, engines save the second network."""

    def __init__(self, clients: Iterable[ClientInfo], settings: Any) -> None:
        """Args: everyone in the federation; settings of `settings_type`."""
        self.settings = settings
        self.clients = {client.id: client for client in clients}
        self.installed: Tree = {}
        """At a site of its own: what the server sent it to start from; all else follows from the seed."""
        self._plans: dict[tuple[object, ...], Plan] = {}
        # What clients were sent last, by architecture and group: of which shared tensors; of which groups'.
        self._views: tuple[Tree, dict[object, tuple[object, dict[str, Tensor]]]] = ({}, {})
        self._parts: dict[tuple[object, ...], dict[str, Part]] = {}
        self._templates: dict[tuple[object, ...], nn.Module] = {}  # networks without values

    # What a method may say differently

    @property
    def buffer(self) -> int:
        """0: updates are combined in rounds; else asynchronously, so many at a time. Default: in rounds."""
        return 0

    @property
    def task(self) -> Task | None:
        """What makes inputs and targets of samples, for methods that learn without labels. Default: none."""
        return None

    def build(self, client: ClientInfo) -> nn.Module:
        """The client's network. Default: the backbone.

        Any module will do, and keeps the values that it is built with (`methods/own.py`); networks of this package
        get theirs later, from the run's seed.
        """
        return build_network(client, self.settings)

    def scopes(self) -> ScopeTable:
        """Who shares which tensor. Default: see `plain_rules`."""
        return ScopeTable(self.plain_rules())

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """The local objective, a pure function. Default: cross-entropy.

        `net` is being trained, `anchor` is what was received (in evaluation mode).
        """
        loss = F.cross_entropy(net(batch.x), batch.y)
        return loss, {"ce": loss}

    def weigh(self, report: Report) -> Weight:
        """How much an update counts in the mean, from scalars alone. Default: by its samples."""
        return report.samples

    def advance(self, server: ServerState, mean: Averages) -> ServerState:
        """The server's step from what came back, a pure function. Default: the mean replaces what there was."""
        return mean.step(server, Mean.over)

    # Only where the local work is more than SGD on one loss

    def begin(self, tensors: Tree) -> Tree:
        """What changes between what a client has received and kept, and what it starts to train from.

        A pure function of all its tensors, which returns those it replaces. Default: none.
        """
        return {}

    def step(self, net: Net, anchor: Net, batch: Batch, lr: float) -> tuple[Tree, Metrics]:
        """New values of the tensors that one local step changes; a method that has it does without SGD on `loss`.

        A pure function. Momentum, weight decay and clipping are its own business.
        """
        raise NotImplementedError

    def finish(self, start: Tree, trained: Tree) -> Tree:
        """What changes after the last local step; `start` is what the client started from. Default: nothing."""
        return {}

    def adapt(self, net: Net, train: Batch) -> Tree:
        """What a client changes before it is tested, from all of its training samples: never from test samples."""
        return {}

    # What follows is derived from the above and the same for every method.

    def plain_rules(self) -> tuple[Rule, ...]:
        """Who shares what in plain averaging: of the backbone all but the classifier, of an own network all of it."""
        return self._own_rules or shared_backbone(self.settings, self.clients.values())

    @cached_property
    def _own_rules(self) -> tuple[Rule, ...]:
        """Who shares an own network; nothing where it is none."""
        first, *others = {client.architecture: client for client in self.clients.values()}.values()
        if not self.overrides("build") or not is_own(network := self._template(first)):
            return ()
        networks = [network, *map(self._template, others)]
        return share_own(networks, getattr(self.settings, "buffers", "average"))

    def payload(self, server: ServerState, client: ClientInfo) -> dict[str, Tensor]:
        """What a client is sent to train from: the shared tensors, or those that look ahead, and its own group's."""
        return self._view(server, client, server.ahead or server.shared)

    def served(self, server: ServerState, client: ClientInfo) -> dict[str, Tensor]:
        """What a client is tested with: the shared tensors and its own group's."""
        return self._view(server, client, server.shared)

    def _view(self, server: ServerState, client: ClientInfo, shared: Tree) -> dict[str, Tensor]:
        """A client's view of the server's tensors: its own names, cut to its parts.

        Clients that hold the same whole tensors get the same object.
        """
        plan, parts = self.plan(client), self.parts(client)
        if self._views[0] is not shared:
            self._views = (shared, {})
        key = (client.architecture, client.group)
        if not parts and key in self._views[1] and self._views[1][key][0] is server.groups:
            return self._views[1][key][1]
        group = server.groups.get(client.group, {})
        view: dict[str, Tensor] = {}
        for name in plan.shared:
            tensor = (shared if plan.scopes[name] is Scope.GLOBAL else group)[name]
            part = parts.get(name)
            view[name] = tensor if part is None else tensor[part.grid(tensor.device)]
        if not parts:
            self._views[1][key] = (server.groups, view)
        return view

    def plan(self, client: ClientInfo) -> Plan:
        """Names and rules of a client's tensors; computed once per architecture."""
        key = client.architecture
        if key not in self._plans:
            leaves = describe(self._template(client))
            self._plans[key] = Plan(leaves, self.scopes().decide(leaves))
        return self._plans[key]

    def _template(self, client: ClientInfo) -> nn.Module:
        """A client's network without values; built once per architecture."""
        key = client.architecture
        if key not in self._templates:
            self._templates[key] = blank(self, client).to("meta")
        return self._templates[key]

    def parts(self, client: ClientInfo) -> Mapping[str, Part]:
        """Which of a client's shared tensors are parts of larger ones on the server: over joints, over classes."""
        key = (client.architecture, client.classes) if self.shares_classes else client.architecture
        if key not in self._parts:
            plan = self.plan(client)
            network = self._template(client)
            parts = joint_parts(client, self.body, network) if isinstance(network, Backbone) else {}
            if self.shares_classes:
                parts |= class_parts(client, self.classes, network)
            self._parts[key] = {name: part for name, part in parts.items() if name in plan.shared}
        return self._parts[key]

    @cached_property
    def shares_classes(self) -> bool:
        """Whether clients that name different classes share a classifier."""
        if len({client.classes for client in self.clients.values()}) < 2:
            return False
        plan = self._any_plan()
        return any(plan.leaves[name].module == Classifier.__name__ for name in plan.shared)

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """All classes that clients name, each once."""
        names = (name for key in sorted(self.clients) for name in self.clients[key].classes)
        return tuple(dict.fromkeys(names))

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
        plan = self._any_plan()
        return [(n, scope) for n, scope in plan.scopes.items() if plan.leaves[n].kind == "parameter"]

    def _any_plan(self) -> Plan:
        # One already made will do: nothing can be built while clients are stacked.
        return next(iter(self._plans.values()), None) or self.plan(next(iter(self.clients.values())))

    @classmethod
    def overrides(cls, name: str) -> bool:
        """Whether the method has its own `begin`, `finish`, `step`, `adapt` or `task`; engines skip the others."""
        return getattr(cls, name) is not getattr(Method, name)

    def scopes_of(self, client: str) -> Mapping[str, Scope]:
        """The scopes of a client's tensors."""
        return self.plan(self.clients[client]).scopes


@dataclass(frozen=True)
class Plan:
    """The tensors of an architecture: what each is, and the row of the scope table that decides for it."""

    leaves: Mapping[str, Leaf]
    rules: Mapping[str, Rule]

    @cached_property
    def scopes(self) -> Mapping[str, Scope]:
        """The scope of every tensor."""
        return {name: rule.scope for name, rule in self.rules.items()}

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """Names of what travels: GLOBAL and GROUP tensors."""
        return tuple(name for name, scope in self.scopes.items() if scope in (Scope.GLOBAL, Scope.GROUP))

    @property
    def traffic(self) -> int:
        """Bytes of what the client shares: they go to it and come back."""
        return self._bytes(self.shared)

    @property
    def frozen_bytes(self) -> int:
        """Bytes of FROZEN tensors, which go to it once."""
        return self._bytes(name for name, scope in self.scopes.items() if scope is Scope.FROZEN)

    def _bytes(self, names: Iterable[str]) -> int:
        return sum(math.prod(self.leaves[n].shape) * self.leaves[n].dtype.itemsize for n in names)


# Two workers that build at once would each put back the other's state of the global generator.
_BUILDING = threading.Lock()


def blank(method: Method, client: ClientInfo, seed: int = 0) -> nn.Module:
    """A client's network as it is built; what layers draw follows from the seed. The global RNG stays as it was."""
    with _BUILDING, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        module = method.build(client)
    return replace_dropout(module) if is_own(module) else module
