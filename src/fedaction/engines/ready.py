"""A client's network as it is tested: with what it was sent, what it keeps, and what it changes before a test."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedaction.data.client import ClientData
from fedaction.data.samples import in_memory
from fedaction.engines.base import Applied, Training, reestimate
from fedaction.federation.tree import Tree, tensors_of
from fedaction.methods.base import Batch, Method


def ready_tensors(
    method: Method, client: ClientData, training: Training, module: nn.Module, tensors: Tree
) -> dict[str, Tensor]:
    """All tensors of a client's network at a test, on the CPU; engines do the same, test by test.

    Args:
        method: of the run.
        client: its samples; training samples are what statistics and adaptation are from, never test samples.
        training: how clients train.
        module: a network of the client's architecture with its FROZEN tensors, on the device to work on; what it
            holds otherwise is replaced.
        tensors: what the client is sent, and its LOCAL ones.
    """
    own = tensors_of(module)
    device = next((tensor.device for tensor in own.values()), torch.device("cpu"))
    with torch.no_grad():
        for name, tensor in tensors.items():
            own[name].copy_(tensor)
    module.eval()
    if training.reestimate or (method.overrides("adapt") and len(client.train)):
        client = ClientData(client.info, client.train.on(device), client.test)
        reestimate(method, client, training, module, module)
        with torch.no_grad():
            if method.overrides("adapt"):
                train = in_memory(client.train)
                batch = Batch(train.x, train.y.to(train.x.device))
                for name, tensor in method.adapt(Applied(module, own), batch).items():
                    own[name].copy_(tensor)
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in own.items()}
