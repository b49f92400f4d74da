"""The unseen-dataset protocol of FSAR (section 4.1, Table 2): the server's backbone on a client that never trained.

The network has the server's tensors, and U is left out (the server has none). What the server does not hold is as at
the start (input normalisation weights, alpha = beta = 1), with one exception: normalisation statistics that are not
averaged are estimated anew on the unseen client's training sequences, without their labels. Statistics that the
server averages (`buffers = "average"`) are used as they are. The paper does not say what it did.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedaction.data.client import ClientData
from fedaction.data.samples import in_memory
from fedaction.evaluation.features import pooled_features
from fedaction.federation.scope import Scope
from fedaction.federation.tree import Tree, tensors_of
from fedaction.methods.base import Method
from fedaction.methods.start import fresh
from fedaction.models.layers import BatchNorm

_BATCH = 128


@torch.no_grad()
def unseen_features(
    method: Method, served: Tree, client: ClientData, seed: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The server's features of a client's training and test sequences, (N, F) and (N', F).

    Args:
        method: what was trained.
        served: the server's tensors as this client would be sent them.
        client: the unseen one.
        seed: the run's, for what the server does not hold.
        device: where.
    """
    info = client.info
    scopes = method.plan(info).scopes
    module = fresh(method, info, seed).to(device).eval()
    for name, tensor in tensors_of(module).items():
        if scopes[name] in (Scope.GLOBAL, Scope.GROUP):
            tensor.copy_(served[name])
    train, test = in_memory(client.train).x.to(device), in_memory(client.test).x.to(device)
    layers = [
        layer
        for name, layer in module.named_modules()
        if isinstance(layer, BatchNorm) and scopes[f"{name}.running_mean"] is Scope.LOCAL
    ]
    for layer in layers:
        layer.train()
    for number, batch in enumerate(train.split(_BATCH), 1):
        for layer in layers:
            layer.momentum = 1 / number  # the mean over batches
        module(batch, unique=False)
    module.eval()
    return pooled_features(module, train, unique=False), pooled_features(module, test, unique=False)
