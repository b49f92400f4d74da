"""Small random draws for clips: on the CPU, from the generator that is given and from nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Drawn = Mapping[str, Tensor]
"""What was drawn for a batch of recordings, by name; every tensor has one row per recording."""

REFERENCE = 112
"""The reference's clips have this many rows and columns; lengths in pixels are stated for them."""


def uniform(shape: tuple[int, ...], random: torch.Generator, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Numbers in [low, high), in double precision whatever torch's default is."""
    return low + (high - low) * torch.rand(shape, generator=random, dtype=torch.float64)


def below(limits: Tensor, random: torch.Generator) -> Tensor:
    """A whole number from 0 to limit - 1 for each limit, int64."""
    return (uniform(tuple(limits.shape), random) * limits).long()


def chosen(shape: tuple[int, ...], chances: Sequence[float], random: torch.Generator) -> Tensor:
    """Numbers from 0 to len(chances) - 1, int64, each as often as its chance, relative to their sum, says."""
    edges = torch.tensor(chances, dtype=torch.float64).cumsum(0)
    return torch.bucketize(uniform(shape, random) * edges[-1], edges[:-1], right=True)
