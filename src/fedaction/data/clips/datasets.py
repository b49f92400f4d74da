"""Video datasets by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedaction.data.clips.folders import airtlab, utd_depth, video_folders
from fedaction.data.clips.listed import hmdb51, kinetics400, ucf101
from fedaction.data.clips.videos import VideoSet

DATASETS: dict[str, Callable[..., VideoSet]] = {
    "ucf101": ucf101,
    "hmdb51": hmdb51,
    "kinetics400": kinetics400,
    "airtlab": airtlab,
    "utd_depth": utd_depth,
    "folders": video_folders,
}


def video_set(kind: str, root: str | Path, **options: Any) -> VideoSet:
    """What lies in a folder, by the name of its dataset; `options` are those of the dataset's own function."""
    if kind not in DATASETS:
        raise ValueError(f"no video dataset is called {kind!r}; there are {', '.join(DATASETS)}")
    return DATASETS[kind](root, **options)
