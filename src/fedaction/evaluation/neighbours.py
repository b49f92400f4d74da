"""How networks without a classifier for a client are tested: by the nearest of its own training samples."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaction.data.client import ClientData
from fedaction.data.samples import Samples, in_batches
from fedaction.evaluation.knn import knn_accuracy, knn_predict
from fedaction.evaluation.site import Neighbours
from fedaction.evaluation.unseen import unseen_features
from fedaction.federation.tree import Tree
from fedaction.methods.base import Method, Task
from fedaction.models.resnet3d import ResNet3D

_BATCH = 32


@torch.no_grad()
def nearest_labels(network: nn.Module, task: Task, client: ClientData, device: torch.device) -> Tensor:
    """(N, classes) one-hot votes: each test recording has the class of the training recording nearest to it (cosine).

    Labels serve the test alone: they are what accuracy (recall at 1) compares, and nothing learns from them.

    Args:
        network: its `backbone` is a 3D ResNet; in evaluation mode, with the tensors to be tested.
        task: what it learned by: its clips' frames and rows are cut from the middle of a recording.
        client: with recordings (N, T, H, W, 3).
        device: where.
    """
    backbone = network.get_submodule("backbone")
    assert isinstance(backbone, ResNet3D)

    def features(samples: Samples) -> Tensor:
        clips = (middle(part.to(device), task.frames, task.size) for part in in_batches(samples, _BATCH))
        return torch.cat([backbone(clip, output="pooled").cpu() for clip in clips])

    predicted = knn_predict(features(client.train), client.train.labels, features(client.test))
    return F.one_hot(predicted, len(client.info.classes)).float()


def unseen_accuracy(
    method: Method, served: Tree, client: ClientData, seed: int, device: torch.device, how: Neighbours
) -> float:
    """The share of an unseen client's test sequences whose nearest training sequences vote for their class."""
    train, test = unseen_features(method, served, client, seed, device)
    k = min(how.k, len(train))
    labels = client.train.labels, client.test.labels
    return knn_accuracy(train, labels[0], test, labels[1], k, how.distance, how.temperature)


def middle(x: Tensor, frames: int, size: int) -> Tensor:
    """(N, T, H, W, 3) recordings cut to (N, frames, size, size, 3) around their middle."""
    _, length, height, width, _ = x.shape
    if length < frames or height < size or width < size:
        raise ValueError(f"recordings of {length} x {height} x {width} hold no clip of {frames} x {size} x {size}")
    t, top, left = (length - frames) // 2, (height - size) // 2, (width - size) // 2
    return x[:, t : t + frames, top : top + size, left : left + size]
