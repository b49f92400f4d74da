"""MS-G3D (Liu et al., CVPR 2020): many hops disentangled, and graph convolutions over windows of space and time.

Built as its authors' code is, 96, 192 and 384 channels wide. The initial values are theirs (torch's usual rule) but
for the classifier's, which is drawn as in every network here.
"""

from __future__ import annotations

from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaction.data.graph import window_adjacencies
from fedaction.models.backbone import Backbone, BackboneOptions
from fedaction.models.layers import (
    BatchNorm,
    GraphConv,
    MultiScaleTemporal,
    TemporalConv,
    TwoForm,
    shortcut,
    take_windows,
)

BRANCHES = 6
WINDOWS = (3, 5)


class TemporalUnit(nn.Module):
    """A multi-scale convolution over time with a residual (MS-TCN); `rectified`: with a ReLU at the end."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, rectified: bool = True) -> None:
        super().__init__()
        self.scales = MultiScaleTemporal(inputs, outputs, 3, stride, (1, 2, 3, 4), fan_out=False)
        self.shortcut = shortcut(inputs, outputs, stride, std=None)
        self.rectified = rectified

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, V, C) to (N, ceil(T / stride), V, C')."""
        y = self.scales(x) + self.shortcut(x)
        return y.relu() if self.rectified else y


class HopPath(nn.Module):
    """Graph convolution over many hops (MS-GCN), then two convolutions over time.

    A_res (K, V, V) is learned and added to the graph.
    """

    def __init__(self, inputs: int, outputs: int, graph: Tensor, stride: int, first: bool) -> None:
        super().__init__()
        width = outputs if first else inputs  # only the first block widens before the convolutions over time
        self.A_res = nn.Parameter(torch.empty_like(graph))
        self.spatial = GraphConv(inputs, width, len(graph), std=None, bias="after")
        self.norm = BatchNorm(width, spread=0.0)
        self.temporal = nn.Sequential(
            TemporalUnit(width, outputs, stride), TemporalUnit(outputs, outputs, rectified=False)
        )

    def initialise(self, generator: torch.Generator) -> None:
        """A_res from U(-1e-6, 1e-6)."""
        self.A_res.uniform_(-1e-6, 1e-6, generator=generator)

    def forward(self, x: Tensor, graph: Tensor) -> Tensor:
        """(N, T, V, C) and a (K, V, V) graph to (N, ceil(T / stride), V, C')."""
        return self.temporal(self.norm(self.spatial(x, graph + self.A_res)).relu())


class WindowPath(TwoForm):
    """Graph convolution over windows of a few frames (G3D), each then collapsed to one frame.

    A_res (K, frames, V, frames, V) is learned and added to the window's graph.
    """

    graph: Tensor

    def __init__(self, inputs: int, outputs: int, graph: Tensor, frames: int, stride: int, first: bool) -> None:
        super().__init__()
        width = outputs if first else inputs
        # Rebuilt, not sent or saved: it follows from the body.
        self.register_buffer("graph", graph, persistent=False)
        self.A_res = nn.Parameter(torch.empty_like(graph))
        self.spatial = GraphConv(inputs, width, len(graph), std=None, bias="after")
        self.norm = BatchNorm(width, spread=0.0)
        self.collapse = TemporalConv(frames * width, outputs, 1, std=None)
        self.collapse_norm = BatchNorm(outputs, spread=0.0)
        self.frames, self.stride = frames, stride

    def initialise(self, generator: torch.Generator) -> None:
        """A_res from U(-1e-6, 1e-6)."""
        self.A_res.uniform_(-1e-6, 1e-6, generator=generator)

    def forward(self, x: Tensor, change: Tensor) -> Tensor:
        """(N, T, V, C) to (N, ceil(T / stride), V, C').

        Args:
            x: activations.
            change: (K, V, V), added to the graph between any two frames of a window.
        """
        joints = x.shape[2]
        graph = self.graph + self.A_res + change[:, None, :, None, :]
        graph = graph.flatten(3, 4).flatten(1, 2)  # K, frames * V, frames * V
        y = self.norm(self.spatial(windows(x, self.frames, self.stride, self.nested), graph)).relu()
        y = y.unflatten(2, (self.frames, joints)).transpose(2, 3).flatten(3)  # N, T', V, frames * C'
        return self.collapse_norm(self.collapse(y))


def windows(x: Tensor, frames: int, stride: int, nested: bool = False) -> Tensor:
    """Windows of some frames around every stride-th one, zeros outside: (N, T, V, C) to (N, T', frames * V, C)."""
    margin = (frames - 1) // 2
    padded = F.pad(x, (0, 0, 0, 0, margin, margin))
    unfolded = take_windows(padded, frames, stride, nested=nested)  # N, T', V, C, frames
    return unfolded.permute(0, 1, 4, 2, 3).flatten(2, 3)


class STGCBlock(nn.Module):
    """The paths side by side, and a convolution over time of their sum (STGC block)."""

    def __init__(
        self, inputs: int, outputs: int, graph: Tensor, windows: list[Tensor], stride: int, first: bool
    ) -> None:
        super().__init__()
        self.hops = HopPath(inputs, outputs, graph, stride, first)
        self.windows = nn.ModuleList(
            WindowPath(inputs, outputs, window, window.shape[1], stride, first) for window in windows
        )
        self.temporal = TemporalUnit(outputs, outputs)

    def forward(self, x: Tensor, graph: Tensor, change: Tensor) -> Tensor:
        """(N, T, V, C) to (N, ceil(T / stride), V, C')."""
        y = self.hops(x, graph)
        for path in self.windows:
            y = y + path(x, change)
        return self.temporal(y.relu())


class MSG3D(Backbone):
    """The network: three blocks; arguments that are not below are `Backbone`'s.

    Its topology is the stack of k-adjacencies, so I and U are (scales[0], V, V). What they change in the first
    scales[1] of these is also added to the windows' graphs, between any two frames.

    Args:
        graph: (scales[0], V, V) k-adjacencies of the body's graph, `disentangled` of `data/graph.py`.
        width: channels of the first block, a multiple of 6; doubled in each of the next two.
        scales: hops, 0 included, that the graph reaches in one frame, and in a window.
    """

    def __init__(
        self,
        graph: Tensor,
        *,
        channels: int = 3,
        classes: int,
        bodies: int = 2,
        width: int = 96,
        scales: tuple[int, int] = (13, 6),
        **options: Unpack[BackboneOptions],
    ) -> None:
        if width < BRANCHES or width % BRANCHES:
            raise ValueError(f"MS-G3D's width must be a multiple of {BRANCHES}, its temporal branches; it is {width}")
        if len(graph) != scales[0] or not 1 <= scales[1] <= scales[0]:
            raise ValueError(
                "MS-G3D needs as many k-adjacencies as its first scale says, and a second scale no larger; "
                f"the graph has {len(graph)}, the scales are {scales}"
            )
        super().__init__(graph, channels=channels, classes=classes, features=width * 4, bodies=bodies, **options)
        self.data_norm.spread = 0.0
        self.window_scales = scales[1]
        links = graph[min(1, len(graph) - 1)] != 0  # one hop, self links included
        windows = [window_adjacencies(links, scales[1], frames).to(graph.dtype) for frames in WINDOWS]
        self.stages = nn.ModuleList()
        inputs = channels
        for index in range(self.blocks):
            outputs = width * 2**index
            first = index == 0
            self.stages.append(STGCBlock(inputs, outputs, graph, windows, 1 if first else 2, first))
            inputs = outputs

    def joint_axes(self) -> dict[str, tuple[int, ...]]:
        """I, U and what is learned of the graphs."""
        axes = super().joint_axes()
        for i in range(self.blocks):
            axes[f"stages.{i}.hops.A_res"] = (1, 2)
            axes |= {f"stages.{i}.windows.{w}.A_res": (2, 4) for w in range(len(WINDOWS))}
        return axes

    def block(self, index: int, x: Tensor, graph: Tensor) -> Tensor:
        """See `Backbone.block`."""
        change = (graph - self.topology.A)[: self.window_scales]  # zero without ATS
        return self.stages[index](x, graph, change)
