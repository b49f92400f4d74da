"""Encoders: from one sample of a modality to a feature vector, one network per kind of sample.

FDARN and its baselines use them through `encoder_for`. Feature vectors, inertial signals, skeletons and clips of
video have one. The paper's is the one for features: give video's, optical flow's or sound's, extracted before.
"""

from __future__ import annotations

import itertools

from torch import Tensor, nn

from fedaction.data.graph import partition
from fedaction.data.layout import Layout
from fedaction.models.backbone import Backbone
from fedaction.models.layers import BatchNorm, TemporalConv, fan_out_std
from fedaction.models.resnet3d import ResNet3D
from fedaction.models.stgcn import STGCN

_KERNEL = 5  # frames under a convolution of inertial signals


class PerceptronEncoder(nn.Module):
    """FDARN's encoder of feature vectors: Linear, ReLU, Linear.

    The paper does not say whether the output is rectified too. Here it is not: two non-negative vectors are
    orthogonal, as the separation loss asks, only if no entry is positive in both.

    Args:
        inputs: features per sample.
        hidden: width of the first layer.
        outputs: features, after.
        norm: whether the first layer is normalised over the batch (FedBN needs something to keep apart).
    """

    def __init__(self, inputs: int, hidden: int, outputs: int, *, norm: bool = False) -> None:
        super().__init__()
        self.enter = nn.Linear(inputs, hidden)
        self.norm = BatchNorm(hidden, spread=0.0) if norm else nn.Identity()
        self.leave = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs) to (N, outputs)."""
        return self.leave(self.norm(self.enter(x)).relu())


class InertialEncoder(nn.Module):
    """Three convolutions over time, each halving the number of frames, their mean over time, then a linear layer.

    Channels are normalised first: accelerations and rotations come in units far apart.

    Args:
        channels: signals per frame.
        outputs: features, after.
        width: channels of the first convolution; doubled in the others.
    """

    def __init__(self, channels: int, outputs: int, *, width: int = 64) -> None:
        super().__init__()
        widths = (channels, width, 2 * width, 2 * width)
        self.data_norm = BatchNorm(channels)
        self.convolutions = nn.ModuleList(
            TemporalConv(a, b, _KERNEL, 2, std=fan_out_std(b, _KERNEL)) for a, b in itertools.pairwise(widths)
        )
        self.norms = nn.ModuleList(BatchNorm(b) for b in widths[1:])
        self.leave = nn.Linear(widths[-1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, C) to (N, outputs)."""
        y = self.data_norm(x).unsqueeze(2)  # N, T, 1, C: a body of one joint
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            y = norm(convolution(y)).relu()
        return self.leave(y.mean((1, 2)))


class SkeletonEncoder(nn.Module):
    """A skeleton network up to its pooled features (its projection's, where it has one), then a linear layer.

    Args:
        backbone: the network. It is taken over: its classifier, which would never be trained, is removed.
        outputs: features, after.
    """

    def __init__(self, backbone: Backbone, outputs: int) -> None:
        super().__init__()
        features = backbone.classifier.weight.shape[1]
        del backbone.classifier
        self.backbone = backbone
        self.leave = nn.Linear(features, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(N, M, T, V, C) to (N, outputs)."""
        return self.leave(self.backbone(x, output="projected"))


class VideoEncoder(nn.Module):
    """A 3D ResNet-18 up to its pooled features, then a linear layer.

    Args:
        outputs: features, after.
        width: channels of the network's first stage; the papers' is 64.
    """

    def __init__(self, outputs: int, *, width: int = 16) -> None:
        super().__init__()
        self.backbone = ResNet3D(18, 0, width)
        self.leave = nn.Linear(self.backbone.features, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, H, W, 3) red, green, blue in 0 to 255 to (N, outputs)."""
        return self.leave(self.backbone(x, output="pooled"))


def encoder_for(
    shape: tuple[int, ...],
    layout: Layout | None = None,
    *,
    outputs: int = 1024,
    hidden: int = 1024,
    width: int | None = None,
    norm: bool = False,
) -> nn.Module:
    """The encoder that fits a modality's samples.

    Args:
        shape: of one sample: (F,) features, (T, C) inertial signals, (M, T, V, C) skeletons, (T, H, W, 3) video.
        layout: the skeleton's layout, where samples are skeletons.
        outputs: features, after.
        hidden: width of a perceptron's first layer.
        width: first channels of the inertial network (None: 64), the skeletons' ST-GCN and the videos' 3D ResNet
            (None: 16).
        norm: whether a perceptron normalises over the batch; the others always do.
    """
    match shape:
        case (features,) if layout is None:
            return PerceptronEncoder(features, hidden, outputs, norm=norm)
        case (_, channels) if layout is None:
            return InertialEncoder(channels, outputs, width=width or 64)
        case (_, _, joints, channels) if layout is not None and joints == len(layout):
            graph = partition(layout, "spatial_legacy")
            backbone = STGCN(graph, channels=channels, classes=1, width=width or 16, last=16 * (width or 16))
            return SkeletonEncoder(backbone, outputs)
        case (_, _, _, 3) if layout is None:
            return VideoEncoder(outputs, width=width or 16)
        case _:
            body = "no skeleton layout" if layout is None else f"the layout {layout.name!r} of {len(layout)} joints"
            raise ValueError(
                f"no encoder fits samples of shape {shape} with {body}; there is one for features (F,), one for "
                "signals (T, C) and one for video (T, H, W, 3), all without a layout, and one for skeletons "
                "(M, T, V, C) with a layout of V joints"
            )
