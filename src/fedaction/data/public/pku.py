"""PKU-MMD, phases 1 and 2 (Liu et al., 2017): long Kinect v2 recordings from three views, 30 Hz, cut into actions.

Users bring three kinds of files, in any folders below the root. The first two have the same name, that of the
sequence: `0004-L` in phase 1, `A01N01-L` in phase 2; L, M and R are the views.

- skeletons (`.txt` or `.skeleton`): a row for each frame, 150 numbers: x, y, z of 25 joints of one body, then of
  another, zero where it is absent. Axes are the camera's, in metres: y up, z away from the camera;
- labels (`.label`, or `.txt` in a folder with "label" in its name): rows `action, first frame, last frame,
  confidence`. Frames count from 1 and the last one belongs to the action; confidence is not used;
- the dataset's splits (`cross-subject.txt`, `cross_view_v2.txt` and the like): a heading, the sequences to train on,
  a heading, the sequences to test on.

Classes are the action numbers that occur, called `A01` and so on; or `A01 bow` where a text file `Actions.csv` or
`Actions.txt` with rows `1, bow` is there (the dataset has it as a spreadsheet). The files do not say who performs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.dataset import Issue, Kind
from fedaction.data.layout import KINECT_V2, Layout
from fedaction.data.public.base import Listing, Sample, SourceFile, files_below
from fedaction.data.public.files import read_table
from fedaction.federation.outside import MOST_JSON, check_size

_SPLIT_FILES = {
    "cross_subject": re.compile(r"cross[-_ ]?subject.*\.txt", re.IGNORECASE),
    "cross_view": re.compile(r"cross[-_ ]?view.*\.txt", re.IGNORECASE),
}
_ACTION_FILE = re.compile(r"actions?\.(csv|txt)", re.IGNORECASE)
_MOST_ACTION = 51
_MOST_BYTES = 2**30
_JOINTS, _BODIES = 25, 2


@dataclass
class _Files:
    """What was found in a folder: files by the name of their sequence."""

    skeletons: dict[str, Path]
    labels: dict[str, Path]
    splits: dict[str, dict[str, str]]
    actions: dict[int, str]
    inputs: list[Path]
    issues: list[Issue]

    def note(self, kind: Kind, where: str, detail: str) -> None:
        self.issues.append(Issue(kind=kind, where=where, detail=detail))


@dataclass(frozen=True)
class Pku:
    """See `fedaction.data.public.base.Reader`."""

    name: str
    sequence: str
    about: str
    version: int = 1
    layout: Layout = KINECT_V2
    rate_hz: float | None = 30.0
    protocols: tuple[str, ...] = ("cross_subject", "cross_view")

    def find(self, root: Path) -> Listing:
        """See `Reader.find`. A sequence that a split does not name is left out by it."""
        files = self._files(root)
        if not files.skeletons or not files.labels:
            lacking = "skeleton" if not files.skeletons else "label"
            raise ValueError(
                f"{root} holds no {lacking} file of {self.name}: expected {self.about.partition('expects ')[2]}"
            )
        for protocol in self.protocols:
            if protocol not in files.splits:
                files.note("split", protocol, "there is no such split file, so samples have no such split")
        for protocol, sides in files.splits.items():
            for sequence in sorted(sides.keys() - files.skeletons.keys()):
                files.note("split", sequence, f"{protocol} names a sequence that has no skeleton file")
        for sequence in sorted(files.labels.keys() - files.skeletons.keys()):
            files.note("label", sequence, "there are labels but no skeleton file")
        cut: dict[str, list[tuple[int, int, tuple[int, int]]]] = {}
        for sequence in sorted(files.skeletons):
            if sequence not in files.labels:
                files.note("label", sequence, "there is no label file")
            elif rows := list(_labels(files, sequence)):
                cut[sequence] = rows
        numbers = sorted({action for rows in cut.values() for _, action, _ in rows})
        names = {n: f"A{n:02d} {files.actions.get(n, '')}".rstrip() for n in numbers}
        sources = [
            SourceFile(
                files.skeletons[sequence],
                tuple(
                    Sample(f"{sequence}:{row}", names[action], "", _sides(files.splits, sequence), span)
                    for row, action, span in rows
                ),
            )
            for sequence, rows in cut.items()
        ]
        return Listing(tuple(sources), tuple(names.values()), tuple(files.issues), tuple(files.inputs))

    def read(self, path: Path) -> npt.NDArray[np.float32]:
        """See `Reader.read`. M is 2."""
        rows = read_table(path, _BODIES * _JOINTS * 3, _MOST_BYTES).reshape(-1, _BODIES, _JOINTS, 3)
        return np.ascontiguousarray(rows.transpose(1, 0, 2, 3))

    def _files(self, root: Path) -> _Files:
        """Sorts the files below a folder by what they are."""
        files = _Files({}, {}, {}, {}, [], [])
        pattern = re.compile(rf"({self.sequence})\.(txt|skeleton|label)")
        name = re.compile(rf"\b{self.sequence}\b")
        for path in files_below(root):
            below = path.relative_to(root)
            if match := pattern.fullmatch(path.name):
                is_label = match[2] == "label" or any("label" in part.lower() for part in below.parent.parts)
                group = files.labels if is_label else files.skeletons
                if match[1] in group:
                    kept = group[match[1]].relative_to(root)
                    files.note("duplicate", match[1], f"{below} is left out: {kept} is used")
                    continue
                group[match[1]] = path
                if is_label:
                    files.inputs.append(path)
            elif _ACTION_FILE.fullmatch(path.name):
                rows = re.findall(r"^\s*(\d{1,9})[\s,;]+(\S.*?)\s*$", _text(path), re.MULTILINE)
                files.actions |= {int(number): words for number, words in rows}
                files.inputs.append(path)
            for protocol, kind in _SPLIT_FILES.items():
                if kind.fullmatch(path.name):
                    self._split(files, protocol, path, name, str(below))
        return files

    def _split(self, files: _Files, protocol: str, path: Path, name: re.Pattern[str], where: str) -> None:
        """Reads a split file. One that names none of the phase's sequences belongs to the other phase."""
        blocks: list[list[str]] = []
        heading = True
        for line in filter(str.strip, _text(path).splitlines()):
            names = name.findall(line)
            if names and heading:
                blocks.append([])
            if names:
                blocks[-1] += names
            heading = not names
        if not blocks:
            return
        files.inputs.append(path)
        if len(blocks) != 2 or set(blocks[0]) & set(blocks[1]):
            files.note(
                "split", where, "not used: expected a heading, names to train, a heading, and other names to test"
            )
        elif protocol in files.splits:
            files.note("split", where, f"not used: there is another {protocol} split")
        else:
            files.splits[protocol] = dict.fromkeys(blocks[0], "train") | dict.fromkeys(blocks[1], "test")


def _labels(files: _Files, sequence: str) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """(row, action number, frames from 0) of each usable row of a label file; rows count from 1."""
    lines = _text(files.labels[sequence]).splitlines()
    if not any(map(str.strip, lines)):
        files.note("label", sequence, "the label file is empty")
    for row, line in enumerate(lines, 1):
        if not line.strip():
            continue
        fields = re.split(r"[,;\s]+", line.strip().strip(",;"))
        if len(fields) not in (3, 4) or not all(re.fullmatch(r"\d{1,9}", value) for value in fields[:3]):
            files.note("label", f"{sequence}:{row}", f"expected action, first, last, confidence; found {line[:40]!r}")
            continue
        action, first, last = map(int, fields[:3])
        if not 1 <= action <= _MOST_ACTION:
            files.note("label", f"{sequence}:{row}", f"action {action} is not in 1 to {_MOST_ACTION}")
        elif not 1 <= first <= last:
            files.note("label", f"{sequence}:{row}", f"frames {first} to {last} are no frames")
        else:
            yield row, action, (first - 1, last)


def _sides(splits: Mapping[str, Mapping[str, str]], sequence: str) -> dict[str, str]:
    return {protocol: sides.get(sequence, "") for protocol, sides in splits.items()}


def _text(path: Path) -> str:
    check_size(path, MOST_JSON)
    return path.read_bytes().decode("utf-8-sig", errors="replace")


_EXPECTED = (
    "{0}.txt skeletons, {0}.txt labels in a folder with 'label' in its name, and the split files "
    "cross_subject{1}.txt and cross_view{1}.txt"
)
PKU1 = Pku(
    "pku1",
    r"\d{4}-[LMR]",
    "PKU-MMD phase 1, 51 actions, Kinect v2, three views; expects " + _EXPECTED.format("0002-L", ""),
)
PKU2 = Pku(
    "pku2",
    r"A\d{2}N\d{2}-[LMR]",
    "PKU-MMD phase 2, 41 actions, Kinect v2, three views; expects " + _EXPECTED.format("A01N01-L", "_v2"),
)
