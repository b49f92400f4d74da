"""The distillation losses against slow, literal versions of their equations."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedaction.federation.seeds import generator
from fedaction.methods.distillation import classification, distillation, logit_distance, soft_divergence

pytestmark = pytest.mark.usefixtures("double")


def logits() -> tuple[Tensor, Tensor, Tensor]:
    """Five samples, four classes: the student's, the teacher's, the labels."""
    random = generator(3, "logits")
    student, teacher = 3 * torch.randn(2, 5, 4, generator=random)
    return student, teacher, torch.tensor([0, 3, 1, 1, 2])


def softmax(row: list[float], temperature: float = 1.0) -> list[float]:
    powers = [math.exp(value / temperature) for value in row]
    return [power / sum(powers) for power in powers]


def slow_distance(student: Tensor, teacher: Tensor) -> float:
    total = 0.0
    for s, t in zip(student.tolist(), teacher.tolist(), strict=True):
        for a, b in zip(s, t, strict=True):
            total += (b - a) ** 2
    return total / len(student)


def slow_divergence(student: Tensor, teacher: Tensor, temperature: float) -> float:
    total = 0.0
    for s, t in zip(student.tolist(), teacher.tolist(), strict=True):
        for q, p in zip(softmax(s, temperature), softmax(t, temperature), strict=True):
            total += p * math.log(p / q)
    return temperature**2 * total / len(student)


def slow_cross_entropy(student: Tensor, targets: list[list[float]]) -> float:
    total = 0.0
    for row, target in zip(student.tolist(), targets, strict=True):
        total -= sum(p * math.log(q) for p, q in zip(target, softmax(row), strict=True))
    return total / len(targets)


def targets_of(kind: str, teacher: Tensor, labels: Tensor) -> list[list[float]]:
    if kind == "teacher_soft":
        return [softmax(row) for row in teacher.tolist()]
    best = labels.tolist() if kind == "label" else [row.index(max(row)) for row in teacher.tolist()]
    return [[float(c == chosen) for c in range(teacher.shape[1])] for chosen in best]


def test_squared_distance_is_summed_over_classes_and_averaged_over_the_batch():
    student, teacher, _ = logits()
    assert logit_distance(student, teacher).item() == pytest.approx(slow_distance(student, teacher), rel=1e-12)
    assert logit_distance(student, teacher, "mean").item() == pytest.approx(slow_distance(student, teacher) / 4)


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_divergence_is_hintons(temperature: float):
    student, teacher, _ = logits()
    expected = slow_divergence(student, teacher, temperature)
    assert soft_divergence(student, teacher, temperature).item() == pytest.approx(expected, rel=1e-10)


def test_at_high_temperature_the_divergence_is_half_the_mean_square_of_centred_logits():
    """Hinton's limit, which ties the two forms together."""
    student, teacher, _ = logits()
    centred = (teacher - teacher.mean(-1, keepdim=True)) - (student - student.mean(-1, keepdim=True))
    expected = logit_distance(centred, torch.zeros_like(centred), "mean").item() / 2
    assert soft_divergence(student, teacher, 1e4).item() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("kind", ["label", "teacher_argmax", "teacher_soft"])
def test_classification_has_the_target_that_is_named(kind):
    student, teacher, labels = logits()
    expected = slow_cross_entropy(student, targets_of(kind, teacher, labels))
    assert classification(student, labels, teacher, kind).item() == pytest.approx(expected, rel=1e-12)
    if kind != "label":
        with pytest.raises(ValueError, match="needs a teacher's logits"):
            classification(student, labels, None, kind)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kd_loss", ["squared", "kl"])
@pytest.mark.parametrize("cls_target", ["label", "teacher_argmax", "teacher_soft"])
def test_the_loss_is_the_papers_mix(alpha, kd_loss, cls_target):
    student, teacher, labels = logits()
    total, cls, kd = distillation(
        student, teacher, labels, alpha=alpha, kd_loss=kd_loss, temperature=2.0, cls_target=cls_target
    )
    slow_cls = slow_cross_entropy(student, targets_of(cls_target, teacher, labels))
    far = slow_distance(student, teacher) if kd_loss == "squared" else slow_divergence(student, teacher, 2.0)
    assert cls.item() == pytest.approx(slow_cls) and kd.item() == pytest.approx(far)
    assert total.item() == pytest.approx(alpha * slow_cls + (1 - alpha) * far, rel=1e-10)


def test_the_gradient_of_the_squared_distance_is_twice_the_difference_and_none_reaches_the_teacher():
    student, teacher, labels = logits()
    student.requires_grad_()
    teacher.requires_grad_()
    distillation(student, teacher, labels, alpha=0.0)[0].backward()
    assert student.grad is not None and teacher.grad is None
    torch.testing.assert_close(student.grad, 2 * (student - teacher).detach() / len(student))
