"""Pasting patches into clips (CtP), a batch of clips at a time, on their device."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedaction.data.clips.draws import Drawn, chosen, uniform
from fedaction.methods.pretext.base import pick_frames
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


def paste(clips: Tensor, drawn: Drawn) -> Tensor:
    """Clips with their patches, the larger first, so that no patch hides behind a later one.

    A patch is what lay under its box in its source frame, before anything was pasted. Its colours and its shape are
    resized, bilinearly, to its box in each frame; where a box ends within a pixel, the patch covers as much of it.

    Args:
        clips: (N, F, S, S, 3) float.
        drawn: `boxes` and what `draw_looks` drew, with N rows.

    Returns:
        A new tensor of the same shape.
    """
    boxes = drawn["boxes"]
    sides = (boxes[..., 2:] - boxes[..., :2]).mean(2)
    order = (sides[..., 0] * sides[..., 1]).argsort(dim=1, descending=True, stable=True)
    rows = torch.arange(len(clips), device=clips.device)[:, None]
    boxes, source, shape, edge, opacity = (
        tensor[rows, order] for tensor in (boxes, *(drawn[name] for name in ("source", "shape", "edge", "opacity")))
    )
    start = boxes[rows, torch.arange(boxes.shape[1], device=clips.device), source]  # N, B, 4
    form = _form(start, shape, edge, clips.shape[2])
    stills = torch.cat([pick_frames(clips, source), form[..., None]], -1)  # N, B, S, S, 4
    places, inside = _places(start, boxes, clips.shape[2])
    across, down = (inside[..., 0, :] * opacity[..., None])[..., None, :], inside[..., 1, :, None]
    result = clips
    for box in range(boxes.shape[1]):
        filled = _sample(stills[:, box], places[:, box])
        alpha = filled[..., 3] * across[:, box] * down[:, box]
        result = torch.lerp(result, filled[..., :3], alpha[..., None])
    return result


def _form(box: Tensor, shape: Tensor, edge: Tensor, size: int) -> Tensor:
    """(N, B, 4) boxes, (N, B) shapes and edges to (N, B, size, size): how opaque each pixel of a patch is."""
    pixels = torch.arange(size, device=box.device, dtype=box.dtype)
    sides = box[..., 2:] - box[..., :2]
    middle = (sides - 1) / 2
    middle = box[..., :2] + torch.where(sides == sides.round(), middle.floor(), middle)  # of whole boxes, a pixel
    far = ((pixels - middle[..., None]) / sides[..., None]).abs()  # N, B, 2, size: x, y
    x, y = far[..., 0, None, :], far[..., 1, :, None]
    shape, edge = shape[..., None, None], edge[..., None, None]
    distance = torch.where(shape == 0, torch.maximum(x, y), torch.where(shape == 1, torch.hypot(x, y), x + y))
    alpha = ((shape == 0) | (distance < 0.5)).to(box.dtype)
    fading = ((0.5 - distance) / edge.clamp(min=1e-6)).clamp(0, 1)
    return torch.where(edge > 0, alpha * fading, alpha)


def _places(start: Tensor, boxes: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Which column (and which row) of a picture each column (row) of a frame shows.

    Args:
        start: (N, B, 4) boxes in pictures.
        boxes: (N, B, F, 4) boxes to fill with what lies under those.
        size: rows and columns of a picture.

    Returns:
        (N, B, F, 2, size) places from -1 to 1, of columns and of rows, and as many shares from 0 to 1: how much of
        the column or row is in its box.
    """
    pixels = torch.arange(size, device=boxes.device, dtype=boxes.dtype)
    low, high = boxes[..., :2, None], boxes[..., 2:, None]  # N, B, F, 2, 1: x, y
    from_low, from_high = start[:, :, None, :2, None], start[:, :, None, 2:, None]
    inside = (torch.minimum(pixels + 1, high) - torch.maximum(pixels, low)).clamp(0, 1)
    at = from_low + (pixels + 0.5 - low) * ((from_high - from_low) / (high - low)) - 0.5
    at = torch.minimum(torch.maximum(at, from_low), from_high - 1)  # between pixels of the patch alone
    return (2 * at + 1) / size - 1, inside


def _sample(still: Tensor, places: Tensor) -> Tensor:
    """(N, S, S, 4) pictures at (N, F, 2, S) places: (N, F, S, S, 4), bilinearly."""
    count, frames, _, size = places.shape
    grid = torch.stack(torch.broadcast_tensors(places[:, :, 0, None, :], places[:, :, 1, :, None]), -1)
    filled = F.grid_sample(
        still.permute(0, 3, 1, 2),
        grid.reshape(count, frames * size, size, 2),
        mode="bilinear",
        padding_mode="border",
        align_corners=False,
    )
    return filled.view(count, 4, frames, size, size).permute(0, 2, 3, 4, 1)
