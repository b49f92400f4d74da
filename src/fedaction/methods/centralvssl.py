"""Centralised pretraining, FedVSSL's comparison: all clients' recordings in one place, learned from unlabelled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor, nn

from fedaction.data.client import ClientData, ClientInfo
from fedaction.federation.scope import GLOBAL, Rule, ScopeTable
from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.central import EVERYONE, Central
from fedaction.methods.fedvssl import VSSLSettings, pretext_of
from fedaction.methods.pretext import Pretext


class CentralVSSL(Method):
    """One client trains on everybody's recordings by the pretext task; a round is an epoch (with `local_epochs = 1`).

    As for any client, momentum starts anew with every round, hence with every epoch, and the learning rate falls by
    `lr_decay` from round to round; the paper keeps momentum and divides the rate by ten after each third.
    """

    name = "centralvssl"
    settings_type = VSSLSettings
    settings: VSSLSettings

    @classmethod
    def arrange(cls, clients: Mapping[str, ClientData]) -> Mapping[str, ClientData]:
        """One client with all training recordings; the others keep theirs only for tests by the nearest of them."""
        pooled = Central.arrange(clients)[EVERYONE]
        others = {key: replace(c, info=replace(c.info, samples=0)) for key, c in clients.items()}
        return {**others, EVERYONE: pooled}

    @property
    def task(self) -> Pretext:
        """The pretext task."""
        return pretext_of(self.settings)

    def build(self, client: ClientInfo) -> nn.Module:
        """R3D-18 and the task's head."""
        return self.task.network(self.settings.model_depth, self.settings.model_width or 64)

    def scopes(self) -> ScopeTable:
        """All of it is one model, whatever `heads` says."""
        return ScopeTable((Rule("**", GLOBAL),))

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """The task's own loss."""
        return self.task.loss(net, batch.x, batch.y)
