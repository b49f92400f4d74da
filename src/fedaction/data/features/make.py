"""From recordings to a feature store, made only when it is not there already."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from fedaction.data.features.extract import Extractor, Recording
from fedaction.data.features.recordings import Collection, warn_left_out
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
    parts, kept, faults = [], list[int](), list[str]()
    for first in range(0, len(collection), _BATCH):
        numbers = range(first, min(first + _BATCH, len(collection)))
        batch: list[Recording] = []
        for i in numbers:
            try:
                batch.append(collection.read(i))
                kept.append(i)
            except (ValueError, OSError) as error:
                if not collection.skip:
                    raise
                faults.append(f"{collection.names[i]}: {error}")
        if batch:
            parts.append(extractor(batch))
        if progress is not None:
            progress(numbers.stop, len(collection))
    if not kept:
        raise ValueError(f"none of the {len(collection)} recordings can be used; the first: {faults[0]}")
    warn_left_out(faults)
    place = {name: label for label, name in enumerate(collection.classes)}
    return FeatureSet(
        modality=collection.modality,
        x=np.concatenate(parts),
        labels=np.array([place[collection.labels[i]] for i in kept], dtype=np.int64),
        classes=collection.classes,
        subjects=tuple(collection.subjects[i] for i in kept) if collection.subjects else (),
        names=tuple(collection.names[i] for i in kept),
        provenance=_provenance(collection, extractor),
        device=collection.device,
    )


def make_features(
    collection: Collection,
    extractor: Extractor,
    out: str | Path,
    *,
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> tuple[FeatureSet, bool]:
    """A feature store of recordings; see `keep_features`."""
    about = _provenance(collection, extractor)
    return keep_features(lambda: extract(collection, extractor, progress), about, out, overwrite=overwrite)


def keep_features(
    make: Callable[[], FeatureSet], provenance: Mapping[str, object], out: str | Path, *, overwrite: bool = False
) -> tuple[FeatureSet, bool]:
    """The feature store at `out` where it has this provenance, or a new one of what `make` gives.

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
            if there.provenance == provenance:
                return there, False
            if not overwrite:
                raise FileExistsError(
                    f"{out} holds features that were made of other files, or otherwise: choose another folder, or "
                    "ask to overwrite it"
                )
    refuse_existing(out, overwrite, is_feature_store(out), "feature store")
    save_features(make(), out, overwrite=overwrite)
    return load_features(out), True


def take_features(
    collection: Collection,
    extractor: Extractor,
    cache: str | Path | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> FeatureSet:
    """Features of recordings, kept in the cache under a digest of what they are made of and with."""
    key = key_of({"modality": collection.modality, **_provenance(collection, extractor)})
    name = f"{collection.source.get('name', collection.modality)}-{key}"
    return from_cache(cache_root(cache) / "features" / name, lambda: extract(collection, extractor, progress))


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
    device = {"device": collection.device} if collection.device else {}
    about = {"extractor": extractor.describe(), "source": dict(collection.source), **device}
    return json.loads(json.dumps(about))
