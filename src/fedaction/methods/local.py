"""Local training alone: nothing is shared. What a client reaches without the others."""

from __future__ import annotations

from fedaction.federation.scope import FROZEN, LOCAL, Rule, ScopeTable
from fedaction.methods.base import Method


class Local(Method):
    """Every client trains its own network and keeps it."""

    title = "Local only"

    def scopes(self) -> ScopeTable:
        """All LOCAL."""
        return ScopeTable((Rule("topology.A", FROZEN), Rule("**", LOCAL)))
