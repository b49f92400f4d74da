"""Performances as pictures: video, optical flow and single images of bodies made of capsules.

Flow comes from the same capsules as the pictures: each pixel of a limb knows where on the limb it lies, and so where
it goes in the next frame.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedaction.federation.seeds import numpy_generator
from fedaction.stage.body import BODY, Floats
from fedaction.stage.performance import Performance, act, progress
from fedaction.stage.sensor import view


def _limbs() -> tuple[tuple[str, str, float, str], ...]:
    """(from, to, radius as a fraction of height, what covers it)."""
    limbs = [
        ("left_hip", "right_hip", 0.058, "trousers"),
        ("spine_base", "spine_mid", 0.066, "shirt"),
        ("spine_mid", "spine_shoulder", 0.078, "shirt"),
        ("left_shoulder", "right_shoulder", 0.045, "shirt"),
        ("neck", "skull_base", 0.030, "skin"),
        ("skull_base", "head", 0.056, "hair"),
        ("nose", "nose", 0.042, "skin"),
    ]
    for side in ("left", "right"):
        limbs += [
            (f"{side}_shoulder", f"{side}_elbow", 0.033, "shirt"),
            (f"{side}_elbow", f"{side}_wrist", 0.025, "skin"),
            (f"{side}_wrist", f"{side}_hand_tip", 0.021, "skin"),
            (f"{side}_hip", f"{side}_knee", 0.048, "trousers"),
            (f"{side}_knee", f"{side}_ankle", 0.036, "trousers"),
            (f"{side}_ankle", f"{side}_toes", 0.026, "shoes"),
        ]
    return tuple(limbs)


LIMBS = _limbs()
ENDS = np.array([[BODY.index(a), BODY.index(b)] for a, b, _, _ in LIMBS])
RADII = np.array([radius for _, _, radius, _ in LIMBS])


@dataclass(frozen=True)
class Shot:
    """How pictures are taken."""

    # (least, most) radians that the camera stands to the side of the performers' front
    yaw: tuple[float, float] = (-0.5, 0.5)
    pitch: tuple[float, float] = (0.0, 0.2)  # (least, most) radians that it looks down
    distance: tuple[float, float] = (3.6, 4.6)  # (least, most) metres to the performer
    background: str = "textured"  # "textured" or "plain"
    light: tuple[float, float] = (0.7, 1.05)  # (least, most) brightness; 1 is full
    # None for each actor's own clothes, or a number: everyone in the outfit of that number
    clothing: int | None = None


_USUAL = Shot()


def video(
    performance: Performance,
    height: int = 112,
    width: int = 112,
    seed: int = 0,
    *,
    frames: int = 16,
    shot: Shot = _USUAL,
) -> NDArray[np.uint8]:
    """Video of N performances, (N, frames, H, W, 3) red, green, blue; picture i is at i * seconds / frames.

    The seed is that of camera, background and light.
    """
    times = np.arange(frames) * (performance.seconds / frames)
    out = np.empty((len(performance), frames, height, width, 3), np.uint8)
    for i in range(len(performance)):
        scene = _Scene(performance, i, times, (height, width), seed, shot)
        for t in range(frames):
            out[i, t] = scene.picture(t)
    return out


def image(
    performance: Performance, height: int = 112, width: int = 112, seed: int = 0, *, shot: Shot = _USUAL
) -> NDArray[np.uint8]:
    """The frame halfway through each action: (N, H, W, 3)."""
    fine = np.linspace(0.0, performance.seconds, 201)
    middle = fine[np.argmin(np.abs(progress(performance.script, fine) - 0.5), axis=1)]
    out = np.empty((len(performance), height, width, 3), np.uint8)
    for i, time in enumerate(middle):
        out[i] = _Scene(performance, i, np.array([time]), (height, width), seed, shot).picture(0)
    return out


def flow(
    performance: Performance,
    height: int = 112,
    width: int = 112,
    seed: int = 0,
    *,
    frames: int = 16,
    shot: Shot = _USUAL,
) -> NDArray[np.float32]:
    """Optical flow of what `video` shows with the same arguments, (N, frames - 1, H, W, 2).

    Pixels right and down by which each pixel's content moves until the next frame; zero on the background.
    """
    times = np.arange(frames) * (performance.seconds / frames)
    out = np.empty((len(performance), frames - 1, height, width, 2), np.float32)
    for i in range(len(performance)):
        scene = _Scene(performance, i, times, (height, width), seed, shot)
        for t in range(frames - 1):
            out[i, t] = scene.motion(t)
    return out


@dataclass(frozen=True)
class _Patch:
    """The pixels of one limb in one frame: a box of the picture and, in it, coordinates on the limb."""

    box: tuple[slice, slice]  # rows and columns
    cover: Floats  # (h, w) 0 to 1, how much of the pixel the limb covers
    along: Floats  # (h, w) 0 at the limb's start, 1 at its end
    aside: Floats  # (2, h, w) pixels right and down from the limb's axis
    radius: Floats  # (h, w) pixels


class _Scene:
    """One performance in front of one camera."""

    def __init__(
        self, performance: Performance, which: int, times: Floats, size: tuple[int, int], seed: int, shot: Shot
    ) -> None:
        if shot.background not in ("textured", "plain"):
            raise ValueError(f'a background is "textured" or "plain", not {shot.background!r}')
        rng = numpy_generator(seed, "shot", performance.keys[which])
        u = rng.random(6)
        ranges = np.array([shot.yaw, shot.pitch, shot.distance, shot.light])
        yaw, pitch, distance, light = ranges[:, 0] + u[:4] * (ranges[:, 1] - ranges[:, 0])
        self.size = size
        self.light = light
        lamp = np.array([2.0 * u[4] - 1.0, -0.6 - 0.6 * u[5], -1.0])
        self.lamp = lamp / np.linalg.norm(lamp)
        self.background = _background(rng, size, shot.background) * light

        track = act(performance.script[which : which + 1], times, np.float64)
        # The camera looks at a point 0.95 m above the floor, so that the whole body is in the picture.
        aim = 0.95 + np.tan(pitch) * distance
        camera = view(np.array([yaw]), np.array([pitch]), np.array([distance]), np.array([aim]))
        x, y, z = np.moveaxis(camera.of(np.moveaxis(track, (2, 3), (0, 1)))[:, :, 0], 1, 0)  # J, T
        z = np.maximum(z, 0.3)
        focal = size[0] * 4.0 / 2.5
        flat = np.stack([size[1] / 2.0 - focal * x / z, size[0] / 2.0 - focal * y / z])  # 2, J, T
        self.ends = flat[:, ENDS.T]  # 2, 2 ends, limbs, T
        actor = performance.actors[which]
        self.radii = focal * (RADII * actor.height)[None, :, None] / z[ENDS.T]  # 2 ends, limbs, T
        self.order = np.argsort(-z[ENDS.T].mean(axis=0), axis=0, kind="stable")  # limbs, T: farthest first
        self.colours, self.stripes = _outfit(actor.seed if shot.clothing is None else shot.clothing)

    def _patch(self, limb: int, t: int) -> _Patch | None:
        (x0, x1), (y0, y1) = self.ends[:, :, limb, t]
        r0, r1 = self.radii[:, limb, t]
        reach = max(r0, r1) + 1.0
        rows = slice(max(int(min(y0, y1) - reach), 0), min(int(max(y0, y1) + reach) + 1, self.size[0]))
        columns = slice(max(int(min(x0, x1) - reach), 0), min(int(max(x0, x1) + reach) + 1, self.size[1]))
        if rows.start >= rows.stop or columns.start >= columns.stop:
            return None
        dx, dy = x1 - x0, y1 - y0
        px = np.arange(columns.start, columns.stop) - x0
        py = (np.arange(rows.start, rows.stop) - y0)[:, None]
        along = np.clip((px * dx + py * dy) / (dx * dx + dy * dy + 1e-6), 0.0, 1.0)
        aside = np.stack([px - along * dx, py - along * dy])
        radius = r0 + along * (r1 - r0)
        cover = np.clip(radius + 0.5 - np.hypot(aside[0], aside[1]), 0.0, 1.0)
        return _Patch((rows, columns), cover, along, aside, radius)

    def picture(self, t: int) -> NDArray[np.uint8]:
        """(H, W, 3)."""
        canvas = self.background.copy()
        for limb in self.order[:, t]:
            patch = self._patch(limb, t)
            if patch is None:
                continue
            # Shade as a round limb: the normal points at the camera on the axis and sideways at the rim.
            nx, ny = patch.aside / patch.radius
            nz = np.sqrt(np.maximum(1.0 - nx * nx - ny * ny, 0.0))
            bright = np.maximum(nx * self.lamp[0] + ny * self.lamp[1] - nz * self.lamp[2], 0.0)
            bright = self.light * (0.45 + 0.6 * bright)
            bright *= 1.0 + 0.22 * np.sin(2.0 * np.pi * self.stripes[limb] * patch.along)
            colour = bright[..., None] * self.colours[limb]
            spot = canvas[patch.box]
            spot += patch.cover[..., None] * (colour - spot)
        return np.clip(255.0 * canvas, 0.0, 255.0).astype(np.uint8)

    def motion(self, t: int) -> NDArray[np.float32]:
        """(H, W, 2) pixels right and down."""
        out = np.zeros((*self.size, 2), np.float32)
        for limb in self.order[:, t]:
            patch = self._patch(limb, t)
            if patch is None:
                continue
            start, end = self.ends[:, :, limb, t : t + 2].swapaxes(0, 1)  # each 2, (now, next)
            axis = end - start
            # A limb seen end-on has no direction in the picture to turn with.
            turned = np.hypot(axis[0], axis[1]).min() > 0.5 * self.radii[:, limb, t].max()
            angle = np.diff(np.arctan2(axis[1], axis[0]))[0] if turned else 0.0
            cos, sin = np.cos(angle), np.sin(angle)
            later = self.radii[0, limb, t + 1] + patch.along * np.diff(self.radii[:, limb, t + 1])[0]
            scale = later / patch.radius
            moved = start[:, 1, None, None] - start[:, 0, None, None]
            moved = moved + patch.along * (axis[:, 1] - axis[:, 0])[:, None, None]
            ax, ay = patch.aside
            turned_aside = np.stack([cos * ax - sin * ay, sin * ax + cos * ay])
            moved = moved + scale * turned_aside - patch.aside
            inside = patch.cover > 0.5
            out[patch.box][inside] = np.moveaxis(moved, 0, -1)[inside]
        return out


def _outfit(number: int) -> tuple[Floats, Floats]:
    """Colours (limbs, 3) and stripes along each limb (limbs,) of an actor's clothes."""
    rng = numpy_generator(number, "clothes")
    tone = rng.random()
    colours = {
        "skin": np.array([0.45, 0.30, 0.22]) + tone * np.array([0.50, 0.48, 0.46]),
        "hair": np.array([0.10, 0.07, 0.05]) + 0.5 * rng.random() * np.array([0.9, 0.7, 0.4]),
        "shirt": 0.1 + 0.85 * rng.random(3),
        "trousers": 0.05 + 0.55 * rng.random(3),
        "shoes": 0.05 + 0.4 * rng.random(3),
    }
    bands = {
        "skin": 0.0,
        "hair": 0.0,
        "shirt": 1.0 + 3.0 * rng.random(),
        "trousers": 1.0 + rng.random(),
        "shoes": 0.0,
    }
    parts = [part for _, _, _, part in LIMBS]
    return np.array([colours[part] for part in parts]), np.array([bands[part] for part in parts])


def _background(rng: np.random.Generator, size: tuple[int, int], kind: str) -> Floats:
    """A wall and a floor, (H, W, 3) in 0 to 1."""
    grey, tint = rng.random((2, 1)), rng.random((2, 3)) - 0.5
    wall, floor = np.array([[0.5], [0.3]]) + 0.35 * grey + 0.25 * tint
    grid = rng.standard_normal((2, 9, 9, 3))
    fine = rng.standard_normal((*size, 1))
    rows, columns = np.linspace(0.0, 1.0, size[0]), np.linspace(0.0, 1.0, size[1])
    if kind == "plain":
        return np.broadcast_to(wall, (*size, 3)).copy()
    lower = (rows > 0.82)[:, None, None]
    coarse = sum(_stretch(part[:knots, :knots], rows, columns) for part, knots in zip(grid, (4, 9), strict=True))
    return np.clip(np.where(lower, floor, wall) + 0.035 * coarse + 0.015 * fine, 0.0, 1.0)


def _stretch(grid: Floats, rows: Floats, columns: Floats) -> Floats:
    """A small grid (K, K, 3) drawn over the whole picture, linear in between."""
    knots = np.arange(len(grid))
    down = np.maximum(0.0, 1.0 - np.abs(rows[:, None] * (len(grid) - 1) - knots))
    across = np.maximum(0.0, 1.0 - np.abs(columns[:, None] * (len(grid) - 1) - knots))
    return np.einsum("hi,ijc,wj->hwc", down, grid, across, optimize=True)
