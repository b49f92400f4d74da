"""The network that a stack of clients' tensors is applied through."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import vmap

from fedaction.data.client import ClientInfo
from fedaction.engines.base import Applied, Precision, dropout_buffers, set_network_precision, trainable
from fedaction.engines.stack import Losses
from fedaction.federation.tree import Tree
from fedaction.methods.base import Batch, Method
from fedaction.methods.memory import kept_name
from fedaction.methods.start import fresh
from fedaction.models.heads import Classifier
from fedaction.models.layers import use_stacked_form
from fedaction.models.statistics import share_by_batch
from fedaction.models.stgcn import use_kernels


@dataclass(frozen=True)
class Template:
    """A network in training and in evaluation mode, and what a stack must know of it."""

    training: nn.Module
    """With values of its own only for FROZEN tensors."""
    evaluation: nn.Module
    """The same in evaluation mode."""
    parameters: tuple[str, ...]
    """Names that are trained."""
    rows: frozenset[str]
    """Names whose first axis is the classes."""
    absent: tuple[str, ...]
    """Names of the buffers that mark padded classes."""
    dropouts: tuple[str, ...]
    """Names of the dropout layers' keys."""
    classes: int
    """The largest number of classes in the stack."""
    losses: Losses
    """What is minimised."""


def make_template(
    method: Method,
    widest: ClientInfo,
    seed: int,
    device: torch.device,
    precision: Precision,
    kernels: bool,
    compiled: bool,
) -> Template:
    """The template of all clients whose networks are `widest`'s but for fewer classes."""
    pair: list[nn.Module] = []
    twins: list[nn.Module] = []
    for training in (True, False):
        module = fresh(method, widest, seed).to(device).train(training)
        module = use_stacked_form(module, nested=method.overrides("step"))
        if kernels:
            module = use_kernels(module)
        twins.append(set_network_precision(share_by_batch(module), device, precision))
        pair.append(set_network_precision(module, device, precision))
    heads = {name for name, layer in pair[0].named_modules() if isinstance(layer, Classifier)}
    rows = {f"{head}.{tensor}" for head in heads for tensor in ("weight", "bias")}

    def loss(parameters: Tree, others: Tree, received: Tree, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        net = Applied(pair[0], {**parameters, **others}, twins[0])
        anchor = Applied(pair[1], received, twins[1])
        loss, metrics = method.loss(net, anchor, Batch(x, y))
        return {**metrics, "loss": loss}

    stacked = vmap(loss, randomness="error")
    return Template(
        pair[0],
        pair[1],
        tuple(trainable(method, widest.id, pair[0])),
        frozenset(rows | {kept_name(name) for name in rows}),  # those and copies that a client keeps of them
        tuple(f"{h}.absent" for h in sorted(heads)),
        tuple(dropout_buffers(pair[0])),
        len(widest.classes),
        torch.compile(stacked) if compiled else stacked,
    )
