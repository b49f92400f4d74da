"""LG-FedAvg (Liang et al., 2020): every client its own representation, one classifier for all."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from fedaction.federation.scope import FROZEN, GLOBAL, LOCAL, Rule, ScopeTable
from fedaction.methods.base import Batch, Method, Metrics, Net


class LGFedAvg(Method):
    """What reads the features is averaged (by samples; the authors' code averages equally), the encoder stays.

    All clients must name the same classes. The authors start from a model trained by federated averaging; here
    everybody starts from the same initial values.
    """

    name = "lgfedavg"

    def scopes(self) -> ScopeTable:
        """The head and the classifier travel."""
        head = (Rule("head", GLOBAL), Rule("projection", GLOBAL), Rule("classifier", GLOBAL))
        return ScopeTable((Rule("topology.A", FROZEN), *head, Rule("**", LOCAL)))

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """Cross-entropy."""
        loss = F.cross_entropy(net(batch.x), batch.y)
        return loss, {"ce": loss}
