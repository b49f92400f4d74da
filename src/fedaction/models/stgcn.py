"""ST-GCN (Yan et al., 2018), with the adaptive topology (ATS) of FSAR as an option.

Widths: the original is 64, 128, 256 channels. The skeleton self-supervision lineage, and with it FSAR, uses a quarter
of that (16, 32, 64), except that its last unit widens straight to 256.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedaction.models.backbone import Backbone, Coefficients
from fedaction.models.layers import BatchNorm, Dropout, GraphConv, TemporalConv


class STGCNUnit(nn.Module):
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


class STGCN(Backbone):
    """The network, its ten units cut into three blocks.

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
        super().__init__(
            graph,
            channels=channels,
            classes=classes,
            features=last or width * 2 ** (len(units) - 1),
            projection=projection,
            adaptive=adaptive,
            coefficients=coefficients,
        )
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
                self.units.append(STGCNUnit(inputs, outputs, len(graph), stride, dropout, first))
                inputs = outputs
            self.cuts.append(len(self.units))
        self.importance = nn.ParameterList(torch.empty_like(graph) for _ in self.units) if importance else None

    def initialise(self, generator: torch.Generator) -> None:
        """Edge masks start at 1."""
        for mask in self.importance or ():
            mask.fill_(1.0)

    def joint_axes(self) -> dict[str, tuple[int, ...]]:
        """I, U and the edge masks."""
        return super().joint_axes() | {f"importance.{i}": (1, 2) for i in range(len(self.importance or ()))}

    def block(self, index: int, x: Tensor, graph: Tensor) -> Tensor:
        """See `Backbone.block`."""
        for i in range(self.cuts[index], self.cuts[index + 1]):
            x = self.units[i](x, graph if self.importance is None else graph * self.importance[i])
        return x
