"""Steps inside a step: gradients that a method takes itself (pFedMe, Per-FedAvg, Meta-HAR)."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.func import grad_and_value

from fedaction.federation.tree import Tree
from fedaction.methods.base import Net


def gradient(net: Net, at: Tree, loss: Callable[[Net], Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    """The gradient of a loss, and the loss, where some of a network's tensors have given values.

    Whatever the network does to its other tensors (normalisation statistics) stays inside.
    """

    def value(tensors: dict[str, Tensor]) -> Tensor:
        others = {name: tensor.detach().clone() for name, tensor in net.tensors.items() if name not in tensors}
        return loss(net.with_tensors({**others, **tensors}))

    return grad_and_value(value)({name: tensor.detach() for name, tensor in at.items()})


def descend(tensors: Tree, gradients: Tree, rate: float) -> dict[str, Tensor]:
    """A step down: tensors - rate * gradients."""
    return {name: tensor - rate * gradients[name] for name, tensor in tensors.items()}
