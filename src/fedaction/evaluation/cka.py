"""Centred kernel alignment: how alike two networks represent the same inputs (Kornblith et al., 2019)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def centred_gram(x: Tensor) -> Tensor:
    """(N, N) float64 products between the inputs' (N, P) centred features: all that CKA needs of them."""
    x = x.double()
    x = x - x.mean(0, keepdim=True)
    return x @ x.T


def gram_cka(one: Tensor, other: Tensor) -> float:
    """Linear CKA from two centred (N, N) Gram matrices, 0 (nothing in common) to 1.

    It does not change when the features of either network are rotated, scaled or shifted. NaN where one side does not
    vary over the inputs, or is not finite.
    """
    return float((one * other).sum() / (torch.linalg.norm(one) * torch.linalg.norm(other)))


def cka_matrix(grams: Sequence[Tensor]) -> Tensor:
    """(K, K) float64 CKA between K networks, from their centred (N, N) Gram matrices."""
    matrix = torch.empty(len(grams), len(grams), dtype=torch.float64)
    for i, one in enumerate(grams):
        for j, other in enumerate(grams[: i + 1]):
            matrix[i, j] = matrix[j, i] = gram_cka(one, other)
    return matrix
