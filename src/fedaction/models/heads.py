"""Classifiers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

ABSENT = -1e9
"""The logit of a class that a client does not have: its probability and its gradient are exactly zero."""


class Classifier(nn.Module):
    """A linear layer to the logits of a client's own classes.

    Clients may have different numbers of classes. To train them side by side, the vectorised engine pads the rows of
    every classifier to the largest one; `absent` then marks the rows that are not there.
    """

    absent: Tensor

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, features))
        self.bias = nn.Parameter(torch.empty(classes))
        self.register_buffer("absent", torch.zeros(classes), persistent=False)

    def initialise(self, generator: torch.Generator) -> None:
        """Weights from N(0, 0.02) and biases 0, as the skeleton lineage does."""
        self.weight.normal_(0.0, 0.02, generator=generator)
        self.bias.zero_()
        self.absent.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """(N, features) to (N, classes) logits."""
        return torch.nn.functional.linear(x, self.weight, self.bias) + self.absent
