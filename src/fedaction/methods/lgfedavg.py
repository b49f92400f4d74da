"""LG-FedAvg (Liang et al., 2020): every client its own representation, one classifier for all."""

from __future__ import annotations

from fedaction.federation.scope import FROZEN, GLOBAL, LOCAL, Rule, ScopeTable
from fedaction.methods.base import Method


class LGFedAvg(Method):
    """What reads the features is averaged (by samples; the authors' code averages equally), the encoder stays.

    The authors start from a model trained by federated averaging; here
    everybody starts from the same initial values.
    """

    title = "LG-FedAvg"

    def scopes(self) -> ScopeTable:
        """The head and the classifier travel."""
        head = (Rule("head", GLOBAL), Rule("projection", GLOBAL), Rule("classifier", GLOBAL))
        return ScopeTable((Rule("topology.A", FROZEN), *head, Rule("**", LOCAL)))
