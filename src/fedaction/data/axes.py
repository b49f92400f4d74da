"""What a skeleton's numbers are: metres, millimetres or pixels, and which way is up.

Both are read off the body: a person is between one and two metres tall, and mostly has the head above the feet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from fedaction.data.layout import Layout

Up = Literal["y", "-y", "z", "-z", "x", "-x"]
UPS: tuple[Up, ...] = get_args(Up)

_TOPS = ("head", "nose", "skull_base", "neck", "spine_shoulder")
_BOTTOMS = (("foot", 1.0), ("ankle", 1.05), ("toes", 1.0), ("knee", 1.5), ("hip", 2.4))
_CENTRES = ("spine_base", 2.4)  # a joint without sides, where a layout has no legs
_FRAMES = 20  # of a recording that are looked at
_SURE = 0.7  # of the mean direction from feet to head, as a share of its length if it were the same everywhere
_UNITS = ((0.8, 2.6, 1.0, "metres"), (80.0, 260.0, 0.01, "centimetres"), (800.0, 2600.0, 0.001, "millimetres"))
_HEIGHT = 1.7  # metres that a body in pixels is brought to


@dataclass(frozen=True)
class BodyGuess:
    """What recordings seem to be measured in, and along which axes."""

    height: float | None  # of a standing body, in the recordings' own unit; None: not to be told
    up: Up | None  # the axis that points from feet to head; None: not to be told
    flat: bool  # whether they have two coordinates

    @property
    def scale(self) -> float:
        """The factor to metres; 1 where it is not to be told."""
        if self.height is None:
            return 1.0
        if self.flat and self.height > 20:
            return _HEIGHT / self.height
        return next((factor for low, high, factor, _ in _UNITS if low <= self.height <= high), 1.0)

    @property
    def unit(self) -> str:
        """What they are measured in, in words; "" where it is not to be told."""
        if self.height is None:
            return ""
        if self.flat and self.height > 20:
            return "pixels"
        return next((words for low, high, _, words in _UNITS if low <= self.height <= high), "")

    def __str__(self) -> str:
        tall = "how tall a body is cannot be told" if self.height is None else f"a body is {self.height:,.4g} tall"
        unit = f": {self.unit}" if self.unit else ", which is no usual unit: taken for metres as it is"
        up = "which axis is up cannot be told" if self.up is None else f"{self.up} is up"
        return f"{tall}{unit if self.height is not None else ''}; {up}"


def guess_body(sequences: Sequence[npt.NDArray[np.float32]], layout: Layout) -> BodyGuess:
    """Looks at recordings (M, T, V, C) of a layout."""
    flat = bool(sequences) and sequences[0].shape[3] == 2
    top = next((layout.index(name) for name in _TOPS if name in layout.joints), None)
    bottom, factor = _find_bottom(layout)
    if top is None or not bottom or not sequences:
        return BodyGuess(None, None, flat)
    lines: list[npt.NDArray[np.float64]] = []
    for sequence in sequences:
        if sequence.shape[3] != sequences[0].shape[3]:
            continue  # a store of them is refused anyhow
        body = sequence[0].astype(np.float64)
        body = body[(body != 0).any(axis=(1, 2))]
        body = body[:: max(1, len(body) // _FRAMES)]
        if len(body):
            lines.append(body[:, top] - body[:, bottom].mean(axis=1))  # frames, C
    if not lines:
        return BodyGuess(None, None, flat)
    line = np.concatenate(lines)
    length = np.linalg.norm(line, axis=1)
    moved = length > 0
    if not moved.any():
        return BodyGuess(None, None, flat)
    # The upper quartile: people sit and bend, and are then less tall than they are
    height = float(np.percentile(length[moved], 75)) * factor
    mean = (line[moved] / length[moved, None]).mean(axis=0)
    axis = int(np.abs(mean).argmax())
    names: list[Up] = ["x", "y", "z"]
    opposite: dict[Up, Up] = {"x": "-x", "y": "-y", "z": "-z"}
    if abs(mean[axis]) < _SURE:
        return BodyGuess(height if float(np.linalg.norm(mean)) >= _SURE else None, None, flat)
    return BodyGuess(height, names[axis] if mean[axis] > 0 else opposite[names[axis]], flat)


def turn_up(sequence: npt.NDArray[np.float32], up: Up) -> npt.NDArray[np.float32]:
    """A recording (M, T, V, C) turned so that y points where `up` did; a body does not become its mirror image.

    Two coordinates are those of a picture: there "-y" is turned over, since a picture's rows count downwards.
    """
    if up == "y":
        return sequence
    if sequence.shape[3] == 2:
        if up != "-y":
            raise ValueError(f"up = {up!r}: recordings with two coordinates have y or -y up")
        return sequence * np.array([1, -1], dtype=np.float32)
    x, y, z = (sequence[..., i] for i in range(3))
    turned = {
        "-y": (x, -y, -z),
        "z": (x, z, -y),
        "-z": (x, -z, y),
        "x": (-y, x, z),
        "-x": (y, -x, z),
    }[up]
    return np.stack(turned, axis=-1)


def _find_bottom(layout: Layout) -> tuple[list[int], float]:
    """The lowest joints of a layout, and what the length from there to the head is times to be a body's height."""
    for name, factor in _BOTTOMS:
        both = [layout.index(side + name) for side in ("left_", "right_") if side + name in layout.joints]
        if both:
            return both, factor
    name, factor = _CENTRES
    return ([layout.index(name)], factor) if name in layout.joints else ([], 1.0)
