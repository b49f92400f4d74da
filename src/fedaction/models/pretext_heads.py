"""What FedVSSL's pretext tasks put on top of a 3D ResNet: one head each, on its last map, features last.

Sizes are the reference's for a map of 512 features: 534,022 parameters for clip order, 3,591 for playback speed and
7,111,744 for the pasted patch. Hidden layers are as wide as the map has features, so that heads shrink with it.
"""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaction.models.layers import Dropout, fan_out_std
from fedaction.models.resnet3d import ResNet3D
from fedaction.models.roi import roi_align


class PretextNetwork(nn.Module):
    """A backbone, which travels, and a task's head, which stays with the client."""

    def __init__(self, backbone: ResNet3D, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, x: Tensor, *given: Tensor) -> Tensor:
        """What the head makes of the last map, and of what else it is given.

        Args:
            x: (N, T, H, W, 3) clips, or (N, clips, T, H, W, 3); uint8 or float in 0 to 255.
            given: for the head.
        """
        maps = self.backbone(x.flatten(0, -5), leave=5)
        return self.head(maps.unflatten(0, x.shape[:-4]), *given)


class _Linear(nn.Linear):
    """A linear layer that starts from N(0, std) and biases 0."""

    def __init__(self, inputs: int, outputs: int, std: float) -> None:
        super().__init__(inputs, outputs)
        self.std = std

    def initialise(self, generator: torch.Generator) -> None:
        """See the class."""
        self.weight.normal_(0.0, self.std, generator=generator)
        self.bias.zero_()


class OrderHead(nn.Module):
    """Which order clips are in (VCOP): all pairs of clips in turn, then all pairs together.

    Args:
        features: of the map.
        clips: their number; classes are its permutations.
        dropout: before the last layer.
    """

    def __init__(self, features: int, clips: int = 3, dropout: float = 0.5) -> None:
        super().__init__()
        pairs = tuple(itertools.combinations(range(clips), 2))
        self.first, self.second = [i for i, _ in pairs], [j for _, j in pairs]
        self.pair = _Linear(2 * features, features, fan_out_std(features))
        self.dropout = Dropout(dropout)
        self.order = _Linear(len(pairs) * features, math.factorial(clips), 0.001)

    def forward(self, maps: Tensor) -> Tensor:
        """(N, clips, T, H, W, C) to (N, permutations) logits."""
        pooled = maps.mean((2, 3, 4))
        clips = pooled.unbind(1)  # lists of numbers as an index would make a GPU wait
        first, second = ([clips[i] for i in side] for side in (self.first, self.second))
        pairs = torch.cat([torch.stack(first, 1), torch.stack(second, 1)], -1)  # N, pairs, 2 C
        return self.order(self.dropout(self.pair(pairs).relu().flatten(1)))


class SpeedHead(nn.Module):
    """How fast, and which way, a clip is played. Args: features of the map; classes; dropout before the layer."""

    def __init__(self, features: int, classes: int = 7, dropout: float = 0.5) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.speed = _Linear(features, classes, 0.001)

    def forward(self, maps: Tensor) -> Tensor:
        """(N, T, H, W, C) to (N, classes) logits."""
        return self.speed(self.dropout(maps.mean((1, 2, 3))))


class TrackHead(nn.Module):
    """Where a patch goes, seen from where it starts (CtP).

    With 512 features of the map, as in the reference, the last two layers start from N(0, 0.001). With fewer that is
    too little: by symmetry the best constant answer is 0, for hundreds of steps nothing better is found, and in the
    meantime the few hidden units learn to be silent, for good. So narrow heads start from N(0, 0.05), and their
    hidden units leak a tenth of what is below zero.

    Args:
        features: of the map.
        map_frames: T of the map, which the first layer collapses.
        frames: of a clip, each of which gets four numbers.
        stride: pixels of a clip per pixel of the map.
        bins: the RoI's, in each direction.
    """

    def __init__(self, features: int, map_frames: int = 2, frames: int = 16, stride: int = 8, bins: int = 5) -> None:
        super().__init__()
        self.stride, self.bins = stride, bins
        # A convolution of size (map_frames, 1, 1), as a product: stacked clients would make it a grouped one.
        self.collapse = _Linear(map_frames * features, features, fan_out_std(features, map_frames))
        std, self.leak = (0.001, 0.0) if features >= 512 else (0.05, 0.1)
        self.hidden = _Linear(bins * bins * features, features, std)
        self.track = _Linear(features, 4 * frames, std)

    def forward(self, maps: Tensor, boxes: Tensor) -> Tensor:
        """(N, T, H, W, C) and (N, B, 4) boxes x1, y1, x2, y2 of the first frame to (N, B, frames, 4)."""
        image = self.collapse(maps.movedim(1, 3).flatten(3)).relu()
        seen = roi_align(image, boxes, 1 / self.stride, self.bins)
        hidden = F.leaky_relu(self.hidden(seen.flatten(2)), self.leak)
        return self.track(hidden).unflatten(-1, (-1, 4))
