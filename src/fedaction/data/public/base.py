"""What a reader of a public dataset is: it finds samples by the dataset's own naming, and reads files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fedaction.data.dataset import Issue
from fedaction.data.layout import Layout


@dataclass(frozen=True)
class Sample:
    """One labelled sample, before its file is read."""

    name: str  # unique in the dataset and stable, e.g. "S001C002P003R002A013" or "0004-L:7"
    label: str  # the action's name; one of the reader's classes
    subject: str  # who performs it; "" where the dataset does not say
    # For each protocol the dataset defines ("cross_subject", "cross_view", "cross_setup"): "train", "test", or ""
    # where the protocol leaves the sample out
    splits: Mapping[str, str]
    # Frames [first, stop) of the file that are the sample, counted from 0; None: all
    span: tuple[int, int] | None = None


@dataclass(frozen=True)
class SourceFile:
    """One file, and the samples in it."""

    path: Path
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Listing:
    """All that a dataset holds, from names and label files alone."""

    sources: tuple[SourceFile, ...]  # files in a fixed order
    classes: tuple[str, ...]  # action names in label order
    # What was left out already (a split that names unknown samples, a label past the end, ...)
    issues: tuple[Issue, ...] = ()
    # Further files that decide the listing (labels, splits): when they change, a cache is stale
    inputs: tuple[Path, ...] = field(default=())


class Reader(Protocol):
    """A public dataset. Readers are stateless, so that worker processes can use them."""

    @property
    def name(self) -> str:
        """What recipes and the command line call it, e.g. "ntu60"."""
        ...

    @property
    def version(self) -> int:
        """Raised whenever the reader makes other samples or arrays of the same files: older caches are then stale."""
        ...

    @property
    def layout(self) -> Layout:
        """Joints of every recording."""
        ...

    @property
    def rate_hz(self) -> float | None:
        """Frames a second."""
        ...

    @property
    def protocols(self) -> tuple[str, ...]:
        """The splits it may give its samples, e.g. ("cross_subject", "cross_view")."""
        ...

    @property
    def about(self) -> str:
        """One line: what it is, where it comes from, which folders or files it expects."""
        ...

    def find(self, root: Path) -> Listing:
        """Lists a dataset's folder. A folder that is not this dataset is a ValueError that says what was expected."""
        ...

    def read(self, path: Path) -> npt.NDArray[np.float32]:
        """One file as (M bodies, T frames, V joints, 3) in metres.

        An absent body or frame is zero; missing values are NaN. A file that cannot be read is a ValueError that says
        where and why.
        """
        ...


def unique(readers: Iterable[Reader]) -> dict[str, Reader]:
    """Readers by name; two of one name are an error."""
    by_name: dict[str, Reader] = {}
    for reader in readers:
        if reader.name in by_name:
            raise ValueError(f"two readers are called {reader.name!r}")
        by_name[reader.name] = reader
    return by_name


def files_below(root: Path) -> Iterator[Path]:
    """All files in a folder and below it, in a fixed order. Linked folders are entered, each folder only once.

    A folder below that cannot be read is an OSError: half a dataset must not pass for the whole. A root that is not
    there holds no files.
    """

    def stop(error: OSError) -> None:
        raise error

    seen: set[str] = set()
    for folder, folders, names in os.walk(root, onerror=stop, followlinks=True) if root.is_dir() else ():
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        yield from (Path(folder, name) for name in sorted(names))
