"""What the report shows beside the numbers: who was confused with whom, the learned graph, sequences to play."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fedaction.data.client import ClientData
from fedaction.engines.base import Evaluation
from fedaction.evaluation.accuracy import confusion
from fedaction.federation.tree import Tree

CLIP_SECONDS = 4.0
"""How long the report plays a sequence: sequences of any duration are resized to one number of frames."""


def confusion_of(client: ClientData, found: Evaluation) -> dict[str, Any]:
    """A client's classes and its confusion matrix, rows true and columns predicted."""
    classes = client.info.classes
    matrix = confusion(client.test.labels, found.predicted, len(classes))
    return {"classes": list(classes), "matrix": matrix.tolist()}


def topology_of(client: ClientData, tensors: Tree) -> dict[str, Any] | None:
    """A skeleton network's graph, summed over its partitions: A, and I and U where the network learns them."""
    if client.info.layout is None or "topology.A" not in tensors:
        return None
    if not all(bool(torch.isfinite(t).all()) for name, t in tensors.items() if name.startswith("topology.")):
        return None  # the client's own part of the graph has diverged
    found: dict[str, Any] = {"layout": client.info.layout.to_dict(), "A": _matrix(tensors["topology.A"])}
    for name in ("I", "U"):
        if f"topology.{name}" in tensors:
            found[name] = _matrix(tensors[f"topology.{name}"])
    for name in ("alpha", "beta", "gamma"):
        if f"topology.{name}" in tensors:
            found[name] = float(tensors[f"topology.{name}"])
    return found


def samples_of(client: ClientData, found: Evaluation, count: int) -> list[dict[str, Any]]:
    """A few test sequences with what the model said of them: as many right as wrong ones where there are both."""
    layout = client.info.layout
    if layout is None or count == 0:
        return []
    right = found.predicted == client.test.labels
    ordered = [right.nonzero().flatten().tolist(), (~right).nonzero().flatten().tolist()]
    chosen = [rows[i] for i in range(max(map(len, ordered))) for rows in ordered if i < len(rows)][:count]
    names = client.info.classes
    return [
        {
            "layout": layout.to_dict(),
            "frames": _rounded(client.test.take(torch.tensor([row]))[0, 0]),
            "rate_hz": client.test.shape[1] / CLIP_SECONDS,
            "label": names[int(client.test.labels[row])],
            "predicted": names[int(found.predicted[row])],
            "confidence": _finite(round(float(found.confidence[row]), 4)),
        }
        for row in chosen
    ]


def _matrix(partitions: Tensor) -> list[list[float]]:
    return [[round(v, 5) for v in row] for row in partitions.detach().sum(0).cpu().tolist()]


def _rounded(x: Tensor) -> list[list[list[float | None]]]:
    frames = torch.round(x.cpu().double(), decimals=3).tolist()
    return [[[_finite(value) for value in joint] for joint in frame] for frame in frames]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON has no other way to say so
