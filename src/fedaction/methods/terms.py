"""Terms that several methods' losses are made of."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from fedaction.methods.base import Net


def proximal(net: Net, anchor: Net, names: Iterable[str]) -> Tensor:
    """1/2 ||w - w_received||^2 over the tensors named: the sum of squares, not their mean."""
    current, received = net.tensors, anchor.tensors
    return 0.5 * torch.stack([((current[n] - received[n].detach()) ** 2).sum() for n in names]).sum()


def divergence(target: Tensor, logits: Tensor) -> Tensor:
    """KL(softmax(target) || softmax(logits)), mean over the batch, in nats."""
    log_p, log_q = F.log_softmax(target, -1), F.log_softmax(logits, -1)
    return (log_p.exp() * (log_p - log_q)).sum(-1).mean()
