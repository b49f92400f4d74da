"""CTR-GCN (Chen et al., ICCV 2021): a graph refined for every channel and every sample.

Built as its authors' code is, 64, 128 and 256 channels wide. Their graph is `inward_outward_by_source`. The initial
values are theirs but for the classifier's, which is drawn as in every network here.
"""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn

from fedaction.models.backbone import Backbone, BackboneOptions, plan_units
from fedaction.models.layers import BatchNorm, MultiScaleTemporal, draw, fan_out_std, shortcut


class RefinedGraphConv(nn.Module):
    """Graph convolution whose graph is refined by how joints relate in the sample (CTR-GC), summed over K partitions.

    For channel c of partition k: graph[k, v, w] + alpha * (tanh(a_k[w] - b_k[v]) R_k)[c], where a and b are maps of
    the sample's mean over time, to few channels, at the target w and at the source v.

    Args:
        inputs: channels.
        outputs: channels, after.
        partitions: K.
        relations: channels in which joints are compared.
    """

    outputs_last = True  # in its weights

    def __init__(self, inputs: int, outputs: int, partitions: int, relations: int) -> None:
        super().__init__()

        def convolution(i: int, o: int) -> tuple[nn.Parameter, nn.Parameter]:
            return nn.Parameter(torch.empty(partitions, i, o)), nn.Parameter(torch.empty(partitions, o))

        self.target, self.target_bias = convolution(inputs, relations)
        self.source, self.source_bias = convolution(inputs, relations)
        self.refine, self.refine_bias = convolution(relations, outputs)
        self.value, self.value_bias = convolution(inputs, outputs)
        self.alpha = nn.Parameter(torch.empty(()))

    def initialise(self, generator: torch.Generator) -> None:
        """Convolutions by their fan out; alpha 0, so that the graph starts unrefined."""
        for name in ("target", "source", "refine", "value"):
            weight, bias = self.get_parameter(name), self.get_parameter(f"{name}_bias")
            draw(weight, bias, fan_out_std(weight.shape[-1]), generator)
        self.alpha.zero_()

    def forward(self, x: Tensor, graph: Tensor) -> Tensor:
        """(N, T, V, C) and a (K, V, V) graph, [k, source, target], to (N, T, V, C')."""
        # Averaging over time before the maps, not after them, is the same and cheaper.
        mean = x.mean(1)  # N, V, C
        target = torch.einsum("nwc,kcr->knwr", mean, self.target) + self.target_bias[:, None, None]
        source = torch.einsum("nvc,kcr->knvr", mean, self.source) + self.source_bias[:, None, None]
        related = (target.unsqueeze(2) - source.unsqueeze(3)).tanh()  # K, N, V sources, V targets, R
        refined = torch.einsum("knvwr,kro->knvwo", related, self.refine) + self.refine_bias[:, None, None, None]
        refined = self.alpha * refined + graph[:, None, :, :, None]
        value = torch.einsum("ntvc,kco->ntvko", x, self.value) + self.value_bias
        return torch.einsum("knvwo,ntvko->ntwo", refined, value)


class CTRGCNUnit(nn.Module):
    """Refined graph convolution, then a multi-scale convolution over time, with a residual around each."""

    def __init__(
        self, inputs: int, outputs: int, partitions: int, relations: int, stride: int, residual: bool
    ) -> None:
        super().__init__()
        std = fan_out_std(outputs)
        self.spatial = RefinedGraphConv(inputs, outputs, partitions, relations)
        self.spatial_norm = BatchNorm(outputs, scale=1e-6, spread=0.0)
        self.spatial_shortcut = shortcut(inputs, outputs, std=std)
        self.temporal = MultiScaleTemporal(outputs, outputs, 5, stride, (1, 2), fan_out=True)
        self.shortcut = shortcut(inputs, outputs, stride, std=std) if residual else None

    def forward(self, x: Tensor, graph: Tensor) -> Tensor:
        """(N, T, V, C) to (N, ceil(T / stride), V, C')."""
        y = (self.spatial_norm(self.spatial(x, graph)) + self.spatial_shortcut(x)).relu()
        y = self.temporal(y)
        return (y if self.shortcut is None else y + self.shortcut(x)).relu()


class CTRGCN(Backbone):
    """The network, its ten units cut into three blocks; arguments that are not below are `Backbone`'s.

    Every unit learns a graph PA of its own, which starts at A. With an adaptive topology it becomes
    PA + (alpha A + beta I + gamma U - A).

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
        width: int = 64,
        units: tuple[int, int, int] = (4, 3, 3),
        **options: Unpack[BackboneOptions],
    ) -> None:
        if width < 4 or width % 4:
            raise ValueError(f"CTR-GCN's width must be a multiple of 4, its temporal branches; it is {width}")
        super().__init__(graph, channels=channels, classes=classes, features=width * 4, bodies=bodies, **options)
        self.data_norm.spread = 0.0
        plans, self.cuts = plan_units(channels, width, units)
        self.units = nn.ModuleList()
        for i, (inputs, outputs, stride) in enumerate(plans):
            relations = 8 if i == 0 and channels <= 9 else max(inputs // 8, 1)
            self.units.append(CTRGCNUnit(inputs, outputs, len(graph), relations, stride, residual=i > 0))
        self.PA = nn.ParameterList(torch.empty_like(graph) for _ in self.units)

    def initialise(self, generator: torch.Generator) -> None:
        """The units' graphs start at A."""
        for learned in self.PA:
            learned.copy_(self.topology.A)

    def joint_axes(self) -> dict[str, tuple[int, ...]]:
        """I, U and the units' graphs."""
        return super().joint_axes() | {f"PA.{i}": (1, 2) for i in range(len(self.units))}

    def block(self, index: int, x: Tensor, graph: Tensor) -> Tensor:
        """See `Backbone.block`."""
        change = graph - self.topology.A  # zero without ATS
        for i in range(self.cuts[index], self.cuts[index + 1]):
            x = self.units[i](x, self.PA[i] + change)
        return x
