"""Networks of your own: any `nn.Module`, with the values that it draws or sets itself.

A network whose class is not part of this package is *own*. Its layers keep the values that they have when it is
built: torch's global generator is seeded for that moment, so that what they draw follows from the run's seed. Its
dropout layers become ours, whose masks follow from the seed too. Everybody shares all of it, but for what cannot be.
"""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fedaction.data.client import ClientInfo
from fedaction.federation.scope import GLOBAL, LOCAL, Rule
from fedaction.federation.tree import describe, tensors_of
from fedaction.models.layers import Dropout

if TYPE_CHECKING:
    from fedaction.methods.base import Method

_TRIAL = 2
"""Samples that a network is tried with."""


def is_own(module: nn.Module) -> bool:
    """Whether a network's class is not part of this package."""
    return not type(module).__module__.startswith("fedaction.")


def replace_dropout(module: nn.Module) -> nn.Module:
    """A network with our dropout in the place of torch's, which draws from the global generator."""
    for name, child in module.named_children():
        if type(child) is nn.Dropout:
            setattr(module, name, Dropout(child.p))
        else:
            replace_dropout(child)
    return module


def share_own(networks: Iterable[nn.Module], buffers: str) -> tuple[Rule, ...]:
    """Who shares an own network, of which there is one for each kind of client.

    All of it is averaged. What has another shape at other clients (a last layer over other classes) stays, and so do
    counters. `buffers` is the recipe's key: "local" keeps normalisation statistics.
    """
    leaves = [describe(network) for network in networks]
    names = dict.fromkeys(name for own in leaves for name in own)
    unlike = [n for n in names if len({own[n].shape if n in own else None for own in leaves}) > 1]
    counters = [n for own in leaves[:1] for n, leaf in own.items() if not leaf.dtype.is_floating_point]
    kept = [Rule(name, LOCAL) for name in dict.fromkeys((*unlike, *counters))]
    return (*kept, *((Rule("**", LOCAL, kind="buffer"),) if buffers == "local" else ()), Rule("**", GLOBAL))


def check_own(method: Method, client: ClientInfo, networks: tuple[nn.Module, nn.Module]) -> None:
    """Refuses an own network that cannot be trained here; `networks`: built twice, from one seed."""
    first, second = networks
    kind = type(first).__name__
    twice = tensors_of(second)
    for name, tensor in tensors_of(first).items():
        if name not in twice or not torch.equal(tensor, twice[name]):
            raise ValueError(
                f"{kind} is built with other values of {name!r} each time, so that no result could be had again: let "
                "it draw from torch's global generator, which is seeded for it, and from nothing else"
            )
    if not any(parameter.requires_grad for parameter in first.parameters()):
        raise ValueError(f"{kind} has no parameters to train")
    if method.task is not None:
        return
    try:
        logits, _ = try_forward(second, client)
    except Exception as error:  # whatever a network may raise
        raise ValueError(
            f"{kind} cannot take the samples of client {client.id!r}: a batch of {_TRIAL} is (2, "
            f"{', '.join(map(str, client.shape))}) float32, and its forward says: {error}"
        ) from error
    expected = (_TRIAL, len(client.classes))
    if not isinstance(logits, Tensor) or tuple(logits.shape) != expected:
        form = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"{kind} gives {form} for {_TRIAL} samples of client {client.id!r}; expected are logits {expected}, one "
            f"for each of its {len(client.classes)} classes"
        )


def try_forward(module: nn.Module, client: ClientInfo) -> tuple[Any, bool]:
    """What a network gives for a trial in training mode, and whether it drew from torch's global generator for it."""
    x = torch.zeros(_TRIAL, *client.shape)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.random.get_rng_state()
        logits = module.train()(x)
        return logits, not torch.equal(before, torch.random.get_rng_state())
