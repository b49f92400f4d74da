"""Right answers: by clip, by recording, and which classes are taken for which."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedaction.data.clips.window import Window
from fedaction.data.samples import Samples, in_batches


def confusion(labels: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """(classes, classes) int64 counts, rows true and columns predicted, from two (N,) int64 tensors."""
    return torch.bincount(labels * classes + predicted, minlength=classes * classes).view(classes, classes)


def by_recording(scores: Tensor, y: Tensor, recording: Tensor) -> float:
    """The share of recordings recognised by the mean of their clips' (N, classes) scores."""
    _, which = recording.cpu().unique(return_inverse=True)
    sums = scores.new_zeros(int(which.max()) + 1, scores.shape[1]).index_add_(0, which, scores)
    label = y.new_zeros(len(sums)).index_copy_(0, which, y)
    return float((sums.argmax(-1) == label).double().mean())


@torch.no_grad()
def scores_of(network: Callable[[Tensor], Tensor], clips: Samples, window: Window, batch_size: int) -> Tensor:
    """(N, classes) float32 logits of the middles of all clips, on the clips' device. The caller sets the mode."""
    return torch.cat([network(window.centre(clip)).float() for clip in in_batches(clips, batch_size)])


class Accuracy(NamedTuple):
    """How a test went: shares of right answers, 0 to 1, and the mean cross-entropy of clips, in nats."""

    clip: float
    video: float
    loss: float


def recordings_in(clips: Samples) -> tuple[Tensor, Tensor]:
    """(N,) which recording each clip is of, from 0, and (R,) the recordings' labels; on the CPU."""
    if clips.recording is None:
        return torch.arange(len(clips)), clips.labels
    numbers, which = clips.recording.unique(return_inverse=True)
    return which, clips.labels.new_zeros(len(numbers)).index_copy_(0, which, clips.labels)


def accuracy_of(logits: Tensor, clips: Samples) -> Accuracy:
    """Scores (N, classes) logits per clip, and per recording by the mean of its clips' class probabilities."""
    logits, y = logits.detach().float().cpu(), clips.labels
    return Accuracy(
        float((logits.argmax(-1) == y).double().mean()),
        by_recording(logits.double().softmax(-1), y, recordings_in(clips)[0]),
        float(F.cross_entropy(logits.double(), y)),
    )
