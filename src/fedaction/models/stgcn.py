"""ST-GCN (Yan et al., 2018), with the adaptive topology (ATS) of FSAR as an option.

Widths: the original is 64, 128, 256 channels. The skeleton self-supervision lineage, and with it FSAR, uses a quarter
of that (16, 32, 64), except that its last unit widens straight to 256.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedaction.models.heads import Classifier
from fedaction.models.layers import BatchNorm, Dropout, GraphConv, TemporalConv

Coefficients = tuple[float, float, float]


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


class Unit(nn.Module):
    """One spatial-temporal unit: graph convolution, then a convolution over time, with a residual."""

    def __init__(
        self, inputs: int, outputs: int, partitions: int, stride: int, dropout: float, first: bool, kernel: int = 9
    ) -> None:
        super().__init__()
        self.spatial = GraphConv(inputs, outputs, partitions)
        self.spatial_norm = BatchNorm(outputs)
        self.temporal = TemporalConv(outputs, outputs, kernel, stride)
        self.temporal_norm = BatchNorm(outputs)
        self.dropout = Dropout(0.0 if first else dropout)
        self.residual = not first
        if self.residual and (inputs != outputs or stride != 1):
            self.shortcut = TemporalConv(inputs, outputs, 1, stride)
            self.shortcut_norm = BatchNorm(outputs)
        else:
            self.shortcut = None

    def forward(self, x: Tensor, graph: Tensor) -> Tensor:
        """(N, T, V, C) to (N, T / stride, V, C')."""
        y = self.spatial_norm(self.spatial(x, graph)).relu()
        y = self.dropout(self.temporal_norm(self.temporal(y)))
        if self.residual:
            y = y + (x if self.shortcut is None else self.shortcut_norm(self.shortcut(x)))
        return y.relu()


class STGCN(nn.Module):
    """The network, cut into three blocks where the feature size changes (for FSAR's block-wise distillation).

    Args:
        graph: (K, V, V) partitions of the body's graph, [k, source, target].
        channels: coordinates per joint.
        classes: number of the client's classes.
        width: channels of the first block; doubled in each of the next two.
        last: channels of the very last unit; None: as its block.
        units: units in each block.
        projection: width of a shared linear layer before the classifier; None: none.
        dropout: rate inside units (never in the first).
        adaptive: whether the topology has I and U.
        coefficients: fixed alpha, beta, gamma; None: learned.
        importance: whether each unit has a learned mask on the graph's edges.
    """

    def __init__(
        self,
        graph: Tensor,
        *,
        channels: int = 3,
        classes: int,
        width: int = 64,
        last: int | None = None,
        units: tuple[int, int, int] = (4, 3, 3),
        projection: int | None = None,
        dropout: float = 0.0,
        adaptive: bool = False,
        coefficients: Coefficients | None = None,
        importance: bool = True,
    ) -> None:
        super().__init__()
        partitions, joints, _ = graph.shape
        self.topology = Topology(graph, adaptive, coefficients)
        self.data_norm = BatchNorm(joints * channels)
        self.units = nn.ModuleList()
        self.cuts = [0]  # the index of each block's first unit, and the end
        inputs = channels
        for block, count in enumerate(units):
            for i in range(count):
                outputs = width * 2**block
                if last is not None and block == len(units) - 1 and i == count - 1:
                    outputs = last
                first = not self.units
                stride = 2 if block > 0 and i == 0 else 1
                self.units.append(Unit(inputs, outputs, partitions, stride, dropout, first))
                inputs = outputs
            self.cuts.append(len(self.units))
        self.importance = nn.ParameterList(torch.empty_like(graph) for _ in self.units) if importance else None
        self.projection = None if projection is None else nn.Linear(inputs, projection)
        self.classifier = Classifier(projection or inputs, classes)

    def initialise(self, generator: torch.Generator) -> None:
        """Edge masks start at 1."""
        for mask in self.importance or ():
            mask.fill_(1.0)

    @property
    def blocks(self) -> int:
        """How many blocks the network is cut into."""
        return len(self.cuts) - 1

    def forward(self, x: Tensor, *, enter: int = 0, leave: int | None = None, unique: bool = True) -> Tensor:
        """From skeletons to logits, or any stretch of that.

        Args:
            x: (N, M, T, V, C) skeletons; if `enter` > 0, what this network returned for `leave=enter`.
            enter: the first block to run.
            leave: stop before this block and return (N, M, T', V, C') features; None: go on to the logits.
            unique: whether U is part of the graph.
        """
        count, bodies = x.shape[:2]
        x = x.flatten(0, 1)  # N*M, T, V, C
        if enter == 0:
            x = self.data_norm(x.flatten(2)).view(x.shape)
        graph = self.topology(unique)
        for index in range(self.cuts[enter], self.cuts[self.blocks if leave is None else leave]):
            mask = 1.0 if self.importance is None else self.importance[index]
            x = self.units[index](x, graph * mask)
        if leave is not None:
            return x.unflatten(0, (count, bodies))
        features = x.mean((1, 2)).view(count, bodies, -1).mean(1)
        return self.classifier(features if self.projection is None else self.projection(features))
