"""Varied video of one performance: its camera follows no rule but that the performer stays in the picture.

`render` shows every performance in one kind of room; this is for footage with which networks are trained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedaction.stage.backdrop import paint_room
from fedaction.stage.body import BODY, Floats
from fedaction.stage.capsules import Capsules, draw, join
from fedaction.stage.clutter import bystander, crossing, figure, post, screen
from fedaction.stage.performance import Performance, act
from fedaction.stage.scene import Camera, Scene, between, stand
from fedaction.stage.wardrobe import dress

_RIM = 0.01  # of the picture that the performer never touches
_BLOCK = 8
_MIDDLE = BODY.index("spine_base")


def film(show: Performance, times: Floats, size: tuple[int, int], scene: Scene) -> NDArray[np.uint8]:
    """Clips of one performance, (K, T, H, W, 3) red, green, blue, at (K, T) times in seconds."""
    if len(show) != 1 or times.ndim != 2:
        raise ValueError(f"film one performance at (clips, frames) times; got {len(show)} at {times.shape}")
    shooting = Shooting(show, times, size, scene)
    return np.stack([shooting.clip(k) for k in range(len(times))])


class Shooting:
    """One performance before one camera."""

    camera: Camera  # turned and focused so that the performer is in the picture at all times asked for
    body: Capsules  # the performer, all clips' frames one after the other, before the camera moves
    shift: Floats  # (2, frames) pixels right and down by which the camera's motion moves the picture

    def __init__(self, show: Performance, times: Floats, size: tuple[int, int], scene: Scene) -> None:
        self.scene, self.size, self.times = scene, size, times
        who = show.actors[0]
        joints = act(show.script, times.reshape(-1), np.float64)[0]
        paint, thick = dress(who.seed, scene.domain, scene.variety.clothing, float(scene.random("outfit").random()))
        self.shift = _motion(scene, times.reshape(-1), size)
        far = figure(joints, who.height, paint, thick, stand(scene))
        self.camera = _frame(far, stand(scene), scene, size, self.shift)
        self.body = figure(joints, who.height, paint, thick, self.camera)
        self.feet = self.camera.see(joints[:, _MIDDLE] * np.array([1.0, 0.0, 1.0]))[0]
        self.margin = int(np.ceil(np.abs(self.shift).max())) + 1
        self.room = paint_room(scene, self.camera, size, self.margin)
        self.light = _light(scene)
        u = scene.random("mirror").random()
        self.mirrored = bool(u < 0.5 * scene.variety.mirror)

    def clip(self, k: int) -> NDArray[np.uint8]:
        """The k-th clip, (T, H, W, 3)."""
        frames = slice(k * self.times.shape[1], (k + 1) * self.times.shape[1])
        times, shift = self.times[k], self.shift[:, frames]
        canvas = self._room(shift)
        screen(self.scene, canvas, shift, self.times[k])
        self._shadow(canvas, self.feet[:, frames] + shift)
        body = Capsules(
            self.body.ends[..., frames], self.body.radii[..., frames], self.body.depth[:, frames], self.body.paint
        )
        people = [body, bystander(self.scene, self.camera, times)]
        moved = [each.move(shift) for each in people if each is not None]
        things = crossing(self.scene, self.size, times, float(body.depth.mean()))
        draw(canvas, join(moved + ([things] if things else [])), self.light.lamp, self.light.ambient)
        post(self.scene, canvas, shift)
        out = _develop(canvas, self.scene, self.light, times, k)
        return out[:, :, ::-1].copy() if self.mirrored else out

    def _room(self, shift: Floats) -> NDArray[np.float32]:
        """The room in every frame, moved by parts of pixels: (3, T, H, W)."""
        height, width = self.size
        out = np.empty((3, shift.shape[1], height, width), np.float32)
        for t, (x, y) in enumerate(self.margin - shift.T):
            left, top = int(x), int(y)
            a, b = np.float32(x - left), np.float32(y - top)
            spot = self.room[:, top : top + height + 1, left : left + width + 1]
            spot = spot[:, :, :-1] + a * (spot[:, :, 1:] - spot[:, :, :-1])
            out[:, t] = spot[:, :-1] + b * (spot[:, 1:] - spot[:, :-1])
        return out

    def _shadow(self, canvas: NDArray[np.float32], feet: Floats) -> None:
        """A soft shadow on the floor under the performer, in place."""
        if not self.light.shadow:
            return
        height, width = self.size
        wide = 0.35 * self.camera.focal / self.camera.distance
        flat = wide * max(0.15, np.sin(abs(self.camera.pitch)))
        across = np.exp(-(((np.arange(width) - feet[0][:, None]) / wide) ** 2))
        down = np.exp(-(((np.arange(height) - feet[1][:, None]) / flat) ** 2))
        canvas *= 1.0 - (self.light.shadow * down[:, :, None] * across[:, None, :]).astype(np.float32)


def _motion(scene: Scene, times: Floats, size: tuple[int, int]) -> Floats:
    """Shake and pan at (F,) times: (2, F) pixels."""
    random = scene.random("motion")
    rates, phases = 0.15 + 1.2 * random.random((2, 3, 1)), random.random((2, 3, 1))
    swing = np.sin(2.0 * np.pi * (rates * times + phases)) / (1.0 + rates)
    pan = (random.random((2, 1)) - 0.5) * (times - times.mean()) / max(float(np.ptp(times)), 1.0)
    amount = scene.variety.motion * scene.domain.shake * size[0]
    path = amount * (random.random((2, 1)) * swing.sum(axis=1) + 2.0 * pan)
    return path - path.mean(axis=1, keepdims=True)


def _frame(body: Capsules, camera: Camera, scene: Scene, size: tuple[int, int], shift: Floats) -> Camera:
    """Turns and focuses the camera so that the body (seen at focal length 1) and its motion are in the picture."""
    u = scene.random("frame").random(3)
    strength = scene.variety.view
    least = (body.ends - body.radii).min(axis=(1, 2, 3))
    most = (body.ends + body.radii).max(axis=(1, 2, 3))
    side = np.array(size[::-1], np.float64)
    room = side * (1.0 - 2.0 * _RIM) - 2.0 * np.abs(shift).max(axis=1) - 2.0
    fill = min(0.85 + strength * (between(u[0], scene.domain.fill) - 0.85), 1.0)
    focal = float((fill * room / (most - least)).min())
    slack = room - focal * (most - least)
    middle = 0.5 * side - focal * 0.5 * (least + most) + np.clip(strength * (u[1:] - 0.5), -0.5, 0.5) * slack
    return replace(camera, focal=focal, centre=(float(middle[0]), float(middle[1])))


@dataclass(frozen=True)
class _Light:
    """How a recording is lit and recorded."""

    lamp: Floats  # (3,) unit vector in which light travels: right, down, away
    ambient: float  # brightness in the shade
    shadow: float  # how dark the shadow is
    gains: Floats  # (3,) of the colours, exposure included
    slope: Floats  # (2,) change of brightness across and down the picture
    gamma: float  # exponent; 1 is linear
    colour: float  # saturation; 1 is as painted
    flicker: float  # change of brightness from frame to frame
    beat: tuple[float, float]  # hertz and phase of the flicker
    blur: float  # share of each pixel that its neighbours give
    noise: float  # standard deviation
    step: float  # of the compression


def _light(scene: Scene) -> _Light:
    domain, strength = scene.domain, scene.variety.light
    u = scene.roll("light", 12, keep=0.85)
    lamp = np.array([strength * 2.4 * (u[0] - 0.5), 0.8 + 0.4 * strength * (u[1] - 0.5), 1.0])
    warmth = strength * between(u[2], domain.warmth)
    exposure = max(1.0 + strength * (between(u[3], domain.exposure) - 1.0), 0.25)
    g = scene.roll("grain", 6, keep=0.85)
    grain = scene.variety.grain
    return _Light(
        lamp=lamp / np.linalg.norm(lamp),
        ambient=0.5 + 0.3 * min(strength, 1.0) * (u[4] - 0.5),
        shadow=min(0.55 * strength * u[5], 0.9),
        gains=exposure * np.array([1.0 + 0.18 * warmth, 1.0, 1.0 - 0.22 * warmth]),
        slope=0.7 * strength * (u[6:8] - 0.5),
        gamma=float(np.exp(0.6 * strength * (u[8] - 0.5))),
        colour=max(1.0 + 0.8 * strength * (u[9] - 0.6), 0.0),
        flicker=0.15 * strength * max(2.0 * u[10] - 1.0, 0.0),
        beat=(0.5 + 6.0 * u[11], u[10]),
        blur=min(0.5 * grain * max(2.0 * g[0] - 1.0, 0.0), 0.6),
        noise=grain * between(g[1], domain.noise),
        step=grain * between(g[2], domain.blocks) * (g[3] < 0.6),
    )


def _develop(canvas: NDArray[np.float32], scene: Scene, light: _Light, times: Floats, k: int) -> NDArray[np.uint8]:
    """From what the camera sees, (3, T, H, W) in 0 to 1, to what it records: (T, H, W, 3)."""
    height, width = canvas.shape[2:]
    x, y = np.linspace(-1.0, 1.0, width), np.linspace(-1.0, 1.0, height)
    field = np.clip(1.0 + light.slope[0] * x[None, :] + light.slope[1] * y[:, None], 0.2, None)
    beat = 1.0 + light.flicker * np.sin(2.0 * np.pi * (light.beat[0] * times + light.beat[1]))
    shown = canvas * field.astype(np.float32)
    shown *= (light.gains[:, None] * beat).astype(np.float32)[:, :, None, None]
    if light.colour != 1.0:
        grey = np.float32(0.3) * shown[0] + np.float32(0.59) * shown[1] + np.float32(0.11) * shown[2]
        shown = grey + np.float32(light.colour) * (shown - grey)
    if light.blur:
        for axis in (2, 3):
            ends = (shown.take([0], axis), shown.take([-1], axis))
            wide = np.concatenate([ends[0], shown, ends[1]], axis)
            n = shown.shape[axis]
            around = wide.take(range(n), axis) + wide.take(range(2, n + 2), axis)
            shown = np.float32(1.0 - light.blur) * shown + np.float32(0.5 * light.blur) * around
    if light.noise:
        random = scene.random(f"noise {k}")
        shown += np.float32(light.noise) * random.standard_normal(shown.shape, np.float32)
    np.clip(shown, 0.0, 1.0, out=shown)
    if light.gamma != 1.0:
        shown **= np.float32(light.gamma)
    if light.step:
        shown = _compress(shown, light.step)
    return np.moveaxis(np.clip(255.0 * shown + 0.5, 0.0, 255.0), 0, -1).astype(np.uint8)


def _cosines() -> NDArray[np.float32]:
    n = np.arange(_BLOCK)
    base = np.cos(np.pi * (n[None, :] + 0.5) * n[:, None] / _BLOCK) * np.sqrt(2.0 / _BLOCK)
    base[0] /= np.sqrt(2.0)
    return base.astype(np.float32)


_COSINES = _cosines()
# Fine detail is recorded in coarser steps, as JPEG does.
_STEPS = (0.25 + 0.75 * np.add.outer(np.arange(_BLOCK), np.arange(_BLOCK)) / (2.0 * _BLOCK - 2.0)).astype(np.float32)


def _compress(shown: NDArray[np.float32], step: float) -> NDArray[np.float32]:
    """Rounds the cosine transform of each block of 8 x 8 pixels, as codecs do."""
    height, width = shown.shape[2:]
    edges = ((0, 0), (0, 0), (0, -height % _BLOCK), (0, -width % _BLOCK))
    full = np.pad(shown, edges, mode="edge") if height % _BLOCK or width % _BLOCK else shown
    c, t, h, w = full.shape
    blocks = full.reshape(c, t, h // _BLOCK, _BLOCK, w // _BLOCK, _BLOCK).swapaxes(3, 4)
    size = np.float32(step * _BLOCK) * _STEPS
    rounded = np.rint(_COSINES @ blocks @ _COSINES.T / size) * size
    back = (_COSINES.T @ rounded @ _COSINES).swapaxes(3, 4).reshape(full.shape)
    return back[:, :, :height, :width].astype(np.float32, copy=False)
