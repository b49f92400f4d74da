"""One skeleton recording from one file: arrays, tables and JSON, joints in a layout's order or by their names."""

from __future__ import annotations

import re
from array import array as numbers
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fedaction.data.files import open_npy
from fedaction.data.layout import Layout
from fedaction.data.text import parse_number, read_lines
from fedaction.federation.outside import check_size, parse_json, refuse_damage

SUFFIXES = (".npy", ".csv", ".txt", ".json")
_NUMBER = re.compile(r"[-+]?\.?\d|[-+]?(nan|inf)$|$", re.IGNORECASE)  # an empty cell is a missing number
_COLUMN = re.compile(r"(?P<joint>.*?)[ _.:-]*(?P<axis>[xyzXYZ])")
_AXES = "xyz"
_MOST_TEXT, _MOST_JSON = 64 * 2**20, 8 * 2**20  # bytes of a file; its numbers take 8 and 75 times as much memory
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
    with refuse_damage(path, "a recording"):
        if suffix == ".npy":
            return _read_array(path)
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


def _read_array(path: Path) -> npt.NDArray[Any]:
    array = open_npy(path)
    array = array[None] if array.ndim == 3 else array
    if array.ndim != 4 or array.dtype.kind not in "fiu" or array.shape[3] not in (2, 3) or len(array) < 1:
        raise ValueError(f"{array.dtype} {array.shape} is not (T, V, C) or (M, T, V, C) with C 2 or 3")
    return array


def _read_text(path: Path, coordinates: int, layout: Layout | None) -> npt.NDArray[Any]:
    names: list[str] = []
    places: list[int] = []  # of named columns
    values, rows, widths = numbers("d"), 0, dict[int, None]()
    for number, line in enumerate(read_lines(path, _MOST_TEXT)):
        row = re.split(r"\s*[,;]\s*|\s+", line.strip())
        if not number and not any(_NUMBER.match(cell) for cell in row):
            names, places = row, _find_columns(row, layout) if layout is not None else []
            continue
        rows, widths[len(row)] = rows + 1, None
        if places and len(row) != len(names):
            raise ValueError(f"rows have {len(row)} cells, where the first line names {len(names)} columns")
        if len(widths) > 2:
            raise ValueError(f"rows have {sorted(widths)} numbers; expected one multiple of {coordinates}")
        # What stands behind the coordinates of one joint is a confidence, or a word.
        cells = row[:coordinates] if len(row) == coordinates + 1 else row
        values.extend(parse_number(cell or "nan") for cell in ([row[place] for place in places] or cells))
    if places and layout is not None:
        return np.array(values).reshape(1, rows, len(layout), len(places) // len(layout))
    if layout is not None and _is_joint_per_row(list(widths), rows, coordinates, layout):
        return np.array(values).reshape(1, -1, len(layout), coordinates)
    if len(widths) != 1 or next(iter(widths)) % coordinates:
        raise ValueError(f"rows have {sorted(widths)} numbers; expected one multiple of {coordinates}")
    return np.array(values).reshape(1, rows, -1, coordinates)


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
    check_size(path, _MOST_JSON)
    found: Any = parse_json(path.read_bytes(), path)
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
