"""A collection of labelled videos, before any of them is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fedaction.data import text
from fedaction.data.dataset import Issue
from fedaction.data.public.base import files_below
from fedaction.federation.outside import shorten

Missing = Literal["error", "skip"]
Side = Literal["train", "test"]
SUFFIXES = frozenset(
    f".{name}"
    for name in (
        *("avi", "mp4", "m4v", "mov", "mkv", "webm", "mpg", "mpeg"),
        *("ts", "mts", "wmv", "asf", "flv", "3gp", "ogv", "gif"),
    )
)
MOST_LIST = 64 * 2**20
"""Bytes of a list of videos."""
_NAMED = 3  # of many, in a message


@dataclass(frozen=True)
class VideoSample:
    """One labelled file."""

    path: Path  # the file
    name: str  # unique in its set and stable: the path below the set's folder
    label: int  # index into the set's classes
    split: Side  # what it is for
    person: str = ""  # who performs; "" where unknown. UCF-101 has groups of clips by one person: its group.
    # What must stay together, e.g. the source video or the performance seen by several cameras; "": nothing.
    group: str = ""
    camera: str = ""  # that took it; "" where unknown


@dataclass(frozen=True)
class VideoSet:
    """Labelled videos."""

    name: str  # of the dataset
    classes: tuple[str, ...]  # action names in label order
    samples: tuple[VideoSample, ...] = field(repr=False)  # in a fixed order
    issues: tuple[Issue, ...] = field(default=(), repr=False)  # what was left out, and why

    def __len__(self) -> int:
        return len(self.samples)

    def of(self, split: Side) -> tuple[VideoSample, ...]:
        """The samples of one side."""
        return tuple(sample for sample in self.samples if sample.split == split)


def folder(root: str | Path, what: str) -> Path:
    """A dataset's folder, which must be there."""
    root = Path(root).absolute()
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is not a folder; {what}")
    return root


def videos_below(root: Path) -> list[Path]:
    """Files that are videos by their suffix, in a fixed order; hidden ones are passed over."""
    return [p for p in files_below(root) if p.suffix.lower() in SUFFIXES and not p.name.startswith(".")]


def relative(path: Path, root: Path) -> str:
    """A file's name below a root, with "/" on every system."""
    return path.relative_to(root).as_posix()


def some(names: Sequence[str]) -> str:
    """The first few names."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(shorten(name, 80) for name in names[:_NAMED]) + more


def absent(names: Sequence[str], listed: int, root: Path, lists: str, missing: Missing) -> list[Issue]:
    """Listed videos that are not there: an error, or issues where they are to be skipped or none is there at all."""
    if missing not in ("error", "skip"):
        raise ValueError(f'missing must be "error" or "skip", got {missing!r}')
    if names and (missing == "error" or len(names) == listed):
        hint = 'complete the folder, or leave them out with missing="skip"'
        if len(names) == listed:
            hint = "is this the folder that holds the videos?"
        raise ValueError(
            f"{len(names)} of {listed} videos that {lists} name are not in {root}: {some(names)}; {hint}"
        )
    return [Issue(kind="split", where=name, detail=f"named by {lists}, but not there") for name in names]


def read_lines(path: Path) -> list[str]:
    """Lines of a list that say something, without the blanks around them."""
    return [line.strip() for line in text.read_lines(path, MOST_LIST, errors="replace")]
