"""Named tensor trees: a model's parameters and buffers as one flat mapping from name to tensor."""

# pyright: reportPrivateImportUsage=false, reportPrivateUsage=false, reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

Tree = Mapping[str, Tensor]
"""Name to tensor, names dotted as in `state_dict()`. Treated as immutable once it is handed on."""


@dataclass(frozen=True)
class Leaf:
    """What is known of one tensor without its values."""

    shape: tuple[int, ...]
    """Its shape."""
    dtype: torch.dtype
    """Its dtype."""
    kind: Literal["parameter", "buffer"]
    """Whether it is trained (a parameter) or kept by the model (a buffer)."""
    module: str
    """Class name of the module that owns it, e.g. "BatchNorm1d"."""


class Places(dict[str, tuple[int, int, tuple[int, ...]]]):
    """Where tensors lie in a vector, one after another: start, end and shape, by name."""

    fits: Tree | None = None
    """The last tree that was found to have tensors of the same names, shapes and dtypes."""

    @classmethod
    def of(cls, shapes: Mapping[str, tuple[int, ...]]) -> Places:
        """Places for tensors of these shapes, in this order."""
        places, start = cls(), 0
        for name, shape in shapes.items():
            end = start + math.prod(shape)
            places[name] = (start, end, shape)
            start = end
        return places


class FlatTree(Mapping[str, Tensor]):
    """A tree whose tensors lie in one vector, to be copied, averaged and checked as one; made when asked for.

    Trees with the same `Places`, the very object, have tensors of the same names and shapes.
    """

    def __init__(self, flat: Tensor, places: Places, *, sound: bool = False) -> None:
        """Args: the vector; what is where; whether its maker knows all to be finite, and no variance below zero."""
        self.flat, self.places, self.sound = flat, places, sound

    def __getitem__(self, name: str) -> Tensor:
        start, end, shape = self.places[name]
        return self.flat[start:end].view(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def shapes_of(tree: Tree) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Shape and dtype of every tensor, by name."""
    if isinstance(tree, FlatTree):
        return {name: (shape, tree.flat.dtype) for name, (_, _, shape) in tree.places.items()}
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tree.items()}


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Every parameter and persistent buffer of a module, by name: the module's own tensors, not copies."""
    return dict(module.state_dict(keep_vars=True))


def describe(module: nn.Module) -> dict[str, Leaf]:
    """The leaves of `tensors_of(module)`."""
    leaves: dict[str, Leaf] = {}
    for name, tensor in tensors_of(module).items():
        owner = module.get_submodule(name.rpartition(".")[0])
        kind = "parameter" if isinstance(tensor, nn.Parameter) else "buffer"
        leaves[name] = Leaf(tuple(tensor.shape), tensor.dtype, kind, type(owner).__name__)
    return leaves


def tree_bytes(tree: Tree) -> int:
    """Size in bytes of a tree's values."""
    if isinstance(tree, FlatTree):
        return tree.flat.numel() * tree.flat.element_size()
    return sum(t.numel() * t.element_size() for t in tree.values())


def largest_values(tree: Tree) -> list[float]:
    """The largest magnitude of each floating-point tensor: finite only if all its values are.

    All of them are fetched from the device at once.
    """
    if not tree:
        return []
    norms = torch._foreach_norm(list(tree.values()), math.inf)
    return [float(value) for value in torch.stack([norm.double() for norm in norms]).cpu()]
