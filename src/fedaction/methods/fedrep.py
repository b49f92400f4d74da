"""FedRep (Collins et al., ICML 2021): one representation for all, every client its own head, trained in turn."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from fedaction.federation.scope import GLOBAL, LOCAL, Rule, ScopeTable
from fedaction.methods.base import Method
from fedaction.methods.settings import NetworkSettings

HEAD = ("head", "projection", "classifier")


class FedRepSettings(NetworkSettings):
    """Keys of a recipe that this method reads."""

    rep_epochs: int = Field(1, ge=1)
    """The last so many local epochs train the representation; those before train the head."""


class FedRep(Method):
    """In each round the head is trained with the representation at rest, then the other way round."""

    title = "FedRep"
    settings_type = FedRepSettings
    settings: FedRepSettings

    def scopes(self) -> ScopeTable:
        """The head stays. Its turn to be trained is first; the last local epochs are the representation's."""
        first, last = slice(-self.settings.rep_epochs), slice(-self.settings.rep_epochs, None)
        head = [Rule(pattern, LOCAL, epochs=first) for pattern in HEAD]
        rest = [replace(row, epochs=last) if row.scope is GLOBAL else row for row in self.plain_rules()]
        return ScopeTable((*head, *rest))
