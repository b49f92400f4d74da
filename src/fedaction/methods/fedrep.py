"""FedRep (Collins et al., ICML 2021): one representation for all, every client its own head, trained in turn."""

from __future__ import annotations

from pydantic import Field

from fedaction.federation.scope import LOCAL, Rule, ScopeTable
from fedaction.methods.base import Method
from fedaction.methods.network import shared_backbone
from fedaction.methods.settings import NetworkSettings

HEAD = ("head", "projection", "classifier")


class FedRepSettings(NetworkSettings):
    """Keys of a recipe that this method reads."""

    rep_epochs: int = Field(1, ge=1)
    """The last so many local epochs train the representation; those before train the head."""


class FedRep(Method):
    """In each round the head is trained with the representation at rest, then the other way round."""

    name = "fedrep"
    settings_type = FedRepSettings
    settings: FedRepSettings

    def scopes(self) -> ScopeTable:
        """The head stays."""
        return ScopeTable((*(Rule(pattern, LOCAL) for pattern in HEAD), *shared_backbone(self.settings)))

    def resting(self, epoch: int, epochs: int) -> tuple[str, ...]:
        """With one local epoch in all there is no turn to take: everything is trained."""
        if epochs == 1:
            return ()
        return HEAD if epoch >= epochs - self.settings.rep_epochs else self._representation

    @property
    def _representation(self) -> tuple[str, ...]:
        return tuple(n for n in self.weights if not n.startswith(HEAD))
