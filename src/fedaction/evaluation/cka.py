"""Centred kernel alignment: how alike two networks represent the same inputs (Kornblith et al., 2019)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def linear_cka(x: Tensor, y: Tensor) -> float:
    """Linear CKA of two sets of features of the same inputs, 0 (nothing in common) to 1.

    ||Yc^T Xc||_F^2 / (||Xc^T Xc||_F ||Yc^T Yc||_F), with columns centred; it does not change when either side is
    rotated, scaled or shifted. The products are taken in double precision, and in whichever form is smaller: between
    features (P, Q) or between inputs (N, N); both give the same number.

    Args:
        x: (N, P) features.
        y: (N, Q) features of the same N inputs, in the same order.

    Returns:
        The alignment; NaN where one side does not vary over the inputs, or is not finite.
    """
    if x.dim() != 2 or y.dim() != 2 or len(x) != len(y):
        raise ValueError(f"CKA compares (N, P) with (N, Q) features, got {tuple(x.shape)} and {tuple(y.shape)}")
    if len(x) <= max(x.shape[1], y.shape[1]):
        return gram_cka(centred_gram(x), centred_gram(y))
    x, y = _centred(x), _centred(y)
    together = torch.linalg.norm(y.T @ x) ** 2
    return float(together / (torch.linalg.norm(x.T @ x) * torch.linalg.norm(y.T @ y)))


def centred_gram(x: Tensor) -> Tensor:
    """(N, N) float64 products between the inputs' (N, P) centred features: all that CKA needs of them."""
    x = _centred(x)
    return x @ x.T


def gram_cka(one: Tensor, other: Tensor) -> float:
    """Linear CKA from two centred (N, N) Gram matrices."""
    return float((one * other).sum() / (torch.linalg.norm(one) * torch.linalg.norm(other)))


def cka_matrix(grams: Sequence[Tensor]) -> Tensor:
    """(K, K) float64 CKA between K networks, from their centred (N, N) Gram matrices."""
    found = torch.empty(len(grams), len(grams), dtype=torch.float64)
    for i, one in enumerate(grams):
        for j, other in enumerate(grams[: i + 1]):
            found[i, j] = found[j, i] = gram_cka(one, other)
    return found


def _centred(x: Tensor) -> Tensor:
    x = x.double()
    return x - x.mean(0, keepdim=True)
