"""MOON (Li et al., CVPR 2021): features are drawn to the received model's, away from the client's own last ones."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from fedaction.data.client import ClientInfo
from fedaction.federation.scope import ScopeTable
from fedaction.federation.tree import Tree, tensors_of
from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.memory import RULE, kept_name, with_memory
from fedaction.methods.settings import NetworkSettings


class MOONSettings(NetworkSettings):
    """Keys of a recipe that this method reads."""

    moon_mu: float = Field(1.0, ge=0)
    """Weight of the contrast; its authors tune over 0.1, 1, 5, 10."""
    moon_temperature: float = Field(0.5, gt=0)
    """Temperature of the contrast."""


class MOON(Method):
    """Federated averaging with a contrast between models.

    z is the input of the classifier (the projection's output where there is one). The received and the previous model
    run in evaluation mode. Before a client has a previous model, the received one stands in, as in the authors' code.
    """

    title = "MOON"
    needs_anchor = True
    settings_type = MOONSettings
    settings: MOONSettings

    def build(self, client: ClientInfo) -> nn.Module:
        """The backbone, and room for its previous shared tensors."""
        network = super().build(client)
        left_out = ("classifier", "topology.A")
        return with_memory(network, [n for n in tensors_of(network) if not n.startswith(left_out)])

    def scopes(self) -> ScopeTable:
        """The previous model stays with the client."""
        return ScopeTable((RULE, *self.plain_rules()))

    def begin(self, tensors: Tree) -> Tree:
        """The first time, the received model counts as the previous one."""
        seen = tensors[kept_name("seen")]
        return {
            copy: torch.where(seen > 0, tensors[copy], tensors[name].detach())
            for name, copy in _copies(tensors).items()
        }

    def finish(self, start: Tree, trained: Tree) -> Tree:
        """What was trained is the next round's previous model."""
        own = {copy: trained[name].detach() for name, copy in _copies(trained).items()}
        return {**own, kept_name("seen"): torch.ones_like(trained[kept_name("seen")])}

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """Cross-entropy + mu l_con (its Eqs. 3 and 4)."""
        s = self.settings
        features = net(batch.x, leave=3)
        z = net(features, enter=3, output="projected")
        ce = F.cross_entropy(net(features, enter=3), batch.y)
        previous = anchor.with_tensors({name: anchor.tensors[copy] for name, copy in _copies(anchor.tensors).items()})
        z_global = anchor(batch.x, output="projected").detach()
        z_previous = previous(batch.x, output="projected").detach()
        similar = torch.stack([F.cosine_similarity(z, other, -1) for other in (z_global, z_previous)], -1)
        contrast = -F.log_softmax(similar / s.moon_temperature, -1)[..., 0].mean()
        return ce + s.moon_mu * contrast, {"ce": ce, "contrast": contrast}


def _copies(tensors: Tree) -> dict[str, str]:
    """Names of the tensors that have a kept copy, and of their copies."""
    return {name: kept_name(name) for name in tensors if kept_name(name) in tensors}
