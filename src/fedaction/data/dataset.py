"""Recordings with what they mean, and what was wrong with them. Loads neither torch nor a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from fedaction.data.layout import Layout

Kind = Literal[
    "nan_frames",
    "zero_frames",
    "one_frame",
    "empty",
    "joint_count",
    "unreadable",
    "label",
    "split",
    "duplicate",
    "gap",
    "short",
]


class Issue(BaseModel):
    """One thing that was wrong with a recording, and where."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # What was wrong. "nan_frames" were filled in; "zero_frames" are kept and left out by `prepare`; a "split" that
    # names unknown samples is used without them; a sample whose "label" reaches past the end of its file is cut
    # there, and skipped if nothing is left; "one_frame" is a recording that does not move, which is kept; signals are
    # cut at a "gap", and stretches that are too "short" for a window left out. Samples with the other kinds were
    # skipped.
    kind: Kind
    where: str  # sample or file name, or position in the array
    count: int = Field(default=1, ge=1)  # frames concerned, or 1 for a whole sample
    detail: str = ""  # what is wrong, where that needs words


def count_issues(issues: Sequence[Issue]) -> dict[str, int]:
    """Total count of each kind of issue, by kind."""
    total: Counter[str] = Counter()
    for issue in issues:
        total[issue.kind] += issue.count
    return dict(sorted(total.items()))


@dataclass(frozen=True)
class StoredDataset:
    """Recordings with what they mean."""

    name: str  # the store's folder name
    layout: Layout  # joints of every recording
    # N arrays (M_i, T_i, V, C) float32, finite; read-only views of the file when loaded from disk
    sequences: list[npt.NDArray[np.float32]] = field(repr=False)
    labels: npt.NDArray[np.int64] = field(repr=False)  # (N,) int64, indices into classes
    classes: tuple[str, ...]  # action names
    names: tuple[str, ...] = field(repr=False)  # where each sample came from
    subjects: tuple[str, ...] = field(default=(), repr=False)  # who performed each sample; empty when not known
    rate_hz: float | None = None  # frames a second, where known
    # What was skipped or mended when the recordings were imported
    issues: tuple[Issue, ...] = field(default=(), repr=False)
    # For each protocol that the dataset defines, one of "train", "test" and "" (left out) for each sample
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.sequences)
