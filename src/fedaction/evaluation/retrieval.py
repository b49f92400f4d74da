"""Retrieval: for a recording, are the nearest recordings of another set of the same class?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedaction.evaluation.knn import check_features, rank

Pooling = Literal["mean", "max"]
Rule = Literal["any", "majority"]

KS = (1, 5, 10, 20, 50)
"""Numbers of neighbours that the papers report."""


def pool_map(x: Tensor, pooling: Pooling = "mean") -> Tensor:
    """(N, T, H, W, C) maps of a network's last stage to (N, F) features.

    Args:
        x: the maps, features last.
        pooling: "mean": over frames, rows and columns, F = C. "max": over squares of 2 x 2 places, which do not
            overlap; then everything in a row, F = T (H // 2) (W // 2) C, as VCOP has it. A map of one row, or one
            column, keeps it.
    """
    if pooling == "mean":
        return x.mean((1, 2, 3))
    if pooling != "max":
        raise ValueError(f"pooling = {pooling!r} is unknown; there are mean and max")
    window = (1, min(2, x.shape[2]), min(2, x.shape[3]))
    return F.max_pool3d(x.permute(0, 4, 1, 2, 3), window).flatten(1)


def retrieval(
    gallery: Tensor,
    gallery_labels: Tensor,
    queries: Tensor,
    query_labels: Tensor,
    ks: Sequence[int] = KS,
    rule: Rule = "any",
) -> dict[int, float]:
    """R@k: the share of queries, 0 to 1, that find their class among the k nearest of the gallery, by cosine.

    Args:
        gallery: (N, F), finite.
        gallery_labels: (N,) int64, from 0.
        queries: (M, F), finite.
        query_labels: (M,) int64.
        ks: numbers of neighbours; one above N takes the whole gallery.
        rule: "any": a query is answered if any of its k nearest has its label; "majority": if most of them have.

    Ties are settled in one way on every machine: see `rank`; of classes with equal votes the lowest label wins.
    """
    sides = {"gallery": (gallery, gallery_labels), "queries": (queries, query_labels)}
    check_features("retrieval", sides, queries)
    for name, (features, _) in sides.items():
        if not bool(features.isfinite().all()):
            raise ValueError(f"{name}: features are not finite: the network that made them has diverged")
    if rule not in ("any", "majority"):
        raise ValueError(f"rule = {rule!r} is unknown; there are any and majority")
    if not ks or min(ks) < 1:
        raise ValueError(f"retrieval needs numbers of neighbours from 1, got {list(ks)}")
    labels, wanted = gallery_labels.to(gallery.device), query_labels.to(gallery.device)
    classes = int(max(labels.max(), wanted.max())) + 1
    right, done = dict.fromkeys(ks, 0), 0
    for _, place in rank(gallery, queries):
        want = wanted[done : done + len(place)]
        done += len(place)
        for k in right:
            near = labels[place[:, :k]]
            if rule == "any":
                answered = (near == want[:, None]).any(1)
            else:
                votes = torch.zeros(len(near), classes, dtype=torch.int64, device=near.device)
                answered = votes.scatter_add_(1, near, torch.ones_like(near)).argmax(1) == want  # the first of equals
            right[k] += int(answered.sum())
    return {k: count / len(queries) for k, count in right.items()}
