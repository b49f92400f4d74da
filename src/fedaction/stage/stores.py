"""Places with skeletons of their own, as stores on disk: what sites of a federation have, to try one with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from fedaction.data.store import StoreWriter
from fedaction.stage.federation import stage_federation

PLACES = ("clinic", "gym", "home")
"""Names of places, which become sites' names."""
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
