"""k-nearest-neighbour accuracy: how good features are without training anything on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

_CHUNK = 1 << 22  # distances held at once
_GRID = 2.0**40  # nearer than this many parts of 1 is equally near


def knn_accuracy(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    k: int = 1,
    distance: Literal["cosine", "euclidean"] = "cosine",
    temperature: float | None = None,
) -> float:
    """The share of test samples whose nearest training samples vote for their class, 0 to 1.

    Skeleton work mostly takes k = 1; EasyFL, which FSAR is built on, weighs k = 200 cosine neighbours with
    temperature 0.1.

    Args:
        train_features: (N, F).
        train_labels: (N,) int64, from 0.
        test_features: (M, F).
        test_labels: (M,) int64.
        k: how many neighbours vote; more than N is an error.
        distance: cosine, or Euclidean.
        temperature: None: every neighbour has one vote. Otherwise a neighbour's vote weighs exp(s / temperature),
            with s the cosine similarity, or minus the Euclidean distance.

    Ties are settled in one way on every machine: see `rank`; of classes with equal votes the lowest label wins.
    """
    predicted = knn_predict(train_features, train_labels, test_features, k, distance, temperature)
    if predicted.shape != test_labels.shape:
        raise ValueError(f"{len(test_features)} test features need as many labels, got {tuple(test_labels.shape)}")
    return float((predicted == test_labels.to(predicted.device)).double().mean())


def knn_predict(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    k: int = 1,
    distance: Literal["cosine", "euclidean"] = "cosine",
    temperature: float | None = None,
) -> Tensor:
    """(M,) int64 classes that the neighbours vote for; arguments as in `knn_accuracy`. Memory stays bounded."""
    check_features("k-NN", {"training": (train_features, train_labels)}, test_features)
    if not 1 <= k <= len(train_features):
        most = len(train_features)
        raise ValueError(f"k = {k}, but there are {most} training samples; k may be 1 to {most}")
    if temperature is not None and not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    classes = int(train_labels.max()) + 1
    labels = train_labels.to(train_features.device)
    predicted: list[Tensor] = []
    for nearness, place in rank(train_features, test_features, distance):
        near = nearness[:, :k]
        # Less the nearest one's, which changes no winner and cannot overflow.
        weights = torch.ones_like(near) if temperature is None else torch.exp((near - near[:, :1]) / temperature)
        votes = near.new_zeros(len(near), classes).scatter_add_(1, labels[place[:, :k]], weights)
        predicted.append(votes.argmax(1))  # the first of equals
    return torch.cat(predicted)


def rank(
    gallery: Tensor, queries: Tensor, distance: Literal["cosine", "euclidean"] = "cosine"
) -> Iterator[tuple[Tensor, Tensor]]:
    """For some queries at a time, all of a gallery (N, F), the nearest first. Memory stays bounded.

    Equal vectors may get products that differ in their last bits, by where they lie in the matrix; so what is equally
    near to 12 digits is equally near, and of such the first in the gallery comes first.

    Yields:
        (m, N) float64 cosine similarities, or minus Euclidean distances, and (m, N) places in the gallery.
    """
    if distance not in ("cosine", "euclidean"):
        raise ValueError(f"distance = {distance!r} is unknown; there are cosine and euclidean")
    gallery, queries = gallery.double(), queries.double()
    if distance == "cosine":
        gallery, queries = F.normalize(gallery, dim=1), F.normalize(queries, dim=1)
    for rows in queries.split(max(1, _CHUNK // len(gallery))):
        nearness = rows @ gallery.T if distance == "cosine" else -torch.cdist(rows, gallery)
        nearness = nearness.mul_(_GRID).round_().div_(_GRID)
        ordered = torch.sort(nearness, dim=1, descending=True, stable=True)  # topk leaves the order of equals open
        yield ordered.values, ordered.indices


def check_features(what: str, labelled: dict[str, tuple[Tensor, Tensor]], others: Tensor) -> None:
    """Refuses features that are not (N, F) of one F, or without a label each, or none."""
    for name, (features, labels) in labelled.items():
        if features.dim() != 2 or others.dim() != 2 or features.shape[1] != others.shape[1]:
            shapes = f"{tuple(features.shape)} and {tuple(others.shape)}"
            raise ValueError(f"{what} takes (N, F) and (M, F) features, got {shapes}")
        if not len(features) or not len(others) or labels.shape != features.shape[:1]:
            raise ValueError(
                f"{name}: {what} needs samples on both sides and a label for each; got {len(features)} and "
                f"{len(others)} samples, and labels of shape {tuple(labels.shape)}"
            )
