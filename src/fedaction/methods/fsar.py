"""FSAR (Guo et al., ICCV 2023): adaptive topology (ATS), block-wise distillation (MKD), server momentum.

Where each equation is: Eq. 5 in `models/backbone.py` (`Topology`), Eqs. 6 and 7 are `scopes` (I is GLOBAL, U LOCAL),
Eqs. 8 to 11 in `loss` (Eq. 10 in `terms.py`), the supplement's Eqs. 1 to 3 and Algorithm 1 in `momentum.py`.
`docs/fsar.md` says where paper, supplement and released code disagree, and which reading is taken here.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from fedaction.data.client import ClientInfo
from fedaction.federation.average import Averages
from fedaction.federation.scope import FROZEN, GLOBAL, LOCAL, Rule, ScopeTable
from fedaction.federation.state import ServerState
from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.momentum import MomentumSettings, accelerate
from fedaction.methods.network import build_network
from fedaction.methods.terms import divergence, proximal


class FSARSettings(MomentumSettings):
    """Keys of a recipe that this method reads. Defaults are the paper's."""

    ats: bool = True
    """Adaptive topology: I and U beside A. False: "FSAR w/o ATS"."""
    ats_coefficients: Literal["learned"] | tuple[float, float, float] = "learned"
    """alpha, beta, gamma of Eq. 5: learned per client, or fixed (the rows of Table 3)."""
    mkd_blocks: int = Field(2, ge=0, le=3)
    """How many shallow blocks of the server's model replace the client's (m-bar of Eq. 8). 0: "FSAR w/o MKD"."""
    mkd_weight: Literal["half_mean", "sum"] = "half_mean"
    """What grafted streams count beside the local one: half in all (the released code), or 1 each (Eqs. 8 and 9)."""
    kd_detach: bool = True
    """Whether the branch's prediction is a fixed target for the local one."""
    lambda_ce: float = Field(1.0, ge=0)
    """Weight of the cross-entropies (Eq. 9)."""
    lambda_kd: float = Field(1.0, ge=0)
    """Weight of the distillation (Eq. 8)."""
    lambda_reg: float = Field(0.1, ge=0)
    """Weight of the pull to the received weights (Eq. 10)."""


class FSAR(Method):
    """Federated skeleton-based action recognition."""

    title = "FSAR"
    needs_anchor = True
    settings_type = FSARSettings
    settings: FSARSettings

    def build(self, client: ClientInfo) -> nn.Module:
        """A backbone whose graph is Eq. 5."""
        s = self.settings
        if client.layout is None:
            raise ValueError(
                f"FSAR learns the topology of skeletons, but client {client.id!r} holds {client.group!r} samples, "
                'which have no joints: take method = "fedavg" or "fdarn" for those'
            )
        return build_network(client, s, s.ats, None if s.ats_coefficients == "learned" else s.ats_coefficients)

    def scopes(self) -> ScopeTable:
        """I travels (Eqs. 6 and 7); U and the coefficients stay, with all that stays in Vanilla FSAR.

        Weight decay does not pull the learned topology to zero.
        """
        learned = (Rule("topology.I", GLOBAL, decay=False), Rule("topology", LOCAL, decay=False))
        topology = (Rule("topology.A", FROZEN), *learned)
        return ScopeTable((*topology, *self.plain_rules()))

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """Eq. 11: lambda1 L_CE + lambda2 L_KD + lambda3 L_Reg."""
        s, x, y = self.settings, batch.x, batch.y
        logits = net(x)  # Phi_i(h), the local stream
        l_ce = F.cross_entropy(logits, y)
        l_kd = torch.zeros_like(l_ce)
        weight = 0.5 / max(s.mkd_blocks, 1) if s.mkd_weight == "half_mean" else 1.0
        # Server and grafts normalise by the batch: a client's first statistics are no estimate of anything, and its
        # running ones are those of the local stream, which is what is tested.
        server, graft, feature = anchor.by_batch(), net.by_batch(), x
        for m in range(1, s.mkd_blocks + 1):
            # f_{g,m}: the server's first m blocks, without U, frozen; then the client's own remaining blocks.
            feature = server(feature, enter=m - 1, leave=m, unique=False).detach()
            branch = graft(feature, enter=m)  # Phi_i(h-bar_m)
            l_ce = l_ce + weight * F.cross_entropy(branch, y)  # Eq. 9
            l_kd = l_kd + weight * divergence(branch.detach() if s.kd_detach else branch, logits)  # Eq. 8
        l_reg = proximal(net, anchor, self.weights) if s.lambda_reg else torch.zeros_like(l_ce)  # Eq. 10
        total = s.lambda_ce * l_ce + s.lambda_kd * l_kd + s.lambda_reg * l_reg
        return total, {"ce": l_ce, "kd": l_kd, "reg": l_reg}

    def advance(self, server: ServerState, mean: Averages) -> ServerState:
        """Supplement, Eqs. 1 to 3: the server's momentum."""
        return accelerate(self, server, mean, self.settings)
