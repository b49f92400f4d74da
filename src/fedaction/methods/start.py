"""Where a federation starts: the clients' first networks and the server's first state, from a seed."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.samples import Examples, Samples, in_batches
from fedaction.federation.scope import Scope
from fedaction.federation.seeds import derive, generator
from fedaction.federation.state import ServerState
from fedaction.federation.tree import Tree, tensors_of
from fedaction.methods.base import Method, blank
from fedaction.methods.own import check_own, is_own, try_forward
from fedaction.methods.settings import NetworkSettings
from fedaction.methods.video import is_clip, pretrained_values
from fedaction.models.heads import Classifier
from fedaction.models.layers import initialise
from fedaction.models.resnet3d import ResNet3D


def fresh(method: Method, client: ClientInfo, seed: int) -> nn.Module:
    """A client's network with its initial values: from the seed and the modules' names alone, or pretrained.

    Layers of an own network keep the values that they drew, or were given, when it was built.
    """
    module = blank(method, client, derive(seed, "init"))
    own = is_own(module)
    for name, part in module.named_modules():
        if not own or hasattr(part, "initialise"):
            initialise(part, generator(seed, "init", name))
    given: Tree = pretrained_values(client, method.settings) if isinstance(method.settings, NetworkSettings) else {}
    tensors = tensors_of(module)
    with torch.no_grad():
        for name, tensor in {**given, **method.installed}.items():
            tensors[name].copy_(tensor)
    return module


def draws_by_itself(method: Method) -> bool:
    """Whether a client's network draws from torch's global generator as it trains, as dropout inside an LSTM does.

    Networks of this package never do: only own ones are tried.
    """
    for client in _representatives(method):
        network = blank(method, client) if method.overrides("build") else None
        if network is not None and is_own(network) and method.task is None and try_forward(network, client)[1]:
            return True
    return False


def precompute_frozen(
    method: Method, clients: Mapping[str, ClientData], seed: int, device: torch.device
) -> dict[str, ClientData]:
    """The clients with every clip replaced by what the network's frozen stages give for it.

    Those stages never change: all that is saved is running them again. Clients that hold no clips, and methods whose
    networks have no frozen stages, stay as they are.
    """
    ready: dict[str, ClientData] = {}
    networks: dict[tuple[object, ...], ResNet3D | None] = {}  # None: it has no frozen stages
    for name, client in clients.items():
        info = client.info
        ready[name] = client
        if client.train.fresh:  # other clips each time: there is nothing to keep
            continue
        if info.architecture not in networks:
            network = blank(method, info) if is_clip(info.shape) else None
            suits = isinstance(network, ResNet3D) and bool(network.frozen)
            networks[info.architecture] = (
                cast("ResNet3D", fresh(method, info, seed)).to(device).eval() if suits else None
            )
        network = networks[info.architecture]
        if network is None:
            continue
        train, test = (_through(network, part, device) for part in (client.train, client.test))
        validation = None if client.validation is None else _through(network, client.validation, device)
        ready[name] = ClientData(replace(info, shape=train.shape), train, test, validation)
    return ready


@torch.no_grad()
def _through(network: ResNet3D, clips: Samples, device: torch.device) -> Examples:
    parts = [network(batch.to(device), leave=network.frozen).cpu() for batch in in_batches(clips, _CLIPS)]
    nothing = torch.zeros(1, *clips.shape, dtype=torch.uint8, device=device)
    empty = network(nothing, leave=network.frozen)[:0].cpu()
    return Examples(torch.cat([empty, *parts]), clips.labels, clips.subjects, clips.recording)


_CLIPS = 32  # that pass the frozen stages at a time


def initial_state(method: Method, seed: int) -> ServerState:
    """The server's first state, from the clients' descriptions alone.

    Every tensor that two clients share must have one shape; if not, the error names the tensor, both clients and
    both shapes.
    """
    shared: dict[str, Tensor] = {}
    groups: dict[str, dict[str, Tensor]] = {}
    owner: dict[tuple[str, str], str] = {}
    for client in _representatives(method):
        network = fresh(method, client, seed)
        if is_own(network):
            check_own(method, client, (network, fresh(method, client, seed)))
        tensors = tensors_of(network)
        plan, parts = method.plan(client), dict(method.parts(client))
        if method.shares_classes:  # one classifier over all classes, whoever names which
            whole = tensors_of(fresh(method, replace(client, classes=method.classes), seed))
            for name in plan.shared:
                if plan.leaves[name].module == Classifier.__name__:
                    tensors[name] = whole[name]
                    parts.pop(name, None)
        for name in plan.shared:
            common = plan.scopes[name] is Scope.GLOBAL
            tree, group = (shared, "") if common else (groups.setdefault(client.group, {}), client.group)
            tensor, part = tensors[name].detach(), parts.get(name)
            if part is not None and part.held != tuple(tensor.shape):
                raise ValueError(f"{name!r} of client {client.id!r} is {tuple(tensor.shape)}, its part {part.held}")
            shape = tuple(tensor.shape) if part is None else part.shape
            if name not in tree:
                tree[name] = tensor.new_zeros(shape)
                owner[group, name] = client.id
            elif tuple(tree[name].shape) != shape:
                other = method.clients[owner[group, name]]
                apart = other.group != client.group
                devices = f'; where {other.group} and {client.group} differ so, method = "fdarn" and "fedavg_within" '
                raise ValueError(
                    f"{name!r} is shared, but it is {tuple(tree[name].shape)} for client {other.id!r} and "
                    f"{shape} for client {client.id!r}; give it LOCAL or GROUP scope, or a part"
                    + (f"{devices}average within a group" if apart else "")
                )
            if part is None:
                tree[name] = tensor.clone()
            else:
                tree[name][part.grid()] = tensor
    return ServerState(0, shared, groups)


def first_tensors(method: Method, client: ClientInfo, seed: int, device: torch.device) -> dict[str, Tensor]:
    """All tensors of a client before it has ever trained, on a device."""
    return {name: tensor.detach() for name, tensor in tensors_of(fresh(method, client, seed).to(device)).items()}


def start_key(method: Method, client: ClientInfo) -> tuple[object, ...]:
    """Clients equal in this start from the same values; a pretrained classifier is for those with its classes."""
    pretrained = getattr(method.settings, "pretrained", "")
    return (*client.architecture, client.classes if pretrained else ())


def _representatives(method: Method) -> list[ClientInfo]:
    """A client of each architecture."""
    chosen: dict[tuple[object, ...], ClientInfo] = {}
    for name in sorted(method.clients):
        chosen.setdefault(method.clients[name].architecture, method.clients[name])
    return list(chosen.values())
