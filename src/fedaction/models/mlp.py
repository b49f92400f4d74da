"""A plain multilayer perceptron on flattened samples: the small model of tests and benchmarks."""

from __future__ import annotations

import itertools

from torch import Tensor, nn

from fedaction.models.heads import Classifier


class MLP(nn.Module):
    """Linear layers with ReLU between them, then a classifier."""

    def __init__(self, inputs: int, hidden: tuple[int, ...], classes: int) -> None:
        super().__init__()
        widths = (inputs, *hidden)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.classifier = Classifier(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, ...) to (N, classes) logits."""
        x = x.flatten(1)
        for layer in self.layers:
            x = layer(x).relu()
        return self.classifier(x)
