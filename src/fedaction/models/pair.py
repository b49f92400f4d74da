"""Two networks that are asked together."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Pair(nn.Module):
    """An ensemble of two classifiers with the same classes."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor, *, only: Literal["first", "second"] | None = None) -> Tensor:
        """(N, *sample shape) to (N, classes): logarithms of the mean of both's probabilities; or one's logits."""
        if only is not None:
            return self.get_submodule(only)(x)
        first, second = (F.log_softmax(member(x), -1) for member in (self.first, self.second))
        return torch.logaddexp(first, second) - math.log(2)
