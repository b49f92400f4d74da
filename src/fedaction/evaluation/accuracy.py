"""Right answers: by clip, by recording, by class, how sure they are, and which classes are taken for which."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedaction.data.clips.window import Window
from fedaction.data.samples import Samples, in_batches


def confusion(labels: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """(classes, classes) int64 counts, rows true and columns predicted, from two (N,) int64 tensors."""
    return torch.bincount(labels * classes + predicted, minlength=classes * classes).view(classes, classes)


class Scores(NamedTuple):
    """What a confusion matrix says. Shares are 0 to 1."""

    n: int
    """Test samples."""
    accuracy: float
    """The share of right answers."""
    balanced_accuracy: float
    """The mean recall over the classes that occur in the test."""
    macro_f1: float
    """The mean of F1 over the classes that occur in the test or among the answers."""
    recall: tuple[float | None, ...]
    """By class, the share of its samples that were recognised; None where the test has none."""
    never: tuple[int, ...]
    """Classes that occur in the test and are never the answer."""

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the accuracy."""
        return wilson(self.accuracy, self.n)


def score_confusion(matrix: Tensor) -> Scores:
    """Scores from (classes, classes) counts, rows true and columns predicted, of one sample or more."""
    right, true, said = matrix.diagonal().double(), matrix.sum(1), matrix.sum(0)
    recall, f1 = right / true, 2 * right / (true + said)  # not a number where a class does not occur
    n = int(matrix.sum())
    return Scores(
        n,
        float(right.sum()) / n,
        float(recall[true > 0].mean()),
        float(f1[true + said > 0].mean()),
        tuple(None if math.isnan(value) else value for value in recall.tolist()),
        tuple(((true > 0) & (said == 0)).nonzero().flatten().tolist()),
    )


_Z = 1.959964  # of a normal distribution, 95 % lie within so many standard deviations of the mean


def wilson(accuracy: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, 0 to 1, that was seen in n independent samples."""
    middle = (accuracy + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z * math.sqrt(accuracy * (1 - accuracy) / n + _Z**2 / (4 * n**2)) / (1 + _Z**2 / n)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def mean_interval(tests: Sequence[tuple[float, int]], which: Sequence[object] = ()) -> tuple[float, float]:
    """A 95 % interval of the mean over clients of accuracies, 0 to 1, each with the number of its test samples.

    Each side is the root of the summed squares of the tests' own sides, over their number (Zou and Donner, 2008).
    Of one test it is Wilson's. `which` is equal for clients that are tested on the same samples: theirs is one test,
    of their mean accuracy, which counts as often as there are of them.
    """
    shared: dict[object, list[tuple[float, int]]] = {}
    for place, test in enumerate(tests):
        shared.setdefault(which[place] if which else place, []).append(test)
    mean = sum(value for value, _ in tests) / len(tests)
    below: list[float] = []
    above: list[float] = []
    for same in shared.values():
        value = sum(value for value, _ in same) / len(same)
        low, high = wilson(value, same[0][1])
        below.append(len(same) * (value - low))
        above.append(len(same) * (high - value))
    return mean - math.hypot(*below) / len(tests), mean + math.hypot(*above) / len(tests)


def interval_of_clients(
    accuracies: Mapping[str, float], n: Mapping[str, int], tests: Mapping[str, str]
) -> tuple[float, float] | None:
    """The interval of a mean over clients; None where somebody's number of test samples is not known.

    `tests` is equal for clients that are tested on the same samples; who is not in it has a test of its own.
    """
    known = [(value, n.get(client, 0)) for client, value in accuracies.items()]
    which = [tests.get(client) or (client,) for client in accuracies]
    return mean_interval(known, which) if known and all(count for _, count in known) else None


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
    balanced: float
    """The mean recall of clips over the classes that occur."""
    macro_f1: float
    """The mean of F1 over classes, of clips."""
    recall: tuple[float | None, ...]
    """By class, the share of its clips that were recognised; None where the test has none."""


def recordings_in(clips: Samples) -> tuple[Tensor, Tensor]:
    """(N,) which recording each clip is of, from 0, and (R,) the recordings' labels; on the CPU."""
    if clips.recording is None:
        return torch.arange(len(clips)), clips.labels
    numbers, which = clips.recording.unique(return_inverse=True)
    return which, clips.labels.new_zeros(len(numbers)).index_copy_(0, which, clips.labels)


def accuracy_of(logits: Tensor, clips: Samples) -> Accuracy:
    """Scores (N, classes) logits per clip, and per recording by the mean of its clips' class probabilities."""
    logits, y = logits.detach().float().cpu(), clips.labels
    scores = score_confusion(confusion(y, logits.argmax(-1), logits.shape[-1]))
    return Accuracy(
        float((logits.argmax(-1) == y).double().mean()),
        by_recording(logits.double().softmax(-1), y, recordings_in(clips)[0]),
        float(F.cross_entropy(logits.double(), y)),
        scores.balanced_accuracy,
        scores.macro_f1,
        scores.recall,
    )
