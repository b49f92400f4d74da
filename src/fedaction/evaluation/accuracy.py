"""Right answers: by clip, by recording, and which classes are taken for which."""

from __future__ import annotations

import torch
from torch import Tensor


def confusion(labels: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """(classes, classes) int64 counts, rows true and columns predicted, from two (N,) int64 tensors."""
    return torch.bincount(labels * classes + predicted, minlength=classes * classes).view(classes, classes)


def by_recording(scores: Tensor, y: Tensor, recording: Tensor) -> float:
    """The share of recordings recognised by the mean of their clips' (N, classes) scores."""
    _, which = recording.cpu().unique(return_inverse=True)
    sums = scores.new_zeros(int(which.max()) + 1, scores.shape[1]).index_add_(0, which, scores)
    label = y.new_zeros(len(sums)).index_copy_(0, which, y)
    return float((sums.argmax(-1) == label).double().mean())
