"""Tensors that a client keeps from one participation to the next, beside its network.

They are buffers of the network that its forward does not read, so that they are scoped, stored, checkpointed and
stacked like any other tensor. `Method.finish` fills them, `Method.begin` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from fedaction.federation.scope import LOCAL, Rule
from fedaction.federation.tree import tensors_of

RULE = Rule("kept", LOCAL)
"""The row of a scope table for them."""


class Kept(nn.Module):
    """Zeros until first filled; `seen` then says 1."""

    def __init__(self, like: dict[str, Tensor], numbers: Iterable[str] = ()) -> None:
        """Args: tensors to keep a copy of, by name; names of single numbers."""
        super().__init__()
        for name, tensor in like.items():
            self.register_buffer(_plain(name), torch.zeros_like(tensor, requires_grad=False))
        for name in ("seen", *numbers):
            self.register_buffer(name, torch.zeros(()))


def with_memory(network: nn.Module, names: Iterable[str], numbers: Iterable[str] = ()) -> nn.Module:
    """A network that also keeps a copy of some of its tensors, and single numbers."""
    tensors = tensors_of(network)
    network.kept = Kept({name: tensors[name].detach() for name in names}, numbers)
    return network


def kept_name(name: str) -> str:
    """The name of the kept copy of a tensor, or of a kept number."""
    return f"kept.{_plain(name)}"


def _plain(name: str) -> str:
    return name.replace(".", "/")  # a buffer's own name may have no dots
