"""ST-GCN (Yan et al., 2018), with the adaptive topology (ATS) of FSAR as an option.

Widths: the original is 64, 128, 256 channels. The skeleton self-supervision lineage, and with it FSAR, uses a quarter
of that (16, 32, 64), except that its last unit widens straight to 256.
"""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn

from fedaction.models.backbone import Backbone, BackboneOptions, plan_units
from fedaction.models.layers import BatchNorm, Dropout, GraphConv, TemporalConv


class STGCNUnit(nn.Module):
    """One spatial-temporal unit: graph convolution, then a convolution over time, with a residual."""

    kernels = False
    """Whether it trains by Triton kernels on a GPU; see `use_kernels`."""

    def __init__(self, inputs: int, outputs: int, partitions: int, stride: int, dropout: float, first: bool) -> None:
        super().__init__()
        self.spatial = GraphConv(inputs, outputs, partitions)
        self.spatial_norm = BatchNorm(outputs)
        self.temporal = TemporalConv(outputs, outputs, 9, stride)
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
        suits = x.is_cuda and x.dtype is not torch.float64 and not self.dropout.rate
        if self.kernels and suits and self.spatial_norm.training:
            return self._by_kernels(x, graph)
        y = self.spatial_norm(self.spatial(x, graph)).relu()
        y = self.dropout(self.temporal_norm(self.temporal(y)))
        if self.residual:
            y = y + (x if self.shortcut is None else self.shortcut_norm(self.shortcut(x)))
        return y.relu()

    def _by_kernels(self, x: Tensor, graph: Tensor) -> Tensor:
        """The same by Triton kernels, `models/kernels`."""
        from fedaction.models.kernels.unit import UnitOptions, apply_unit  # Triton is not everywhere

        with torch.autocast("cuda", enabled=False):
            term = graph.sum(1).transpose(0, 1) @ self.spatial.bias
        norms, shortcut = [self.spatial_norm, self.temporal_norm], (None, None, None, None)
        if self.shortcut is not None:
            norms.append(self.shortcut_norm)
            of = self.shortcut, self.shortcut_norm
            shortcut = (of[0].weight, of[0].bias, of[1].weight, of[1].bias)
        first, second, of = self.spatial_norm, self.temporal_norm, self.temporal
        y, *moments = apply_unit(
            UnitOptions(of.stride, self.residual, first.eps), self.spatial.stacked,
            x, graph, term, self.spatial.weight, first.weight, first.bias,
            of.weight, of.bias, second.weight, second.bias, *shortcut,
        )  # fmt: skip
        for norm, mean, variance in zip(norms, moments[::2], moments[1::2], strict=True):
            rows = x if norm is first else y
            if norm.track_running_stats:
                norm.track(mean, variance, rows[..., 0].numel())
        return y


def use_kernels(module: nn.Module) -> nn.Module:
    """Lets every unit that has them train by Triton kernels, and returns the network."""
    for layer in module.modules():
        if isinstance(layer, STGCNUnit):
            layer.kernels = True
    return module


class STGCN(Backbone):
    """The network, its ten units cut into three blocks; arguments that are not below are `Backbone`'s.

    Args:
        width: channels of the first block; doubled in each of the next two.
        last: channels of the very last unit; None: as its block.
        units: units in each block.
        dropout: rate inside units (never in the first).
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
        dropout: float = 0.0,
        importance: bool = True,
        **options: Unpack[BackboneOptions],
    ) -> None:
        plans, cuts = plan_units(channels, width, units)
        if last is not None:
            plans[-1] = (plans[-1][0], last, plans[-1][2])
        super().__init__(graph, channels=channels, classes=classes, features=plans[-1][1], **options)
        self.cuts = cuts
        self.units = nn.ModuleList(
            STGCNUnit(inputs, outputs, len(graph), stride, dropout, first=i == 0)
            for i, (inputs, outputs, stride) in enumerate(plans)
        )
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
