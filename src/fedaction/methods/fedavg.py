"""Vanilla FSAR: federated averaging (McMahan et al., 2017) of a skeleton backbone, with local classifiers.

FSAR (Guo et al., ICCV 2023), section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from fedaction.data.client import ClientInfo
from fedaction.federation.scope import FROZEN, GLOBAL, LOCAL, Rule, ScopeTable
from fedaction.federation.state import Part
from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.skeleton import BackboneSettings, body_of, build_stgcn, joint_parts


class FedAvg(Method):
    """Backbone averaged by n_i / n (Eq. 4); classifier, data normalisation and its statistics stay local."""

    name = "fedavg"
    settings_type = BackboneSettings
    settings: BackboneSettings

    def __init__(self, clients: Iterable[ClientInfo], settings: BackboneSettings) -> None:
        super().__init__(clients, settings)
        self.body = body_of(self.clients.values())

    def build(self, client: ClientInfo) -> nn.Module:
        """A plain ST-GCN."""
        return build_stgcn(client, self.settings)

    def scopes(self) -> ScopeTable:
        """Edge masks are shared over joints that mean the same; `data_norm` has the client's own joints."""
        return ScopeTable(
            (
                Rule("topology.A", FROZEN),
                Rule("classifier", LOCAL),
                Rule("data_norm", LOCAL),
                Rule("**", LOCAL if self.settings.buffers == "local" else GLOBAL, kind="buffer"),
                Rule("**", GLOBAL),
            )
        )

    def parts(self, client: ClientInfo) -> Mapping[str, Part]:
        """The edge masks, over the client's joints."""
        return joint_parts(client, self.body, self.settings.masks())

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """Cross-entropy (the loss of Eqs. 2 and 3)."""
        loss = F.cross_entropy(net(batch.x), batch.y)
        return loss, {"ce": loss}
