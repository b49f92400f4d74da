"""Local training alone: nothing is shared. What a client reaches without the others."""

from __future__ import annotations

from fedaction.federation.scope import FROZEN, LOCAL, Rule, ScopeTable
from fedaction.methods.base import Method
from fedaction.methods.video import frozen_parts


class Local(Method):
    """Every client trains its own network and keeps it."""

    title = "Local only"

    def scopes(self) -> ScopeTable:
        """All that learns is LOCAL."""
        frozen = (Rule(name, FROZEN) for name in frozen_parts(self.settings))
        return ScopeTable((Rule("topology.A", FROZEN), *frozen, Rule("**", LOCAL)))
