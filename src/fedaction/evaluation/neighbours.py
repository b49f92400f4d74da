"""How networks without a classifier for a client are tested: by the nearest of its own training samples."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaction.data.client import ClientData
from fedaction.data.samples import Samples, in_batches, in_memory
from fedaction.evaluation.features import pooled_features
from fedaction.evaluation.knn import knn_predict
from fedaction.evaluation.site import Neighbours
from fedaction.federation.scope import Scope
from fedaction.federation.tree import Tree, tensors_of
from fedaction.methods.base import Method, Task
from fedaction.methods.start import fresh
from fedaction.models.resnet3d import ResNet3D
from fedaction.models.statistics import estimate_statistics, norms_of

_BATCH, _SEQUENCES = 32, 128  # recordings and sequences at once


@torch.no_grad()
def nearest_labels(
    network: nn.Module, task: Task, client: ClientData, device: torch.device, *, reestimate: bool = False
) -> Tensor:
    """(N, classes) one-hot votes: each test recording has the class of the training recording nearest to it (cosine).

    Labels serve the test alone: they are what accuracy (recall at 1) compares, and nothing learns from them.

    The network's `backbone` is a 3D ResNet, in evaluation mode, with the tensors to be tested. What it sees of a
    (T, H, W, 3) recording is a clip of its task's frames and rows, from the middle. With `reestimate`, normalisation
    statistics are estimated on those of the training recordings first.
    """
    backbone = network.get_submodule("backbone")
    assert isinstance(backbone, ResNet3D)

    def clips(samples: Samples) -> Iterator[Tensor]:
        return (middle(x.to(device), task.frames, task.size) for x in in_batches(samples, _BATCH))

    def features(samples: Samples) -> Tensor:
        return torch.cat([backbone(clip, output="pooled").cpu() for clip in clips(samples)])

    if reestimate:
        estimate_statistics(norms_of(backbone), partial(backbone, output="pooled"), clips(client.train))

    predicted = knn_predict(features(client.train), client.train.labels, features(client.test))
    return F.one_hot(predicted, len(client.info.classes)).float()


@torch.no_grad()
def unseen_features(
    method: Method, served: Tree, client: ClientData, seed: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The server's features of a client's training and test sequences, (N, F) and (N', F).

    The protocol of FSAR for unseen datasets (section 4.1, Table 2). The network has the server's tensors, and U is
    left out (the server has none). What the server does not hold is as at the start (input normalisation weights,
    alpha = beta = 1), with one exception: normalisation statistics that are not averaged are estimated anew on the
    unseen client's training sequences, without their labels. Statistics that the server averages (`buffers =
    "average"`) are used as they are. The paper does not say what it did.

    `served` are the server's tensors as this client would be sent them; the run's seed is for what it does not hold.
    """
    info = client.info
    scopes = method.plan(info).scopes
    module = fresh(method, info, seed).to(device).eval()
    for name, tensor in tensors_of(module).items():
        if scopes[name] in (Scope.GLOBAL, Scope.GROUP):
            tensor.copy_(served[name])
    train, test = in_memory(client.train).x.to(device), in_memory(client.test).x.to(device)
    kept = {n: layer for n, layer in norms_of(module).items() if scopes[f"{n}.running_mean"] is Scope.LOCAL}
    estimate_statistics(kept, lambda batch: module(batch, unique=False), train.split(_SEQUENCES))
    return pooled_features(module, train, unique=False), pooled_features(module, test, unique=False)


def unseen_labels(
    method: Method, served: Tree, client: ClientData, seed: int, device: torch.device, how: Neighbours
) -> Tensor:
    """(N, classes) one-hot votes: each test sequence has the class of its nearest training sequences."""
    train, test = unseen_features(method, served, client, seed, device)
    k = min(how.k, len(train))
    predicted = knn_predict(train, client.train.labels, test, k, how.distance, how.temperature)
    return F.one_hot(predicted, len(client.info.classes)).float()


def middle(x: Tensor, frames: int, size: int) -> Tensor:
    """(N, T, H, W, 3) recordings cut to (N, frames, size, size, 3) around their middle."""
    _, length, height, width, _ = x.shape
    if length < frames or height < size or width < size:
        raise ValueError(f"recordings of {length} x {height} x {width} hold no clip of {frames} x {size} x {size}")
    t, top, left = (length - frames) // 2, (height - size) // 2, (width - size) // 2
    return x[:, t : t + frames, top : top + size, left : left + size]
