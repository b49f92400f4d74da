"""Whether the networks of many clients can be trained at once: a trial with two of them."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap

from fedaction.data.client import ClientInfo
from fedaction.engines.base import Applied, Preparation, dropout_buffers
from fedaction.federation.seeds import generator
from fedaction.federation.tree import Tree, tensors_of
from fedaction.methods.base import Batch, Method
from fedaction.methods.start import fresh
from fedaction.models.layers import use_stacked_form

_CLIENTS, _SAMPLES = 2, 3
_SLOW = "There is a performance drop because we have not yet implemented the batching rule"


def find_unstackable(method: Method, seed: int, device: torch.device = torch.device("cpu")) -> str:  # noqa: B008
    """Which layer of which client's network cannot be stacked, and why; "" where all can.

    What the vectorised engine would do is done once, with a few random samples: the method's `begin`, a step (its
    own, or the gradient of its loss), its `finish`, and a test.
    """
    kinds = {client.architecture: client for client in method.clients.values()}
    return next((fault for client in kinds.values() if (fault := _try_stack(method, client, seed, device))), "")


def _try_stack(method: Method, client: ClientInfo, seed: int, device: torch.device) -> str:
    network = use_stacked_form(fresh(method, client, seed).to(device), nested=method.overrides("step")).train()
    inside: list[tuple[str, nn.Module]] = []  # the layers whose forward goes on
    for name, layer in network.named_modules():
        layer.register_forward_pre_hook(partial(_enter, inside, name))
        layer.register_forward_hook(partial(_leave, inside))
    _ = method.plan(client), method.trained, method.weights  # made from a network, which none may be inside of vmap
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=_SLOW)
            _take_step(method, client, seed, network, device)
    except Exception as error:  # torch has many kinds
        reason = str(error).splitlines()[0].rstrip(".")
        if reason.startswith(_SLOW):
            reason = (
                f"torch would compute{reason.removeprefix(_SLOW).split('.')[0].removeprefix(' for')} client by client"
            )
        if not inside:
            return f"what {type(network).__name__} computes cannot be stacked ({reason})"
        name, layer = inside[-1]
        where = f"layer {name!r}, a {type(layer).__name__}," if name else f"{type(layer).__name__} itself"
        return f"{where} cannot be stacked ({reason})"
    return ""


def _take_step(method: Method, client: ClientInfo, seed: int, network: nn.Module, device: torch.device) -> None:
    """A step and a test of two clients of a kind, as the vectorised engine would have it."""
    random = generator(seed, "trial")
    raw = torch.rand(_CLIENTS, _SAMPLES, *client.shape, generator=random).to(device)
    labels = torch.zeros(_CLIENTS, _SAMPLES, dtype=torch.int64, device=device)
    prepare = Preparation(method.task, None)
    plan = torch.zeros(_CLIENTS, _SAMPLES, dtype=torch.int64)
    drawn = {name: tensor.to(device) for name, tensor in prepare.draw(plan, client.shape, random, 1).items()}
    x, y = prepare.apply(raw, labels, drawn)
    state = {n: torch.stack([t.detach().clone()] * _CLIENTS) for n, t in tensors_of(network).items()}
    if method.overrides("begin"):
        state |= {name: tensor.clone() for name, tensor in vmap(method.begin)(state).items()}
    anchor = dict(state)
    state |= {name: torch.arange(_CLIENTS, device=device) for name in dropout_buffers(network)}

    def loss(parameters: Tree, others: Tree, x: Tensor, y: Tensor) -> Tensor:
        net = Applied(network, {**parameters, **others})
        return method.loss(net, net, Batch(x, y))[0]

    def step(tensors: Tree, x: Tensor, y: Tensor) -> Tree:
        net = Applied(network, tensors)
        return method.step(net, net, Batch(x, y), 0.1)[0]

    def test(tensors: Tree, x: Tensor) -> Tensor:
        return Applied(network, tensors)(x)

    if method.overrides("step"):
        state |= vmap(step, randomness="error")(state, x, y)
    else:
        parameters = {n: state[n].detach().clone().requires_grad_() for n, _ in network.named_parameters()}
        others = {n: tensor.clone() for n, tensor in state.items() if n not in parameters}
        total = vmap(loss, randomness="error")(parameters, others, x, y).sum()
        torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
    if method.overrides("finish"):
        vmap(method.finish)(anchor, state)
    if method.task is None:  # else a test is of one client after another
        network.eval()
        with torch.no_grad():
            vmap(test, randomness="error")(state, raw)


def _enter(inside: list[tuple[str, nn.Module]], name: str, layer: nn.Module, inputs: Any) -> None:
    inside.append((name, layer))


def _leave(inside: list[tuple[str, nn.Module]], layer: nn.Module, inputs: Any, output: Any) -> None:
    inside.pop()
