"""RoI alignment (He et al., 2017) of features-last maps, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor


def roi_align(features: Tensor, boxes: Tensor, scale: float, bins: int, samples: int = 2) -> Tensor:
    """The part of a map that lies under each box, as `bins` x `bins` means of bilinear samples.

    Half a pixel is subtracted from scaled boxes, so that pixel centres of image and map agree (`aligned=True`
    elsewhere), and no box is enlarged. Sampling is bilinear, so each direction has its own small matrix of weights,
    and the whole is two products: nothing is gathered, and stacked clients stay stacked.

    Args:
        features: (N, H, W, C).
        boxes: (N, B, 4) x1, y1, x2, y2 in pixels of the image.
        scale: pixels of the map per pixel of the image, one over the network's stride.
        bins: of the result, in each direction.
        samples: per bin and direction.

    Returns:
        (N, B, bins, bins, C), rows before columns. A sample more than a pixel off the map is 0.
    """
    height, width = features.shape[1:3]
    edges = boxes * scale - 0.5
    rows = _weights(edges[..., 1], edges[..., 3], height, bins, samples).to(features.dtype)
    columns = _weights(edges[..., 0], edges[..., 2], width, bins, samples).to(features.dtype)
    bands = torch.einsum("nbih,nhwc->nbiwc", rows, features)
    return torch.einsum("nbjw,nbiwc->nbijc", columns, bands)


def _weights(first: Tensor, last: Tensor, size: int, bins: int, samples: int) -> Tensor:
    """(N, B) edges along one direction to the (N, B, bins, size) share of each pixel in each bin."""
    inner = (torch.arange(bins * samples, device=first.device, dtype=first.dtype) + 0.5) / (bins * samples)
    at = first[..., None] + (last - first)[..., None] * inner  # N, B, bins * samples
    on = (at >= -1) & (at <= size)
    pixels = torch.arange(size, device=first.device, dtype=first.dtype)
    hat = (1 - (at.clamp(0, size - 1)[..., None] - pixels).abs()).clamp(min=0) * on[..., None]
    return hat.unflatten(-2, (bins, samples)).mean(-2)
