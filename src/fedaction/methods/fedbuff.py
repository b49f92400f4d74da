"""FedBuff (Nguyen et al., AISTATS 2022): asynchronous clients, whose changes are averaged a few at a time."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from fedaction.federation.average import Averages, Mean
from fedaction.federation.state import Report, ServerState
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
    """The server adds the mean of what K clients changed, each weighed by its age."""

    title = "FedBuff"
    settings_type = FedBuffSettings
    settings: FedBuffSettings

    @property
    def buffer(self) -> int:
        """K."""
        return self.settings.buffer

    def weigh(self, report: Report) -> float:
        """s(tau_i): updates count alike, however many samples they are from, but for their age."""
        return self.settings.freshness(report.staleness)

    def advance(self, server: ServerState, mean: Averages) -> ServerState:
        """W <- w + eta_g / K sum_i s(tau_i) Delta_i, each tensor over the clients that hold it.

        Delta_i = w_i - what client i was sent; the sum is the total weight times the mean after less the mean sent.
        """

        def move(of: Mean, previous: Tree) -> dict[str, Tensor]:
            def step(w: Tensor, after: Tensor, name: str) -> Tensor:
                k = of.counts[name]
                k = k.clamp(min=1) if isinstance(k, Tensor) else k  # entries that nobody holds stay as they are
                return w + self.settings.server_lr * of.weights[name] / k * (after - of.sent[name])

            return of.apply(previous, step)

        return mean.step(server, move)
