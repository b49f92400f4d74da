"""FedU (Zhuang et al., ICCV 2021) on video: only clients whose encoder moved little take the averaged head."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import nn

from fedaction.data.client import ClientInfo
from fedaction.federation.scope import GLOBAL, Rule, ScopeTable
from fedaction.federation.tree import Tree, tensors_of
from fedaction.methods.memory import RULE, kept_name, with_memory
from fedaction.methods.vssl import VSSL, VSSLSettings


class FedUSettings(VSSLSettings):
    """Keys of a recipe that this method reads."""

    fedu_threshold: float = Field(0.4, ge=0)
    """mu: a client whose encoder moved as far as this in its last training keeps its own head."""


class FedU(VSSL):
    """Encoder and head are averaged; clients that diverge keep their own head."""

    title = "FedU"
    needs_anchor = True
    settings_type = FedUSettings
    settings: FedUSettings

    def build(self, client: ClientInfo) -> nn.Module:
        """R3D-18 and the task's head, and room for the client's own head and for how far its encoder moved."""
        network = super().build(client)
        return with_memory(network, [n for n in tensors_of(network) if n.startswith("head.")], ("moved",))

    def scopes(self) -> ScopeTable:
        """All is averaged but what a client remembers."""
        return ScopeTable((RULE, Rule("**", GLOBAL)))

    def begin(self, tensors: Tree) -> Tree:
        """The received head, or the client's own where its encoder moved by mu or more in its last training."""
        own = (tensors[kept_name("seen")] > 0) & (tensors[kept_name("moved")] >= self.settings.fedu_threshold)
        return {
            n: torch.where(own, tensors[kept_name(n)], t.detach())
            for n, t in tensors.items()
            if kept_name(n) in tensors
        }

    def finish(self, start: Tree, trained: Tree) -> Tree:
        """The head as it is now, and the mean distance that the encoder's convolutions went."""
        own = {kept_name(n): t.detach() for n, t in trained.items() if kept_name(n) in trained}
        moves = [
            (t.detach() - start[n]).square().sum().sqrt()
            for n, t in trained.items()
            if n.startswith("backbone.") and t.dim() == 5
        ]
        seen = torch.ones_like(trained[kept_name("seen")])
        return {**own, kept_name("moved"): torch.stack(moves).mean(), kept_name("seen"): seen}
