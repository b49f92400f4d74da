"""Places with data of their own, as folders on disk: what sites of a federation have, to try one with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from fedaction.data.clips.write import write_clip
from fedaction.data.features.store import FeatureSet, Modality, save_features
from fedaction.data.samples import in_memory
from fedaction.data.store import StoreWriter
from fedaction.stage.federation import stage_federation
from fedaction.stage.footage import stage_video
from fedaction.stage.modalities import stage_features
from fedaction.stage.scene import DOMAINS

PLACES = ("clinic", "gym", "home")
"""Names of places, which become sites' names."""
MODALITIES: tuple[Modality, ...] = ("skeleton", "inertial", "audio")
"""What devices of those places record, where features are made of it."""
LAYOUTS = ("kinect_v2", "openni_15", "kinect_v1")
"""What the devices of those places see: 25, 15 and 20 joints."""


def write_stage_stores(
    folder: Path,
    *,
    names: Sequence[str] = PLACES,
    recordings: Sequence[int] = (60, 45, 75),
    actions: Sequence[int] = (5, 6, 7),
    frames: int = 50,
    seed: int = 0,
) -> dict[str, Path]:
    """A store for each place, with a layout and classes of its own.

    Args:
        folder: where the stores go, each in a folder of its name.
        names: of the places.
        recordings: how many each has; cycled.
        actions: how many classes each knows; cycled.
        frames: of a recording.
        seed: of the world.

    Returns:
        The stores' folders by name.
    """
    clients = stage_federation(
        clients=len(names), layouts=LAYOUTS, train=recordings, test=1, actions=actions, seed=seed, frames=frames
    )
    paths: dict[str, Path] = {}
    for name, client in zip(names, clients, strict=True):
        assert client.info.layout is not None
        paths[name] = folder / name
        with StoreWriter(paths[name], layout=client.info.layout, classes=client.info.classes) as writer:
            x = client.train.take(torch.arange(len(client.train))).numpy()
            for row, label in enumerate(client.train.labels.tolist()):
                writer.add(x[row], label=label, name=f"{name}-{row}")
            writer.finish()
    return paths


def write_stage_videos(
    folder: Path,
    *,
    names: Sequence[str] = PLACES,
    recordings: int = 6,
    actions: int = 4,
    frames: int = 24,
    size: int = 48,
    seed: int = 0,
) -> dict[str, Path]:
    """Videos of each place: a folder train and a folder test, with a folder for each class; test people are others.

    Args:
        folder: where the places go, each in a folder of its name.
        names: of the places.
        recordings: of each class at each place, on average, for training; a third as many for test.
        actions: how many classes there are.
        frames: of a video, eight a second.
        size: rows and columns of a frame, in pixels.
        seed: of the world.

    Returns:
        The places' folders by name.
    """
    if there := [name for name in names if (folder / name).exists()]:
        raise ValueError(f"{folder / there[0]} is there already; nothing was written. Choose another folder")
    places = len(names)
    clients = stage_video(
        clients=places,
        actions=DOMAINS["home"].actions[:actions],
        recordings=recordings * places,
        test_recordings=max(1, recordings // 3) * places,
        frames=frames,
        stride=0.125,
        size=size,
        seed=seed,
    )
    paths: dict[str, Path] = {}
    for name, client in zip(names, clients, strict=True):
        paths[name] = folder / name
        trained = set(client.train.labels.tolist())
        for side, samples in (("train", client.train), ("test", client.test)):
            for row, label in enumerate(samples.labels.tolist()):
                if label in trained:
                    clip = samples.take(torch.tensor([row]))[0].cpu().numpy()
                    write_clip(paths[name] / side / client.info.classes[label] / f"{row}.mp4", clip, rate=8)
    return paths


def write_stage_features(folder: Path, *, recordings: int = 120, actions: int = 6, seed: int = 0) -> dict[str, Path]:
    """A feature store for each of several devices, at places of their own; all label the same actions.

    Args:
        folder: where the stores go, each in a folder of its modality's name.
        recordings: how many each has.
        actions: how many classes there are.
        seed: of the world.

    Returns:
        The stores' folders by modality.
    """
    clients = stage_features(
        modalities=MODALITIES, clients=1, train=recordings - 1, test=1, actions=actions, seed=seed, scale="none"
    )
    paths: dict[str, Path] = {}
    for modality, client in zip(MODALITIES, clients, strict=True):
        train, test = in_memory(client.train), in_memory(client.test)
        count, paths[modality] = len(train) + len(test), folder / modality
        store = FeatureSet(
            modality=modality,
            x=torch.cat([train.x, test.x]).numpy().astype(np.float32),
            labels=torch.cat([train.labels, test.labels]).numpy(),
            classes=client.info.classes,
            subjects=(*train.subjects, *test.subjects),
            names=tuple(f"take-{number}" for number in range(count)),
            provenance={"source": {"kind": "stage", "seed": seed}},
        )
        save_features(store, paths[modality])
    return paths
