"""One skeleton recording from one file: arrays, tables and JSON, joints in a layout's order or by their names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fedaction.data.files import check_size, open_npy
from fedaction.data.layout import Layout

SUFFIXES = (".npy", ".csv", ".txt", ".json")
_NUMBER = re.compile(r"[-+]?\.?\d|[-+]?(nan|inf)$|$", re.IGNORECASE)  # an empty cell is a missing number
_COLUMN = re.compile(r"(?P<joint>.*?)[ _.:-]*(?P<axis>[xyzXYZ])")
_AXES = "xyz"
_MOST_BYTES = 512 * 2**20
_LISTS = ("frames", "keypoints", "skeletons", "poses")  # what may hold the frames of a JSON file
_POINTS = ("joints", "keypoints", "pose", "points")  # what may hold the joints of a frame


def read_pose(path: Path, coordinates: int, layout: Layout | None) -> npt.NDArray[Any]:
    """One recording as (M, T, V, C); a ValueError says why it cannot be one.

    Args:
        path: `.npy` (T, V, C) or (M, T, V, C); a text table with a frame per row, or a joint per row; or JSON.
        coordinates: numbers per joint, where a file only has numbers in a row.
        layout: whose joints names are matched to; None: names are not read.
    """
    suffix = path.suffix.lower()
    if suffix == ".npy":
        array = open_npy(path)
        array = array[None] if array.ndim == 3 else array
        if array.ndim != 4 or array.dtype.kind not in "fiu" or array.shape[3] not in (2, 3) or len(array) < 1:
            raise ValueError(f"{array.dtype} {array.shape} is not (T, V, C) or (M, T, V, C) with C 2 or 3")
        return array
    check_size(path, _MOST_BYTES)
    return _read_json(path, coordinates, layout) if suffix == ".json" else _read_text(path, coordinates, layout)


def plain_name(joint: str) -> str:
    """A joint's name as layouts write it: "LeftWrist", "left wrist" and "wrist_l" are all left_wrist."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", joint.strip())
    words = re.sub(r"[ .:-]+", "_", words).strip("_").lower()
    parts = words.split("_")
    for short, side in (("l", "left"), ("r", "right")):
        if len(parts) > 1 and parts[0] == short:
            return "_".join([side, *parts[1:]])
        if len(parts) > 1 and parts[-1] in (short, side):
            return "_".join([side, *parts[:-1]])
    return words


def _read_text(path: Path, coordinates: int, layout: Layout | None) -> npt.NDArray[Any]:
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    rows = [re.split(r"\s*[,;]\s*|\s+", line.strip()) for line in lines if line.strip()]
    names: list[str] = []
    if rows and not any(_NUMBER.match(cell) for cell in rows[0]):
        names, rows = rows[0], rows[1:]
    widths = sorted({len(row) for row in rows})
    if names and layout is not None and (places := _find_columns(names, layout)):
        if widths != [len(names)]:
            raise ValueError(f"rows have {widths} cells, where the first line names {len(names)} columns")
        count = len(places) // len(layout)
        cells = np.array([[row[place] or "nan" for place in places] for row in rows]).astype(np.float64)
        return cells.reshape(1, len(rows), len(layout), count)
    if layout is not None and _is_joint_per_row(widths, len(rows), coordinates, layout):
        points = np.array([row[:coordinates] for row in rows]).astype(np.float64)
        return points.reshape(1, -1, len(layout), coordinates)
    if len(widths) != 1 or widths[0] % coordinates:
        raise ValueError(f"rows have {widths} numbers; expected one multiple of {coordinates}")
    numbers = np.array([[cell or "nan" for cell in row] for row in rows]).astype(np.float64)
    return numbers.reshape(1, len(rows), -1, coordinates)


def _is_joint_per_row(widths: Sequence[int], rows: int, coordinates: int, layout: Layout) -> bool:
    """Whether a table has a joint in each row, frame after frame, perhaps with a confidence at its end."""
    fits = len(layout) > 1 and rows > 0 and rows % len(layout) == 0
    return fits and list(widths) in ([coordinates], [coordinates + 1])


def _find_columns(names: Sequence[str], layout: Layout) -> list[int]:
    """The columns of a layout's joints, x y z of one after the other; none where the names are of no joint.

    Columns of anything else (a time, a confidence) are left aside.
    """
    place: dict[tuple[str, str], int] = {}
    for column, name in enumerate(names):
        match = _COLUMN.fullmatch(name.strip('"'))
        if match and plain_name(match["joint"]) in layout.joints:
            place[plain_name(match["joint"]), match["axis"].lower()] = column
    if not place:
        return []
    axes = [axis for axis in _AXES if any(own == axis for _, own in place)]
    missing = [f"{joint}_{axis}" for joint in layout.joints for axis in axes if (joint, axis) not in place]
    if missing or len(axes) < 2:
        lacking = ", ".join(missing[:5]) or "a second axis"
        raise ValueError(f"its columns are named after joints, but lack {lacking} of the layout {layout.name!r}")
    return [place[joint, axis] for joint in layout.joints for axis in axes]


def _read_json(path: Path, coordinates: int, layout: Layout | None) -> npt.NDArray[Any]:
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not a JSON file: {error}") from None
    if isinstance(found, dict):
        held = cast("dict[str, Any]", found)
        key = next((key for key in _LISTS if isinstance(held.get(key), list)), None)
        if key is None:
            raise ValueError(f"its object has none of the lists {', '.join(_LISTS)}")
        found = held[key]
    if not isinstance(found, list) or not found:
        raise ValueError("it has no list of frames")
    frames = [_frame(frame, layout) for frame in cast("list[Any]", found)]
    try:
        array: npt.NDArray[Any] = np.array(_without_null(frames), dtype=np.float64)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise ValueError("its frames differ in their number of joints or coordinates, or hold no numbers") from None
    if array.ndim == 2 and array.shape[1] % coordinates == 0:  # x y z of all joints in one row
        array = array.reshape(len(array), -1, coordinates)
    if array.ndim == 3:
        array = array[None]
    elif array.ndim == 4:  # bodies within frames
        array = np.moveaxis(array, 1, 0)
    if array.ndim != 4 or array.shape[3] not in (2, 3) or not array.size:
        raise ValueError(f"{array.shape} is not a list of frames of joints of 2 or 3 numbers")
    absent = np.flatnonzero(np.isnan(array).all(axis=(0, 1, 3)))
    if layout is not None and len(absent) and array.shape[2] == len(layout) and not np.isnan(array).all():
        names = ", ".join(layout.joints[i] for i in absent[:5])
        raise ValueError(f"it never has {names} of the layout {layout.name!r}")
    return array


def _frame(frame: Any, layout: Layout | None) -> Any:
    """A frame's joints as a list, in the layout's order where they have names."""
    if not isinstance(frame, dict):
        return frame
    named = cast("Mapping[str, Any]", frame)
    for key in _POINTS:
        if isinstance(named.get(key), list | dict):
            return _frame(named[key], layout)
    if layout is None:
        raise ValueError("its joints have names: give the layout that they belong to")
    own = {plain_name(name): value for name, value in named.items()}
    held = {joint: own.get(joint) for joint in layout.joints}
    sizes = {len(cast("list[Any]", value)) for value in held.values() if isinstance(value, list)}
    if len(sizes) != 1:
        missing = [joint for joint, value in held.items() if value is None]
        raise ValueError(
            f"its frames name {', '.join(list(own)[:5])}; of the layout {layout.name!r} they lack "
            f"{', '.join(missing[:5]) or 'nothing, but joints differ in their numbers'}"
        )
    return [value if isinstance(value, list) else [None] * next(iter(sizes)) for value in held.values()]


def _without_null(value: Any) -> Any:
    """Lists with NaN for null."""
    if isinstance(value, list):
        return [_without_null(item) for item in cast("list[Any]", value)]
    if value is None:
        return np.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no number")
    return value
