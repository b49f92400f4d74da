"""The loss around trained weights, on a plane through them (Li et al., 2018)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedaction.federation.seeds import generator
from fedaction.federation.tree import Tree


def filter_axes(module: nn.Module) -> dict[str, int]:
    """Which parameters have filters, and along which axis: torch's layers have outputs first, ours last.

    A bias is none, whatever its shape; the learned graphs of a topology are one filter for each partition.
    """
    axes: dict[str, int] = {}
    for path, layer in module.named_modules():
        for name, tensor in layer.named_parameters(recurse=False):
            if tensor.dim() > 1 and not name.endswith("bias"):
                last = getattr(layer, "outputs_last", False)
                axes[f"{path}.{name}" if path else name] = tensor.dim() - 1 if last else 0
    return axes


def filter_direction(weights: Tree, filters: Mapping[str, int], seed: int, axis: int) -> dict[str, Tensor]:
    """A random direction, filter by filter as long as the weights themselves.

    Gaussian entries; each filter, all that makes one output, is then rescaled to the norm of the same filter of the
    weights. So a step of 1 means the same for layers, and networks, of different scale. Biases, normalisation and
    buffers stay where they are.

    Args:
        weights: the point that the plane goes through.
        filters: the parameters to move, with the axis of their outputs, see `filter_axes`.
        seed: of the run.
        axis: 0 or 1: which of the plane's two directions. A tensor's numbers depend on seed, axis and its name alone.

    Returns:
        The tensors that the direction moves, by name; those left out are not moved.
    """
    direction: dict[str, Tensor] = {}
    for name, outputs in filters.items():
        weight = weights[name].detach()
        noise = torch.randn(weight.shape, generator=generator(seed, "landscape", axis, name), dtype=torch.float64)
        others = tuple(place for place in range(weight.dim()) if place != outputs)
        own, drawn = (torch.linalg.vector_norm(t, dim=others, keepdim=True) for t in (weight.cpu().double(), noise))
        direction[name] = (noise * (own / (drawn + 1e-10))).to(weight)
    return direction


def loss_surface(
    loss: Callable[[Tree], float], weights: Tree, one: Tree, other: Tree, radius: float = 1.0, steps: int = 21
) -> Tensor:
    """(steps, steps) float64 losses around the weights: [i, j] is that at weights + a_i one + b_j other.

    Both a and b go from -radius to radius in an odd number of steps, so that the weights themselves are one of the
    points. Not finite where the loss is not.
    """
    if steps < 3 or steps % 2 == 0:
        raise ValueError(f"a surface needs an odd number of steps, at least 3; got {steps}")
    places = torch.linspace(-radius, radius, steps, dtype=torch.float64).tolist()
    surface = torch.empty(steps, steps, dtype=torch.float64)
    for i, a in enumerate(places):
        row = _move(weights, one, a)
        for j, b in enumerate(places):
            surface[i, j] = loss(_move(row, other, b))
    return surface


@dataclass(frozen=True)
class Shape:
    """A surface in numbers, by which two can be compared."""

    centre: float  # the loss at the trained weights, in its own unit (cross-entropy: nats)
    # the mean absolute second difference between neighbours, along both axes, over the squared step: in that
    # unit per squared unit of the directions. High for a steep bowl and for a bumpy one
    curvature: float
    # the share of those second differences that are below zero (by more than 1e-9), 0 to 1. A bowl has none,
    # whatever its steepness: this is the bumpiness alone
    concave: float
    flat: float  # the share of the grid whose loss is less than 1 above the centre's, 0 to 1
    lost: float  # the share of the grid where the loss is not finite; such points are in no other number but `flat`


def shape_of(surface: Tensor, radius: float = 1.0) -> Shape:
    """The numbers of a surface as `loss_surface` gives it."""
    steps = len(surface)
    step = 2 * radius / (steps - 1)
    bends = torch.cat([surface.diff(n=2, dim=0).flatten(), surface.diff(n=2, dim=1).flatten()])
    bends = bends[bends.isfinite()]
    centre = surface[steps // 2, steps // 2]
    return Shape(
        centre=float(centre),
        curvature=float(bends.abs().mean()) / step**2,
        concave=float((bends < -1e-9).double().mean()),
        flat=float((surface < centre + 1).double().mean()),
        lost=float((~surface.isfinite()).double().mean()),
    )


def _move(weights: Tree, direction: Tree, by: float) -> dict[str, Tensor]:
    return {name: torch.add(w, direction[name], alpha=by) if name in direction else w for name, w in weights.items()}
