"""Knowledge distillation: what a student loses against labels and its teacher's logits (Edge, section III-B).

The paper leaves two things open, which are options here. Its squared norm of the logits' difference is a sum over
classes, though it calls it a mean. And cross-entropy is said both to be against the ground truth and against the
teacher's output.
"""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from fedaction.methods.terms import divergence

Reduction = Literal["sum", "mean"]
"""How the squared difference is reduced over classes; over the batch it is always the mean."""
ClsTarget = Literal["label", "teacher_argmax", "teacher_soft"]
"""What cross-entropy is taken against: true labels, the teacher's most likely class, or all its probabilities."""
KdLoss = Literal["squared", "kl"]
"""How far the student is from its teacher: by squared difference of logits, or by divergence of probabilities."""


def logit_distance(student: Tensor, teacher: Tensor, reduction: Reduction = "sum") -> Tensor:
    """L_KD = ||z_t - z_s||^2, mean over the batch.

    Args:
        student: (N, classes) logits.
        teacher: (N, classes) logits.
        reduction: "sum" over classes is the equation as it is written; "mean" is smaller by the number of classes.
    """
    squares = (teacher - student) ** 2
    return (squares.sum(-1) if reduction == "sum" else squares.mean(-1)).mean()


def soft_divergence(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """T^2 KL(softmax(z_t / T) || softmax(z_s / T)), mean over the batch: Hinton's form. Both are (N, classes).

    The factor keeps gradients of one size whatever the temperature.
    """
    return temperature**2 * divergence(teacher / temperature, student / temperature)


def classification(student: Tensor, labels: Tensor, teacher: Tensor | None, target: ClsTarget = "label") -> Tensor:
    """L_cls: cross-entropy of (N, classes) logits against (N,) labels, or the teacher's (N, classes) logits."""
    if target == "label":
        return F.cross_entropy(student, labels)
    if teacher is None:
        raise ValueError(f"the target {target!r} needs a teacher's logits")
    return F.cross_entropy(student, teacher.argmax(-1) if target == "teacher_argmax" else teacher.softmax(-1))


def distillation(
    student: Tensor,
    teacher: Tensor,
    labels: Tensor,
    *,
    alpha: float = 0.5,
    kd_loss: KdLoss = "squared",
    kd_reduction: Reduction = "sum",
    temperature: float = 1.0,
    cls_target: ClsTarget = "label",
) -> tuple[Tensor, Tensor, Tensor]:
    """L = alpha L_cls + (1 - alpha) L_KD.

    Args:
        student: (N, classes) logits, with gradients.
        teacher: (N, classes) logits; no gradient reaches them.
        labels: (N,) int64.
        alpha: 1 ignores the teacher's logits in L_KD, 0 ignores L_cls.
        kd_loss: which L_KD.
        kd_reduction: of the squared difference, see `logit_distance`.
        temperature: of the divergence, see `soft_divergence`.
        cls_target: see `classification`.

    Returns:
        L, L_cls and L_KD.
    """
    teacher = teacher.detach()
    cls = classification(student, labels, teacher, cls_target)
    if kd_loss == "squared":
        kd = logit_distance(student, teacher, kd_reduction)
    else:
        kd = soft_divergence(student, teacher, temperature)
    return alpha * cls + (1 - alpha) * kd, cls, kd
