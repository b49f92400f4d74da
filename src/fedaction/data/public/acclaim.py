"""Acclaim motion capture: a skeleton file (ASF) and a motion file of joint angles (AMC), to joint positions.

A bone's rotation is given in the bone's own axes, which stand at a fixed angle to the world's: with C the matrix of
that angle and M that of a frame's angles, the bone is turned by C M C' against its parent. A bone without degrees of
freedom moves with its parent. Angles are applied in the order in which they are listed: "XYZ" turns about x first.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.text import MOST_LINE, parse_number
from fedaction.federation.outside import MOST_SETTINGS, check_size, refuse_damage, shorten

Array = npt.NDArray[np.float64]
_MOST_BYTES, _MOST_BONES = 64 * 2**20, 1000
_METRES_PER_INCH = 0.0254  # lengths, times the file's own length unit, are inches


@dataclass(frozen=True)
class Bone:
    """One bone; the joint that it stands for is its far end."""

    name: str  # as in the file
    parent: int  # position of the parent in `Skeleton.bones`; -1: the root
    offset: Array  # (3,) from the near end to the far end at rest, metres
    axes: Array  # (3, 3) the bone's own axes (C above)
    turns: str  # axes that the motion file gives angles for, in order, e.g. "xz"; "" where it gives none.


@dataclass(frozen=True)
class Skeleton:
    """A body at rest."""

    bones: tuple[Bone, ...]  # parents before children
    root_order: tuple[str, ...]  # what the six numbers of the root are, e.g. ("tx", "ty", "tz", "rx", "ry", "rz").
    root_axes: Array  # (3, 3) the root's own axes
    root_place: Array  # (3,) where the root starts from, metres
    metre: float  # metres in one of the motion file's units

    @property
    def joints(self) -> tuple[str, ...]:
        """The root, then the far ends of the bones."""
        return ("root", *(bone.name for bone in self.bones))


def read_asf(path: Path) -> Skeleton:
    """Reads a skeleton file; what is wrong with it is a ValueError."""
    check_size(path, MOST_SETTINGS)
    with refuse_damage(path, "a skeleton (ASF) file"):
        return _skeleton(list(_lines(path)))


def read_amc(path: Path, skeleton: Skeleton) -> dict[str, Array]:
    """Reads a motion file: for the root and each bone that turns, (T, numbers) in the file's units and degrees."""
    check_size(path, _MOST_BYTES)
    with refuse_damage(path, "a motion (AMC) file"):
        return _motion(path, skeleton)


def _motion(path: Path, skeleton: Skeleton) -> dict[str, Array]:
    widths = {bone.name: len(bone.turns) for bone in skeleton.bones if bone.turns}
    widths["root"] = len(skeleton.root_order)
    columns = {name: array("d") for name in widths}  # of each, frame after frame
    frames, seen = 0, set[str]()  # in the last frame
    in_degrees = False
    for number, words in _lines(path):
        if words[0].startswith(":"):
            in_degrees = in_degrees or words[0].upper() == ":DEGREES"
        elif len(words) == 1 and words[0].isdigit():
            _check_frame(path, frames, widths, seen)
            frames, seen = frames + 1, set()
        elif not frames or len(words) - 1 != widths.get(words[0], -1) or words[0] in seen:
            what = "before the first frame" if not frames else "repeated, or not as the skeleton file has it"
            raise ValueError(
                f"{path}, line {number}: {shorten(words[0], 80)!r} with {len(words) - 1} numbers is {what}"
            )
        else:
            try:
                columns[words[0]].extend(parse_number(word) for word in words[1:])
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
            seen.add(words[0])
    if not in_degrees:
        raise ValueError(f"{path} does not say :DEGREES; motion in other units is not understood")
    if not frames:
        raise ValueError(f"{path} holds no frames")
    _check_frame(path, frames, widths, seen)
    return {name: np.array(columns[name]).reshape(frames, width) for name, width in widths.items()}


def _check_frame(path: Path, frame: int, widths: Mapping[str, int], seen: set[str]) -> None:
    """Refuses a frame, counted from 1, that ends before it has all bones."""
    if frame and len(seen) != len(widths):
        raise ValueError(f"{path}: frame {frame} lacks {', '.join(sorted(widths.keys() - seen))}")


def positions(skeleton: Skeleton, motion: dict[str, Array]) -> Array:
    """Forward kinematics: (T, 1 + bones, 3) in metres, joints as in `Skeleton.joints`."""
    given = dict(zip(skeleton.root_order, motion["root"].T, strict=True))
    place = np.stack([given[f"t{axis}"] for axis in "xyz"], axis=1) * skeleton.metre + skeleton.root_place
    turns = [key[1] for key in skeleton.root_order if key[0] == "r"]
    angles = np.stack([given[f"r{axis}"] for axis in turns], axis=1)
    root = skeleton.root_axes @ _rotation("".join(turns), angles) @ skeleton.root_axes.T
    places, turned = [place], [root]  # by joint: (T, 3) and (T, 3, 3)
    for bone in skeleton.bones:
        rotation = turned[bone.parent + 1]
        if bone.turns:
            rotation = rotation @ bone.axes @ _rotation(bone.turns, motion[bone.name]) @ bone.axes.T
        turned.append(rotation)
        places.append(places[bone.parent + 1] + rotation @ bone.offset)
    return np.stack(places, axis=1)


def _rotation(axes: str, degrees: Array) -> Array:
    """(..., 3, 3) turning about the first axis first. degrees: (..., len(axes))."""
    total = np.eye(3)
    for k, axis in enumerate(axes):
        angle = np.deg2rad(degrees[..., k])
        first, second = {"x": (1, 2), "y": (2, 0), "z": (0, 1)}[axis]
        one = np.zeros((*angle.shape, 3, 3))
        one[..., 3 - first - second, 3 - first - second] = 1
        one[..., first, first] = one[..., second, second] = np.cos(angle)
        one[..., second, first] = np.sin(angle)
        one[..., first, second] = -np.sin(angle)
        total = one @ total
    return total


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and words of the lines that hold something. Latin-1: old files name authors and folders in it."""
    with path.open(encoding="latin-1") as file:
        for number, line in enumerate(iter(lambda: file.readline(MOST_LINE), ""), start=1):
            words = line.split()
            if words and not words[0].startswith("#"):
                yield number, words


def _skeleton(lines: list[tuple[int, list[str]]]) -> Skeleton:
    """Sections start with a colon; bones stand between `begin` and `end`."""
    section, units, root = "", dict[str, str](), dict[str, list[str]]()
    bones: dict[str, dict[str, list[str]]] = {}
    parents: dict[str, str] = {}
    bone: dict[str, list[str]] = {}
    for number, words in lines:
        key = words[0].lower()
        if key.startswith(":"):
            section = key
        elif section == ":units":
            units[key] = words[1].lower()
        elif section == ":root":
            root[key] = words[1:]
        elif section == ":bonedata" and key == "begin":
            bone = {}
        elif section == ":bonedata" and key == "end":
            name = bone["name"][0]
            if name in bones or name == "root":
                raise ValueError(f"line {number}: a second bone is called {name!r}")
            bones[name] = bone
            if len(bones) > _MOST_BONES:
                raise ValueError(f"it has more than {_MOST_BONES} bones")
        elif section == ":bonedata":
            bone[key] = words[1:]
        elif section == ":hierarchy" and key not in ("begin", "end"):
            parents |= dict.fromkeys(words[1:], words[0])
    if units["angle"] != "deg":
        raise ValueError(f"angles are in {units['angle']!r}; only deg is understood")
    unit = float(units["length"])
    if not 0 < unit < np.inf:
        raise ValueError(f"a length unit of {unit:g} makes no sense")
    metre = _METRES_PER_INCH / unit
    order = tuple(word.lower() for word in root["order"])
    if sorted(order) != ["rx", "ry", "rz", "tx", "ty", "tz"]:
        raise ValueError(f"the root's order is {' '.join(order)}; expected TX TY TZ RX RY RZ in some order")
    made: dict[str, Bone] = {}
    left = dict(bones)
    while left:
        ready = [name for name in left if parents.get(name) == "root" or parents.get(name) in made]
        if not ready:
            raise ValueError(f"the hierarchy does not join these bones to the root: {shorten(', '.join(left), 200)}")
        for name in ready:
            parent = -1 if parents[name] == "root" else list(made).index(parents[name])
            made[name] = _bone(name, parent, left.pop(name), metre)
    turn = _rotation("".join(root["axis"]).lower(), _vector(root["orientation"]))
    return Skeleton(tuple(made.values()), order, turn, _vector(root["position"]) * metre, metre)


def _bone(name: str, parent: int, spec: dict[str, list[str]], metre: float) -> Bone:
    direction, length = _vector(spec["direction"]), float(spec["length"][0])
    if not (abs(np.linalg.norm(direction) - 1) < 1e-3 and 0 <= length < np.inf):
        raise ValueError(f"bone {name!r} needs a direction of length 1 and a length that is not negative")
    turns = [word.lower() for word in spec.get("dof", [])]
    if not set(turns) <= {"rx", "ry", "rz"}:
        raise ValueError(f"bone {name!r} has degrees of freedom {' '.join(turns)}; only rx, ry and rz are understood")
    axes = _rotation(spec["axis"][3].lower(), _vector(spec["axis"]))
    return Bone(name, parent, direction * length * metre, axes, "".join(word[1] for word in turns))


def _vector(words: list[str]) -> Array:
    values = np.array([float(word) for word in words[:3]])
    if values.shape != (3,) or not np.isfinite(values).all():
        raise ValueError(f"three numbers are expected, not {' '.join(words)!r}")
    return values
