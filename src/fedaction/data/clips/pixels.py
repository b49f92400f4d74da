"""Scaling, cutting, mirroring and colours, for a batch of clips with a draw each.

Colours follow the reference's order of magnitude and units: brightness is added, contrast multiplied, hue counts in
steps of two degrees. A number that leaves a clip as it is stands for a change that was not drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from fedaction.data.clips.draws import REFERENCE, Drawn, below, uniform

Scale = int | tuple[int, int]
"""Pixels of the shorter side, the shape is kept; or of the longer and the shorter side, whatever the shape was."""


def draw_view(
    count: int,
    shape: tuple[int, ...],
    size: int,
    scales: Sequence[Scale],
    random: torch.Generator,
    *,
    flip: float = 0.0,
) -> dict[str, Tensor]:
    """How recordings (T, H, W, 3) are scaled, where a square of `size` is cut out, and whether it is mirrored.

    One of the scales is drawn, which are for squares of 112 pixels: other squares scale them along. `flip` is the
    probability of being mirrored. Gives `scaled` and `corner` (count, 2) int64, rows before columns; `flip`
    (count,) bool.
    """
    sides = torch.tensor([_scale(shape[1], shape[2], scale, size / REFERENCE) for scale in scales])
    scaled = sides[below(torch.full((count,), len(scales)), random)]
    if int(sides.min()) < size:
        raise ValueError(f"scales {tuple(scales)} leave less than the {REFERENCE} pixels that are cut out")
    corner = below(scaled - size + 1, random)
    return {"scaled": scaled, "corner": corner, "flip": uniform((count,), random) < flip}


def _scale(height: int, width: int, scale: Scale, unit: float) -> tuple[int, int]:
    """Rows and columns after scaling."""
    if isinstance(scale, int):
        factor = round(scale * unit) / min(height, width)
        return round(height * factor), round(width * factor)
    longer, shorter = round(scale[0] * unit), round(scale[1] * unit)
    return (longer, shorter) if height > width else (shorter, longer)


def view(x: Tensor, drawn: Drawn, size: int) -> Tensor:
    """(N, F, H, W, 3) uint8 or float clips to (N, F, size, size, 3) float32 in 0 to 255, by bilinear sampling."""
    count, frames, height, width, _ = x.shape
    # Where a pixel's centre lies in the whole picture, from -1 to 1.
    places = torch.arange(size, device=x.device, dtype=torch.float32) + 0.5
    at = 2 * (places + drawn["corner"][..., None]) / drawn["scaled"][..., None] - 1  # N, 2, size
    rows, columns = at.unbind(1)
    columns = torch.where(drawn["flip"][:, None], columns.flip(-1), columns)
    grid = torch.stack(torch.broadcast_tensors(columns[:, None, :], rows[:, :, None]), -1)  # N, size, size, 2
    # Frames and colours of a clip are all sampled at the same places: they are one picture of many channels.
    channels = x.permute(0, 1, 4, 2, 3).reshape(count, frames * 3, height, width).to(torch.float32)
    y = F.grid_sample(channels, grid, mode="bilinear", padding_mode="border", align_corners=False)
    return y.view(count, frames, 3, size, size).permute(0, 1, 3, 4, 2).contiguous()


def draw_hue(count: int, random: torch.Generator, chance: float, hue: float, saturation: float) -> dict[str, Tensor]:
    """`hue` within +-hue and `saturation` within exp(+-saturation), (count,) float32; 0 and 1 if not drawn."""
    on = uniform((count,), random) < chance
    turn = uniform((count,), random, -hue, hue)
    stretch = uniform((count,), random, -saturation, saturation).exp()
    return {"hue": torch.where(on, turn, 0.0).float(), "saturation": torch.where(on, stretch, 1.0).float()}


def draw_light(
    count: int, random: torch.Generator, chance: float, brightness: float, contrast: float
) -> dict[str, Tensor]:
    """`brightness` within +-brightness, `contrast` within exp(+-contrast), (count,) float32; 0 and 1 if not drawn."""
    on = uniform((2, count), random) < chance
    added = uniform((count,), random, -brightness, brightness)
    factor = uniform((count,), random, -contrast, contrast).exp()
    return {"brightness": torch.where(on[0], added, 0.0).float(), "contrast": torch.where(on[1], factor, 1.0).float()}


def with_colours(x: Tensor, drawn: Drawn) -> Tensor:
    """(N, F, H, W, 3) clips in the light of `draw_light`, then with the hues of `draw_hue`."""
    x = with_contrast(with_brightness(x, drawn["brightness"]), drawn["contrast"])
    return with_hue(x, drawn["hue"], drawn["saturation"])


def with_brightness(x: Tensor, brightness: Tensor) -> Tensor:
    """(N, F, H, W, 3) clips with (N,) or (N, F) added, kept within 0 to 255."""
    return (x + _over(brightness, x)).clamp(0, 255)


def with_contrast(x: Tensor, contrast: Tensor) -> Tensor:
    """(N, F, H, W, 3) clips times (N,) or (N, F), kept within 0 to 255."""
    return (x * _over(contrast, x)).clamp(0, 255)


def with_hue(x: Tensor, hue: Tensor, saturation: Tensor) -> Tensor:
    """(N, F, H, W, 3) float clips with another hue, (N,) in steps of two degrees, and saturation times (N,).

    As in the reference, hues stop at the ends of their scale (0 and 358 degrees) in place of going round.
    """
    on = (hue != 0) | (saturation != 1)
    if x.device.type == "cpu":
        y = x.clone()
        y[on] = _turn(x[on], hue[on], saturation[on])
        return y
    return torch.where(_over(on, x), _turn(x, hue, saturation), x)  # to know which are on, we would have to wait


def _turn(x: Tensor, hue: Tensor, saturation: Tensor) -> Tensor:
    red, green, blue = x.unbind(-1)
    top, spread = x.amax(-1), x.amax(-1) - x.amin(-1)
    part = spread.clamp(min=1e-6)
    sixth = torch.where(  # the hue in sixths of a turn
        top == red,
        ((green - blue) / part) % 6,
        torch.where(top == green, (blue - red) / part + 2, (red - green) / part + 4),
    )
    sixth = (sixth + _over(hue, sixth) / 30).clamp(0, 179 / 30)
    full = (spread / top.clamp(min=1e-6) * _over(saturation, spread)).clamp(max=1)
    offsets = torch.arange(5, 0, -2, device=x.device, dtype=x.dtype)  # 5, 3, 1: made there, so nothing waits
    places = (sixth[..., None] + offsets) % 6
    lost = torch.minimum(places, 4 - places).clamp(0, 1)
    return top[..., None] * (1 - full[..., None] * lost)


def _over(values: Tensor, x: Tensor) -> Tensor:
    """(N,) or (N, F) values with axes added, to go with (N, F, ...)."""
    return values.reshape(values.shape + (1,) * (x.dim() - values.dim()))
