"""What accelerations are measured in, from how large they are where nothing moves."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_ACCELERATION = re.compile(r"acc(?!ura)|^a[ _]?[xyz]$", re.IGNORECASE)
_AXIS = re.compile(r"(?<![a-z])[a-z]*[ _.(-]*([xyz])([ _.)([-].*)?$", re.IGNORECASE)
_STILL = 0.1  # share of the seconds that count as still: those that change least
_MOST_SECONDS = 20_000


class UnitGuess:
    """Collects seconds of acceleration while recordings are read, and says what they are measured in."""

    def __init__(self, channels: Sequence[str], named: bool) -> None:
        """`named`: whether the channels have names; of those without, the first three are taken for acceleration."""
        self.axes = _find_axes(channels, named)
        self._seconds: list[npt.NDArray[np.float64]] = []  # deviation and mean of the magnitude, in seconds (n, 2)
        self._count = 0

    def add(self, values: npt.NDArray[np.float32], rate_hz: float | None) -> None:
        """Looks at a recording (T, C)."""
        readings = max(round(rate_hz or 30.0), 2)
        whole = len(values) // readings
        if not self.axes or not whole or self._count >= _MOST_SECONDS:
            return
        magnitude = np.linalg.norm(values[: whole * readings, self.axes].astype(np.float64), axis=1)
        seconds = magnitude.reshape(whole, readings)[: _MOST_SECONDS - self._count]
        self._seconds.append(np.stack([seconds.std(1), seconds.mean(1)], axis=1))
        self._count += len(seconds)

    def __str__(self) -> str:
        if not self.axes:
            return "not judged: no three channels are named as accelerations (acc_x, acc_y, acc_z)"
        if not self._seconds:
            return "not judged: no recording has a second of acceleration"
        seconds = np.concatenate(self._seconds)
        still = seconds[np.argsort(seconds[:, 0], kind="stable")[: max(1, int(_STILL * len(seconds)))]]
        size = float(np.median(still[:, 1]))
        for low, high, words in (
            (8.8, 10.8, "m/s², with gravity"),
            (0.88, 1.12, "g, with gravity"),
            (880.0, 1120.0, "thousandths of g, with gravity"),
            (0.0, 0.3, "without gravity: it was removed"),
        ):
            if low <= size <= high:
                return f"acceleration taken for {words} (at rest its magnitude is {size:.3g})"
        return f"not known: at rest the magnitude of acceleration is {size:.3g}, neither 9.8 m/s² nor 1 g nor near 0"


def _find_axes(channels: Sequence[str], named: bool) -> list[int]:
    """The places of three accelerations: by name, or of channels without names the first three."""
    if not named:
        return [0, 1, 2] if len(channels) >= 3 else []
    fit = {i: match[1].lower() for i, name in enumerate(channels) if (match := _AXIS.search(name))}
    named_so = [
        i for i in fit if _ACCELERATION.search(channels[i]) or re.match(r"a[xyz]$", channels[i], re.IGNORECASE)
    ]
    if not named_so and len(channels) == 3:
        named_so = list(fit)  # x, y, z and nothing else
    first = named_so[:3]
    return first if [fit[i] for i in first] == ["x", "y", "z"] else []
