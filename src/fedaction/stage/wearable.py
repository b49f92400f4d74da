"""Inertial sensors worn by performers: accelerometer and gyroscope in the sensor's own, moving axes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedaction.federation.seeds import numpy_generator
from fedaction.stage.body import BODY, Floats
from fedaction.stage.performance import Performance

GRAVITY = 9.81
_RANGE = np.array([16.0 * GRAVITY] * 3 + [35.0] * 3)  # where such sensors saturate: 16 g and 2,000 degrees a second

# Where a sensor can be worn: the joint it sits on, the bone along its x axis, and a joint aside that fixes its roll.
MOUNTS: dict[str, tuple[str, tuple[str, str], str]] = {
    "spine_base": ("spine_base", ("spine_base", "spine_low"), "left_hip"),
    "spine_shoulder": ("spine_shoulder", ("spine_mid", "spine_shoulder"), "left_shoulder"),
    "head": ("head", ("skull_base", "head"), "left_ear"),
}
for _side in ("left", "right"):
    MOUNTS[f"{_side}_wrist"] = (f"{_side}_wrist", (f"{_side}_elbow", f"{_side}_wrist"), f"{_side}_thumb")
    MOUNTS[f"{_side}_ankle"] = (f"{_side}_ankle", (f"{_side}_knee", f"{_side}_ankle"), f"{_side}_foot")
    MOUNTS[f"{_side}_hip"] = (f"{_side}_hip", (f"{_side}_hip", f"{_side}_knee"), "spine_base")


def inertial(
    performance: Performance, where: str = "right_wrist", rate_hz: float = 50.0, seed: int = 0, *, noise: float = 1.0
) -> NDArray[np.float32]:
    """What an inertial sensor worn by N performers (`where` is a key of `MOUNTS`) measures, `rate_hz` times a second.

    Gives (N, T', 6), T' = seconds * rate_hz: acceleration without gravity's fall (m/s^2, so a sensor at rest
    reads +9.81 along its upward axis), then angular velocity (rad/s), both in the sensor's axes. `noise` is 1 for
    a phone-grade sensor, 0 for a perfect one.
    """
    if where not in MOUNTS:
        raise KeyError(f"no sensor can be worn at {where!r}; there are {', '.join(MOUNTS)}")
    samples = round(performance.seconds * rate_hz)
    if samples < 5:
        raise ValueError(f"a rate of {rate_hz} Hz gives {samples} samples in {performance.seconds} s; needs 5")
    origin, bone, aside = MOUNTS[where]
    track = performance.at(samples, np.float64)
    spot, start, end, third = (track[:, :, BODY.index(joint)] for joint in (origin, *bone, aside))
    step = performance.seconds / samples

    x = _unit(end - start)
    y = third - end
    y = _unit(y - (y * x).sum(-1, keepdims=True) * x)
    frame = np.stack([x, y, np.cross(x, y)], axis=3)  # N, T', 3 room axes, 3 sensor axes

    # Soft tissue and the sensor's own bandwidth round off impacts.
    velocity = np.gradient(_smooth(spot), step, axis=1)
    acceleration = np.gradient(velocity, step, axis=1)
    acceleration[..., 1] += GRAVITY
    measured = np.einsum("ntrs,ntr->nts", frame, acceleration)

    # The turn from one sample to the next, seen from the sensor: its antisymmetric part is the angle's sine.
    turn = np.einsum("ntrs,ntrq->ntsq", frame[:, :-1], frame[:, 1:])
    sine = 0.5 * np.stack(
        [turn[..., 2, 1] - turn[..., 1, 2], turn[..., 0, 2] - turn[..., 2, 0], turn[..., 1, 0] - turn[..., 0, 1]], -1
    )
    rate = _smooth(np.concatenate([sine, sine[:, -1:]], axis=1)) / step

    out = np.concatenate([measured, rate], axis=2)
    if noise:
        white = np.array([0.15] * 3 + [0.03] * 3)
        bias = np.array([0.10] * 3 + [0.02] * 3)
        for i, key in enumerate(performance.keys):
            rng = numpy_generator(seed, "inertial", where, key)
            out[i] += noise * (bias * rng.standard_normal(6) + white * rng.standard_normal((samples, 6)))
    return np.clip(out, -_RANGE, _RANGE).astype(np.float32)


def _unit(a: Floats) -> Floats:
    return a / np.sqrt((a * a).sum(-1, keepdims=True) + 1e-12)


def _smooth(track: Floats) -> Floats:
    """A short binomial filter along time, (N, T, 3)."""
    padded = np.concatenate([track[:, :1], track[:, :1], track, track[:, -1:], track[:, -1:]], axis=1)
    size = track.shape[1]
    weights = (1.0, 4.0, 6.0, 4.0, 1.0)
    total = np.zeros_like(track)
    for i, weight in enumerate(weights):
        total += weight / 16.0 * padded[:, i : i + size]
    return total
