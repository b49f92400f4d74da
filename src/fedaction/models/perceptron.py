"""The network of FDARN's baselines: one encoder and a classifier of two layers."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from fedaction.models.heads import Classifier


class Perceptron(nn.Module):
    """An encoder, then Linear, ReLU, Linear: one stream of FDARN.

    The tensors under `encoder` are the representation; those under `head` and `classifier` are the classifier.

    Args:
        encoder: (N, *sample shape) to (N, features).
        features: the encoder's outputs.
        hidden: width of the classifier's first layer.
        classes: number of the client's classes.
    """

    def __init__(self, encoder: nn.Module, *, features: int = 1024, hidden: int = 1024, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(features, hidden)
        self.classifier = Classifier(hidden, classes)

    def forward(
        self,
        x: Tensor,
        *,
        enter: int = 0,
        leave: int | None = None,
        output: Literal["logits", "projected"] = "logits",
    ) -> Tensor:
        """(N, *sample shape) to (N, classes) logits; "projected": to the (N, features) that the classifier reads.

        As in a skeleton network, `leave` stops at features, and `enter` goes on from them: the encoder is one block.
        """
        features = x if enter else self.encoder(x)
        if leave is not None or output == "projected":
            return features
        return self.classifier(self.head(features).relu())
