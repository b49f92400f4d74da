"""Per-FedAvg (Fallah et al., NeurIPS 2020), first-order: a shared start from which one step personalises."""

from __future__ import annotations

import torch.nn.functional as F
from pydantic import Field

from fedaction.federation.tree import Tree
from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.inner import descend, gradient
from fedaction.methods.settings import NetworkSettings


class PerFedAvgSettings(NetworkSettings):
    """Keys of a recipe that this method reads; the recipe's `lr` is the method's beta."""

    perfedavg_alpha: float = Field(0.005, gt=0)
    """Size of the personalising step."""


class PerFedAvg(Method):
    """A client is tested after one step on its own training samples (the authors' code steps on test samples)."""

    title = "Per-FedAvg"
    settings_type = PerFedAvgSettings
    settings: PerFedAvgSettings

    def step(self, net: Net, anchor: Net, batch: Batch, lr: float) -> tuple[Tree, Metrics]:
        """A step, then the step: w' = w - alpha grad(w; A); w <- w - beta grad(w'; B), A and B a batch's halves.

        Both passes count for normalisation statistics.
        """
        half = (len(batch.y) + 1) // 2
        w = {n: t.detach() for n, t in net.tensors.items() if n in self.trained}
        first = gradient(net, w, lambda inner: F.cross_entropy(inner(batch.x[:half]), batch.y[:half]))
        ahead, net = descend(w, first.gradients, self.settings.perfedavg_alpha), net.with_tensors(first.others)
        last = gradient(net, ahead, lambda inner: F.cross_entropy(inner(batch.x[-half:]), batch.y[-half:]))
        return {**last.others, **descend(w, last.gradients, lr)}, {"ce": first.loss, "loss": last.loss}

    def adapt(self, net: Net, train: Batch) -> Tree:
        """One step of size alpha on all training samples."""
        w = {n: t.detach() for n, t in net.tensors.items() if n in self.trained}
        slope = gradient(net, w, lambda inner: F.cross_entropy(inner(train.x), train.y))
        return descend(w, slope.gradients, self.settings.perfedavg_alpha)
