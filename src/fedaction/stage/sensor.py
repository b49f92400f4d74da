"""Skeletons as a sensor sees them: from where its camera stands, with noise, drift, lost joints and its own bias."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedaction.data.layout import Layout
from fedaction.data.layout import layout as layout_named
from fedaction.federation.seeds import numpy_generator
from fedaction.stage.body import BODY, Floats
from fedaction.stage.performance import Performance

_KNOTS = 5  # points in time between which drift is interpolated
_BATCH = 64

# White noise is read from a tape, each recording at its own place: drawing it anew would take most of the time.
_TAPE = 1 << 21


@lru_cache(maxsize=1)
def _normals() -> NDArray[np.float32]:
    return numpy_generator(0, "noise tape", "normal").standard_normal(_TAPE, np.float32)


@lru_cache(maxsize=1)
def _uniforms() -> NDArray[np.float32]:
    return numpy_generator(0, "noise tape", "uniform").random(_TAPE, np.float32)


@dataclass(frozen=True)
class Sensor:
    """A depth camera, pose estimator or motion-capture system."""

    # (least, most) radians that the camera stands to the side of where the performers face
    yaw: tuple[float, float] = (-1.0, 1.0)
    pitch: tuple[float, float] = (0.0, 0.25)  # (least, most) radians that it looks down
    distance: tuple[float, float] = (2.5, 4.0)  # (least, most) metres to the middle of the floor
    height: float = 1.2  # metres above the floor
    white: float = 0.02  # metres of independent noise at 3 m, grows with the square of depth
    drift: float = 0.035  # metres of slow error
    dropout: float = 0.04  # share of joints lost at any time; those far from the camera are lost more often
    hold: bool = True  # whether a lost joint keeps its last value; otherwise it is NaN
    # metres by which the device puts joints elsewhere than another would: a fixed offset per joint, along the
    # camera's axes
    bias: float = 0.0
    device: int = 0  # which device's bias, when `bias` is not zero


@dataclass(frozen=True)
class View:
    """Where cameras stand. Camera axes: x to the camera's left, y up, z away from it."""

    # (N, 3, 3) rotations from the room's axes to the camera's: camera = turn @ room + shift
    turn: Floats
    shift: Floats  # (N, 3) metres

    def of(self, positions: Floats) -> Floats:
        """Room metres to camera metres, (..., 3, N, T)."""
        r = np.moveaxis(self.turn, 0, 2).astype(positions.dtype)[..., None]  # 3, 3, N, 1
        shift = self.shift.T.astype(positions.dtype)[..., None]
        x, y, z = (positions[..., k, :, :] for k in range(3))
        out = np.empty_like(positions)
        for k in range(3):
            out[..., k, :, :] = r[k, 0] * x + r[k, 1] * y + r[k, 2] * z + shift[k]
        return out


def view(yaw: Floats, pitch: Floats, distance: Floats, height: float | Floats) -> View:
    """Cameras that stand `yaw` to the side of the performers' front and look down by `pitch`; angles (N,)."""
    cy, sy = np.cos(np.pi + yaw), np.sin(np.pi + yaw)
    cp, sp = np.cos(pitch), np.sin(pitch)
    zero = np.zeros_like(yaw)
    # Turn about the vertical so that performers face the camera, then tilt about the camera's x axis.
    turn = np.stack([cy, zero, sy, sp * sy, cp, -sp * cy, -cp * sy, sp, cp * cy], axis=1).reshape(-1, 3, 3)
    down = zero - height
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
    """What a sensor records of N performances of T frames, with the V joints of a layout.

    Gives (N, 1, T, V, 3) metres in camera axes: x to the camera's left, y up, z away from the camera. The seed is
    that of noise and camera positions.
    """
    shape = layout_named(layout) if isinstance(layout, str) else layout
    joints = list(shape.map_onto(BODY))
    count, frames = performance.positions.shape[:2]
    out = np.empty((count, 1, frames, len(joints), 3), np.float32)
    bias = sensor.bias * device_bias(sensor.device)[joints]
    for first in range(0, count, _BATCH):
        part = performance[first : first + _BATCH]
        _record(out[first : first + _BATCH, 0], part, joints, bias, sensor, seed)
    return out


def _record(
    seen: NDArray[np.float32],
    performance: Performance,
    joints: list[int],
    bias: NDArray[np.float32],
    sensor: Sensor,
    seed: int,
) -> None:
    """Fills `seen` (N, T, V, 3)."""
    n, t = performance.positions.shape[:2]
    v = len(joints)
    camera, knots = np.empty((n, 3)), np.empty((n, _KNOTS, v * 3), np.float32)
    noise, chance = np.empty((n, t, v, 3), np.float32), np.empty((n, t, v), np.float32)
    for i, key in enumerate(performance.keys):
        rng = numpy_generator(seed, "sensor", key)
        camera[i] = rng.random(3)
        rng.standard_normal(dtype=np.float32, out=knots[i])
        begin = rng.integers(0, _TAPE - t * v * 3, 2)
        noise[i] = _normals()[begin[0] : begin[0] + t * v * 3].reshape(t, v, 3)
        chance[i] = _uniforms()[begin[1] : begin[1] + t * v].reshape(t, v)
    ranges = np.array([sensor.yaw, sensor.pitch, sensor.distance])
    yaw, pitch, distance = (ranges[:, 0] + camera * (ranges[:, 1] - ranges[:, 0])).T
    # Joints first while the camera turns them, which is how a performance lies in memory.
    track = np.moveaxis(performance.positions, (2, 3), (0, 1))[joints]
    track = view(yaw, pitch, distance, sensor.height).of(track)
    seen[:] = np.moveaxis(track, (0, 1), (2, 3))
    depth = seen[..., 2].copy()
    seen += bias
    if sensor.white:
        noise *= (sensor.white / 9.0 * depth * depth)[..., None]
        seen += noise
    if sensor.drift:
        at = np.linspace(0.0, _KNOTS - 1.0, t)
        between = np.maximum(0.0, 1.0 - np.abs(at[:, None] - np.arange(_KNOTS))).astype(np.float32)
        seen += (np.float32(sensor.drift) * between @ knots).reshape(n, t, v, 3)
    if sensor.dropout:
        # A joint that the body hides is lost more often than one in front.
        hidden = np.clip(depth - depth.mean(axis=(1, 2), keepdims=True), 0.0, 0.4)
        _lose(seen, chance < sensor.dropout * (0.4 + 8.0 * hidden), sensor.hold)


def _lose(seen: NDArray[np.float32], lost: NDArray[np.bool_], hold: bool) -> None:
    """Loses joints (N, T, V), for two more frames each: they become NaN or keep their last value, in place."""
    lost[:, 2:] |= lost[:, 1:-1] | lost[:, :-2]
    lost[:, 0] = False
    if not hold:
        seen[lost] = np.nan
        return
    frame = np.arange(seen.shape[1], dtype=np.int16)[:, None]
    last = np.maximum.accumulate(np.where(lost, np.int16(0), frame), axis=1)
    n, t, v = np.nonzero(lost)
    seen[n, t, v] = seen[n, last[n, t, v], v]
