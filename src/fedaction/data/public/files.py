"""What readers of small datasets share: files named by numbers, and rows of numbers in text files."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedaction.data.dataset import Issue
from fedaction.data.files import to_float32
from fedaction.data.layout import Layout
from fedaction.data.public.base import Listing, Sample, SourceFile, files_below
from fedaction.federation.outside import check_size, refuse_damage

_MOST_BYTES = 256 * 2**20


def find_named(root: Path, pattern: re.Pattern[str], expected: str) -> dict[str, tuple[Path, re.Match[str]]]:
    """Files whose whole name fits a pattern, by its group `name`, in the folder or at any depth below it.

    `expected` says which files a root should hold, for the error where there are none.
    """
    files: dict[str, tuple[Path, re.Match[str]]] = {}
    for path in files_below(root):
        match = pattern.fullmatch(path.name)
        if not match:
            continue
        name = match["name"]
        if name in files:
            raise ValueError(f"{root} holds sample {name} twice: {files[name][0]} and {path}; keep one of them")
        files[name] = (path, match)
    if not files:
        raise ValueError(f"{root} holds none of the expected files: {expected}")
    return files


def find_in_ranges(
    root: Path,
    pattern: re.Pattern[str],
    ranges: Mapping[str, tuple[int, int]],
    skip: Callable[[Mapping[str, int]], bool] = lambda _: False,
) -> tuple[list[tuple[str, Path, dict[str, int]]], list[Issue]]:
    """Files that are named by numbers: each one's name, path and numbers, in order of the numbers; and the issues.

    The pattern of a file name has the groups `name` and those of `ranges`, which are least and most of each
    number. A number out of its range, or a second file with the same numbers, is an issue; what `skip` says yes
    to is passed over.
    """
    files: dict[tuple[int, ...], tuple[str, Path, dict[str, int]]] = {}
    issues: list[Issue] = []
    for path in files_below(root):
        match = pattern.fullmatch(path.name)
        numbers = {what: int(match[what]) for what in ranges} if match else {}
        if not match or skip(numbers):
            continue
        name, key = match["name"], tuple(numbers.values())
        wrong = [what for what, (least, most) in ranges.items() if not least <= numbers[what] <= most]
        if wrong:
            least, most = ranges[wrong[0]]
            detail = f"{wrong[0]} {numbers[wrong[0]]} is not in {least} to {most}"
            issues.append(Issue(kind="label", where=name, detail=detail))
        elif key in files:
            detail = f"{path.relative_to(root)} is left out: {files[key][1].relative_to(root)} is used"
            issues.append(Issue(kind="duplicate", where=name, detail=detail))
        else:
            files[key] = (name, path, numbers)
    return [files[key] for key in sorted(files)], issues


@dataclass(frozen=True, kw_only=True)
class NumberedFiles:
    """A dataset of files that are named by the numbers of an action and a person, one sample each."""

    # See `Reader`, as `rate_hz`, `about` and `version`. What follows "expects" in `about` is what a message asks of a
    # folder without any such file.
    name: str
    rate_hz: float | None = None
    about: str
    # Of a file name, with the groups `name` (what the sample is called), `action` and `subject`
    pattern: re.Pattern[str] = field(repr=False)
    classes: tuple[str, ...] = field(repr=False)  # action names; action 1 is the first
    train: Collection[int]  # people trained on in the cross-subject protocol
    test: Collection[int]  # people tested on in it
    # Reads one file, see `Reader.read`; a function of a module, so that worker processes can be given it
    parse: Callable[[Path], npt.NDArray[Any]] = field(repr=False)
    unusable: tuple[str, ...] = field(default=(), repr=False)  # names that the dataset's authors say cannot be used
    version: int = 1
    folder: str = ""  # what the dataset's folder is called, where not by its name
    channels: tuple[str, ...] = ()  # of signals: what is measured, in the order of the columns

    def find(self, root: Path) -> Listing:
        """See `Reader.find`; in numerical order."""
        files = find_named(root, self.pattern, self.about.partition("expects ")[2])
        sources: list[SourceFile] = []
        issues: list[Issue] = []
        for name in sorted(files, key=lambda name: [int(number) for number in re.findall(r"\d+", name)]):
            match = files[name][1]
            action, person = int(match["action"]), int(match["subject"])
            fault = ""
            if not 1 <= action <= len(self.classes):
                fault = f"action {action} is not one of the dataset's {len(self.classes)}"
            elif person not in self.train and person not in self.test:
                fault = f"person {person} is not one of the dataset's {len(self.train) + len(self.test)}"
            elif name in self.unusable:
                fault = "listed as unusable by the dataset's authors"
            if fault:
                issues.append(Issue(kind="unreadable", where=name, detail=fault))
                continue
            split = "train" if person in self.train else "test"
            sample = Sample(name, self.classes[action - 1], f"s{person:02d}", {"cross_subject": split})
            sources.append(SourceFile(files[name][0], (sample,)))
        return Listing(tuple(sources), self.classes, tuple(issues))

    def read(self, path: Path) -> npt.NDArray[Any]:
        """See `Reader.read`."""
        return self.parse(path)


@dataclass(frozen=True, kw_only=True)
class NumberedSkeletons(NumberedFiles):
    """A `Reader` of such files."""

    layout: Layout
    protocols: tuple[str, ...] = ("cross_subject",)


def read_joints(path: Path, joints: int, columns: int) -> npt.NDArray[np.float32]:
    """A text file with one joint per line, frame after frame, as (1, T, joints, 3).

    Of the numbers in a line, separated by blanks, the first three are x, y, z.
    """
    rows = read_table(path, columns)
    if len(rows) % joints:
        raise ValueError(f"{path} has {len(rows)} rows; expected {joints} rows to a frame")
    return rows[:, :3].reshape(1, -1, joints, 3)


def read_table(path: Path, columns: int, most: int = _MOST_BYTES) -> npt.NDArray[np.float32]:
    """A text file of numbers separated by blanks, (rows, columns); more than `most` bytes are refused."""
    check_size(path, most)
    with refuse_damage(path, f"a table of rows of {columns} numbers"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns of an empty table, which is refused below
        rows = np.loadtxt(path, dtype=np.float64, comments=None, ndmin=2, encoding="utf-8")
    if not len(rows):
        raise ValueError(f"{path} is empty")
    if rows.shape[1] != columns:
        raise ValueError(f"{path} has rows of {rows.shape[1]} numbers; expected rows of {columns}")
    return to_float32(rows)
