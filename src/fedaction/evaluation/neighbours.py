"""How a network that learned without labels is tested: each client's test clips by their nearest training clip."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fedaction.data.client import ClientData
from fedaction.data.samples import Samples, in_batches
from fedaction.engines.base import Evaluation
from fedaction.evaluation.knn import knn_predict
from fedaction.federation.state import ServerState
from fedaction.federation.tree import tensors_of
from fedaction.methods.base import Method
from fedaction.methods.start import fresh
from fedaction.models.resnet3d import ResNet3D

_BATCH = 32


@torch.no_grad()
def neighbour_evaluations(
    method: Method,
    server: ServerState,
    clients: Sequence[ClientData],
    clip: tuple[int, int],
    seed: int,
    device: torch.device,
) -> Iterator[Evaluation]:
    """Every client's test recordings, each labelled by the training recording whose features are nearest (cosine).

    Labels serve the test alone: they are what `accuracy` (recall at 1) compares, and nothing learns from them.

    Args:
        method: what was trained; its network's `backbone` is a 3D ResNet.
        server: whose backbone is tested.
        clients: with recordings (N, T, H, W, 3).
        clip: frames and rows of the clip that is cut from the middle of a recording.
        seed: the run's.
        device: where.
    """
    module = fresh(method, clients[0].info, seed).to(device).eval()
    own = tensors_of(module)
    for name, tensor in server.shared.items():
        own[name].copy_(tensor)
    backbone = module.get_submodule("backbone")
    assert isinstance(backbone, ResNet3D)

    def features(samples: Samples) -> Tensor:
        batches = in_batches(samples, _BATCH)
        return torch.cat([backbone(middle(part.to(device), *clip), output="pooled").cpu() for part in batches])

    for client in clients:
        predicted = knn_predict(features(client.train), client.train.labels, features(client.test))
        right = (predicted == client.test.labels).double().mean()
        yield Evaluation(client.info.id, float(right), math.nan, predicted, torch.ones(len(predicted)))


def middle(x: Tensor, frames: int, size: int) -> Tensor:
    """(N, T, H, W, 3) recordings cut to (N, frames, size, size, 3) around their middle."""
    _, length, height, width, _ = x.shape
    if length < frames or height < size or width < size:
        raise ValueError(f"recordings of {length} x {height} x {width} hold no clip of {frames} x {size} x {size}")
    t, top, left = (length - frames) // 2, (height - size) // 2, (width - size) // 2
    return x[:, t : t + frames, top : top + size, left : left + size]
