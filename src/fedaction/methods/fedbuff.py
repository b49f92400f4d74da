"""FedBuff (Nguyen et al., AISTATS 2022): asynchronous clients, whose changes are averaged a few at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from fedaction.federation.average import scoped_average
from fedaction.federation.scope import Scope
from fedaction.federation.staleness import staleness_of
from fedaction.federation.state import ServerState, Update
from fedaction.federation.tree import Tree
from fedaction.methods.base import Method
from fedaction.methods.edge import StaleSettings


class FedBuffSettings(StaleSettings):
    """Keys of a recipe that this method reads."""

    buffer: int = Field(4, ge=1)
    """K: how many updates the server gathers before it takes a step; its authors use 10."""
    server_lr: float = Field(1.0, gt=0)
    """eta_g: how far the server goes along the mean change."""


class FedBuff(Method):
    """Clients send what they changed; the server adds the mean of K such changes, each weighed by its age."""

    name = "fedbuff"
    asynchronous = True
    needs_anchor = True  # a client compares what it has with what it was sent
    settings_type = FedBuffSettings
    settings: FedBuffSettings

    @property
    def buffered(self) -> int:
        """K."""
        return self.settings.buffer

    def finish(self, begun: Tree, trained: Tree) -> Tree:
        """Delta = w_after - w_received, for whatever is shared; counters go as they are."""
        return {n: trained[n].detach() - begun[n] for n in self.shared if trained[n].is_floating_point()}

    def combine(self, server: ServerState, updates: Iterable[Update]) -> ServerState:
        """W <- w + eta_g / K sum_i s(tau_i) Delta_i, each tensor over the clients that hold it."""
        s = self.settings.weigh

        def weighed(update: Update) -> Update:
            share = s(staleness_of(server, update))
            tree = {n: t * share if t.is_floating_point() else t for n, t in update.tree.items()}
            return replace(update, tree=tree, weight=1.0)  # K updates count alike, however many samples they are from

        still = replace(
            server,
            shared=_still(server.shared),
            groups={group: _still(tree) for group, tree in server.groups.items()},
        )
        change = scoped_average(still, map(weighed, updates), self.scopes_of, self.parts_of)
        groups = {group: self._moved(server.groups[group], tree) for group, tree in change.groups.items()}
        return replace(change, shared=self._moved(server.shared, change.shared), groups=groups)

    def _moved(self, old: Tree, change: Tree) -> dict[str, Tensor]:
        lr = self.settings.server_lr
        return {n: old[n] + lr * step if step.is_floating_point() else step for n, step in change.items()}

    @property
    def shared(self) -> tuple[str, ...]:
        """Names of all tensors that clients share."""
        found: dict[str, None] = {}
        for plan in self._plans.values():
            found |= dict.fromkeys(n for n, s in plan.scopes.items() if s in (Scope.GLOBAL, Scope.GROUP))
        return tuple(found)


def _still(tree: Tree) -> dict[str, Tensor]:
    """No change: zeros, but for counters, which are no changes."""
    return {n: torch.zeros_like(t) if t.is_floating_point() else t for n, t in tree.items()}
