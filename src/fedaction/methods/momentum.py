"""The server's momentum of FedAGM (Kim et al., 2022), which FSAR adopts (supplement, section 2).

In the unambiguous form: send^r = W^r + xi (W^r - W^{r-1}); W^{r+1} = tau * mean of clients + (1 - tau) send^r.
`ServerState.ahead` is send^r (at first W^0 itself: Delta^0 = 0); evaluation sees W.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import Field

from fedaction.federation.average import Averages, Mean
from fedaction.federation.state import ServerState
from fedaction.methods.base import Method
from fedaction.methods.settings import NetworkSettings


class MomentumSettings(NetworkSettings):
    """Keys of the server's momentum. Defaults are FSAR's."""

    tau: float = Field(0.8, ge=0, le=1)
    """Share of the clients' mean in the next model; the rest is the model they were sent. 1: plain averaging."""
    xi: float = Field(0.8, ge=0)
    """How far the model sent looks ahead along the last round's change. 0: not at all."""


def accelerate(method: Method, server: ServerState, mean: Averages, settings: MomentumSettings) -> ServerState:
    """Supplement, Eq. 3, with tau on the mean so that the weights sum to one; then the next look-ahead (Eq. 2)."""
    sent = server.ahead or server.shared
    # An entry that no update of this round holds counts as sent back unchanged.
    average = mean.shared.over(sent)
    shared, ahead = dict(average), dict(average)  # averaged statistics, if any, are not accelerated
    for n in method.weights:
        shared[n] = torch.lerp(sent[n], average[n], settings.tau)
        ahead[n] = shared[n] + settings.xi * (shared[n] - server.shared[n])
    return replace(mean.step(server, Mean.over), shared=shared, ahead=ahead)
