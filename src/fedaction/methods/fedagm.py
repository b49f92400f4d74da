"""FedAGM (Kim et al., 2022; later FedACG): the server looks ahead along its last step, clients stay near it."""

from __future__ import annotations

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedaction.federation.average import Averages
from fedaction.federation.state import ServerState
from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.momentum import MomentumSettings, accelerate
from fedaction.methods.terms import proximal


class FedAGMSettings(MomentumSettings):
    """Keys of a recipe that this method reads. tau and xi as FSAR has them; the authors' code has 1 and 0.85."""

    agm_mu: float = Field(0.001, ge=0)
    """Weight of the squared distance to the received weights, without the half, as in the authors' code."""


class FedAGM(Method):
    """Federated averaging with the server's momentum."""

    title = "FedAGM"
    needs_anchor = True
    settings_type = FedAGMSettings
    settings: FedAGMSettings

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """Cross-entropy + mu ||w - w_received||^2."""
        ce = F.cross_entropy(net(batch.x), batch.y)
        pull = 2 * proximal(net, anchor, self.weights)
        return ce + self.settings.agm_mu * pull, {"ce": ce, "prox": pull}

    def advance(self, server: ServerState, mean: Averages) -> ServerState:
        """The server's momentum."""
        return accelerate(self, server, mean, self.settings)
