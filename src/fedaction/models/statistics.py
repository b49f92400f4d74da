"""Which statistics a network's batch normalisations use: the batch's, the running ones, or some estimated anew."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm as TorchBatchNorm  # pyright: ignore[reportPrivateUsage]

from fedaction.models.layers import BatchNorm

Norms = Mapping[str, BatchNorm | TorchBatchNorm]


def norms_of(module: nn.Module) -> Norms:
    """A network's batch normalisations, ours and torch's, by name."""
    return {n: layer for n, layer in module.named_modules() if isinstance(layer, BatchNorm | TorchBatchNorm)}


def share_by_batch(module: nn.Module) -> nn.Module:
    """A second network over the same tensors, which normalises by the batch's statistics and keeps none of them.

    All else is in the mode that the first is in now.
    """
    twin = copy.deepcopy(module, {id(t): t for t in (*module.parameters(), *module.buffers())})
    for layer in norms_of(twin).values():
        layer.training, layer.track_running_stats = True, False
    return twin


@torch.no_grad()
def estimate_statistics(norms: Norms, apply: Callable[[Tensor], object], batches: Iterable[Tensor]) -> None:
    """Sets running statistics to the means, over batches, of each batch's own.

    `apply` passes a batch through the network that the normalisations are part of, which is in evaluation mode.
    """
    before: list[Any] = [layer.momentum for layer in norms.values()]
    for layer in norms.values():
        layer.training = True
    for number, batch in enumerate(batches, 1):
        for layer in norms.values():
            layer.momentum = 1 / number
        apply(batch)
    for layer, momentum in zip(norms.values(), before, strict=True):
        layer.training, layer.momentum = False, momentum
