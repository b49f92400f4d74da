"""FSAR (Guo et al., ICCV 2023): adaptive topology (ATS), block-wise distillation (MKD), server momentum.

Where each equation is: Eq. 5 in `models/stgcn.py` (`Topology`), Eqs. 6 and 7 are `scopes` (I is GLOBAL, U is LOCAL),
Eqs. 8 to 11 in `loss`, the supplement's Eqs. 1 to 3 and Algorithm 1 in `payload` and `combine`. `docs/fsar.md` says
where paper, supplement and released code disagree, and which reading is taken here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from fedaction.data.client import ClientInfo
from fedaction.federation.average import scoped_average
from fedaction.federation.scope import FROZEN, GLOBAL, LOCAL, Rule, ScopeTable
from fedaction.federation.state import Part, ServerState, Update
from fedaction.federation.tree import Tree
from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.skeleton import BackboneSettings, body_of, build_stgcn, joint_parts


class FSARSettings(BackboneSettings):
    """Keys of a recipe that this method reads. Defaults are the paper's."""

    ats: bool = True
    """Adaptive topology: I and U beside A. False: "FSAR w/o ATS"."""
    ats_coefficients: Literal["learned"] | tuple[float, float, float] = "learned"
    """alpha, beta, gamma of Eq. 5: learned per client, or fixed (the rows of Table 3)."""
    mkd_blocks: int = Field(2, ge=0, le=3)
    """How many shallow blocks of the server's model replace the client's (m-bar of Eq. 8). 0: "FSAR w/o MKD"."""
    kd_detach: bool = True
    """Whether the branch's prediction is a fixed target for the local one."""
    lambda_ce: float = Field(1.0, ge=0)
    """Weight of the cross-entropies (Eq. 9)."""
    lambda_kd: float = Field(1.0, ge=0)
    """Weight of the distillation (Eq. 8)."""
    lambda_reg: float = Field(0.1, ge=0)
    """Weight of the pull to the received weights (Eq. 10)."""
    tau: float = Field(0.8, ge=0, le=1)
    """Share of the clients' mean in the next model; the rest is the model they were sent. 1: plain averaging."""
    xi: float = Field(0.8, ge=0)
    """How far the model sent looks ahead along the last round's change. 0: not at all."""


class FSAR(Method):
    """Federated skeleton-based action recognition."""

    name = "fsar"
    needs_anchor = True
    settings_type = FSARSettings
    settings: FSARSettings

    def __init__(self, clients: Iterable[ClientInfo], settings: FSARSettings) -> None:
        super().__init__(clients, settings)
        self.body = body_of(self.clients.values())
        # Eq. 10 and the server's momentum speak of weights: parameters in GLOBAL scope.
        plan = self.plan(next(iter(self.clients.values())))
        self.weights = [
            name for name, scope in plan.scopes.items() if scope is GLOBAL and plan.leaves[name].kind == "parameter"
        ]

    def build(self, client: ClientInfo) -> nn.Module:
        """An ST-GCN whose graph is Eq. 5."""
        s = self.settings
        return build_stgcn(client, s, s.ats, None if s.ats_coefficients == "learned" else s.ats_coefficients)

    def scopes(self) -> ScopeTable:
        """I travels (Eqs. 6 and 7); U, the coefficients, the classifier and the statistics stay."""
        return ScopeTable(
            (
                Rule("topology.A", FROZEN),
                Rule("topology.I", GLOBAL),
                Rule("topology", LOCAL),
                Rule("classifier", LOCAL),
                Rule("data_norm", LOCAL),
                Rule("**", LOCAL if self.settings.buffers == "local" else GLOBAL, kind="buffer"),
                Rule("**", GLOBAL),
            )
        )

    def parts(self, client: ClientInfo) -> Mapping[str, Part]:
        """I and the edge masks, over the client's joints."""
        learned = ["topology.I"] if self.settings.ats else []
        return joint_parts(client, self.body, [*learned, *self.settings.masks()])

    def undecayed(self) -> tuple[str, ...]:
        """The learned topology is not pulled to zero."""
        return ("topology",)

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """Eq. 11: lambda1 L_CE + lambda2 L_KD + lambda3 L_Reg."""
        s, x, y = self.settings, batch.x, batch.y
        logits = net(x)  # Phi_i(h), the local stream
        l_ce = F.cross_entropy(logits, y)
        l_kd = torch.zeros_like(l_ce)
        feature = x
        for m in range(1, s.mkd_blocks + 1):
            # f_{g,m}: the server's first m blocks, without U, frozen; then the client's own remaining blocks.
            feature = anchor(feature, enter=m - 1, leave=m, unique=False).detach()
            branch = net(feature, enter=m)  # Phi_i(h-bar_m)
            l_ce = l_ce + F.cross_entropy(branch, y)  # Eq. 9
            l_kd = l_kd + divergence(branch.detach() if s.kd_detach else branch, logits)  # Eq. 8
        l_reg = torch.zeros_like(l_ce)
        if s.lambda_reg:
            received, current = anchor.tensors, net.tensors
            l_reg = 0.5 * sum(((current[n] - received[n].detach()) ** 2).sum() for n in self.weights)  # Eq. 10
        total = s.lambda_ce * l_ce + s.lambda_kd * l_kd + s.lambda_reg * l_reg
        return total, {"ce": l_ce, "kd": l_kd, "reg": torch.as_tensor(l_reg)}

    def initial_memory(self, shared: Tree) -> Tree:
        """The model to send next: at first, W^0 itself (Delta^0 = 0)."""
        return dict(shared)

    def payload(self, server: ServerState, client: ClientInfo) -> Tree:
        """The accelerated model W^r + xi (W^r - W^{r-1}) (supplement, Eq. 2)."""
        return self.served(server, client, server.memory)

    def combine(self, server: ServerState, updates: Iterable[Update]) -> ServerState:
        """Supplement, Eq. 3, with tau on the mean so that the weights sum to one; then the next look-ahead."""
        tau, xi = self.settings.tau, self.settings.xi
        sent = server.memory
        # An entry that no update of this round holds counts as sent back unchanged.
        mean = scoped_average(replace(server, shared=sent), updates, self.scopes_of, self.parts_of).shared
        shared, ahead = dict(mean), dict(mean)  # averaged statistics, if any, are not accelerated
        for n in self.weights:
            shared[n] = torch.lerp(sent[n], mean[n], tau)
            ahead[n] = shared[n] + xi * (shared[n] - server.shared[n])
        return ServerState(server.version + 1, shared, server.groups, ahead)


def divergence(target: Tensor, logits: Tensor) -> Tensor:
    """KL(softmax(target) || softmax(logits)), mean over the batch, in nats."""
    log_p, log_q = F.log_softmax(target, -1), F.log_softmax(logits, -1)
    return (log_p.exp() * (log_p - log_q)).sum(-1).mean()
