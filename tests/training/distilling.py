"""Tiny clips, and recipes that distil on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedaction.federation.seeds import numpy_generator
from fedaction.training.distil_recipe import DistilRecipe, parse_distil_recipe

CLASSES = ("left", "right", "still")


def write_arrays(folder: Path, train: int = 16, test: int = 12) -> Path:
    """Clips of a bright bar that moves left, right or not at all over noise; two clips per recording."""
    folder.mkdir()
    for name, count in (("train", train), ("test", test)):
        random = numpy_generator(4, name)
        labels = np.arange(count) // 2 % 3
        clips = random.integers(0, 60, (count, 8, 16, 16, 3), dtype=np.uint8)
        for clip, label in zip(clips, labels, strict=True):
            for frame, place in enumerate(int(random.integers(16)) + np.arange(8) * (-1, 1, 0)[label]):
                clip[frame, :, place % 16] = 250
        np.save(folder / f"{name}_clips.npy", clips)
        np.save(folder / f"{name}_labels.npy", labels)
        np.save(folder / f"{name}_recordings.npy", 7 + np.arange(count) // 2)
    (folder / "classes.json").write_text(json.dumps(CLASSES))
    return folder


def recipe_of(arrays: Path, **values: Any) -> DistilRecipe:
    """Networks of width 4, two epochs; `values` on top."""
    small = {
        "chain": [22, 18],
        "width": 4,
        "epochs": 2,
        "batch_size": 10,  # the last batch is filled up
        "lr": 0.05,
        "kd_reduction": "mean",
        "checkpoint_every": 1,
        "device": "cpu",
        "data": "arrays",
        "arrays": str(arrays),
    }
    return parse_distil_recipe(small | values)
