"""Pasting patches into clips (CtP), a batch of clips at a time, on their device."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedaction.methods.pretext.base import Drawn, chosen, picked, uniform
from fedaction.methods.pretext.trajectory import between, draw_keys

SHAPES = (0.5, 0.35, 0.15)
"""Chances of a rectangle, an ellipse and a rhombus."""


def draw_looks(
    boxes: Tensor, visible: float, opacity: float, smooth: float, inner: tuple[float, ...], random: torch.Generator
) -> dict[str, Tensor]:
    """What patches look like, and where they are seen.

    Args:
        boxes: (count, boxes, frames, 4).
        visible: the chance of each frame to show a patch; frame 0 and the patch's source always do.
        opacity: the least, at key frames; at most it is 1.
        smooth: the chance of a patch to have a smooth edge.
        inner: chances of 0, 1, 2, ... inner key frames of the opacity.
        random: a CPU generator.

    Returns:
        `source` (count, boxes) int64, the frame that a patch is taken from; `shape` (count, boxes) int64;
        `edge` (count, boxes) float32, over which share of its size a patch fades out, 0: a hard edge;
        `opacity` (count, boxes, frames) float32, 0 where a patch is not shown.
    """
    count, number, frames, _ = boxes.shape
    each = (count, number)
    source = (uniform(each, random) * frames).long()
    shape = chosen(each, SHAPES, random)
    fades = uniform(each, random, 0.05, 0.2)  # opaque up to 0.3 to 0.45 of the way to 0.5, its border
    edge = torch.where(uniform(each, random) < smooth, fades, 0.0)
    keys = draw_keys(count * number, frames, inner, random)
    alpha = between(uniform(tuple(keys.shape), random, opacity, 1.0), keys).reshape(count, number, frames)
    shown = uniform((count, number, frames), random) <= visible
    frame = torch.arange(frames)
    shown |= (frame == 0) | (frame == source[..., None])
    return {"source": source, "shape": shape, "edge": edge.float(), "opacity": (alpha * shown).float()}


def pasted(clips: Tensor, drawn: Drawn) -> Tensor:
    """Clips with their patches, the larger first, so that no patch hides behind a later one.

    A patch is what lay under its box in its source frame, before anything was pasted. Its colours and its shape are
    resized, bilinearly, to its box in each frame.

    Args:
        clips: (N, F, S, S, 3) float.
        drawn: `boxes` and what `draw_looks` drew, with N rows.

    Returns:
        A new tensor of the same shape.
    """
    boxes, source = drawn["boxes"], drawn["source"]
    sides = (boxes[..., 2:] - boxes[..., :2]).mean(2)
    order = (sides[..., 0] * sides[..., 1]).argsort(dim=1, descending=True, stable=True)
    row = torch.arange(len(clips), device=clips.device)
    origin = boxes[row[:, None], torch.arange(boxes.shape[1], device=clips.device), source]  # N, B, 4
    result = clips
    for which in order.unbind(1):
        box, start = boxes[row, which], origin[row, which]  # N, F, 4 and N, 4
        still = picked(clips, source[row, which, None])  # N, 1, S, S, 3
        form = _form(start, drawn["shape"][row, which], drawn["edge"][row, which], clips.shape[2])
        colours, alpha = _resized(torch.cat([still[:, 0], form[..., None]], -1), start, box)
        alpha = alpha * drawn["opacity"][row, which][..., None, None, None]
        result = torch.lerp(result, colours, alpha)
    return result


def _form(box: Tensor, shape: Tensor, edge: Tensor, size: int) -> Tensor:
    """(N, 4) boxes, (N,) shapes and edges to (N, size, size): how opaque each pixel of a patch is."""
    pixels = torch.arange(size, device=box.device, dtype=box.dtype)
    sides = box[:, 2:] - box[:, :2]
    middle = box[:, :2] + ((sides - 1) / 2).floor()
    far = ((pixels - middle[..., None]) / sides[..., None]).abs()  # N, 2, size: x, y
    x, y = far[:, 0, None, :], far[:, 1, :, None]
    shape, edge = shape[:, None, None], edge[:, None, None]
    distance = torch.where(shape == 0, torch.maximum(x, y), torch.where(shape == 1, torch.hypot(x, y), x + y))
    alpha = ((shape == 0) | (distance < 0.5)).to(box.dtype)
    fading = ((0.5 - distance) / edge.clamp(min=1e-6)).clamp(0, 1)
    return torch.where(edge > 0, alpha * fading, alpha)


def _resized(still: Tensor, start: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
    """What is under a box of a picture, at each of a trajectory's boxes.

    Args:
        still: (N, S, S, 4) colours and opacity.
        start: (N, 4) boxes in it.
        boxes: (N, F, 4) boxes to fill.

    Returns:
        (N, F, S, S, 3) colours and (N, F, S, S, 1) opacities, which are 0 outside boxes.
    """
    count, frames, _ = boxes.shape
    size = still.shape[1]
    pixels = torch.arange(size, device=still.device, dtype=boxes.dtype)
    low, high = boxes[..., :2, None], boxes[..., 2:, None]  # N, F, 2, 1: x, y
    from_low, from_high = start[:, None, :2, None], start[:, None, 2:, None]
    inside = (pixels >= low) & (pixels < high)  # N, F, 2, S
    at = from_low + (pixels + 0.5 - low) * ((from_high - from_low) / (high - low)) - 0.5
    at = torch.minimum(torch.maximum(at, from_low), from_high - 1)  # between pixels of the patch alone
    at = (2 * at + 1) / size - 1
    x, y = torch.broadcast_tensors(at[:, :, 0, None, :], at[:, :, 1, :, None])
    grid = torch.stack([x, y], -1).reshape(count, frames * size, size, 2)
    filled = F.grid_sample(
        still.permute(0, 3, 1, 2), grid, mode="bilinear", padding_mode="border", align_corners=False
    )
    filled = filled.view(count, 4, frames, size, size).permute(0, 2, 3, 4, 1)
    covered = inside[:, :, 0, None, :] & inside[:, :, 1, :, None]
    return filled[..., :3], filled[..., 3:] * covered[..., None]
