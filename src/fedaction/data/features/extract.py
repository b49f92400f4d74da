"""Extractors: from recordings of one modality to vectors of one width.

Each built-in extractor is a pure function of a recording and its parameters: nothing is downloaded, nothing is
learned from the data, and random numbers are derived from fixed seeds. So vectors of one recording are the same in
every store and on every client, and no recording influences another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedaction.data.features.audio import log_mel
from fedaction.data.features.series import kernel_features, project, resample
from fedaction.data.features.store import Modality
from fedaction.data.features.vision import clip_features, flow_features, picture_features
from fedaction.data.layout import Layout
from fedaction.data.preprocess import prepare

WIDTH = 1024
"""Numbers per recording, as FDARN has them."""

EXTRACTORS: Mapping[str, tuple[Modality, ...]] = {
    "kernels": ("skeleton", "inertial", "audio"),
    "cells": ("video", "flow", "image"),
}
"""Built-in extractors, and the modalities that each is for."""

_VERSIONS = {"kernels": 1, "cells": 1}  # raised whenever an extractor gives other numbers for the same recording
_SENSOR_SAMPLES, _SOUND_FRAMES = 128, 128
_SKELETON_FLOOR = 0.2  # joints that hardly move should not be taken for as lively as the hand that waves


@dataclass(frozen=True)
class Recording:
    """One recording before features are taken of it."""

    # Skeleton (M, T, V, C) metres; inertial (T, C); audio (S,) in [-1, 1]; video (T, H, W, 3 or 1) 0 to 255; flow (T,
    # H, W, 2) pixels; image (H, W, 3 or 1) 0 to 255
    array: npt.NDArray[Any] = field(repr=False)
    rate_hz: float | None = None  # samples or frames a second, where known; sounds need it
    layout: Layout | None = None  # a skeleton's layout


@dataclass(frozen=True)
class Extractor:
    """What makes vectors of recordings."""

    name: str  # built-in name, or what the user gave
    version: int  # of a built-in extractor
    modality: Modality  # of the recordings
    width: int  # numbers per vector; 0: as many as `function` gives
    parameters: Mapping[str, Any]  # everything else that the numbers depend on
    function: Callable[[Sequence[Recording]], Tensor] = field(repr=False, compare=False)  # from recordings to (N, F)

    def __call__(self, recordings: Sequence[Recording]) -> npt.NDArray[np.float32]:
        """Vectors (N, F), float32 and finite."""
        x = self.function(recordings).numpy().astype(np.float32, copy=False)
        if x.ndim != 2 or len(x) != len(recordings) or (self.width and x.shape[1] != self.width):
            raise ValueError(
                f"extractor {self.name!r} gave shape {x.shape} for {len(recordings)} recordings; expected "
                f"({len(recordings)}, {self.width or 'width'})"
            )
        if not np.isfinite(x).all():
            raise ValueError(f"extractor {self.name!r} gave values that are not finite")
        return x

    def describe(self) -> dict[str, Any]:
        """What a store's provenance says of it."""
        width = {"width": self.width} if self.width else {}
        return {"name": self.name, "version": self.version, "parameters": {**width, **self.parameters}}


def built_in(
    modality: Modality,
    name: str = "",
    *,
    width: int = 0,
    frames: int = 50,
    align: bool = True,
    bodies: int = 1,
    seed: int = 0,
) -> Extractor:
    """A built-in extractor.

    Args:
        modality: of the recordings.
        name: a key of `EXTRACTORS`; default: the one that is for the modality.
        width: numbers per vector; 0: 1024.
        frames: skeletons are resized to so many frames.
        align: skeletons are turned so that the shoulders lie along x.
        bodies: skeletons of so many bodies; absent ones are zero, further ones are left out.
        seed: seed of kernels and projections.
    """
    name, width = name or next(key for key, fit in EXTRACTORS.items() if modality in fit), width or WIDTH
    if name not in EXTRACTORS:
        raise ValueError(
            f"no extractor is called {name!r}; there are {', '.join(EXTRACTORS)}, and your own as "
            "package.module:function or as an .onnx file"
        )
    if modality not in EXTRACTORS[name]:
        raise ValueError(f"extractor {name!r} is for {', '.join(EXTRACTORS[name])}, not for {modality}")
    if not 8 <= width <= 65536:
        raise ValueError(f"the width must lie between 8 and 65536, got {width}")
    parameters: dict[str, Any] = {"seed": seed}

    def skeletons(given: Sequence[Recording]) -> Tensor:
        return kernel_features(_joints(given, frames, align, bodies), width, floor=_SKELETON_FLOOR, seed=seed)

    def sensors(given: Sequence[Recording]) -> Tensor:
        return kernel_features(resample([item.array for item in given], _SENSOR_SAMPLES), width, seed=seed)

    def sounds(given: Sequence[Recording]) -> Tensor:
        mel = [log_mel(item.array, item.rate_hz or 0.0) for item in given]
        return kernel_features(resample(mel, _SOUND_FRAMES), width, seed=seed)

    def pictures(take: Callable[[Sequence[npt.NDArray[Any]]], Tensor]) -> Callable[[Sequence[Recording]], Tensor]:
        return lambda given: project(take([item.array for item in given]), width, seed)

    functions: dict[Modality, Callable[[Sequence[Recording]], Tensor]] = {
        "skeleton": skeletons,
        "inertial": sensors,
        "audio": sounds,
        "video": pictures(clip_features),
        "flow": pictures(flow_features),
        "image": pictures(picture_features),
    }
    if modality == "skeleton":
        parameters |= {"frames": frames, "align": align, "bodies": bodies}
    return Extractor(name, _VERSIONS[name], modality, width, parameters, functions[modality])


def _joints(given: Sequence[Recording], frames: int, align: bool, bodies: int) -> Tensor:
    """Skeletons as series (N, bodies * V * C, frames)."""
    layout = given[0].layout
    if layout is None or any(item.layout != layout for item in given):
        raise ValueError("skeletons need one layout, the same for all")
    x, report = prepare([item.array[:bodies] for item in given], layout, frames, align)
    if report.empty:
        raise ValueError(f"{len(report.empty)} skeleton recordings have no usable frame")
    missing = bodies - x.shape[1]
    x = torch.nn.functional.pad(x, (0, 0, 0, 0, 0, 0, 0, missing)) if missing else x
    return x.permute(0, 1, 3, 4, 2).flatten(1, 3).contiguous()
