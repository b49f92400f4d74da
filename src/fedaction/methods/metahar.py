"""Meta-HAR (Li et al., WWW 2021): one embedding for all, learned from pairs; every client fits its own head to it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedaction.federation.scope import LOCAL, Rule, ScopeTable
from fedaction.federation.tree import Tree
from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.fedrep import HEAD
from fedaction.methods.inner import descend, gradient
from fedaction.methods.settings import NetworkSettings


class MetaHARSettings(NetworkSettings):
    """Keys of a recipe that this method reads."""

    meta_scale: float = Field(10.0, gt=0)
    """Factor on the cosine in the pair loss."""
    meta_adapt: int = Field(5, ge=0)
    """Steps on the client's own pairs before it fits its head."""
    meta_adapt_lr: float = Field(0.01, gt=0)
    """Learning rate of those steps."""
    meta_head: int = Field(100, ge=1)
    """Steps in which a client fits its head."""
    meta_head_lr: float = Field(0.01, gt=0)
    """Learning rate of the head (Adam)."""


class MetaHAR(Method):
    """Training is on pairs alone. Before a test a client adapts the embedding and fits its head, on training samples.

    All pairs of a batch count; the authors draw pairs of batches. The embedding is the input of the classifier.
    """

    title = "Meta-HAR"
    settings_type = MetaHARSettings
    settings: MetaHARSettings

    def scopes(self) -> ScopeTable:
        """The head stays."""
        return ScopeTable((*(Rule(pattern, LOCAL) for pattern in HEAD), *self.plain_rules()))

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """Mean over pairs of softplus(10 cos) - [same class] 10 cos: cross-entropy of 'same' or 'not'."""
        loss = self._pairs(net, batch)
        return loss, {"ce": loss}

    def adapt(self, net: Net, train: Batch) -> Tree:
        """A few steps on the client's own pairs, then its head from zero, by Adam on the embeddings."""
        s = self.settings
        body = {n: t for n, t in net.tensors.items() if n in self.trained and not n.startswith(HEAD)}
        for _ in range(s.meta_adapt):
            slope = gradient(net, body, lambda inner: self._pairs(inner, train))
            body = descend(body, slope.gradients, s.meta_adapt_lr)
        tuned = net.with_tensors(body)
        head = {n: t.detach() for n, t in net.tensors.items() if n in self.trained and n.startswith(HEAD)}
        mean = {n: torch.zeros_like(t) for n, t in head.items()}
        square = {n: torch.zeros_like(t) for n, t in head.items()}
        for step in range(1, s.meta_head + 1):
            slope = gradient(tuned, head, lambda inner: F.cross_entropy(inner(train.x), train.y))
            for n, g in slope.gradients.items():
                mean[n] = 0.9 * mean[n] + 0.1 * g
                square[n] = 0.999 * square[n] + 0.001 * g**2
                rate = s.meta_head_lr * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step)
                head[n] = head[n] - rate * mean[n] / (square[n].sqrt() + 1e-8)
        return {**body, **head}

    def _pairs(self, net: Net, batch: Batch) -> Tensor:
        z = F.normalize(net(batch.x, output="projected"), dim=-1)
        cosine = self.settings.meta_scale * (z @ z.transpose(0, 1))
        same = (batch.y[:, None] == batch.y[None, :]).to(cosine.dtype)
        count = len(batch.y)
        others = 1 - torch.eye(count, dtype=cosine.dtype, device=cosine.device)
        return ((F.softplus(cosine) - same * cosine) * others).sum() / max(count * (count - 1), 1)
