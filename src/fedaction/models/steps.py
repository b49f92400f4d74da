"""The steps from a recording of the right length to a network's input that are arithmetic, as a layer of their own.

They stand in front of an exported network, so that whoever runs it needs a recording and nothing else.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedaction.data.inputs import Input
from fedaction.data.layout import Layout
from fedaction.data.preprocess import centre

LIMIT = 10.0
"""Deviations; what lies further out is cut there, as at training (`data.features.clients.standardise`)."""


class Steps(nn.Module):
    """(N, *input.shape) recordings, resized and without missing values, to (N, *input.network_shape) samples."""

    mean: Tensor
    factor: Tensor
    place: Tensor

    def __init__(self, given: Input) -> None:
        super().__init__()
        self.input = given
        if given.scale == "client":
            self.register_buffer("mean", torch.tensor(given.mean))
            self.register_buffer("factor", torch.tensor(given.factor))
        if given.kind == "skeleton":
            self.layout = given.joints
            if given.body is not None:
                body = Layout.from_dict(given.body)
                place = torch.full((len(body),), len(self.layout))  # the joint after the last is zero
                place[list(self.layout.map_onto(body))] = torch.arange(len(self.layout))
                self.register_buffer("place", place)

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        if self.input.kind == "skeleton":
            return self._joints(x)
        if self.input.scale == "client":
            return ((x - self.mean) * self.factor).clamp(-LIMIT, LIMIT)
        if self.input.scale == "unit":
            size = x.square().flatten(1).mean(1).sqrt().clamp(min=1e-12)
            return x / size.reshape(-1, *[1] * (x.dim() - 1))
        return x

    def _joints(self, x: Tensor) -> Tensor:
        x = centre(x, self.layout)
        if self.input.align:
            x = turn_shoulders(x, self.layout)
        if self.input.body is not None:
            x = torch.cat([x, torch.zeros_like(x[:, :, :, :1])], 3).index_select(3, self.place)
            more = self.input.network_shape[0] - self.input.shape[0]
            if more:
                x = torch.cat([x, torch.zeros_like(x[:, :1]).expand(-1, more, -1, -1, -1)], 1)
        return x


def turn_shoulders(x: Tensor, layout: Layout) -> Tensor:
    """`data.preprocess.align_shoulders` without writing into tensors, which exporters do not follow."""
    if x.shape[-1] != 3 or not {"left_shoulder", "right_shoulder"} <= set(layout.joints):
        return x
    line = x[..., layout.index("right_shoulder"), :] - x[..., layout.index("left_shoulder"), :]  # ..., T, C
    across, depth = line[..., 0], line[..., 2]
    cosine = across / ((across.square() + depth.square()).sqrt() + 1e-4)
    sense = torch.where(depth.sum(dim=-1, keepdim=True) >= 0, -1.0, 1.0)
    sine = sense * (1 - cosine.square()).clamp(min=0).sqrt()
    cosine, sine = cosine[..., None], sine[..., None]
    turned = cosine * x[..., 0] - sine * x[..., 2], x[..., 1], sine * x[..., 0] + cosine * x[..., 2]
    return torch.stack(turned, -1)


class Prepared(nn.Module):
    """Steps, then a network: from recordings to logits."""

    def __init__(self, steps: Steps, network: nn.Module) -> None:
        super().__init__()
        self.steps, self.network = steps, network

    def forward(self, x: Tensor) -> Tensor:
        """(N, *input.shape) to (N, classes) logits."""
        return self.network(self.steps(x))
