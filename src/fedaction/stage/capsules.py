"""Pictures of things made of capsules (limbs, balls, bars), all frames of a clip at once."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from fedaction.stage.body import Floats


@dataclass(frozen=True)
class Paint:
    """What covers L capsules."""

    colours: Floats  # (L, 3) in 0 to 1
    seconds: Floats  # (L, 3) colour of the pattern
    along: Floats  # (L,) bands of the pattern along a capsule; 0: none
    across: Floats  # (L,) stripes of the pattern across its width; 0: none


@dataclass(frozen=True)
class Capsules:
    """L capsules over F frames, in pixels right and down."""

    ends: Floats  # (2 coordinates, 2 ends, L, F)
    radii: Floats  # (2 ends, L, F)
    depth: Floats  # (L, F) metres; nearer ones hide farther ones
    paint: Paint  # what covers them

    def move(self, shift: Floats) -> Capsules:
        """Shifts all of them by (2, F) pixels."""
        return Capsules(self.ends + shift[:, None, None, :], self.radii, self.depth, self.paint)


def join(sets: list[Capsules]) -> Capsules:
    """Several sets of capsules over the same frames as one."""
    paint = Paint(*(np.concatenate([getattr(p.paint, f.name) for p in sets]) for f in fields(Paint)))
    return Capsules(
        np.concatenate([p.ends for p in sets], axis=2),
        np.concatenate([p.radii for p in sets], axis=1),
        np.concatenate([p.depth for p in sets]),
        paint,
    )


def draw(canvas: NDArray[np.float32], capsules: Capsules, lamp: Floats, ambient: float) -> None:
    """Draws capsules on frames (3, F, H, W), contiguous and in 0 to 1, in place, farthest first.

    `lamp` is the (3,) unit vector in which light travels: right, down, away; `ambient` the brightness where none
    falls.
    """
    _, frames, height, width = canvas.shape
    flat = canvas.reshape(3, -1)
    order = np.argsort(-capsules.depth, axis=0, kind="stable")  # L, F
    pick = (order, np.arange(frames))
    (x0, x1), (y0, y1) = (part[:, *pick].astype(np.float32) for part in capsules.ends)
    r0, r1 = capsules.radii[:, *pick].astype(np.float32)
    reach = np.maximum(r0, r1) + 1.0
    left, right = _box(np.minimum(x0, x1) - reach, np.maximum(x0, x1) + reach, width)
    top, bottom = _box(np.minimum(y0, y1) - reach, np.maximum(y0, y1) + reach, height)
    seen = (right > left) & (bottom > top)
    colours, seconds = capsules.paint.colours.astype(np.float32), capsules.paint.seconds.astype(np.float32)
    turns = 2.0 * np.pi * np.stack([capsules.paint.along, capsules.paint.across]).astype(np.float32)
    light = lamp.astype(np.float32)

    for k in range(len(order)):  # the k-th farthest of every frame at once
        f = np.flatnonzero(seen[k])
        if not len(f):
            continue
        # One size of box for all frames, moved back into the picture where it would reach over the edge.
        tall, wide = int((bottom - top)[k, f].max()), int((right - left)[k, f].max())
        rows = np.minimum(top[k, f], height - tall)[:, None] + np.arange(tall)
        columns = np.minimum(left[k, f], width - wide)[:, None] + np.arange(wide)
        ax, ay, bx, by, ra, rb = (a[k, f, None, None] for a in (x0, y0, x1, y1, r0, r1))
        px, py = columns[:, None, :].astype(np.float32) - ax, rows[:, :, None].astype(np.float32) - ay
        dx, dy = bx - ax, by - ay
        square = dx * dx + dy * dy + np.float32(1e-6)
        along = np.clip(px * (dx / square) + py * (dy / square), 0.0, 1.0)
        px, py = px - along * dx, py - along * dy  # from the axis
        radius = ra + along * (rb - ra)
        away = px * px + py * py
        cover = np.clip(radius + np.float32(0.5) - np.sqrt(away), 0.0, 1.0)
        # Shade as a round limb: the normal points at the camera on the axis and sideways at the rim.
        facing = np.sqrt(np.maximum(1.0 - away / (radius * radius), 0.0))
        bright = np.maximum((px * -light[0] + py * -light[1]) / radius + facing * light[2], 0.0)
        bright = np.float32(ambient) + np.float32(1.05 - 0.7 * ambient) * bright
        which = order[k, f]
        colour = colours[which].T[:, :, None, None]
        if turns[:, which].any():
            bands, stripes = turns[:, which, None, None]
            side = (px * dy - py * dx) / (np.sqrt(square) * radius)
            waves = np.sin(bands * along) + np.sin(stripes * side)
            colour = colour + np.clip(2.0 * waves, 0.0, 1.0) * (seconds[which].T[:, :, None, None] - colour)
        at = ((f[:, None] * height + rows) * width)[:, :, None] + columns[:, None, :]
        spot = flat[:, at]
        flat[:, at] = spot + cover * (bright * colour - spot)


def _box(least: Floats, most: Floats, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First pixel and the one after the last, inside a picture's side."""
    first = np.clip(np.floor(least), 0, size).astype(np.int64)
    return first, np.clip(np.ceil(most) + 1, 0, size).astype(np.int64)
