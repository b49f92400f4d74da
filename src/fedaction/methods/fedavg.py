"""Vanilla FSAR: federated averaging (McMahan et al., 2017) of a backbone, with local classifiers.

FSAR (Guo et al., ICCV 2023), section 3.2: averages by n_i / n (Eq. 4) are the default of every method.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from fedaction.methods.base import Batch, Method, Metrics, Net


class FedAvg(Method):
    """The backbone is averaged; classifier, input normalisation and statistics stay with the client."""

    name = "fedavg"

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """Cross-entropy (the loss of Eqs. 2 and 3)."""
        loss = F.cross_entropy(net(batch.x), batch.y)
        return loss, {"ce": loss}
