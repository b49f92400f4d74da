"""Learned skeleton graphs compared between clients, whose skeletons need not be the same."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedaction.data.layout import Layout


def shared_cosine(one: Tensor, own: Layout, other: Tensor, others: Layout) -> float:
    """Cosine similarity of two clients' graphs over the joints that both have, by name; -1 to 1.

    Of a (K, V, V) and a (K, W, W) graph with their layouts, the (K, S, S) blocks over the S shared joints are
    compared as vectors; NaN where fewer than two joints are shared or a block is zero.
    """
    pairs = own.shared_with(others)
    if len(pairs) < 2:
        return float("nan")
    here, there = (torch.tensor(places) for places in zip(*pairs, strict=True))
    a = one.double().cpu()[:, here][:, :, here].flatten()
    b = other.double().cpu()[:, there][:, :, there].flatten()
    return float(a @ b / (a.norm() * b.norm()))


def similarities(graphs: Mapping[str, Tensor], layouts: Mapping[str, Layout]) -> Tensor:
    """(K, K) float64 `shared_cosine` between clients, in the order of `graphs`; `layouts` has each client's."""
    names = list(graphs)
    matrix = torch.empty(len(names), len(names), dtype=torch.float64)
    for i, a in enumerate(names):
        for j, b in enumerate(names[: i + 1]):
            matrix[i, j] = matrix[j, i] = shared_cosine(graphs[a], layouts[a], graphs[b], layouts[b])
    return matrix


def between(matrix: Tensor) -> Tensor:
    """The finite entries of a symmetric (K, K) matrix that are of two different clients, each pair once."""
    rows, columns = torch.tril_indices(len(matrix), len(matrix), -1)
    pairs = matrix[rows, columns]
    return pairs[pairs.isfinite()]


def drift(coefficients: Mapping[str, Mapping[str, float]], start: float = 1.0) -> dict[str, dict[str, float]]:
    """How far each client's coefficients (alpha, beta, gamma) are from where they started: value less `start`."""
    return {client: {name: value - start for name, value in own.items()} for client, own in coefficients.items()}
