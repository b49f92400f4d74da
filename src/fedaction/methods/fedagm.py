"""FedAGM (Kim et al., 2022; later FedACG): the server looks ahead along its last step, clients stay near it."""

from __future__ import annotations

from collections.abc import Iterable

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedaction.data.client import ClientInfo
from fedaction.federation.state import ServerState, Update
from fedaction.federation.tree import Tree
from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.momentum import MomentumSettings, accelerated
from fedaction.methods.terms import proximal


class FedAGMSettings(MomentumSettings):
    """Keys of a recipe that this method reads. tau and xi as FSAR has them; the authors' code has 1 and 0.85."""

    agm_mu: float = Field(0.001, ge=0)
    """Weight of the squared distance to the received weights, without the half, as in the authors' code."""


class FedAGM(Method):
    """Federated averaging with the server's momentum."""

    name = "fedagm"
    needs_anchor = True
    settings_type = FedAGMSettings
    settings: FedAGMSettings

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """Cross-entropy + mu ||w - w_received||^2."""
        ce = F.cross_entropy(net(batch.x), batch.y)
        pull = 2 * proximal(net, anchor, self.weights)
        return ce + self.settings.agm_mu * pull, {"ce": ce, "prox": pull}

    def initial_memory(self, shared: Tree) -> Tree:
        """The model to send next: at first the initial one."""
        return dict(shared)

    def payload(self, server: ServerState, client: ClientInfo) -> Tree:
        """The accelerated model."""
        return self.served(server, client, server.memory)

    def combine(self, server: ServerState, updates: Iterable[Update]) -> ServerState:
        """The server's momentum."""
        return accelerated(self, server, updates, self.settings)
