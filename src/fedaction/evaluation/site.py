"""What a site reports of its own test: numbers and, if it is asked and agrees, evidence. Samples stay where they are.

A new metric, or a new kind of evidence, is one entry in `METRICS` or `EVIDENCE`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedaction.data.client import ClientData, Split
from fedaction.evaluation.accuracy import Scores, by_recording, confusion, score_confusion, wilson
from fedaction.federation.tree import Tree

CLIP_SECONDS = 4.0
"""How long the report plays a sequence: sequences of any duration are resized to one number of frames."""

Kind = Literal["confusion", "topology", "samples", "test"]


@dataclass(frozen=True)
class Neighbours:
    """How a client that never trained is tested: by the nearest training samples under the server's features."""

    k: int = 1
    """How many vote; at most as many as there are training samples."""
    distance: Literal["cosine", "euclidean"] = "cosine"
    """Cosine, or Euclidean."""
    temperature: float | None = None
    """None: every neighbour has one vote; see `evaluation.knn.knn_accuracy`."""


@dataclass(frozen=True)
class Question:
    """What a site is asked for."""

    evidence: tuple[Kind, ...] = ()
    """Kinds of evidence wanted besides the metrics."""
    samples: int = 0
    """Test sequences wanted as examples, for "samples"."""
    split: Split = "test"
    """What the client is tested on."""
    neighbours: Neighbours | None = None
    """The client is one that never trained, tested by its nearest neighbours; None: by its classifier."""


@dataclass(frozen=True)
class Evaluation:
    """What comes back."""

    client: str
    """who."""
    metrics: Mapping[str, float]
    """Numbers by name; an accuracy is a share of right answers, 0 to 1, a loss is in nats."""
    evidence: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """By kind, as JSON values."""
    n: int = 0
    """Test samples."""

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the accuracy: what other test samples of this kind might have given."""
        return wilson(self.metrics["accuracy"], self.n)


@dataclass(frozen=True)
class Answers:
    """A test set under a network: what metrics and evidence are made from, at the site."""

    client: ClientData
    """Whose; its test samples are (N, ...)."""
    logits: Tensor
    """(N, classes) float32, on the CPU."""
    tensors: Tree
    """All of the client's tensors."""
    likelihood: bool = True
    """Whether logits are those of a classifier; otherwise only the largest of them means something."""
    played: Mapping[str, float] = field(default_factory=dict[str, float])
    """Where a network learned by a task of its own: how well it does that on the test samples, by name."""

    @property
    def labels(self) -> Tensor:
        """(N,) int64 true classes."""
        return self.client.test.labels

    @property
    def predicted(self) -> Tensor:
        """(N,) int64 classes."""
        return self.logits.argmax(-1)

    @cached_property
    def confusion(self) -> Tensor:
        """(classes, classes) int64 counts, rows true and columns predicted."""
        return confusion(self.labels, self.predicted, len(self.client.info.classes))

    @cached_property
    def scores(self) -> Scores:
        """What the confusion matrix says."""
        return score_confusion(self.confusion)


def _accuracy(answers: Answers) -> float:
    return float((answers.predicted == answers.labels).double().mean())


def _loss(answers: Answers) -> float:
    """Mean cross-entropy, in nats; not a number where there is no likelihood."""
    if not answers.likelihood:
        return math.nan
    return float(F.cross_entropy(answers.logits.double(), answers.labels))


def _recordings(answers: Answers) -> float | None:
    """Accuracy over whole recordings, by the mean of class scores over a recording's clips."""
    recording = answers.client.test.recording
    if recording is None or not answers.likelihood:
        return None
    return by_recording(answers.logits.softmax(-1), answers.labels, recording)


METRICS: dict[str, Callable[[Answers], float | None]] = {
    "accuracy": _accuracy,
    "balanced_accuracy": lambda answers: answers.scores.balanced_accuracy,
    "macro_f1": lambda answers: answers.scores.macro_f1,
    "loss": _loss,
    "recordings": _recordings,
}
"""Numbers of a test, by name; None where a client has nothing for one."""


def _confusion(answers: Answers, question: Question) -> dict[str, Any]:
    """The client's classes and its confusion matrix, rows true and columns predicted: recall by class follows."""
    return {"classes": list(answers.client.info.classes), "matrix": answers.confusion.tolist()}


def _topology(answers: Answers, question: Question) -> dict[str, Any] | None:
    """A skeleton network's graph, summed over its partitions: A, and I and U where the network learns them."""
    layout, tensors = answers.client.info.layout, answers.tensors
    if layout is None or "topology.A" not in tensors:
        return None
    if not all(bool(torch.isfinite(t).all()) for name, t in tensors.items() if name.startswith("topology.")):
        return None  # the client's own part of the graph has diverged
    graph: dict[str, Any] = {"layout": layout.to_dict(), "A": _sum_partitions(tensors["topology.A"])}
    for name in ("I", "U"):
        if f"topology.{name}" in tensors:
            graph[name] = _sum_partitions(tensors[f"topology.{name}"])
    for name in ("alpha", "beta", "gamma"):
        if f"topology.{name}" in tensors:
            graph[name] = float(tensors[f"topology.{name}"])
    return graph


def _samples(answers: Answers, question: Question) -> list[dict[str, Any]] | None:
    """A few test sequences with what the model said of them: as many right as wrong ones where there are both."""
    layout, names = answers.client.info.layout, answers.client.info.classes
    if layout is None or not question.samples:
        return None
    test = answers.client.test
    confidence = answers.logits.softmax(-1).amax(-1)
    right = answers.predicted == answers.labels
    ordered = [right.nonzero().flatten().tolist(), (~right).nonzero().flatten().tolist()]
    chosen = [rows[i] for i in range(max(map(len, ordered))) for rows in ordered if i < len(rows)][: question.samples]
    return [
        {
            "layout": layout.to_dict(),
            "frames": _round_frames(test.take(torch.tensor([row]))[0, 0]),
            "rate_hz": test.shape[1] / CLIP_SECONDS,
            "label": names[int(answers.labels[row])],
            "predicted": names[int(answers.predicted[row])],
            "confidence": _finite(round(float(confidence[row]), 4)),
        }
        for row in chosen
    ]


def name_test(client: ClientData) -> str:
    """What is equal for clients of a group that are tested on the same samples; "" where people are not known."""
    test = client.test
    if not test.subjects:
        return ""
    text = repr((client.info.group, test.subjects, test.labels.tolist()))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _test(answers: Answers, question: Question) -> str:
    return name_test(answers.client)


EVIDENCE: dict[Kind, Callable[[Answers, Question], Any]] = {
    "confusion": _confusion,
    "topology": _topology,
    "samples": _samples,
    "test": _test,
}
"""What a report may show beside numbers, by kind; None or nothing where a client has nothing for one."""


def evaluate_answers(answers: Answers, question: Question) -> Evaluation:
    """What a site reports."""
    metrics = {name: measure(answers) for name, measure in METRICS.items()}
    evidence = {kind: EVIDENCE[kind](answers, question) for kind in question.evidence}
    return Evaluation(
        answers.client.info.id,
        {name: value for name, value in metrics.items() if value is not None} | dict(answers.played),
        {kind: value for kind, value in evidence.items() if value},
        len(answers.labels),
    )


def evaluate_votes(answers: Answers, question: Question) -> Evaluation:
    """The same of a client that has no classifier: its accuracy is that of its neighbours' votes, `knn`."""
    report = evaluate_answers(answers, question)
    left = {name: value for name, value in report.metrics.items() if name not in ("accuracy", "loss")}
    return replace(report, metrics={"knn": report.metrics["accuracy"], **left})


def _sum_partitions(graph: Tensor) -> list[list[float]]:
    return [[round(value, 5) for value in row] for row in graph.detach().sum(0).cpu().tolist()]


def _round_frames(x: Tensor) -> list[list[list[float | None]]]:
    frames = torch.round(x.cpu().double(), decimals=3).tolist()
    return [[[_finite(value) for value in joint] for joint in frame] for frame in frames]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON has no other way to say so
