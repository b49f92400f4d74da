"""Vanilla FSAR: federated averaging (McMahan et al., 2017) of a backbone, with local classifiers.

FSAR (Guo et al., ICCV 2023), section 3.2: cross-entropy (the loss of Eqs. 2 and 3) and averages by n_i / n (Eq. 4)
are the default of every method.
"""

from __future__ import annotations

from fedaction.methods.base import Method


class FedAvg(Method):
    """The backbone is averaged; classifier, input normalisation and statistics stay with the client."""

    title = "FedAvg"
