"""pFedMe (Dinh et al., NeurIPS 2020): personal models near the shared one, through Moreau envelopes."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from fedaction.data.client import ClientInfo
from fedaction.federation.average import Averages
from fedaction.federation.scope import ScopeTable
from fedaction.federation.state import ServerState
from fedaction.federation.tree import Tree, tensors_of
from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.inner import gradient
from fedaction.methods.memory import RULE, kept_name, with_memory
from fedaction.methods.settings import NetworkSettings


class PFedMeSettings(NetworkSettings):
    """Keys of a recipe that this method reads. Defaults are those of its authors' code."""

    pfedme_lambda: float = Field(15.0, gt=0)
    """How strongly the personal model is held near the shared one."""
    pfedme_steps: int = Field(5, ge=1)
    """Steps of the personal model on a batch (K)."""
    pfedme_lr: float = Field(0.1, gt=0)
    """Learning rate of the personal model."""
    pfedme_decay: float = Field(0.001, ge=0)
    """L2 penalty of the personal model."""
    pfedme_beta: float = Field(1.0, gt=0)
    """How far the server moves to the clients' mean; more than 1 goes beyond it."""


class PFedMe(Method):
    """The personal model theta is what a client is tested with; w is what travels.

    A local step is one batch, as the authors mean it: their "local epochs" are single batches too.
    """

    title = "pFedMe"
    settings_type = PFedMeSettings
    settings: PFedMeSettings

    def build(self, client: ClientInfo) -> nn.Module:
        """The network, and room for the personal one."""
        network = super().build(client)
        return with_memory(network, [n for n, t in tensors_of(network).items() if t.requires_grad])

    def scopes(self) -> ScopeTable:
        """The personal model stays with the client."""
        return ScopeTable((RULE, *self.plain_rules()))

    def begin(self, tensors: Tree) -> Tree:
        """A round starts with theta at w, as in the authors' code."""
        names = [n for n in tensors if kept_name(n) in tensors]
        return {
            **{kept_name(n): tensors[n].detach() for n in names},
            kept_name("seen"): torch.ones_like(tensors[kept_name("seen")]),
        }

    def step(self, net: Net, anchor: Net, batch: Batch, lr: float) -> tuple[Tree, Metrics]:
        """K times theta <- theta - eta (grad + lambda (theta - w)); then w <- w - lambda lr (w - theta).

        Normalisation statistics are those of theta's passes.
        """
        s = self.settings
        w = {n: net.tensors[n].detach() for n in net.tensors if kept_name(n) in net.tensors}
        theta = {n: net.tensors[kept_name(n)] for n in w}
        first: Tensor | None = None
        for _ in range(s.pfedme_steps):
            slope, ce, others = gradient(net, theta, lambda inner: F.cross_entropy(inner(batch.x), batch.y))
            net = net.with_tensors(others)
            first = ce if first is None else first
            theta = {
                n: t - s.pfedme_lr * (slope[n] + s.pfedme_lambda * (t - w[n]) + s.pfedme_decay * t)
                for n, t in theta.items()
            }
        assert first is not None
        shared = {n: t - s.pfedme_lambda * lr * (t - theta[n]) for n, t in w.items()}
        others = {n: net.tensors[n] for n in net.tensors if n not in w}
        return {**others, **shared, **{kept_name(n): t for n, t in theta.items()}}, {"ce": first, "loss": first}

    def adapt(self, net: Net, train: Batch) -> Tree:
        """A client is tested with theta, once it has one."""
        seen = net.tensors[kept_name("seen")] > 0
        names = [n for n in net.tensors if kept_name(n) in net.tensors]
        return {n: torch.where(seen, net.tensors[kept_name(n)], net.tensors[n]) for n in names}

    def advance(self, server: ServerState, mean: Averages) -> ServerState:
        """The server: w <- (1 - beta) w + beta * mean."""
        average, beta = super().advance(server, mean), self.settings.pfedme_beta
        ahead = {n: torch.lerp(server.shared[n], average.shared[n], beta) for n in self.weights}
        return replace(average, shared={**average.shared, **ahead})
