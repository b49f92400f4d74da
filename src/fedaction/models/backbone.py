"""What skeleton networks share: the learned topology (ATS), input normalisation, the three-block cut, the head."""

from __future__ import annotations

from typing import Literal, TypedDict

import torch
from torch import Tensor, nn

from fedaction.models.heads import Classifier
from fedaction.models.layers import BatchNorm

Coefficients = tuple[float, float, float]


class BackboneOptions(TypedDict, total=False):
    """What every skeleton network passes on to `Backbone`, which says what each is."""

    projection: int | None
    adaptive: bool
    coefficients: Coefficients | None


def plan_units(channels: int, width: int, units: tuple[int, ...]) -> tuple[list[tuple[int, int, int]], list[int]]:
    """A network's units in blocks whose first unit (but for the first block's) halves the frames.

    Args:
        channels: coordinates per joint.
        width: channels of the first block; doubled in each of the next.
        units: units in each block.

    Returns:
        Inputs, outputs and stride of each unit; and the index of each block's first unit, then the number of units.
    """
    plans: list[tuple[int, int, int]] = []
    cuts, inputs = [0], channels
    for block, count in enumerate(units):
        for i in range(count):
            plans.append((inputs, width * 2**block, 2 if block > 0 and i == 0 else 1))
            inputs = width * 2**block
        cuts.append(len(plans))
    return plans, cuts


class Topology(nn.Module):
    """The graph that a network convolves over: A, or alpha A + beta I + gamma U (Eq. 5 of FSAR).

    A is the body's own graph and never trained. I (inflected) is shared over clients, U (unique) is the client's own.
    All three are (K partitions, V, V).
    """

    A: Tensor

    def __init__(self, graph: Tensor, adaptive: bool, coefficients: Coefficients | None = None) -> None:
        """Args: the body's graph; whether I and U exist; fixed alpha, beta, gamma, or None to learn them."""
        super().__init__()
        self.register_buffer("A", graph.clone())
        self.adaptive, self.fixed = adaptive, coefficients
        if adaptive:
            self.I = nn.Parameter(torch.empty_like(graph))
            self.U = nn.Parameter(torch.empty_like(graph))
            if coefficients is None:
                self.alpha = nn.Parameter(torch.empty(()))
                self.beta = nn.Parameter(torch.empty(()))
                self.gamma = nn.Parameter(torch.empty(()))

    def initialise(self, generator: torch.Generator) -> None:
        """I and U start at 1e-6, the coefficients at 1."""
        if self.adaptive:
            self.I.fill_(1e-6)
            self.U.fill_(1e-6)
            if self.fixed is None:
                for coefficient in (self.alpha, self.beta, self.gamma):
                    coefficient.fill_(1.0)

    def forward(self, unique: bool = True) -> Tensor:
        """The (K, V, V) graph; `unique=False` leaves U out, as in the server's stream."""
        if not self.adaptive:
            return self.A
        alpha, beta, gamma = self.fixed or (self.alpha, self.beta, self.gamma)
        graph = alpha * self.A + beta * self.I
        return graph + gamma * self.U if unique else graph


class Backbone(nn.Module):
    """A skeleton network, cut into blocks where the feature size changes (for FSAR's block-wise distillation).

    A subclass calls `__init__`, makes its layers, says in `block` how one block is applied, and lists in `joint_axes`
    the tensors that have joint axes. It may add graphs of its own to the topology's: a learned or multi-hop graph G
    becomes G + (topology - A), so that without ATS it is G alone.

    Args:
        graph: (K, V, V) partitions of the body's graph, [k, source, target].
        channels: coordinates per joint.
        classes: number of the client's classes.
        features: channels of the last block's output.
        bodies: bodies whose coordinates are normalised apart (their number); 1: all bodies share statistics.
        projection: width of a shared linear layer before the classifier; None: none.
        adaptive: whether the topology has I and U.
        coefficients: fixed alpha, beta, gamma; None: learned.
    """

    blocks = 3

    def __init__(
        self,
        graph: Tensor,
        *,
        channels: int,
        classes: int,
        features: int,
        bodies: int = 1,
        projection: int | None = None,
        adaptive: bool = False,
        coefficients: Coefficients | None = None,
    ) -> None:
        super().__init__()
        self.topology = Topology(graph, adaptive, coefficients)
        self.apart = bodies > 1
        self.data_norm = BatchNorm(bodies * graph.shape[-1] * channels)
        self.projection = None if projection is None else nn.Linear(features, projection)
        self.classifier = Classifier(projection or features, classes)

    def block(self, index: int, x: Tensor, graph: Tensor) -> Tensor:
        """Block `index` (from 0) on (N, T, V, C) activations, every body on its own, over a (K, V, V) graph."""
        raise NotImplementedError

    def joint_axes(self) -> dict[str, tuple[int, ...]]:
        """Tensors with axes over the client's joints: name to those axes.

        Clients with other joints share such a tensor over the joints that mean the same. `data_norm`, whose features
        are joints times coordinates, always stays with the client and is not listed.
        """
        return {"topology.I": (1, 2), "topology.U": (1, 2)} if self.topology.adaptive else {}

    def forward(
        self,
        x: Tensor,
        *,
        enter: int = 0,
        leave: int | None = None,
        unique: bool = True,
        output: Literal["logits", "projected", "pooled"] = "logits",
    ) -> Tensor:
        """From skeletons to logits, or any stretch of that.

        Args:
            x: (N, M, T, V, C) skeletons; if `enter` > 0, what this network returned for `leave=enter`.
            enter: the first block to run.
            leave: stop before this block and return (N, M, T', V, C') features; None: go on to the output.
            unique: whether U is part of the graph.
            output: "logits"; "projected": the (N, P) input of the classifier; "pooled": the (N, F) mean of the last
                block's features over bodies, frames and joints.
        """
        count, bodies = x.shape[:2]
        if enter == 0:
            x = self._normalise(x)
        x = x.flatten(0, 1)  # N*M, T, V, C
        graph = self.topology(unique)
        for index in range(enter, self.blocks if leave is None else leave):
            x = self.block(index, x, graph)
        if leave is not None:
            return x.unflatten(0, (count, bodies))
        features = x.mean((1, 2)).view(count, bodies, -1).mean(1)
        if output == "pooled":
            return features
        if self.projection is not None:
            features = self.projection(features)
        return features if output == "projected" else self.classifier(features)

    def _normalise(self, x: Tensor) -> Tensor:
        count, bodies, frames, joints, channels = x.shape
        if self.apart:
            y = self.data_norm(x.transpose(1, 2).reshape(count, frames, -1))
            return y.view(count, frames, bodies, joints, channels).transpose(1, 2)
        return self.data_norm(x.flatten(3)).view(x.shape)
