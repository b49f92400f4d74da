"""FedAvg within a modality, with one network or two: what FDARN has to beat without a word from other modalities."""

from __future__ import annotations

from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor, nn

from fedaction.data.client import ClientInfo
from fedaction.federation.scope import GLOBAL, GROUP, ScopeTable
from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.network import build_network
from fedaction.models.pair import Pair


class FedAvgWithin(Method):
    """The recipe's backbone, averaged over the clients of the same group alone."""

    title = "FedAvg within a modality"

    def scopes(self) -> ScopeTable:
        """FedAvg's, with GROUP in place of GLOBAL."""
        rules = self.plain_rules()
        return ScopeTable(tuple(replace(r, scope=GROUP) if r.scope is GLOBAL else r for r in rules))


class FedAvgPair(FedAvgWithin):
    """Two such networks from other initial values, trained side by side and asked together.

    FDARN asks two streams: whatever two networks of one modality gain over one is no gain of sharing across them.
    """

    title = "FedAvg within a modality, two networks"

    def build(self, client: ClientInfo) -> nn.Module:
        """Both networks."""
        return Pair(*(build_network(client, self.settings) for _ in range(2)))

    def scopes(self) -> ScopeTable:
        """The same for either: all patterns one component deeper."""
        rules = super().scopes().rules
        return ScopeTable(tuple(r if r.pattern == "**" else replace(r, pattern=f"*.{r.pattern}") for r in rules))

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """The sum of both networks' cross-entropies: neither learns from the other."""
        losses = [F.cross_entropy(net(batch.x, only=name), batch.y) for name in ("first", "second")]
        return losses[0] + losses[1], {"ce": (losses[0] + losses[1]) / 2}
