"""FedVSSL (Rehman et al., ECCV 2022): learning from unlabelled video; only the backbone travels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from fedaction.federation.average import Averages
from fedaction.federation.scope import GLOBAL, LOCAL, Rule, ScopeTable
from fedaction.federation.state import Report, ServerState, Weight
from fedaction.methods.vssl import VSSL, VSSLSettings

_LARGEST = 700.0
"""Of a loss in e^-L: beyond it the weight would be 0, or infinite, in floating point."""


class FedVSSLSettings(VSSLSettings):
    """Keys of a recipe that this method reads. With alpha = beta = 0 and shared heads it is FedAvg."""

    vssl_alpha: float = Field(0.9, ge=0, le=1)
    """alpha: the share of the loss-weighted mean; the rest is weighted by samples."""
    vssl_beta: int = Field(0, ge=0)
    """beta: how many of the server's last models are averaged with the new one; the paper has 0 and 1."""
    server_lr: float = Field(1.0, gt=0)
    """eta_s: how far the server goes towards the mean of the clients."""


class FedVSSL(VSSL):
    """A mix of loss- and size-weighted means, averaged with the server's last models."""

    title = "FedVSSL"
    settings_type = FedVSSLSettings
    settings: FedVSSLSettings

    def scopes(self) -> ScopeTable:
        """The backbone travels with its statistics; the head stays and is kept between participations."""
        head = GLOBAL if self.settings.heads == "shared" else LOCAL
        return ScopeTable((Rule("backbone", GLOBAL), Rule("**", head)))

    def weigh(self, report: Report) -> Weight:
        """Alpha by loss, e^-L over the sum of all, the rest by samples: one weight for each client (Eq. 2)."""
        alpha = self.settings.vssl_alpha
        by_loss = math.exp(-max(-_LARGEST, min(report.metrics["loss"], _LARGEST)))
        return ((alpha, by_loss), (1 - alpha, report.samples))

    def advance(self, server: ServerState, mean: Averages) -> ServerState:
        """theta~ = theta_g + eta_s Delta, then theta_g <- the mean of theta~ and the last beta theta_g (Eqs. 2, 3).

        Delta is the weighted mean of theta_m - theta_g; the paper's minus sign would lead away from the clients. In
        the first round there is no model of the server's to average with.
        """
        past = self._past(server)

        def move(theta: Tensor, after: Tensor, name: str) -> Tensor:
            new = theta + self.settings.server_lr * (after - theta)
            return torch.stack([new, *(tree[name] for tree in past)]).mean(0) if past else new

        step = mean.step(server, lambda of, previous: of.apply(previous, move))
        return replace(step, memory=self._remember(server))

    def _past(self, server: ServerState) -> list[Mapping[str, Tensor]]:
        """The last beta models that the server has made, newest first; fewer where there are not so many yet."""
        if not self.settings.vssl_beta or server.version == 0:
            return []
        older = [
            {name: server.memory[f"past-{age}.{name}"] for name in server.shared}
            for age in range(1, self.settings.vssl_beta)
            if f"past-{age}.{next(iter(server.shared))}" in server.memory
        ]
        return [server.shared, *older]

    def _remember(self, server: ServerState) -> dict[str, Tensor]:
        """What the next round needs besides the model that it starts from."""
        kept = self._past(server)[: max(self.settings.vssl_beta - 1, 0)]
        return {f"past-{age}.{name}": tensor for age, tree in enumerate(kept, 1) for name, tensor in tree.items()}
