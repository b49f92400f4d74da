"""MST-GCN (Chen et al., AAAI 2021): convolutions over joints and over time in cascades of channel groups.

Built as its authors' code is (`AEMST_GCN`, 'ms' blocks, no attention), 112, 224 and 448 channels wide, over the graph
`inward_outward`. Their temporal layers own an input normalisation that is never applied; it is left out here, so the
network has 4 704 parameters fewer than theirs (2 891 351 of 2 896 055 with 60 classes). The initial values are theirs
but for the classifier's, which is drawn as in every network here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

import torch
from torch import Tensor, nn

from fedaction.models.backbone import Backbone, BackboneOptions, plan_units
from fedaction.models.layers import BatchNorm, GraphConv, TemporalConv, fan_out_std, shortcut

GROUPS = 4
KERNEL = 9


def cascade(parts: Sequence[Tensor], layers: Sequence[Callable[[Tensor], Tensor]], joined: bool) -> Tensor:
    """Each group of channels through its own layer; if `joined`, after adding what the group before it became."""
    done: list[Tensor] = []
    for part, layer in zip(parts, layers, strict=True):
        done.append(layer(part + done[-1] if joined and done else part))
    return torch.cat(done, -1)


class SpatialGroups(nn.Module):
    """Normalisation, then graph convolutions in a cascade of four groups, with a residual.

    Groups are independent where the number of channels changes.
    """

    def __init__(self, inputs: int, outputs: int, partitions: int) -> None:
        super().__init__()
        i, o = inputs // GROUPS, outputs // GROUPS
        self.norm = BatchNorm(inputs, spread=0.0)
        self.groups = nn.ModuleList(
            GraphConv(i, o, partitions, std=fan_out_std(o * partitions)) for _ in range(GROUPS)
        )
        self.norms = nn.ModuleList(BatchNorm(o, spread=0.0) for _ in range(GROUPS))
        self.shortcut = shortcut(inputs, outputs, std=fan_out_std(outputs))
        self.joined = inputs == outputs

    def forward(self, x: Tensor, graphs: Tensor) -> Tensor:
        """(N, T, V, C) and a (4, K, V, V) graph, one for each group, to (N, T, V, C')."""

        def layer(g: int) -> Callable[[Tensor], Tensor]:
            return lambda part: self.norms[g](self.groups[g](part, graphs[g]))

        y = cascade(self.norm(x).chunk(GROUPS, -1), [layer(g) for g in range(GROUPS)], self.joined)
        return (y + self.shortcut(x)).relu()


class TemporalGroups(nn.Module):
    """Convolutions over time in a cascade of four groups, with a residual. Groups are independent where strided."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        width = channels // GROUPS
        self.groups = nn.ModuleList(
            nn.Sequential(
                TemporalConv(width, width, KERNEL, stride, std=fan_out_std(width, KERNEL)),
                BatchNorm(width, spread=0.0),
            )
            for _ in range(GROUPS)
        )
        self.shortcut = shortcut(channels, channels, stride, std=fan_out_std(channels))
        self.joined = stride == 1

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, V, C) to (N, ceil(T / stride), V, C)."""
        return (cascade(x.chunk(GROUPS, -1), list(self.groups), self.joined) + self.shortcut(x)).relu()


class FirstUnit(nn.Module):
    """A plain graph convolution and a plain convolution over time, without residuals."""

    def __init__(self, inputs: int, outputs: int, partitions: int) -> None:
        super().__init__()
        self.spatial = GraphConv(inputs, outputs, partitions, std=fan_out_std(outputs * partitions))
        self.spatial_norm = BatchNorm(outputs, spread=0.0)
        self.temporal = TemporalConv(outputs, outputs, KERNEL, std=fan_out_std(outputs, KERNEL))
        self.temporal_norm = BatchNorm(outputs, spread=0.0)

    def forward(self, x: Tensor, graphs: Tensor) -> Tensor:
        """(N, T, V, C) and a (1, K, V, V) graph to (N, T, V, C')."""
        y = self.spatial_norm(self.spatial(x, graphs[0])).relu()
        return self.temporal_norm(self.temporal(y)).relu()


class MSTGCNUnit(nn.Module):
    """A cascade over joints, then a cascade over time."""

    def __init__(self, inputs: int, outputs: int, partitions: int, stride: int) -> None:
        super().__init__()
        self.spatial = SpatialGroups(inputs, outputs, partitions)
        self.temporal = TemporalGroups(outputs, stride)

    def forward(self, x: Tensor, graphs: Tensor) -> Tensor:
        """(N, T, V, C) and a (4, K, V, V) graph, one for each group, to (N, ceil(T / stride), V, C')."""
        return self.temporal(self.spatial(x, graphs))


class MSTGCN(Backbone):
    """The network, its ten units cut into three blocks; arguments that are not below are `Backbone`'s.

    Every channel group of every unit learns a graph PA, which starts at A and is added to the topology's.

    Args:
        width: channels of the first block, a multiple of 4; doubled in each of the next two.
        units: units in each block.
    """

    def __init__(
        self,
        graph: Tensor,
        *,
        channels: int = 3,
        classes: int,
        bodies: int = 2,
        width: int = 112,
        units: tuple[int, int, int] = (4, 3, 3),
        **options: Unpack[BackboneOptions],
    ) -> None:
        if width < GROUPS or width % GROUPS:
            raise ValueError(f"MST-GCN's width must be a multiple of {GROUPS}, its channel groups; it is {width}")
        super().__init__(graph, channels=channels, classes=classes, features=width * 4, bodies=bodies, **options)
        self.data_norm.spread = 0.0
        plans, self.cuts = plan_units(channels, width, units)
        self.units = nn.ModuleList([FirstUnit(channels, width, len(graph))])
        self.units.extend(MSTGCNUnit(inputs, outputs, len(graph), stride) for inputs, outputs, stride in plans[1:])
        groups = [1] + [GROUPS] * (len(self.units) - 1)
        self.PA = nn.ParameterList(graph.new_empty(g, *graph.shape) for g in groups)

    def initialise(self, generator: torch.Generator) -> None:
        """The groups' graphs start at A."""
        for learned in self.PA:
            learned.copy_(self.topology.A.expand_as(learned))

    def joint_axes(self) -> dict[str, tuple[int, ...]]:
        """I, U and the groups' graphs."""
        return super().joint_axes() | {f"PA.{i}": (2, 3) for i in range(len(self.units))}

    def block(self, index: int, x: Tensor, graph: Tensor) -> Tensor:
        """See `Backbone.block`."""
        for i in range(self.cuts[index], self.cuts[index + 1]):
            x = self.units[i](x, graph + self.PA[i])
        return x
