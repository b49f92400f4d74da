"""FDARN (Yang et al., AAAI 2022): clients whose modalities differ share what their activities have in common.

Where each equation is: Eq. 2 in `models/fdarn.py` (`predict`), Eqs. 3, 4 and 7 in `spherical.py`, Eqs. 5, 6 and 8 to
10 in `loss`, Eqs. 11 and 12 are `scopes` (what all modalities share is GLOBAL, what one modality has is GROUP).
`docs/fdarn.md` says where the paper leaves a choice, and which is taken here.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from fedaction.data.client import ClientInfo
from fedaction.federation.scope import FROZEN, GLOBAL, GROUP, Rule, ScopeTable
from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.network import build_encoder
from fedaction.methods.settings import NetworkSettings
from fedaction.methods.spherical import SeparationForm, angular_margin, scaled_gradient, separation, spread_out
from fedaction.models.fdarn import FDARNNetwork as Network
from fedaction.models.fdarn import Streams

Without = Literal[
    "nothing", "psi_sc", "psi_pc", "psi_sc_at_test", "psi_pc_at_test", "phi_a", "phi_e", "psi_md", "L_sep", "L_sp"
]
_BUILT: dict[str, Streams] = {"phi_a": "private", "phi_e": "shared", "psi_sc": "private", "psi_pc": "shared"}
_ASKED: dict[str, Streams] = {"psi_sc_at_test": "private", "psi_pc_at_test": "shared"}


class FDARNSettings(NetworkSettings):
    """Keys of a recipe that this method reads. Defaults are the paper's, but for `fdarn_rescale`."""

    fdarn_separation: float = Field(0.6, ge=0)
    """Weight of the separation loss (gamma_1)."""
    fdarn_adversary: float = Field(0.4, ge=0)
    """Weight of the discriminator's loss for the encoders (gamma_2)."""
    fdarn_scale: float = Field(72.0, gt=0)
    """Scale of the angular margin loss (alpha of Eq. 4)."""
    fdarn_rescale: bool = True
    """Whether gamma_2 is divided by alpha, so that encoders learn from the margin loss without its scale; false: to
    the letter."""
    fdarn_margin: float = Field(0.5, ge=0)
    """Margin of the angular margin loss, in radians (tau of Eq. 4)."""
    fdarn_spread: float = Field(1.5, ge=0)
    """Margin of the spread-out term (nu of Eq. 7)."""
    fdarn_sphere: int = Field(128, ge=1)
    """Dimensions of the discriminator's sphere."""
    fdarn_form: SeparationForm = "gram"
    """Reading of Eq. 3: gram (the mean of squared cosines between samples), frobenius (their sum), dsn (as domain
    separation networks), raw (to the letter)."""
    fdarn_loss: Literal["sphere", "cross_entropy"] = "sphere"
    """The discriminator's loss: on the sphere (L_md), or a plain cross-entropy (Table 4)."""
    fdarn_without: Without = "nothing"
    """A row of Table 3: what is left out. phi_a goes with psi_sc, phi_e with psi_pc; psi_sc or psi_pc alone goes with
    its loss, or, _at_test, is trained and not asked."""


class FDARN(Method):
    """Feature-disentangled activity recognition."""

    title = "FDARN"
    settings_type = FDARNSettings
    settings: FDARNSettings

    @cached_property
    def modalities(self) -> tuple[str, ...]:
        """All modalities of the federation, in the order of the discriminator's prototypes."""
        return tuple(sorted({client.group for client in self.clients.values()}))

    def build(self, client: ClientInfo) -> nn.Module:
        """The five modules, or what the ablation leaves of them."""
        s, without = self.settings, self.settings.fdarn_without
        return Network(
            None if without == "phi_a" else build_encoder(client, s),
            None if without == "phi_e" else build_encoder(client, s),
            classes=len(client.classes),
            modalities=0 if without in ("psi_md", "phi_a") else len(self.modalities),
            own=self.modalities.index(client.group),
            features=s.model_features,
            hidden=s.model_hidden,
            sphere=s.fdarn_sphere,
            streams=_BUILT.get(without, "both"),
            predicts=_ASKED.get(without),
        )

    def scopes(self) -> ScopeTable:
        """Eq. 11: shared classifier and discriminator over all clients; Eq. 12: the rest within a modality."""
        return ScopeTable(
            (
                Rule("*.backbone.topology.A", FROZEN),
                Rule("shared", GLOBAL),
                Rule("discriminator", GLOBAL),
                Rule("altruistic", GROUP),
                Rule("egocentric", GROUP),
                Rule("private", GROUP),
            )
        )

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """Eqs. 9 and 10 in one backward pass: L_c + gamma_1 L_sep + L_sp + L_ama (reversed) + L_ams.

        Gradients that reach the encoders from the discriminator are scaled by -gamma_2 and gamma_2 (or that divided
        by alpha, `fdarn_rescale`); those of the discriminator itself are not.
        """
        s, without = self.settings, self.settings.fdarn_without
        h_a = net(batch.x, part="altruistic") if without != "phi_a" else None
        h_e = net(batch.x, part="egocentric") if without != "phi_e" else None
        total = torch.zeros((), dtype=batch.x.dtype, device=batch.x.device)
        metrics: dict[str, Tensor] = {}
        for part, h, absent in (("shared", h_a, "psi_sc"), ("private", h_e, "psi_pc")):
            if h is not None and without != absent:
                metrics[f"ce_{part}"] = F.cross_entropy(net(h, part=part), batch.y)  # L_sc, L_pc (Eq. 8)
                total = total + metrics[f"ce_{part}"]
        metrics["ce"] = total
        if h_a is not None and h_e is not None and without != "L_sep":
            metrics["separation"] = separation(h_a, h_e, form=s.fdarn_form)  # Eq. 3
            total = total + s.fdarn_separation * metrics["separation"]
        if without not in ("psi_md", "phi_a"):
            scaled = s.fdarn_rescale and s.fdarn_loss == "sphere"  # a cross-entropy has no alpha
            weight = s.fdarn_adversary / s.fdarn_scale if scaled else s.fdarn_adversary
            for name, h, factor in (("altruistic", h_a, -weight), ("egocentric", h_e, weight)):
                if h is not None:
                    margin, seen = self.discriminate(net, scaled_gradient(h, factor))
                    metrics |= {f"margin_{name}": margin, f"seen_{name}": seen}
                    total = total + margin
            if s.fdarn_loss == "sphere" and without != "L_sp":
                metrics["spread"] = spread_out(net.tensors["discriminator.W"], nu=s.fdarn_spread)  # Eq. 7
                total = total + metrics["spread"]
        return total, metrics

    def discriminate(self, net: Net, h: Tensor) -> tuple[Tensor, Tensor]:
        """Eqs. 5 and 6 (or a cross-entropy) on a batch's features; and the share whose modality is recognised."""
        s, own = self.settings, net(h, part="own")
        if s.fdarn_loss == "cross_entropy":
            logits = net(h, part="modality")
            return F.cross_entropy(logits, own), (logits.argmax(-1) == own).to(h.dtype).mean()
        sphere, W = net(h, part="sphere"), net.tensors["discriminator.W"]
        nearest = (sphere @ F.normalize(W, dim=0)).argmax(-1)
        value = angular_margin(sphere, W, own, scale=s.fdarn_scale, margin=s.fdarn_margin)
        return value, (nearest == own).to(h.dtype).mean()
