"""Steps inside a step: gradients that a method takes itself (pFedMe, Per-FedAvg, Meta-HAR)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor
from torch.func import grad_and_value

from fedaction.federation.tree import Tree
from fedaction.methods.base import Net


class Slope(NamedTuple):
    """What one pass forward and backward gives."""

    gradients: dict[str, Tensor]
    """By the names of the tensors that were given values."""
    loss: Tensor
    """A number."""
    others: dict[str, Tensor]
    """The network's other tensors after the pass: in training it moves its normalisation statistics."""


def gradient(net: Net, at: Tree, loss: Callable[[Net], Tensor]) -> Slope:
    """The gradient of a loss where some of a network's tensors have given values. The network stays as it is."""

    def value(tensors: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        others = {name: tensor.detach().clone() for name, tensor in net.tensors.items() if name not in tensors}
        return loss(net.with_tensors({**others, **tensors})), others

    slopes, (number, others) = grad_and_value(value, has_aux=True)({n: t.detach() for n, t in at.items()})
    return Slope(slopes, number, others)


def descend(tensors: Tree, gradients: Tree, rate: float) -> dict[str, Tensor]:
    """A step down: tensors - rate * gradients."""
    return {name: tensor - rate * gradients[name] for name, tensor in tensors.items()}
