"""The terms of FDARN's objective that are not cross-entropies (Yang et al., AAAI 2022): Eqs. 3, 4 and 7.

Samples are rows here; the paper has them as columns.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

EDGE = 1e-6
"""Cosines stay this far from -1 and 1, where the angle's slope is infinite."""

SeparationForm = Literal["gram", "frobenius", "dsn", "raw"]


def angular_margin(
    embedding: Tensor, W: Tensor, z: Tensor | int, *, scale: float = 72.0, margin: float = 0.5
) -> Tensor:
    """Eq. 4, mean over the batch (Eqs. 5 and 6): additive angular margin (ArcFace), in nats.

    cos(theta_z + margin) counts as the true modality's similarity. Where that angle would pass pi, its cosine would
    rise again; the usual line cos(theta_z) - margin sin(margin) takes its place there.

    Args:
        embedding: (N, sphere) of length 1.
        W: (sphere, M), one prototype per column, of any length.
        z: the modality, one for all samples or (N,).
        scale: alpha.
        margin: tau, in radians.
    """
    cosine = (embedding @ F.normalize(W, dim=0)).clamp(-1 + EDGE, 1 - EDGE)  # N, M
    sine = ((1 - cosine) * (1 + cosine)).sqrt()
    beyond = cosine < -math.cos(margin)  # theta + margin > pi
    moved = cosine * math.cos(margin) - sine * math.sin(margin)  # cos(theta + margin)
    moved = torch.where(beyond, cosine - margin * math.sin(margin), moved)
    label = torch.as_tensor(z, device=W.device).unsqueeze(-1)
    true = torch.arange(W.shape[1], device=W.device) == label  # M, or N, M
    logits = scale * torch.where(true, moved, cosine)
    return (logits.logsumexp(-1) - (logits * true).sum(-1)).mean()


def spread_out(W: Tensor, *, nu: float = 1.5) -> Tensor:
    """Eq. 7: sum over ordered pairs of prototypes of max(0, nu - (1 - cosine)); no mean, no square.

    M prototypes cannot all be farther apart than a cosine of -1 / (M - 1). With nu = 1.5 it can be zero for two or
    three of them; for four it is never less than 2.
    """
    unit = F.normalize(W, dim=0)
    hinge = (nu - 1 + unit.transpose(0, 1) @ unit).relu()  # M, M
    others = 1 - torch.eye(W.shape[1], device=W.device, dtype=W.dtype)
    return (hinge * others).sum()


def separation(a: Tensor, b: Tensor, *, form: SeparationForm = "gram") -> Tensor:
    """Eq. 3: how far the altruistic and the egocentric features of a batch, both (N, d), are from orthogonal.

    Args:
        a: one encoder's features.
        b: the other's.
        form: "raw": Eq. 3 to the letter, the sum of squares of the N x N products of features, which outgrows every
            other term; "frobenius": the same sum over features of length 1; "gram": the mean of those squares
            instead, from 0 to 1, whatever N; "dsn": what the domain
            separation networks that the paper cites compute, the mean of squares of the d x d products of centred
            features of length 1.
    """
    if form == "raw":
        return (a @ b.transpose(0, 1)).square().sum()
    if form in ("gram", "frobenius"):
        squares = (F.normalize(a, dim=1) @ F.normalize(b, dim=1).transpose(0, 1)).square()
        return squares.mean() if form == "gram" else squares.sum()
    a, b = (F.normalize(h - h.mean(0), dim=1) for h in (a, b))
    return (a.transpose(0, 1) @ b).square().mean()


def scaled_gradient(x: Tensor, factor: float) -> Tensor:
    """The same values, exactly, with their gradient times `factor`; a negative one is a gradient reversal layer.

    With it Eqs. 9 and 10 need one backward pass: the discriminator gets the gradient of L'_md, the encoders gamma_2
    times that of L_md.
    """
    fixed = x.detach()
    return fixed + factor * (x - fixed)
