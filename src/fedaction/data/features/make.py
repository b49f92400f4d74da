"""From recordings to a feature store, made only when it is not there already."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedaction.data.features.extract import Extractor
from fedaction.data.features.recordings import Collection
from fedaction.data.features.store import FeatureSet, is_feature_store, load_features, save_features
from fedaction.data.files import cache_root, key_of, refuse_existing

_BATCH = 64


def extract(
    collection: Collection, extractor: Extractor, progress: Callable[[int, int], object] | None = None
) -> FeatureSet:
    """Takes features of recordings, a few at a time.

    `progress` is called with the recordings done and the recordings there are.
    """
    if extractor.modality != collection.modality:
        raise ValueError(f"these recordings are {collection.modality}; the extractor is for {extractor.modality}")
    if not len(collection):
        raise ValueError("there is no recording to take features of")
    parts = []
    for first in range(0, len(collection), _BATCH):
        numbers = range(first, min(first + _BATCH, len(collection)))
        parts.append(extractor([collection.read(i) for i in numbers]))
        if progress is not None:
            progress(numbers.stop, len(collection))
    place = {name: label for label, name in enumerate(collection.classes)}
    return FeatureSet(
        modality=collection.modality,
        x=np.concatenate(parts),
        labels=np.array([place[name] for name in collection.labels], dtype=np.int64),
        classes=collection.classes,
        subjects=collection.subjects,
        names=collection.names,
        provenance=_provenance(collection, extractor),
    )


def make_features(
    collection: Collection,
    extractor: Extractor,
    out: str | Path,
    *,
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> tuple[FeatureSet, bool]:
    """A feature store of recordings: the one at `out` where it was made of the same by the same, or a new one.

    One that was made otherwise or is damaged is refused, unless `overwrite` is set. Also says whether it is new.
    """
    out = Path(out).absolute()
    if is_feature_store(out):
        try:
            there = load_features(out)
        except ValueError:
            if not overwrite:
                raise
        else:
            if there.provenance == _provenance(collection, extractor):
                return there, False
            if not overwrite:
                raise FileExistsError(
                    f"{out} holds features that were made of other files, or otherwise: choose another folder, or "
                    "ask to overwrite it"
                )
    refuse_existing(out, overwrite, is_feature_store(out), "feature store")
    save_features(extract(collection, extractor, progress), out, overwrite=overwrite)
    return load_features(out), True


def take_features(collection: Collection, extractor: Extractor, cache: str | Path | None = None) -> FeatureSet:
    """Features of recordings, kept in the cache under a digest of what they are made of and with."""
    key = key_of({"modality": collection.modality, **_provenance(collection, extractor)})
    name = f"{collection.source.get('name', collection.modality)}-{key}"
    return from_cache(cache_root(cache) / "features" / name, lambda: extract(collection, extractor))


def from_cache(place: Path, make: Callable[[], FeatureSet]) -> FeatureSet:
    """What is kept at a place, or what `make` gives, which is then kept there."""
    damaged = False
    if is_feature_store(place):
        try:
            return load_features(place)
        except ValueError as error:
            damaged = True
            warnings.warn(f"features in the cache are made again: {error}", stacklevel=3)
    made = make()
    try:
        # A sound store is never replaced: another process may be reading the one it has put there meanwhile.
        save_features(made, place, overwrite=damaged)
    except OSError:
        if not is_feature_store(place):
            raise
    return load_features(place)


def _provenance(collection: Collection, extractor: Extractor) -> dict[str, object]:
    # Through JSON, so that it compares with what a store's header says.
    return json.loads(json.dumps({"extractor": extractor.describe(), "source": dict(collection.source)}))
