"""RoI alignment against a slow, literal version, one sample at a time."""

import math

import pytest
import torch

from fedaction.federation.seeds import generator
from fedaction.models.roi import roi_align


def bilinear(image, y, x):
    """The value at (y, x) of (H, W, C); more than a pixel off the map it is 0."""
    height, width = image.shape[:2]
    if y < -1 or y > height or x < -1 or x > width:
        return torch.zeros_like(image[0, 0])
    y, x = min(max(y, 0.0), height - 1.0), min(max(x, 0.0), width - 1.0)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    ly, lx = y - top, x - left
    upper = (1 - lx) * image[top, left] + lx * image[top, right]
    lower = (1 - lx) * image[bottom, left] + lx * image[bottom, right]
    return (1 - ly) * upper + ly * lower


def literal(features, boxes, scale, bins, samples):
    out = torch.zeros(*boxes.shape[:2], bins, bins, features.shape[-1])
    for n in range(boxes.shape[0]):
        for b in range(boxes.shape[1]):
            x1, y1, x2, y2 = (float(v) * scale - 0.5 for v in boxes[n, b])
            tall, wide = (y2 - y1) / bins, (x2 - x1) / bins
            for i in range(bins):
                for j in range(bins):
                    for p in range(samples):
                        for q in range(samples):
                            y = y1 + i * tall + (p + 0.5) * tall / samples
                            x = x1 + j * wide + (q + 0.5) * wide / samples
                            out[n, b, i, j] += bilinear(features[n], y, x) / samples**2
    return out


@pytest.mark.parametrize(
    ("height", "width", "stride", "bins", "samples"),
    [(14, 14, 8, 5, 2), (7, 9, 8, 5, 2), (4, 4, 8, 3, 1), (6, 5, 3, 4, 3)],
)
def test_against_a_literal_version(double, height, width, stride, bins, samples):
    features = torch.randn(2, height, width, 3, generator=generator(0, "map"))
    corners = torch.rand(2, 6, 2, 2, generator=generator(1, "boxes")) * torch.tensor([width, height]) * stride
    boxes = torch.cat([corners.amin(2), corners.amax(2)], -1)
    boxes[0, 0] = torch.tensor([0.0, 0.0, width * stride, height * stride])  # the whole picture
    boxes[0, 1] = torch.tensor([3.0, 4.0, 4.0, 5.0])  # less than a pixel of the map
    boxes[0, 2] = torch.tensor([-40.0, -30.0, 20.0, 10.0])  # reaches outside
    boxes[1, 0] = torch.tensor([0.0, 0.0, (width + 3) * stride, (height + 4) * stride])
    boxes[1, 1] = torch.tensor([5.0, 5.0, 5.0, 5.0])  # of no size
    found = roi_align(features, boxes, 1 / stride, bins, samples)
    assert found.shape == (2, 6, bins, bins, 3)
    torch.testing.assert_close(found, literal(features, boxes, 1 / stride, bins, samples), atol=1e-12, rtol=1e-12)


def test_known_values():
    """On a ramp, a bin's mean is the ramp at its middle: with half a pixel taken off, in coordinates of centres."""
    ramp = torch.arange(14.0).expand(14, 14)
    features = torch.stack([ramp, ramp.T], -1)[None]  # the column, then the row
    found = roi_align(features, torch.tensor([[[16.0, 24.0, 96.0, 64.0]]]), 1 / 8, 5)[0, 0]
    columns, rows = torch.arange(5) * 2 + 2 + 1 - 0.5, torch.arange(5) + 3 + 0.5 - 0.5
    torch.testing.assert_close(found[..., 0], columns.expand(5, 5))
    torch.testing.assert_close(found[..., 1], rows[:, None].expand(5, 5))


def test_gradients_reach_the_map(double):
    features = torch.randn(1, 5, 6, 2, generator=generator(2, "map"), requires_grad=True)
    boxes = torch.tensor([[[1.0, 3.0, 30.0, 37.0], [-9.0, 0.0, 60.0, 12.0]]])
    assert torch.autograd.gradcheck(lambda f: roi_align(f, boxes, 1 / 8, 3), features)
    roi_align(features, boxes[:, :1], 1 / 8, 3).sum().backward()
    assert features.grad.sum().item() == pytest.approx(3 * 3 * 2)  # weights of a sample add up to 1


def test_stacked_maps_and_boxes(double):
    features = torch.randn(3, 2, 5, 5, 2, generator=generator(3, "map"))
    boxes = torch.rand(3, 2, 4, 4, generator=generator(4, "boxes")).sort(-1).values * 40
    together = torch.func.vmap(lambda f, b: roi_align(f, b, 1 / 8, 5))(features, boxes)
    alone = torch.stack([roi_align(f, b, 1 / 8, 5) for f, b in zip(features, boxes, strict=True)])
    torch.testing.assert_close(together, alone, atol=1e-12, rtol=1e-12)
    assert math.isfinite(float(together.sum()))
