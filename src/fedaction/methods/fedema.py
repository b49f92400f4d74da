"""FedEMA (Zhuang et al., ICLR 2022): a client mixes its own last weights into those it receives.

The more its local training moved its weights last time, the more it keeps of them. Its authors use it for
self-supervised learning; here the rule is applied to the supervised backbone.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import nn

from fedaction.data.client import ClientInfo
from fedaction.federation.scope import ScopeTable
from fedaction.federation.tree import Tree, tensors_of
from fedaction.methods.base import Batch, Method, Net
from fedaction.methods.memory import RULE, kept_name, with_memory
from fedaction.methods.settings import NetworkSettings


class FedEMASettings(NetworkSettings):
    """Keys of a recipe that this method reads."""

    ema_tau: float = Field(0.7, ge=0, le=1)
    """The share of its own weights that a client keeps the second time it trains; sets its scale from then on."""


class FedEMA(Method):
    """Federated averaging with a client-side moving average."""

    title = "FedEMA"
    needs_anchor = True
    settings_type = FedEMASettings
    settings: FedEMASettings

    def build(self, client: ClientInfo) -> nn.Module:
        """The backbone, room for its last own weights, how far they moved, and the client's scale lambda."""
        network = super().build(client)
        left_out = ("classifier", "data_norm", "topology")
        names = [n for n, t in tensors_of(network).items() if t.requires_grad and not n.startswith(left_out)]
        return with_memory(network, names, ("moved", "scale"))

    def scopes(self) -> ScopeTable:
        """What is kept stays with the client."""
        return ScopeTable((RULE, *self.plain_rules()))

    def begin(self, tensors: Tree) -> Tree:
        """W <- mu W_k + (1 - mu) W_g with mu = min(lambda * divergence, 1); mu = 0 the first time."""
        mu = (tensors[kept_name("scale")] * tensors[kept_name("moved")]).clamp(max=1.0)
        names = [n for n in tensors if kept_name(n) in tensors]
        return {n: tensors[n].detach() + mu * (tensors[kept_name(n)] - tensors[n].detach()) for n in names}

    def adapt(self, net: Net, train: Batch) -> Tree:
        """A client is tested with what it would train from: its classifier belongs to that, not to the server's."""
        return self.begin(net.tensors)

    def finish(self, start: Tree, trained: Tree) -> Tree:
        """Divergence: the mean L2 distance of weight matrices before and after; lambda = tau / the first one."""
        names = [n for n in trained if kept_name(n) in trained]
        matrices = [n for n in names if n.endswith("weight") and trained[n].dim() > 1]
        steps = [(trained[n] - start[n]).detach() for n in matrices]
        moved = torch.stack([step.square().sum().sqrt() for step in steps]).mean()
        first = trained[kept_name("seen")] == 0
        scale = torch.where(first, self.settings.ema_tau / moved.clamp(min=1e-12), trained[kept_name("scale")])
        own = {kept_name(n): trained[n].detach() for n in names}
        return {
            **own,
            kept_name("moved"): moved,
            kept_name("scale"): scale,
            kept_name("seen"): torch.ones_like(scale),
        }
