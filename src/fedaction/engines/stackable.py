"""Whether the networks of many clients can be trained at once: a trial with two of them, on the CPU."""

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
from fedaction.engines.base import Applied
from fedaction.federation.seeds import generator
from fedaction.federation.tree import Tree, tensors_of
from fedaction.methods.base import Batch, Method
from fedaction.methods.start import fresh
from fedaction.models.layers import use_stacked_form

_CLIENTS, _SAMPLES = 2, 3
_SLOW = "There is a performance drop because we have not yet implemented the batching rule"


def find_unstackable(method: Method, seed: int) -> str:
    """Which layer of which client's network cannot be stacked, and why; "" where all can."""
    kinds = {client.architecture: client for client in method.clients.values()}
    return next((fault for client in kinds.values() if (fault := _try_stack(method, client, seed))), "")


def _try_stack(method: Method, client: ClientInfo, seed: int) -> str:
    network = use_stacked_form(fresh(method, client, seed)).train()
    inside: list[tuple[str, nn.Module]] = []  # the layers whose forward goes on
    for name, layer in network.named_modules():
        layer.register_forward_pre_hook(partial(_enter, inside, name))
        layer.register_forward_hook(partial(_leave, inside))
    random = generator(seed, "trial")
    x = torch.rand(_CLIENTS, _SAMPLES, *client.shape, generator=random)
    y = torch.zeros(_CLIENTS, _SAMPLES, dtype=torch.int64)
    tensors = {n: torch.stack([t.detach().clone()] * _CLIENTS) for n, t in tensors_of(network).items()}
    parameters = {n: tensors.pop(n).requires_grad_() for n, _ in network.named_parameters()}

    def loss(parameters: Tree, others: Tree, x: Tensor, y: Tensor) -> Tensor:
        net = Applied(network, {**parameters, **others})
        return method.loss(net, net, Batch(x, y))[0]

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=_SLOW)
            total = vmap(loss, randomness="error")(parameters, tensors, x, y).sum()
            torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
    except Exception as error:  # torch has many kinds
        reason = str(error).splitlines()[0].rstrip(".")
        if not inside:
            return f"what {type(network).__name__} computes cannot be stacked ({reason})"
        name, layer = inside[-1]
        where = f"layer {name!r}, a {type(layer).__name__}," if name else f"{type(layer).__name__} itself"
        return f"{where} cannot be stacked ({reason})"
    return ""


def _enter(inside: list[tuple[str, nn.Module]], name: str, layer: nn.Module, inputs: Any) -> None:
    inside.append((name, layer))


def _leave(inside: list[tuple[str, nn.Module]], layer: nn.Module, inputs: Any, output: Any) -> None:
    inside.pop()
