"""3D ResNets (Hara et al., 2018) of basic blocks: depths 18 to 34, any width, on clips as a decoder gives them.

Tensors have Hara's names (conv1, bn1, layer1.0.conv1, ..., layer2.0.downsample.0), but for the last layer, which is
called `classifier`. Depths 22 to 30 are not Hara's; each network contains the next smaller one.

R3D-18, as torchvision and FedVSSL have it, is the same class with another stem:
`ResNet3D(18, stem_frames=3, pool=False)`; FedVSSL adds `eps=1e-3` and, to pre-train CtP,
`frame_strides=(1, 2, 2, 2), image_strides=(1, 2, 2, 1)`. Strides do not change the tensors.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaction.models.heads import Classifier
from fedaction.models.layers import BatchNorm, fan_out_std

BLOCKS: dict[int, tuple[int, int, int, int]] = {
    18: (2, 2, 2, 2),
    22: (2, 3, 3, 2),
    24: (2, 3, 4, 2),
    26: (2, 3, 4, 3),
    28: (3, 3, 4, 3),
    30: (3, 3, 5, 3),
    34: (3, 4, 6, 3),
}
"""Depth to the number of blocks in each residual stage: depth = 2 * blocks + 2."""

MEAN = (110.7975, 103.3005, 96.2625)
STD = (70.584, 69.1815, 69.7935)
"""Red, green and blue over Kinetics, in units of 0 to 255: what Hara's training code subtracts and divides by."""

STAGES = 7
"""Stem, four residual stages, pooling, classifier."""

Triple = tuple[int, int, int]


class Conv3d(nn.Module):
    """Convolution over frames, rows and columns of features-last activations, without a bias.

    A features-last tensor is torch's channels-last memory format seen the other way: nothing is copied. There is one
    form for all engines: stacked weights become a grouped convolution.
    """

    def __init__(self, inputs: int, outputs: int, kernel: Triple, stride: Triple) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, *kernel))
        self.stride, self.padding = stride, (kernel[0] // 2, kernel[1] // 2, kernel[2] // 2)

    def initialise(self, generator: torch.Generator) -> None:
        """He's normal initialisation by the fan out."""
        outputs, _, *kernel = self.weight.shape
        self.weight.normal_(0.0, fan_out_std(outputs, math.prod(kernel)), generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, H, W, C) to (N, T', H', W', C'): each size over its stride, rounded up, for odd kernels."""
        y = F.conv3d(x.permute(0, 4, 1, 2, 3), self.weight, None, self.stride, self.padding)
        return y.permute(0, 2, 3, 4, 1)


class Thinned(nn.Module):
    """Shortcut of type A: every stride-th entry, then features of zeros. It has no tensors."""

    def __init__(self, stride: Triple, extra: int) -> None:
        super().__init__()
        self.stride, self.extra = stride, extra

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, H, W, C) to (N, T', H', W', C + extra)."""
        frames, rows, columns = self.stride
        return F.pad(x[:, ::frames, ::rows, ::columns], (0, self.extra))


class BasicBlock(nn.Module):
    """A basic block: two 3x3x3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: Triple, shortcut: Literal["A", "B"], eps: float) -> None:
        super().__init__()
        self.conv1 = Conv3d(inputs, outputs, (3, 3, 3), stride)
        self.bn1 = BatchNorm(outputs, eps, spread=0.0)
        self.conv2 = Conv3d(outputs, outputs, (3, 3, 3), (1, 1, 1))
        self.bn2 = BatchNorm(outputs, eps, spread=0.0)
        if stride == (1, 1, 1) and inputs == outputs:
            self.downsample = None
        elif shortcut == "A":
            self.downsample = Thinned(stride, outputs - inputs)
        else:
            self.downsample = nn.Sequential(
                Conv3d(inputs, outputs, (1, 1, 1), stride), BatchNorm(outputs, eps, spread=0.0)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, H, W, C) to (N, T', H', W', C')."""
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class ResNet3D(nn.Module):
    """The network, in seven stages.

    What each gives for 8 x 112 x 112 clips with the default arguments:

    | stage | what it does | what it gives |
    |---|---|---|
    | 0 | normalises pixels, `conv1`, `bn1`, ReLU, max-pool | (N, 4, 28, 28, 64) |
    | 1 | `layer1` | (N, 4, 28, 28, 64) |
    | 2 | `layer2` | (N, 2, 14, 14, 128) |
    | 3 | `layer3` | (N, 1, 7, 7, 256) |
    | 4 | `layer4` | (N, 1, 4, 4, 512) |
    | 5 | mean over frames, rows and columns | (N, 512) |
    | 6 | `classifier` | (N, classes) |

    Args:
        depth: 18, 22, 24, 26, 28, 30 or 34.
        classes: number of classes; 0: no classifier, the output is pooled features.
        width: channels of the stem and of stage 1; doubled in each of the next three. The papers' is 64.
        shortcut: where a block changes the shape, "B": a 1x1x1 convolution; "A": subsampling and zeros.
        stem_frames: frames under the stem's kernel, odd.
        stem_stride: the stem's stride over frames; over rows and columns it is 2.
        pool: whether the stem ends with a 3x3x3 max-pool of stride 2.
        frame_strides: of the first block in stages 1 to 4, over frames.
        image_strides: the same over rows and columns.
        eps: of batch normalisation.
        mean: of red, green, blue, in units of 0 to 255. Like `std` not among the network's saved tensors.
        std: their standard deviations.
        frozen: stages below this number do not learn: their batch normalisation stays in evaluation mode after
            `train()` too, so that its statistics never move, and no gradient goes through them. 6: all but the
            classifier.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        depth: int = 18,
        classes: int = 400,
        width: int = 64,
        shortcut: Literal["A", "B"] = "B",
        stem_frames: int = 7,
        stem_stride: int = 1,
        pool: bool = True,
        *,
        frame_strides: tuple[int, int, int, int] = (1, 2, 2, 2),
        image_strides: tuple[int, int, int, int] = (1, 2, 2, 2),
        eps: float = 1e-5,
        mean: tuple[float, float, float] = MEAN,
        std: tuple[float, float, float] = STD,
        frozen: int = 0,
    ) -> None:
        super().__init__()
        self.arguments: dict[str, Any] = {
            "depth": depth,
            "classes": classes,
            "width": width,
            "shortcut": shortcut,
            "stem_frames": stem_frames,
            "stem_stride": stem_stride,
            "pool": pool,
            "frame_strides": tuple(frame_strides),
            "image_strides": tuple(image_strides),
            "eps": eps,
            "mean": tuple(mean),
            "std": tuple(std),
            "frozen": frozen,
        }
        """What it was built with: `ResNet3D(**arguments)` builds it again."""
        if depth not in BLOCKS:
            raise ValueError(f"there is no 3D ResNet of depth {depth}; depths are {', '.join(map(str, BLOCKS))}")
        if shortcut not in ("A", "B"):
            raise ValueError(f"shortcut {shortcut!r} is not A or B")
        if width < 1 or classes < 0 or stem_frames < 1 or stem_frames % 2 == 0 or stem_stride < 1:
            raise ValueError(
                f"width {width}, classes {classes}, stem_frames {stem_frames}, stem_stride {stem_stride}: needed are "
                "a width and a stride from 1, classes from 0 and an odd number of frames"
            )
        if min(*frame_strides, *image_strides) < 1 or eps <= 0 or not all(0 < s < math.inf for s in std):
            raise ValueError(
                f"frame_strides {frame_strides}, image_strides {image_strides}, eps {eps}, std {std}: all must be "
                "positive"
            )
        if not 0 <= frozen < STAGES:
            raise ValueError(f"frozen {frozen} is not a stage; stages are 0 to {STAGES - 1}")
        self.register_buffer("mean", torch.empty(3), persistent=False)
        self.register_buffer("std", torch.empty(3), persistent=False)
        self.conv1 = Conv3d(3, width, (stem_frames, 7, 7), (stem_stride, 2, 2))
        self.bn1 = BatchNorm(width, eps, spread=0.0)
        self.pool = pool
        inputs = width
        for stage, blocks in enumerate(BLOCKS[depth]):
            outputs = width * 2**stage
            image = image_strides[stage]
            first = (frame_strides[stage], image, image)
            layers: list[BasicBlock] = []
            for i in range(blocks):
                layers.append(BasicBlock(inputs, outputs, (1, 1, 1) if i else first, shortcut, eps))
                inputs = outputs
            self.add_module(f"layer{stage + 1}", nn.Sequential(*layers))
        self.classifier = Classifier(inputs, classes) if classes else None
        self.features, self.frozen, self.enters = inputs, frozen, 0
        self.initialise(None)
        self.train()

    def initialise(self, generator: torch.Generator | None) -> None:
        """The pixels' mean and standard deviation, as given."""
        self.mean.copy_(torch.tensor(self.arguments["mean"]))
        self.std.copy_(torch.tensor(self.arguments["std"]))

    def train(self, mode: bool = True) -> Self:
        """Training or evaluation mode; frozen stages are always in the latter."""
        super().train(mode)
        for stage in range(min(self.frozen, 5)):
            for part in (self.conv1, self.bn1) if stage == 0 else (self.get_submodule(f"layer{stage}"),):
                part.eval()
        return self

    def forward(
        self,
        x: Tensor,
        enter: int | None = None,
        leave: int | None = None,
        output: Literal["logits", "pooled"] = "logits",
    ) -> Tensor:
        """From clips to logits, or any stretch of that.

        Args:
            x: (N, T, H, W, 3) uint8 or float red, green, blue in 0 to 255; if `enter` > 0, what this network
                returned for `leave=enter`.
            enter: the first stage to run; None: `self.enters`, which is 0 unless someone sets it.
            leave: stop before this stage and return what the one before it gave; None: go on to the output.
            output: "logits" (N, classes), or "pooled" (N, features), the input of the classifier.
        """
        if enter is None:
            enter = self.enters
        if leave is None:
            leave = STAGES if output == "logits" else STAGES - 1
        if not 0 <= enter <= leave <= STAGES:
            raise ValueError(
                f"from stage {enter} to before stage {leave} is no stretch; stages are 0 to {STAGES - 1}"
            )
        if leave == STAGES and self.classifier is None:
            raise ValueError('this ResNet3D was built without a classifier; ask for output="pooled"')
        if enter < self.frozen and torch.is_grad_enabled():
            with torch.no_grad():
                x = self._stretch(x, enter, min(self.frozen, leave))
            enter = min(self.frozen, leave)
        return self._stretch(x, enter, leave)

    def _stretch(self, x: Tensor, enter: int, leave: int) -> Tensor:
        for stage in range(enter, leave):
            if stage == 0:
                x = self._stem(x)
            elif stage < 5:
                x = self.get_submodule(f"layer{stage}")(x)
            elif stage == 5:
                x = x.mean((1, 2, 3))
            elif self.classifier is not None:
                x = self.classifier(x)
        return x

    def _stem(self, x: Tensor) -> Tensor:
        if x.dim() != 5 or x.shape[-1] != 3:
            raise ValueError(f"clips are (N, T, H, W, 3), not {tuple(x.shape)}")
        x = (x.to(self.conv1.weight.dtype) - self.mean) / self.std
        x = self.bn1(self.conv1(x)).relu()
        if self.pool:
            x = F.max_pool3d(x.permute(0, 4, 1, 2, 3), 3, 2, 1).permute(0, 2, 3, 4, 1)
        return x
