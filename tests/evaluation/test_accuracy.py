"""Scores of a confusion matrix, against their definitions sample by sample."""

import math
from statistics import fmean

import pytest
import torch

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.samples import Examples
from fedaction.evaluation.accuracy import confusion, interval_of_clients, mean_interval, score_confusion, wilson
from fedaction.evaluation.site import Answers, Question, evaluate_answers
from fedaction.federation.seeds import generator


def test_confusion_counts_true_by_predicted():
    found = confusion(torch.tensor([0, 0, 1, 2, 2]), torch.tensor([0, 1, 1, 0, 2]), 4)
    assert found.tolist() == [[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]]


def literally(labels: list[int], said: list[int]) -> tuple[float, float]:
    """Balanced accuracy and macro-F1, class by class from the samples."""
    pairs = list(zip(labels, said, strict=True))
    recalls = [fmean(b == k for a, b in pairs if a == k) for k in {*labels}]
    scores = list[float]()
    for k in {*labels, *said}:
        right = sum(a == b == k for a, b in pairs)
        precision, recall = right / max(said.count(k), 1), right / max(labels.count(k), 1)
        scores.append(2 * precision * recall / (precision + recall) if right else 0.0)
    return fmean(recalls), fmean(scores)


def test_scores_are_those_of_their_definitions():
    random = generator(0, "scores")
    labels = torch.randint(0, 4, (40,), generator=random)  # of six classes, two are not in the test
    said = torch.where(torch.rand(40, generator=random) < 0.5, labels, torch.randint(0, 5, (40,), generator=random))
    scores = score_confusion(confusion(labels, said, 6))
    balanced, f1 = literally(labels.tolist(), said.tolist())
    assert scores.n == 40
    assert scores.accuracy == pytest.approx(float((labels == said).double().mean()))
    assert (scores.balanced_accuracy, scores.macro_f1) == (pytest.approx(balanced), pytest.approx(f1))
    assert scores.recall[4:] == (None, None)


def test_a_class_that_is_never_the_answer_is_named():
    labels, said = torch.tensor([0] * 90 + [1] * 10), torch.zeros(100, dtype=torch.int64)
    scores = score_confusion(confusion(labels, said, 3))
    assert (scores.accuracy, scores.balanced_accuracy) == (0.9, 0.5)
    assert scores.never == (1,)
    assert scores.recall == (1.0, 0.0, None)


def test_the_interval_solves_the_equation_of_a_score_test():
    for accuracy, n in ((0.5, 10), (0.9, 30), (0.0, 12), (1.0, 12)):
        for bound in wilson(accuracy, n):
            away = abs(accuracy - bound)
            assert away == pytest.approx(1.959964 * math.sqrt(bound * (1 - bound) / n), abs=1e-9)
    low, high = wilson(0.8, 100)
    assert (round(low, 4), round(high, 4)) == (0.7112, 0.8666)


def test_a_site_reports_scores_and_how_many_samples_they_are_of():
    y = torch.tensor([0] * 9 + [1])
    test = Examples(torch.zeros(10, 3), y)
    client = ClientData(ClientInfo("a", "vectors", 10, ("walk", "fall"), (3,)), test, test)
    logits = torch.tensor([[1.0, 0.0]]).expand(10, 2)
    report = evaluate_answers(Answers(client, logits, {}), Question(("confusion",)))
    assert (report.metrics["accuracy"], report.metrics["balanced_accuracy"]) == (0.9, 0.5)
    assert report.metrics["macro_f1"] == pytest.approx(18 / 19 / 2)
    assert (report.n, report.interval) == (10, wilson(0.9, 10))


def test_clients_that_share_a_test_are_one_test():
    low, high = wilson(0.7, 50)
    assert mean_interval([(0.6, 50), (0.8, 50)], ["same", "same"]) == pytest.approx((low, high))
    alone = mean_interval([(0.6, 50), (0.8, 50)])
    assert low < alone[0] and alone[1] < high  # as if the samples were twice as many
    mixed = interval_of_clients({"a": 0.7, "b": 0.7, "c": 0.7}, dict.fromkeys("abc", 50), {"a": "x", "b": "x"})
    assert mixed == pytest.approx((0.7 - (0.7 - low) * 5**0.5 / 3, 0.7 + (high - 0.7) * 5**0.5 / 3))
    assert interval_of_clients({"a": 0.7}, {}, {}) is None
