"""FedBN (Li et al., ICLR 2021): every batch normalisation stays with its client, weights and statistics alike."""

from __future__ import annotations

from torch import nn

from fedaction.data.client import ClientInfo
from fedaction.federation.scope import LOCAL, Rule, ScopeTable
from fedaction.methods.base import Method
from fedaction.models.statistics import norms_of


class FedBN(Method):
    """Federated averaging of all but the normalisations.

    They are found by what they are. The authors' code looks for "bn" in names, which in ST-GCN's code finds only the
    normalisation of the input.
    """

    title = "FedBN"

    def build(self, client: ClientInfo) -> nn.Module:
        """The network, which must normalise over batches."""
        network = super().build(client)
        if not norms_of(network):
            raise ValueError("fedbn keeps batch normalisations local; this network has none: set model_norm = true")
        return network

    def scopes(self) -> ScopeTable:
        """Modules that are batch normalisations are LOCAL, the rest as in plain averaging."""
        return ScopeTable((Rule("**", LOCAL, module="BatchNorm"), *self.plain_rules()))
