"""What a client's test gives without any network: the commonest class, and a ridge classifier. The least to beat.

Both are made at the site, from its own training samples; numbers leave it, samples do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedaction.data.client import ClientData
from fedaction.data.samples import Samples, in_batches
from fedaction.evaluation.accuracy import Scores, confusion, score_confusion
from fedaction.evaluation.probe import deal_folds
from fedaction.federation.seeds import generator

Simple = Literal["majority", "ridge"]
"""Controls that need no network."""

PENALTIES = tuple(10.0**power for power in range(-4, 4))
"""Penalties to choose from, in units of the mean squared length of a standardised sample."""
_ROWS = 3000  # training samples that the ridge classifier learns from, at most
_CHOOSING = 1000  # training samples that its penalty is chosen on, at most
_FOLDS = 5
_INPUTS = 8192  # numbers of a sample, at most: the rest are added to them with random signs
_CLIP = (4, 8, 8)  # frames, height and width that clips are averaged down to
_BATCH = 64


class SplitSizes(NamedTuple):
    """How much a client holds, and who was held out."""

    train: int
    """Training samples."""
    test: int
    """Test samples."""
    classes: dict[str, tuple[int, int]]
    """Training and test samples of each class."""
    people: int | None
    """How many people the training samples are of; None where that is not known."""
    held_out: tuple[str, ...] | None
    """People of the test who are not among those of the training; None where people are not known."""


def describe_split(client: ClientData) -> SplitSizes:
    """What there is to learn from and to test on."""
    kinds = len(client.info.classes)
    counts = (torch.bincount(part.labels, minlength=kinds).tolist() for part in (client.train, client.test))
    known = bool(client.train.subjects and client.test.subjects)
    people, tested = set(client.train.subjects), set(client.test.subjects)
    return SplitSizes(
        len(client.train),
        len(client.test),
        dict(zip(client.info.classes, zip(*counts, strict=True), strict=True)),
        len(people) if known else None,
        tuple(sorted(tested - people)) if known else None,
    )


def score_majority(client: ClientData) -> Scores:
    """Always answering the client's commonest training class; of several, the first."""
    classes = len(client.info.classes)
    answer = torch.bincount(client.train.labels, minlength=classes).argmax()
    return score_confusion(confusion(client.test.labels, answer.expand(len(client.test)), classes))


def score_ridge(client: ClientData) -> Scores:
    """A linear map from the standardised, flattened sample to one-hot labels, with a penalty on its squared weights.

    The penalty is the one with the best cross-validated accuracy on the training samples: by whole people, or whole
    recordings, where they are known. Of more than 3,000 training samples that many are used; clips of video are
    averaged down to 4 x 8 x 8 pixels.
    """
    train = client.train
    rows = _spread(train.labels, _ROWS)
    x = torch.cat([_flatten(train.take(part)) for part in rows.split(_BATCH)])
    mean, deviation = x.mean(0), x.std(0, correction=0)
    deviation[deviation <= 1e-6 * mean.abs().clamp(min=1e-6)] = 1  # constant but for rounding: it says nothing
    x = (x - mean) / deviation
    if not bool(x.isfinite().all()):
        raise ValueError(f"client {client.info.id!r} holds samples that are not finite")
    kernel = (x @ x.T).double()  # N, N
    targets = F.one_hot(train.labels[rows], len(client.info.classes)).double()
    chosen = _spread(train.labels[rows], _CHOOSING)
    fold = _folds(train, rows[chosen])
    penalty = choose_penalty(kernel[chosen][:, chosen], targets[chosen], fold)
    weights = x.double().T @ _solve(_centre(kernel), targets - targets.mean(0), penalty)  # inputs, classes
    said = [
        (((_flatten(batch) - mean) / deviation).double() @ weights + targets.mean(0)).argmax(1)
        for batch in in_batches(client.test, _BATCH)
    ]
    return score_confusion(confusion(client.test.labels, torch.cat(said), len(client.info.classes)))


SIMPLE: dict[Simple, Callable[[ClientData], Scores]] = {"majority": score_majority, "ridge": score_ridge}
"""Controls by the name that recipes use."""


def choose_penalty(kernel: Tensor, targets: Tensor, fold: Tensor) -> float:
    """The penalty with the best accuracy over held-out folds; of equals the largest.

    `kernel` (N, N) are products of samples, `targets` (N, classes) one-hot, `fold` (N,) the fold of each.
    """
    labels = targets.argmax(1)
    right = dict.fromkeys(reversed(PENALTIES), 0)
    for held in fold.unique().tolist():
        test = fold == held
        own, other = kernel[~test][:, ~test], kernel[test][:, ~test]
        middle = own.mean(0)
        other = other - other.mean(1, keepdim=True) - middle + middle.mean()
        centre = targets[~test].mean(0)
        for penalty in right:
            answer = other @ _solve(_centre(own), targets[~test] - centre, penalty) + centre
            right[penalty] += int((answer.argmax(1) == labels[test]).sum())
    return max(right, key=lambda penalty: right[penalty])


def _centre(kernel: Tensor) -> Tensor:
    """The kernel of samples less their mean."""
    middle = kernel.mean(0)
    return kernel - middle - middle[:, None] + middle.mean()


def _solve(kernel: Tensor, targets: Tensor, penalty: float) -> Tensor:
    """(N, classes) weights of training samples."""
    size = penalty * kernel.diagonal().mean().clamp(min=1e-12)
    return torch.linalg.solve(kernel + size * torch.eye(len(kernel), dtype=kernel.dtype), targets)


def _folds(train: Samples, rows: Tensor) -> Tensor:
    """(n,) the fold of each of some training samples: whole people, else whole recordings, else spread by class."""
    groups: list[object] = []
    if train.subjects:
        groups = [train.subjects[row] for row in rows.tolist()]
    elif train.recording is not None:
        groups = train.recording[rows].tolist()
    names = sorted(set(groups), key=str)
    if len(names) < 2:
        return deal_folds(train.labels[rows], min(_FOLDS, len(rows)), 0)
    places = torch.randperm(len(names), generator=generator(0, "controls", "folds")).tolist()
    of = {name: place % _FOLDS for name, place in zip(names, places, strict=True)}
    return torch.tensor([of[name] for name in groups])


def _spread(labels: Tensor, most: int) -> Tensor:
    """(n,) rows, at most so many, of each class its share; all of them where there are no more."""
    if len(labels) <= most:
        return torch.arange(len(labels))
    shuffled = torch.randperm(len(labels), generator=generator(0, "controls", "rows"))
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    return by_class[torch.linspace(0, len(labels) - 1, most).round().long()].sort().values


def _flatten(x: Tensor) -> Tensor:
    """(N, inputs) float32 on the CPU."""
    if x.dtype == torch.uint8:  # clips, (N, T, H, W, 3)
        frames, height, width = (min(own, most) for own, most in zip(x.shape[1:4], _CLIP, strict=True))
        x = F.adaptive_avg_pool3d(x.cpu().movedim(-1, 1).float() / 255, (frames, height, width))
    x = x.cpu().float().flatten(1)
    if x.shape[1] <= _INPUTS:
        return x
    random = generator(0, "controls", "inputs", x.shape[1])
    place = torch.randint(_INPUTS, (x.shape[1],), generator=random)
    sign = 2.0 * torch.randint(2, (x.shape[1],), generator=random) - 1
    return x.new_zeros(len(x), _INPUTS).index_add_(1, place, x * sign)
