"""What a linear classifier can read off features, and the two directions in which they vary most."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedaction.federation.seeds import generator

_RIDGE = 0.1  # penalty on the squared weights, beside the mean squared error over samples


def probe_accuracy(features: Tensor, labels: Tensor, folds: int = 5, seed: int = 0) -> float:
    """Cross-validated accuracy, 0 to 1, of a ridge classifier that reads labels off features.

    Each fold is predicted by a linear map to one-hot labels, fitted to the other folds, whose means and deviations
    standardise the features. Folds are stratified: every label is spread over them as evenly as it goes. A label with
    a single sample is never guessed right. Features are (N, F), finite, labels (N,) int64, of two kinds or more; the
    seed is what the 2 to N folds are drawn from.
    """
    _check(features, labels, folds)
    x = features.detach().cpu().double()
    _, y = labels.cpu().unique(return_inverse=True)
    fold = deal_folds(y, folds, seed)
    targets = F.one_hot(y).double()
    right = 0
    for held in range(folds):
        test = fold == held
        train = x[~test]
        mean, deviation = train.mean(0), train.std(0, correction=0)
        deviation[deviation <= 1e-12 * mean.abs()] = 1  # a feature that is constant but for rounding says nothing
        train, own = (train - mean) / deviation, (x[test] - mean) / deviation
        centre = targets[~test].mean(0)
        gram = train.T @ train + _RIDGE * len(train) * torch.eye(x.shape[1], dtype=x.dtype)
        weights = torch.linalg.solve(gram, train.T @ (targets[~test] - centre))
        right += int(((own @ weights + centre).argmax(1) == y[test]).sum())
    return right / len(x)


def chance_accuracy(labels: Tensor) -> float:
    """The accuracy, 0 to 1, of always guessing the most frequent of (N,) labels."""
    return float(labels.unique(return_counts=True)[1].max()) / len(labels)


def principal(features: Tensor, count: int = 2) -> tuple[Tensor, Tensor]:
    """(N, count) coordinates of (N, F) features in the directions of most variance, and (count,) shares of it.

    Signs are settled by each direction's largest entry, which is positive. Directions beyond F are zero.
    """
    x = features.detach().cpu().double()
    x = x - x.mean(0)
    variances, directions = torch.linalg.eigh(x.T @ x)  # smallest first
    directions = directions.flip(1)[:, :count]
    largest = directions.gather(0, directions.abs().argmax(0, keepdim=True))
    shares = variances.flip(0)[:count].clamp(min=0) / variances.clamp(min=0).sum().clamp(min=1e-300)
    missing = (0, count - len(shares))
    return F.pad(x @ (directions * largest.sign()), missing), F.pad(shares, missing)


def deal_folds(y: Tensor, folds: int, seed: int) -> Tensor:
    """(N,) the fold of every sample: a label's samples, shuffled, are dealt on from where the label before ended."""
    random = generator(seed, "probe")
    # Stable: equal labels keep the shuffled order on every machine.
    shuffled = torch.randperm(len(y), generator=random)
    order = shuffled[y[shuffled].argsort(stable=True)]
    fold = torch.empty_like(y)
    fold[order] = torch.arange(len(y)) % folds
    return fold


def _check(features: Tensor, labels: Tensor, folds: int) -> None:
    if features.dim() != 2 or labels.shape != features.shape[:1]:
        raise ValueError(
            f"a probe takes (N, F) features and (N,) labels, got {tuple(features.shape)} and {tuple(labels.shape)}"
        )
    if not 2 <= folds <= len(features):
        raise ValueError(f"folds = {folds}, but there are {len(features)} samples; it may be 2 to {len(features)}")
    if len(labels.unique()) < 2:
        raise ValueError("a probe needs labels of two kinds or more")
    if not bool(features.isfinite().all()):
        raise ValueError("features are not finite: the network that made them has diverged")
