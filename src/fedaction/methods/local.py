"""Local training alone: nothing is shared. What a client reaches without the others."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from fedaction.federation.scope import FROZEN, LOCAL, Rule, ScopeTable
from fedaction.methods.base import Batch, Method, Metrics, Net


class Local(Method):
    """Every client trains its own network and keeps it."""

    name = "local"

    def scopes(self) -> ScopeTable:
        """All LOCAL."""
        return ScopeTable((Rule("topology.A", FROZEN), Rule("**", LOCAL)))

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """Cross-entropy."""
        loss = F.cross_entropy(net(batch.x), batch.y)
        return loss, {"ce": loss}
