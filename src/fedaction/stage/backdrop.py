"""The room behind the performer: wall, floor, furniture and windows, seen by the recording's camera."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedaction.stage.body import Floats
from fedaction.stage.scene import Camera, Scene, between, choice, rgb

WALLS = ("plain", "stripes", "checks", "bricks", "dots", "panels", "diagonal")
FLOORS = ("plain", "planks", "tiles", "court")
_STUDIO_WALL, _STUDIO_FLOOR = np.array([0.72, 0.72, 0.72]), np.array([0.50, 0.50, 0.50])
_PIECES, _EACH = 6, 10  # pieces of furniture, and numbers that describe each


def paint_room(scene: Scene, camera: Camera, size: tuple[int, int], margin: int) -> NDArray[np.float32]:
    """What the camera sees behind the performer: (3, H + 2 margin, W + 2 margin) in 0 to 1."""
    domain, strength = scene.domain, scene.variety.backdrop
    u = scene.roll("room", 30 + _PIECES * _EACH, keep=1.0)
    rows, columns = (np.arange(-margin, side + margin, dtype=np.float32) for side in size)
    right, up, ahead = camera.rays(columns, rows)
    wall_at = camera.distance + 2.0 + strength * (between(u[0], domain.behind) - 2.0)
    to_wall = wall_at / np.maximum(ahead, 0.05)
    x, y = right * to_wall, camera.height + up * to_wall  # metres on the wall
    is_floor = y < 0.0
    to_floor = camera.height / np.maximum(-up, 1e-3)
    floor_x, floor_z = right * to_floor, ahead * to_floor

    colours = [between(v, r) for v, r in zip(u[1:4], domain.wall_colour, strict=True)]
    wall = _STUDIO_WALL + strength * (rgb(*colours) - _STUDIO_WALL)
    floor = _STUDIO_FLOOR + strength * (rgb(u[4], 0.5 * u[5], 0.15 + 0.7 * u[6]) - _STUDIO_FLOOR)
    other = rgb(colours[0] + 0.5 * (u[7] - 0.5), u[8], u[9])
    weave = 0.7 * strength * u[10] * _wall_pattern(WALLS[choice(u[11], domain.walls)], x, y, u[12], u[13])
    shown = wall[:, None, None] + weave * (other - wall)[:, None, None]
    if u[14] < 0.4 * strength:  # a corner: the other wall lies in another light
        corner = 3.0 * (u[15] - 0.5) * wall_at / 4.0
        shown = shown * np.where((x > corner) == (u[16] < 0.5), 1.0, 0.65 + 0.2 * u[16])
    shade = 1.0 + 0.6 * strength * ((u[17] - 0.5) * (x / 3.0) + (u[18] - 0.5) * (y - 1.5) / 1.5)
    shown = shown * np.clip(shade, 0.3, 1.6)
    for k in range(_furniture(domain.furniture, u[19], strength)):
        _piece(shown, x, y, u[30 + k * _EACH : 30 + (k + 1) * _EACH])
    if u[20] < strength * domain.windows:
        _window(shown, x, y, u[21:25])
    tread = _floor_pattern(FLOORS[choice(u[25], domain.floors)], floor_x, floor_z, u[26])
    ground = floor[:, None, None] * (1.0 + 0.9 * strength * (u[27] - 0.3) * tread)
    shown = np.where(is_floor, ground, shown)
    skirting = (y >= 0.0) & (y < 0.1) & (u[28] < 0.5 * strength)
    shown = np.where(skirting, 0.4 * shown + 0.5 * u[29], shown)
    if strength:
        shown = shown + 0.03 * strength * _mottle(scene, shown.shape[1:])
    return np.clip(shown, 0.0, 1.2).astype(np.float32)


def _furniture(least_most: tuple[int, int], u: float, strength: float) -> int:
    return min(int(strength * (least_most[0] + u * (least_most[1] - least_most[0] + 1))), _PIECES)


def _wave(phase: Floats) -> Floats:
    """Stripes between 0 and 1 with soft edges, one for each turn."""
    return np.clip(0.5 + 1.5 * np.sin(2.0 * np.pi * phase), 0.0, 1.0)


def _wall_pattern(kind: str, x: Floats, y: Floats, u: float, turn: float) -> Floats:
    """A pattern in 0 to 1 on metres of a wall."""
    period = 0.25 + 0.75 * u
    if kind == "stripes":
        return _wave((x if turn < 0.7 else y) / period)
    if kind == "checks":
        return np.abs(_wave(x / period) - _wave(y / period))
    if kind == "bricks":
        row = np.floor(y / (0.5 * period))
        brick = (x / period + 0.5 * row) % 1.0
        return 1.0 * ((brick < 0.08) | ((y / (0.5 * period)) % 1.0 < 0.15))
    if kind == "dots":
        away = np.hypot((x / period) % 1.0 - 0.5, (y / period) % 1.0 - 0.5)
        return np.clip(4.0 * (0.2 + 0.15 * turn - away) + 0.5, 0.0, 1.0)
    if kind == "panels":
        return 1.0 * (((x / (2.0 * period)) % 1.0 < 0.06) | (np.abs(y - 0.9 - 0.3 * turn) < 0.04))
    if kind == "diagonal":
        return _wave((x * np.cos(np.pi * turn) + y * np.sin(np.pi * turn)) / period)
    return np.zeros_like(x)


def _floor_pattern(kind: str, x: Floats, z: Floats, u: float) -> Floats:
    """A pattern from -1 to 1 on metres of a floor; it fades where it would be finer than pixels."""
    period = 0.3 + 0.7 * u
    fade = np.clip(1.2 - z / 12.0, 0.0, 1.0)
    if kind == "planks":
        return fade * (2.0 * _wave((x if u < 0.5 else z) / period) - 1.0)
    if kind == "tiles":
        return fade * (2.0 * np.abs(_wave(x / period) - _wave(z / period)) - 1.0)
    if kind == "court":
        lines = (np.abs(x % 3.0 - 1.5 * u) < 0.05) | (np.abs(z % 4.0 - 3.0 * u) < 0.08)
        return np.where(lines, 1.5, 0.0)
    return np.zeros_like(x)


def _piece(shown: Floats, x: Floats, y: Floats, u: Floats) -> None:
    """A box against the wall (a cupboard, a shelf, a sofa, a door) or a picture on it, in place."""
    middle, half = 6.0 * (u[0] - 0.5), 0.15 + 0.55 * u[1]
    bottom = 1.2 + 0.6 * u[2] if u[3] < 0.35 else 0.0
    top = bottom + (0.3 + 0.5 * u[4] if bottom else 0.4 + 1.7 * u[4])
    inside = (np.abs(x - middle) < half) & (y > bottom) & (y < top)
    if not inside.any():
        return
    colour = rgb(u[5], 0.8 * u[6], 0.1 + 0.85 * u[7])[:, None]
    x, y = x[inside], y[inside]
    if u[8] < 0.4:  # boards
        face = 0.75 + 0.25 * ((y - bottom) / (0.15 + 0.3 * u[9]) % 1.0 > 0.15)
    elif u[8] < 0.7:  # doors
        face = 0.7 + 0.3 * ((x - middle) / (0.3 + 0.4 * u[9]) % 1.0 > 0.12)
    else:  # blobs
        face = 0.75 + 0.25 * np.sin(9.0 * x * (1.0 + u[9])) * np.sin(11.0 * y * (0.5 + u[9]))
    # The side that is turned away is darker, and so is the rim.
    rim = (np.abs(x - middle) > half - 0.04) | (y > top - 0.04)
    shown[:, inside] = colour * face * np.where(rim, 0.6, 1.0) * np.where(x > middle + 0.6 * half, 0.8, 1.0)


def _window(shown: Floats, x: Floats, y: Floats, u: Floats) -> None:
    """A bright window with bars, in place."""
    middle, half, bottom, top = 4.0 * (u[0] - 0.5), 0.3 + 0.5 * u[1], 0.9, 1.7 + 0.8 * u[2]
    inside = (np.abs(x - middle) < half) & (y > bottom) & (y < top)
    bars = (np.abs(x - middle) < 0.04) | (np.abs(y - 0.5 * (bottom + top)) < 0.04)
    sky = np.array([0.85, 0.95, 1.05])[:, None] * (0.7 + 0.5 * u[3] + 0.2 * (y[inside] - bottom))
    shown[:, inside] = np.where(bars[inside], 0.35, sky)


def _mottle(scene: Scene, size: tuple[int, ...]) -> Floats:
    """Uneven colour, coarse and fine, (3, H, W) with a standard deviation near 1."""
    random = scene.random("mottle")
    out = 0.7 * random.standard_normal((1, *size), np.float32)
    for knots in (4, 9):
        grid = random.standard_normal((3, knots, knots), np.float32)
        down, across = (
            np.maximum(0.0, 1.0 - np.abs(np.linspace(0.0, knots - 1.0, side)[:, None] - np.arange(knots)))
            for side in size
        )
        out = out + down @ grid @ across.T
    return out
