"""A 3D ResNet made ready for use: batch normalisation folded into the convolutions, channels first throughout.

The result gives the same logits up to rounding, in about half the operations that a runtime sees. It cannot be
trained.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaction.models.layers import BatchNorm
from fedaction.models.resnet3d import BasicBlock, Conv3d, ResNet3D, Thinned


class _Conv(nn.Module):
    """A convolution with a bias, in the place of a convolution and its normalisation."""

    weight: Tensor
    bias: Tensor

    def __init__(self, convolution: Conv3d, norm: BatchNorm) -> None:
        super().__init__()
        scale = norm.weight.double() * torch.rsqrt(norm.running_var.double() + norm.eps)
        weight = convolution.weight.double() * scale.view(-1, 1, 1, 1, 1)
        bias = norm.bias.double() - norm.running_mean.double() * scale
        # The layout in which a CPU's convolutions are fastest, for clips that come with their colours last.
        weight = weight.to(convolution.weight.dtype).contiguous(memory_format=torch.channels_last_3d)
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias.to(convolution.weight.dtype))
        self.stride, self.padding = convolution.stride, convolution.padding

    def forward(self, x: Tensor) -> Tensor:
        return F.conv3d(x, self.weight, self.bias, self.stride, self.padding)


class _Thinned(nn.Module):
    """Shortcut of type A."""

    def __init__(self, other: Thinned) -> None:
        super().__init__()
        self.stride, self.extra = other.stride, other.extra

    def forward(self, x: Tensor) -> Tensor:
        frames, rows, columns = self.stride
        return F.pad(x[:, :, ::frames, ::rows, ::columns], (0, 0, 0, 0, 0, 0, 0, self.extra))


class _Block(nn.Module):
    """A basic block."""

    def __init__(self, block: BasicBlock) -> None:
        super().__init__()
        self.conv1, self.conv2 = _Conv(block.conv1, block.bn1), _Conv(block.conv2, block.bn2)
        if block.downsample is None:
            self.downsample = nn.Identity()
        elif isinstance(block.downsample, Thinned):
            self.downsample = _Thinned(block.downsample)
        else:
            convolution, norm = block.downsample
            assert isinstance(convolution, Conv3d) and isinstance(norm, BatchNorm)
            self.downsample = _Conv(convolution, norm)

    def forward(self, x: Tensor) -> Tensor:
        return (self.conv2(self.conv1(x).relu()) + self.downsample(x)).relu()


class Folded(nn.Module):
    """The network, for evaluation alone.

    Args:
        network: a ResNet3D with a classifier; it is left as it is.
    """

    mean: Tensor
    std: Tensor
    weight: Tensor
    bias: Tensor

    @torch.no_grad()
    def __init__(self, network: ResNet3D) -> None:
        super().__init__()
        if network.classifier is None:
            raise ValueError("this network has no classifier, so it says nothing that could be used")
        self.stem = _Conv(network.conv1, network.bn1)
        self.pool = network.pool
        blocks = [block for block in network.modules() if isinstance(block, BasicBlock)]
        self.blocks = nn.Sequential(*map(_Block, blocks))
        self.register_buffer("mean", network.mean.clone())
        self.register_buffer("std", network.std.clone())
        self.register_buffer("weight", network.classifier.weight.detach().clone())
        self.register_buffer("bias", network.classifier.bias.detach().clone())
        self.eval()

    def forward(self, clips: Tensor) -> Tensor:
        """(N, T, H, W, 3) uint8 or float in 0 to 255 to (N, classes) logits."""
        x = (clips.to(self.weight.dtype) - self.mean) / self.std
        x = self.stem(x.permute(0, 4, 1, 2, 3)).relu()
        if self.pool:
            x = F.max_pool3d(x, 3, 2, 1)
        return F.linear(self.blocks(x).mean((2, 3, 4)), self.weight, self.bias)
