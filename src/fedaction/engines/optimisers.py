"""Optimisers on stacked tensors: torch.optim's rules, entry by entry, for many clients at once."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from fedaction.engines.base import Training


def clip_stacked(gradients: Mapping[str, Tensor], training: Training) -> dict[str, Tensor]:
    """Each client's gradients, (clients, ...) by name, scaled down to `clip_norm` over those clipped together."""
    squares: dict[str, list[Tensor]] = {}
    for name, g in gradients.items():
        squares.setdefault(training.clip_group(name), []).append(g.reshape(len(g), -1).square().sum(1))
    norms = {group: torch.stack(parts).sum(0).sqrt() for group, parts in squares.items()}
    scales = {group: (training.clip_norm / (norm + 1e-6)).clamp(max=1.0) for group, norm in norms.items()}
    return {n: g * scales[training.clip_group(n)].view(-1, *[1] * (g.dim() - 1)) for n, g in gradients.items()}


def step_sgd(
    parameters: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor],
    velocity: Mapping[str, Tensor],
    undecayed: Collection[str],
    training: Training,
    lr: float,
) -> None:
    """One step of SGD with momentum, in place.

    Args:
        parameters: (clients, ...) tensors by name.
        gradients: of those that are trained in this step.
        velocity: momentum by name; empty without momentum.
        undecayed: names that weight decay leaves alone.
        training: momentum, weight decay, clipping.
        lr: the learning rate.
    """
    if training.clip_norm:
        gradients = clip_stacked(gradients, training)
    for decayed in (True, False):
        names = [n for n in gradients if (n not in undecayed) is decayed]
        if not names:
            continue
        weights = [parameters[n].detach() for n in names]
        slopes = [gradients[n] for n in names]
        if decayed and training.weight_decay:
            slopes = list(torch._foreach_add(slopes, weights, alpha=training.weight_decay))
        if training.momentum:
            speeds = [velocity[n] for n in names]
            torch._foreach_mul_(speeds, training.momentum)
            torch._foreach_add_(speeds, slopes)
            ahead = training.nesterov
            slopes = list(torch._foreach_add(slopes, speeds, alpha=training.momentum)) if ahead else speeds
        torch._foreach_add_(weights, slopes, alpha=-lr)
