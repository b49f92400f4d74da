"""Centralised pretraining, FedVSSL's comparison: all clients' recordings in one place, learned from unlabelled."""

from __future__ import annotations

from collections.abc import Mapping

from fedaction.data.client import ClientData
from fedaction.federation.scope import GLOBAL, Rule, ScopeTable
from fedaction.methods.central import Pooled
from fedaction.methods.vssl import VSSL


class CentralVSSL(Pooled, VSSL):
    """One client trains on everybody's recordings by the pretext task; a round is an epoch (with `local_epochs = 1`).

    As for any client, momentum starts anew with every round, hence with every epoch, and the learning rate falls by
    `lr_decay` from round to round; the paper keeps momentum and divides the rate by ten after each third.
    """

    title = "Centralised"

    @staticmethod
    def pool(clients: Mapping[str, ClientData], *, keep: bool = True) -> dict[str, ClientData]:
        """One client with all training recordings; the others keep theirs only for tests by the nearest of them."""
        return Pooled.pool(clients, keep=True)

    def scopes(self) -> ScopeTable:
        """All of it is one model, whatever `heads` says."""
        return ScopeTable((Rule("**", GLOBAL),))
