"""A reader for tests. Loads no torch, since worker processes load this."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.layout import KINECT_V2, Layout
from fedaction.data.public.base import Listing, Sample, SourceFile


@dataclass(frozen=True)
class Made:
    """A dataset whose files are small and whose samples are not."""

    name: str = "made"
    version: int = 1
    layout: Layout = KINECT_V2
    rate_hz: float | None = None
    protocols: tuple[str, ...] = ("a",)
    about: str = "files 0, 1, ..."
    frames: int = 2000
    again: bool = False

    def find(self, root: Path) -> Listing:
        paths = sorted(root.iterdir())
        names = ["x"] * len(paths) if self.again else [path.name for path in paths]
        return Listing(
            tuple(SourceFile(p, (Sample(n, "c", "", {"a": "train"}),)) for p, n in zip(paths, names, strict=True)),
            ("c",),
        )

    def read(self, path: Path) -> npt.NDArray[np.float32]:
        if path.read_text() == "bug":
            raise IndexError("of a strange file")
        if path.read_text() == "crash":
            os._exit(3)
        return np.full((2, self.frames, 25, 3), 1.5, dtype=np.float32)
