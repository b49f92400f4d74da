"""Recordings of a phone, as people have them: made up, with something to learn in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedaction.federation.seeds import numpy_generator

ACTIVITIES = {"walk": 1.7, "run": 2.9, "stand": 0.0}


def readings(activity: str, seconds: float, *key: object, rate: float = 50.0, gravity: float = 9.81) -> np.ndarray:
    """(T, 3) acceleration of an activity: gravity along z, and a swing with the activity's frequency."""
    random = numpy_generator(0, "phone", activity, *map(str, key))
    t = np.arange(round(seconds * rate)) / rate
    steps = ACTIVITIES[activity] * random.uniform(0.95, 1.05)
    swing = gravity * 0.4 * np.sin(2 * np.pi * steps * t + random.uniform(0, 6)) * (steps > 0)
    noise = 0.002 * gravity * random.normal(size=(len(t), 3))
    return noise + np.stack([swing, 0.5 * swing, gravity + 0.3 * swing], axis=1)


def phone_csv(
    path: Path,
    spans: Sequence[tuple[str, float]],
    *,
    rate: float = 50.0,
    start: float = 1.7e12,
    unit: float = 1e3,
    person: str = "",
    gravity: float = 9.81,
) -> Path:
    """A CSV with a header: timestamp, accelerations, label and perhaps subject; spans are activities with seconds."""
    head = "timestamp,acc_x,acc_y,acc_z,label" + (",subject" if person else "")
    lines, count = [head], 0
    for number, (activity, seconds) in enumerate(spans):
        for row in readings(activity, seconds, path.name, number, rate=rate, gravity=gravity):
            cells = [f"{start + count / rate * unit:.6f}", *(f"{value:.5f}" for value in row), activity]
            lines.append(",".join([*cells, person] if person else cells))
            count += 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path
