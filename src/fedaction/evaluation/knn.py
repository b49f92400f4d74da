"""k-nearest-neighbour accuracy: how good features are without training anything on them."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

_CHUNK = 1 << 22  # distances held at once


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

    Ties are settled in one way on every machine: of neighbours equally near the first in `train_features` counts, and
    of classes with equal votes the lowest label wins.
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
    _check(train_features, train_labels, test_features, k, distance, temperature)
    train, test = train_features.double(), test_features.double()
    if distance == "cosine":
        train, test = F.normalize(train, dim=1), F.normalize(test, dim=1)
    classes = int(train_labels.max()) + 1
    labels = train_labels.to(train.device)
    predicted: list[Tensor] = []
    for rows in test.split(max(1, _CHUNK // len(train))):
        nearness = rows @ train.T if distance == "cosine" else -torch.cdist(rows, train)
        # topk leaves the order of equals open; a stable sort does not.
        nearness, place = (t[:, :k] for t in torch.sort(nearness, dim=1, descending=True, stable=True))
        if temperature is None:
            weights = torch.ones_like(nearness)
        else:
            # Less the nearest one's, which changes no winner and cannot overflow.
            weights = torch.exp((nearness - nearness[:, :1]) / temperature)
        votes = nearness.new_zeros(len(rows), classes).scatter_add_(1, labels[place], weights)
        predicted.append(votes.argmax(1))  # the first of equals
    return torch.cat(predicted)


def _check(train: Tensor, labels: Tensor, test: Tensor, k: int, distance: str, temperature: float | None) -> None:
    if train.dim() != 2 or test.dim() != 2 or train.shape[1] != test.shape[1]:
        raise ValueError(
            f"k-NN takes (N, F) training and (M, F) test features, got {tuple(train.shape)} and {tuple(test.shape)}"
        )
    if not len(test) or labels.shape != train.shape[:1]:
        raise ValueError(
            f"k-NN needs test samples and a label for each of {len(train)} training samples; got {len(test)} test "
            f"samples and labels of shape {tuple(labels.shape)}"
        )
    if not 1 <= k <= len(train):
        raise ValueError(f"k = {k}, but there are {len(train)} training samples; k may be 1 to {len(train)}")
    if distance not in ("cosine", "euclidean"):
        raise ValueError(f"distance = {distance!r} is unknown; there are cosine and euclidean")
    if temperature is not None and not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
