"""FedProx (Li et al., MLSys 2020): local training is held near the weights received."""

from __future__ import annotations

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.settings import NetworkSettings
from fedaction.methods.terms import proximal


class FedProxSettings(NetworkSettings):
    """Keys of a recipe that this method reads."""

    prox_mu: float = Field(0.01, ge=0)
    """Weight of the pull to the received weights; its authors tune over 0.001, 0.01, 0.1, 0.5, 1."""


class FedProx(Method):
    """Federated averaging with a proximal term."""

    title = "FedProx"
    needs_anchor = True
    settings_type = FedProxSettings
    settings: FedProxSettings

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """F_k(w) + mu/2 ||w - w^t||^2 (its Eq. 2), over the shared weights."""
        ce = F.cross_entropy(net(batch.x), batch.y)
        pull = proximal(net, anchor, self.weights)
        return ce + self.settings.prox_mu * pull, {"ce": ce, "prox": pull}
