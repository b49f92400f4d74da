"""What lies in a folder that somebody brings to a federation: its kind, and what can be said of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedaction.data.features.store import is_feature_store, load_features
from fedaction.data.files import open_npy
from fedaction.data.signals.store import is_signal_store, load_signals
from fedaction.data.store import is_store
from fedaction.data.store import load as load_store
from fedaction.federation.files import read_json


@dataclass(frozen=True)
class Holding:
    """A folder of data, in words."""

    suits: tuple[str, ...]
    """Values of a recipe's `data` that it can be used with."""
    recordings: int
    """How many there are."""
    people: int
    """Of how many people; 0: not known."""
    what: str
    """What recorded them, or how they look: a skeleton's layout, a device, a modality, video."""
    classes: tuple[str, ...]
    """Of the recordings, sorted as they are in the data."""


def suits(path: Path) -> tuple[str, ...]:
    """Which values of a recipe's `data` a folder can be used with, by what it looks like; nothing is opened."""
    if not path.is_dir():
        raise FileNotFoundError(f"there is no folder {path}")
    if is_signal_store(path):
        return ("signals",)
    if is_feature_store(path):
        return ("features", "signals")
    if is_store(path):
        return ("store",)
    if (path / "classes.json").is_file() and (path / "train_clips.npy").is_file():
        return ("arrays",)
    return ("video",)


def look_at(path: Path) -> Holding:
    """What lies in a folder; all that can be checked without decoding every video is checked.

    Of a folder of videos, the first of each class is opened. Whatever is wrong is a ValueError or an OSError.
    """
    kinds = suits(path)
    if "signals" in kinds:
        store = load_features(path) if "features" in kinds else load_signals(path)
        return Holding(kinds, len(store), len(set(store.subjects)), store.device or store.modality, store.classes)
    if "store" in kinds:
        skeletons = load_store(path)
        people = len(set(skeletons.subjects))
        return Holding(kinds, len(skeletons), people, skeletons.layout.name, skeletons.classes)
    return _look_at_arrays(path) if "arrays" in kinds else _look_at_videos(path)


def _look_at_arrays(path: Path) -> Holding:
    classes = read_json(path / "classes.json")
    clips = [open_npy(path / f"{side}_clips.npy") for side in ("train", "test")]
    for each in clips:
        if each.ndim != 5 or each.shape[-1] != 3 or each.dtype != np.uint8:
            raise ValueError(f"{path}: clips must be (N, T, H, W, 3) uint8, these are {each.shape} {each.dtype}")
    frames, height, width = clips[0].shape[1:4]
    what = f"clips of {frames} frames, {width} x {height} pixels"
    return Holding(("arrays",), sum(map(len, clips)), 0, what, tuple(str(name) for name in classes))


def _look_at_videos(path: Path) -> Holding:
    from fedaction.data.clips.decode import count_packets  # PyAV, which is not always installed
    from fedaction.data.clips.folders import video_folders

    videos = video_folders(path)
    first = {sample.label: sample for sample in reversed(videos.samples)}
    faults: list[str] = []
    for sample in first.values():
        try:
            count_packets(sample.path)
        except (ValueError, OSError) as error:
            faults.append(f"{sample.name}: {error}")
    if len(faults) == len(first):
        raise ValueError(f"{path}: none of the videos that were tried can be read; {faults[0]}")
    size = sum(sample.path.stat().st_size for sample in videos.samples)
    return Holding(("video",), len(videos), 0, f"video ({size / 2**20:.1f} MiB of files)", videos.classes)
