"""What a skeleton network makes of inputs on the way to its logits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedaction.methods.base import Net

_BATCH = 128  # inputs at once


@torch.no_grad()
def in_batches(apply: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The outputs for (N, ...) inputs, a bounded number of them at a time."""
    return torch.cat([apply(batch) for batch in x.split(_BATCH)])


def block_features(net: Net, x: Tensor, block: int) -> Tensor:
    """(N, M T' V C') flattened features of (N, M, T, V, C) sequences after a network's first `block` blocks."""
    return in_batches(lambda batch: net(batch, leave=block).flatten(1), x)


def pooled_features(net: Callable[..., Tensor], x: Tensor, unique: bool = True) -> Tensor:
    """(N, F) features before projection and classifier, means over bodies, frames and joints; `unique`: with U."""
    return in_batches(lambda batch: net(batch, unique=unique, output="pooled"), x)
