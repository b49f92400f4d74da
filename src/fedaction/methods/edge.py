"""Asynchronous learning on unequal devices (Jain et al., 2021, Algorithm 1), which is FedAsync (Xie et al., 2019).

The server mixes in every update as it comes, the less the older the model is that it started from.
"""

from __future__ import annotations

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedaction.federation.average import Averages, mix
from fedaction.federation.staleness import Form, Staleness
from fedaction.federation.state import Report, ServerState
from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.settings import NetworkSettings
from fedaction.methods.terms import proximal


class StaleSettings(NetworkSettings):
    """Keys of methods that weigh updates by their age."""

    staleness: Form = "polynomial"
    """s(x) for an update x server updates old: constant 1; polynomial (1 + x)^-a; hinge 1 up to b, then falling."""
    staleness_a: float = Field(0.5, ge=0)
    """How fast it falls; FedAsync's hinge has 10."""
    staleness_b: float = Field(4.0, ge=0)
    """Hinge: how old an update may be without losing weight."""
    staleness_offset: int = Field(0, ge=0, le=1)
    """0: an update is as old as the server has been updated since its download; 1: one older, the paper's t - tau."""

    @property
    def freshness(self) -> Staleness:
        """S."""
        return Staleness(self.staleness, self.staleness_a, self.staleness_b, self.staleness_offset)


class EdgeSettings(StaleSettings):
    """Keys of a recipe that this method reads. The paper's best: a = 0.5, beta = 0.7."""

    mixing: float = Field(0.7, gt=0, le=1)
    """beta: the weight of a fresh update against the server's model."""
    prox_theta: float = Field(0.005, ge=0)
    """theta: the pull to the received weights. The paper gives none; FedAsync's authors use 0.005 and 0.01."""


class Edge(Method):
    """w_t = (1 - beta_t) w_(t-1) + beta_t w_new with beta_t = beta s(t - tau)."""

    title = "Edge"
    needs_anchor = True
    settings_type = EdgeSettings
    settings: EdgeSettings

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """g_(w_t)(w; d) = l(w; d) + theta/2 ||w - w_t||^2, over the shared weights."""
        ce = F.cross_entropy(net(batch.x), batch.y)
        pull = proximal(net, anchor, self.weights)
        return ce + self.settings.prox_theta * pull, {"ce": ce, "prox": pull}

    @property
    def buffer(self) -> int:
        """Every update is mixed in as it comes."""
        return 1

    def weigh(self, report: Report) -> float:
        """beta_t = beta s(t - tau)."""
        return self.settings.mixing * self.settings.freshness(report.staleness)

    def advance(self, server: ServerState, mean: Averages) -> ServerState:
        """Algorithm 1, server: w_t = w_(t-1) + beta_t (w_new - w_(t-1))."""
        return mean.step(server, mix)
