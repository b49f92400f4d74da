"""Skeletons as a sensor sees them: a camera somewhere in the room, noise, drift, lost joints and a device's own bias."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedaction.data.layout import Layout, layout as layout_named
from fedaction.data.stage.body import BODY
from fedaction.data.stage.perform import Performance
from fedaction.federation.seeds import numpy_generator

_KNOTS = 5  # points in time between which drift is interpolated
_BATCH = 64


@dataclass(frozen=True)
class Sensor:
    """A depth camera, pose estimator or motion-capture system.

    Attributes:
        yaw: (least, most) radians that the camera stands to the side of where the performers face.
        pitch: (least, most) radians that it looks down.
        distance: (least, most) metres to the middle of the floor.
        height: metres above the floor.
        white: metres of independent noise at 3 m, grows with the square of depth.
        drift: metres of slow error.
        dropout: share of joints lost at any time; those far from the camera are lost more often.
        hold: whether a lost joint keeps its last value; otherwise it is NaN.
        bias: metres by which the device puts joints elsewhere than another would: a fixed offset per joint, along
            the camera's axes.
        device: which device's bias, when `bias` is not zero.
    """

    yaw: tuple[float, float] = (-0.6, 0.6)
    pitch: tuple[float, float] = (0.0, 0.25)
    distance: tuple[float, float] = (2.5, 4.0)
    height: float = 1.2
    white: float = 0.012
    drift: float = 0.02
    dropout: float = 0.03
    hold: bool = True
    bias: float = 0.0
    device: int = 0


CLEAN = Sensor(yaw=(0.0, 0.0), pitch=(0.0, 0.0), distance=(3.0, 3.0), white=0.0, drift=0.0, dropout=0.0)
"""A frontal view without any error."""


@dataclass(frozen=True)
class View:
    """Where cameras stand. Camera axes: x to the camera's left, y up, z away from it.

    Attributes:
        turn: (N, 3, 3) rotations from the room's axes to the camera's: camera = turn @ room + shift.
        shift: (N, 3) metres.
    """

    turn: NDArray[np.float64]
    shift: NDArray[np.float64]

    def __getitem__(self, which: slice) -> View:
        return View(self.turn[which], self.shift[which])

    def of(self, positions: NDArray[np.floating]) -> NDArray[np.floating]:
        """(N, T, V, 3) room metres to camera metres."""
        n, t, v, _ = positions.shape
        turn = np.swapaxes(self.turn, 1, 2).astype(positions.dtype)
        seen = positions.reshape(n, t * v, 3) @ turn + self.shift[:, None, :].astype(positions.dtype)
        return seen.reshape(n, t, v, 3)


def view(
    yaw: NDArray[np.float64], pitch: NDArray[np.float64], distance: NDArray[np.float64], height: float
) -> View:
    """Cameras that stand `yaw` to the side of the performers' front and look down by `pitch`; angles (N,)."""
    cy, sy = np.cos(np.pi + yaw), np.sin(np.pi + yaw)
    cp, sp = np.cos(pitch), np.sin(pitch)
    zero = np.zeros_like(yaw)
    # Turn about the vertical so that performers face the camera, then tilt about the camera's x axis.
    turn = np.stack([cy, zero, sy, sp * sy, cp, -sp * cy, -cp * sy, sp, cp * cy], axis=1).reshape(-1, 3, 3)
    down = np.full_like(yaw, -height)
    shift = np.stack([zero, cp * down + sp * distance, cp * distance - sp * down], axis=1)
    return View(turn, shift)


@lru_cache(maxsize=1024)
def device_bias(device: int) -> NDArray[np.float32]:
    """(J, 3) offsets of a device's joints, of standard deviation 1; left and right mirror each other."""
    raw = numpy_generator(device, "device bias").standard_normal((len(BODY), 3)).astype(np.float32)
    offsets = 0.5**0.5 * (raw + raw[list(BODY.mirror)] * np.array([-1.0, 1.0, 1.0], np.float32))
    offsets.setflags(write=False)
    return offsets


def skeletons(performance: Performance, layout: str | Layout, sensor: Sensor, seed: int) -> NDArray[np.float32]:
    """What a sensor records of performances.

    Args:
        performance: N performances of T frames.
        layout: the recording's joints (V of them), by name or as an object.
        sensor: the device.
        seed: seed of the recording's noise and camera positions.

    Returns:
        (N, 1, T, V, 3) metres in camera axes: x to the camera's left, y up, z away from the camera.
    """
    shape = layout_named(layout) if isinstance(layout, str) else layout
    joints = list(shape.map_onto(BODY))
    count, frames = performance.positions.shape[:2]
    out = np.empty((count, 1, frames, len(joints), 3), np.float32)
    bias = sensor.bias * device_bias(sensor.device)[joints]
    for first in range(0, count, _BATCH):
        part = performance[first : first + _BATCH]
        out[first : first + _BATCH, 0] = _record(part, joints, bias, sensor, seed)
    return out


def _record(
    performance: Performance, joints: list[int], bias: NDArray[np.float32], sensor: Sensor, seed: int
) -> NDArray[np.float32]:
    clean = performance.positions[:, :, joints]
    n, t, v, _ = clean.shape
    camera, knots = np.empty((n, 3)), np.empty((n, _KNOTS, v * 3), np.float32)
    noise, chance = np.empty((n, t, v, 3), np.float32), np.empty((n, t, v), np.float32)
    for i, key in enumerate(performance.keys):
        rng = numpy_generator(seed, "sensor", key)
        rng.random(out=camera[i])
        if sensor.drift:
            rng.standard_normal(dtype=np.float32, out=knots[i])
        if sensor.white:
            rng.standard_normal(dtype=np.float32, out=noise[i])
        if sensor.dropout:
            rng.random(dtype=np.float32, out=chance[i])
    ranges = np.array([sensor.yaw, sensor.pitch, sensor.distance])
    yaw, pitch, distance = (ranges[:, 0] + camera * (ranges[:, 1] - ranges[:, 0])).T
    seen = view(yaw, pitch, distance, sensor.height).of(clean).astype(np.float32, copy=False)
    depth = seen[..., 2:]
    far = depth - depth.mean(axis=(1, 2), keepdims=True)
    if sensor.bias:
        seen = seen + bias
    if sensor.white:
        noise *= sensor.white * (depth / 3.0) ** 2
        seen = seen + noise
    if sensor.drift:
        at = np.linspace(0.0, _KNOTS - 1.0, t)
        between = np.maximum(0.0, 1.0 - np.abs(at[:, None] - np.arange(_KNOTS))).astype(np.float32)
        seen = seen + sensor.drift * (between @ knots).reshape(n, t, v, 3)
    if sensor.dropout:
        # A joint that the body hides is lost more often than one in front.
        lost = chance < sensor.dropout * (0.4 + 8.0 * np.clip(far[..., 0], 0.0, 0.4))
        seen = _lose(seen, lost, sensor.hold)
    return seen


def _lose(seen: NDArray[np.float32], lost: NDArray[np.bool_], hold: bool) -> NDArray[np.float32]:
    """Joints that were lost (N, T, V), for two more frames each, as NaN or at their last value."""
    lost[:, 1:] |= lost[:, :-1]
    lost[:, 2:] |= lost[:, :-2]
    lost[:, 0] = False
    if not hold:
        return np.where(lost[..., None], np.float32(np.nan), seen)
    n, t, v = lost.shape
    frame = np.maximum.accumulate(np.where(lost, 0, np.arange(t)[:, None]), axis=1)
    flat = (np.arange(n)[:, None, None] * t + frame) * v + np.arange(v)
    return seen.reshape(-1, 3)[flat]
