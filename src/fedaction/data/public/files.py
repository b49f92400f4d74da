"""What readers of small datasets share: files named by numbers, and rows of numbers in text files."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.dataset import Issue
from fedaction.data.files import check_size, to_float32
from fedaction.data.public.base import Listing, Sample, SourceFile, files_below

_MOST_BYTES = 256 * 2**20


def find_named(root: Path, pattern: re.Pattern[str], expected: str) -> dict[str, tuple[Path, re.Match[str]]]:
    """Files whose whole name fits a pattern, by its group `name`, in the folder or at any depth below it.

    Args:
        root: the dataset's folder.
        pattern: of a file name.
        expected: the files a root should hold, for the error where there are none.
    """
    found: dict[str, tuple[Path, re.Match[str]]] = {}
    for path in files_below(root):
        match = pattern.fullmatch(path.name)
        if not match:
            continue
        name = match["name"]
        if name in found:
            raise ValueError(f"{root} holds sample {name} twice: {found[name][0]} and {path}; keep one of them")
        found[name] = (path, match)
    if not found:
        raise ValueError(f"{root} holds none of the expected files: {expected}")
    return found


def list_numbered(
    root: Path,
    pattern: re.Pattern[str],
    *,
    classes: Sequence[str],
    train: Collection[int],
    test: Collection[int],
    expected: str,
    unusable: Collection[str] = (),
) -> Listing:
    """Lists files that are named by the numbers of an action and a person, one sample each, in numerical order.

    Args:
        root: the dataset's folder.
        pattern: of a file name, with the groups `name` (what the sample is called), `action` and `subject`.
        classes: action names; action 1 is the first.
        train: people trained on in the cross-subject protocol.
        test: people tested on in it.
        expected: the files a root should hold, for the error where there are none.
        unusable: names that the dataset's authors say cannot be used.
    """
    found = find_named(root, pattern, expected)
    sources: list[SourceFile] = []
    issues: list[Issue] = []
    for name in sorted(found, key=lambda name: [int(number) for number in re.findall(r"\d+", name)]):
        match = found[name][1]
        action, person = int(match["action"]), int(match["subject"])
        fault = ""
        if not 1 <= action <= len(classes):
            fault = f"action {action} is not one of the dataset's {len(classes)}"
        elif person not in train and person not in test:
            fault = f"person {person} is not one of the dataset's {len(train) + len(test)}"
        elif name in unusable:
            fault = "listed as unusable by the dataset's authors"
        if fault:
            issues.append(Issue(kind="unreadable", where=name, detail=fault))
            continue
        split = "train" if person in train else "test"
        sample = Sample(name, classes[action - 1], f"s{person:02d}", {"cross_subject": split})
        sources.append(SourceFile(found[name][0], (sample,)))
    return Listing(tuple(sources), tuple(classes), tuple(issues))


def read_joints(path: Path, joints: int, columns: int) -> npt.NDArray[np.float32]:
    """A text file with one joint per line, frame after frame, as (1, T, joints, 3).

    Args:
        path: numbers separated by blanks.
        joints: lines per frame.
        columns: numbers per line; the first three are x, y, z.
    """
    rows = read_table(path, columns)
    if len(rows) % joints:
        raise ValueError(f"{path} has {len(rows)} rows; expected {joints} rows to a frame")
    return rows[:, :3].reshape(1, -1, joints, 3)


def read_table(path: Path, columns: int, most: int = _MOST_BYTES) -> npt.NDArray[np.float32]:
    """A text file of numbers separated by blanks, (rows, columns); more than `most` bytes are refused."""
    check_size(path, most)
    if not path.read_bytes().strip():
        raise ValueError(f"{path} is empty")
    try:
        rows = np.loadtxt(path, dtype=np.float64, comments=None, ndmin=2, encoding="utf-8")
    except (ValueError, OSError) as error:  # UnicodeDecodeError is a ValueError
        raise ValueError(f"{path} is not a table of rows of {columns} numbers: {error}") from None
    if rows.shape[1] != columns:
        raise ValueError(f"{path} has rows of {rows.shape[1]} numbers; expected rows of {columns}")
    return to_float32(rows)
