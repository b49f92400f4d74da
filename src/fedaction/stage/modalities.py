"""Clients of the embedded world whose modalities differ: each sees its own people through one kind of device.

Every client is a place with its own people; what its device records is turned into features by the built-in
extractors of `fedaction.data.features`. All clients label the same actions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from fedaction.data.client import ClientData
from fedaction.data.features.clients import Scale, make_client
from fedaction.data.features.extract import WIDTH, Extractor, Recording, built_in
from fedaction.data.features.fewer import Fewer
from fedaction.data.features.make import from_cache
from fedaction.data.features.store import MODALITIES, FeatureSet, Modality
from fedaction.data.files import cache_root, digest_code, key_of
from fedaction.data.layout import KINECT_V2
from fedaction.federation.seeds import derive, numpy_generator
from fedaction.stage.actions import NAMES, number
from fedaction.stage.actors import actor
from fedaction.stage.federation import Place, place_of
from fedaction.stage.microphone import sound
from fedaction.stage.performance import Performance, perform
from fedaction.stage.render import Shot, flow, image, video
from fedaction.stage.sensor import skeletons
from fedaction.stage.wearable import inertial

_BATCH = 32
_SIDE, _PICTURES = 48, 16  # pixels and frames of what is rendered: what the extractors read
_SENSOR_HZ, _SOUND_HZ = 50.0, 8000


def stage_features(
    *,
    modalities: Sequence[Modality],
    clients: int = 4,
    train: int = 112,
    test: int = 38,
    actions: int = 12,
    seed: int = 0,
    division: int = 0,
    people: int = 8,
    width: int = WIDTH,
    frames: int = 50,
    align: bool = True,
    heterogeneity: float = 1.0,
    noise: float = 1.0,
    fewer: Fewer | None = None,
    scale: Scale = "client",
    cache: str | Path | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> list[ClientData]:
    """A federation of synthetic clients of several modalities.

    A client's data depends on the seed, its modality, its number and its own settings only, so it is kept in the
    cache client by client. Its training and test recordings are a random division of one set, as FDARN's are: the
    same people are in both.

    Args are the keys of `StageFeatureSource`, without their prefixes; `division` is the seed of which recordings are
    for test, and `progress` is called with the clients done and the clients there are.

    Returns:
        Clients called "<modality>-<number>", with the modality as group, x (N, width).
    """
    unknown = [name for name in modalities if name not in MODALITIES]
    if unknown or not modalities or len(set(modalities)) != len(modalities):
        raise ValueError(f"modalities must be different ones of {', '.join(MODALITIES)}; got {', '.join(modalities)}")
    if min(clients, train, test, people) < 1 or not 2 <= actions <= len(NAMES):
        raise ValueError(
            f"every client needs people and training and test recordings, and there are 2 to {len(NAMES)} actions; "
            f"got clients={clients}, train={train}, test={test}, people={people}, actions={actions}"
        )
    order = numpy_generator(seed, "stage features", "actions").permutation(len(NAMES))
    classes = tuple(sorted(NAMES[i] for i in order[:actions]))
    if fewer is not None:
        fewer.check(modalities, actions)
    made: list[ClientData] = []
    for modality in modalities:
        extractor = built_in(modality, width=width, frames=frames, align=align)
        for i in range(clients):
            own = derive(seed, "stage features", modality, i)
            settings = {
                "modality": modality,
                "seed": own,
                "classes": classes,
                "samples": train + test,
                "people": people,
                "heterogeneity": heterogeneity,
                "noise": noise,
                "extractor": extractor.describe(),
                "code": _code(),
            }
            place = cache_root(cache) / "features" / f"stage-{modality}-{key_of(settings)}"
            held = from_cache(place, partial(_record, settings, extractor))
            name = f"{modality}-{i}"
            order = numpy_generator(division, "division", name).permutation(len(held))
            sides = (np.sort(order[:train]), np.sort(order[train:]))
            if fewer is not None:
                sides = fewer.choose(sides, held.labels, actions, modality=modality, name=name, seed=division)
            made.append(make_client(held, sides, held.labels, name, classes, scale))
            if progress is not None:
                progress(len(made), len(modalities) * clients)
    return made


def _record(settings: dict[str, Any], extractor: Extractor) -> FeatureSet:
    """All recordings of one client, as features. Actions in turn, people by chance."""
    seed, samples, classes = settings["seed"], settings["samples"], settings["classes"]
    place = place_of(seed, KINECT_V2, settings["heterogeneity"], settings["noise"])
    crowd = [actor(seed, f"person-{i}", place.cohort) for i in range(settings["people"])]
    rng = numpy_generator(seed, "recordings")
    weights = np.exp(0.5 * settings["heterogeneity"] * rng.standard_normal(len(classes)))
    # Every action once, as far as the amount allows, then by weight: some are more common at some places.
    extra = rng.choice(len(classes), max(samples - len(classes), 0), p=weights / weights.sum())
    labels = np.concatenate([np.arange(min(samples, len(classes))), extra])
    numbers = np.array([number(name) for name in classes])[labels]
    cast = [crowd[i] for i in rng.integers(0, len(crowd), samples)]
    parts = []
    for first in range(0, samples, _BATCH):
        some = slice(first, first + _BATCH)
        show = perform(numbers[some], cast[some], seed, 50, takes=np.arange(samples)[some])
        parts.append(extractor(_recordings(show, extractor.modality, place, settings)))
    return FeatureSet(
        modality=extractor.modality,
        x=np.concatenate(parts),
        labels=labels.astype(np.int64),
        classes=tuple(classes),
        subjects=tuple(who.name for who in cast),
        names=tuple(f"take-{i}" for i in range(samples)),
        provenance={
            "extractor": extractor.describe(),
            "source": {"kind": "stage", **json.loads(json.dumps(settings))},
        },
    )


def _recordings(show: Performance, modality: Modality, place: Place, settings: dict[str, Any]) -> list[Recording]:
    """What a client's device records of performances."""
    seed, noise, spread = settings["seed"], settings["noise"], settings["heterogeneity"]
    if modality == "skeleton":
        return [Recording(array, layout=KINECT_V2) for array in skeletons(show, KINECT_V2, place.sensor, seed)]
    if modality == "inertial":
        return [Recording(item, _SENSOR_HZ) for item in inertial(show, "right_wrist", _SENSOR_HZ, seed, noise=noise)]
    if modality == "audio":
        room = noise * float(np.exp(0.5 * spread * np.clip(numpy_generator(seed, "room").standard_normal(), -2, 2)))
        return [Recording(item, float(_SOUND_HZ)) for item in sound(show, _SOUND_HZ, seed, room_noise=room)]
    lamp = 0.15 * spread * float(np.clip(numpy_generator(seed, "lamp").standard_normal(), -2, 2))
    shot = Shot(yaw=place.sensor.yaw, pitch=place.sensor.pitch, light=(max(0.4, 0.7 + lamp), max(0.5, 1.05 + lamp)))
    if modality == "image":
        return [Recording(item) for item in image(show, _SIDE, _SIDE, seed, shot=shot)]
    take = video if modality == "video" else flow
    return [Recording(item) for item in take(show, _SIDE, _SIDE, seed, frames=_PICTURES, shot=shot)]


@lru_cache(maxsize=1)
def _code() -> str:
    """A digest of the code that performs, records and extracts."""
    stage = Path(__file__).parent
    data = stage.with_name("data")
    taken = [data / "features" / f"{name}.py" for name in ("audio", "extract", "series", "vision")]
    return digest_code(sorted([*stage.glob("*.py"), *taken, data / "preprocess.py", data / "layout.py"]))
