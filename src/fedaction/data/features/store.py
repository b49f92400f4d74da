"""Feature stores on disk: one vector of fixed width for each recording of one modality.

A store is a folder with two files:

- `features.json`: format version, modality, classes, for each sample its label, subject and name, and provenance:
  what the vectors were made with and of;
- `features.npy`: float32 (samples N, width F), mapped into memory when opened.

Values are as the extractor gave them. They are not standardised over the store: a mean over all samples would carry
test data into training. `fedaction.data.features.clients` does that for each client, from its training samples.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from fedaction.data.files import check_finite, first_fault, open_npy, read_header
from fedaction.data.store_file import beside, check_labels, move_into_place, refuse_existing

Modality = Literal["skeleton", "inertial", "audio", "video", "flow", "image"]
MODALITIES: tuple[Modality, ...] = get_args(Modality)

FORMAT = "fedaction-features"
VERSION = 1
HEADER, VALUES = "features.json", "features.npy"


@dataclass(frozen=True)
class FeatureSet:
    """Feature vectors of one modality, with what they mean.

    Attributes:
        modality: what was recorded; one of `MODALITIES`.
        x: (N, F) float32, finite; a read-only view of the file when loaded from disk.
        labels: (N,) int64, indices into classes.
        classes: action names.
        subjects: who performed each sample; empty when not known.
        names: where each sample came from.
        provenance: `extractor` (its name, version and parameters) and `source` (what was read, with a fingerprint).
    """

    modality: Modality
    x: npt.NDArray[np.float32] = field(repr=False)
    labels: npt.NDArray[np.int64] = field(repr=False)
    classes: tuple[str, ...]
    subjects: tuple[str, ...] = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    provenance: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def width(self) -> int:
        """F."""
        return self.x.shape[1]


class _FeatureHeader(BaseModel):
    """The contents of features.json."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["fedaction-features"]
    version: int
    modality: Modality
    classes: list[str]
    labels: list[int]
    subjects: list[str]
    names: list[str]
    provenance: dict[str, JsonValue]


def is_feature_store(path: Path) -> bool:
    """Whether a path looks like a feature store."""
    return (path / HEADER).is_file() and (path / VALUES).is_file()


def save_features(features: FeatureSet, out: str | Path, *, overwrite: bool = False) -> None:
    """Writes a store, whole or not at all.

    Args:
        features: what to write.
        out: folder to create. One that exists is refused, unless `overwrite` is set and it is a feature store.
        overwrite: replace an existing store.
    """
    out = Path(out).absolute()
    refuse_existing(out, overwrite, is_feature_store, "feature store")
    try:
        header = _FeatureHeader(
            format=FORMAT,
            version=VERSION,
            modality=features.modality,
            classes=list(features.classes),
            labels=[int(label) for label in features.labels],
            subjects=list(features.subjects),
            names=list(features.names),
            provenance=dict(features.provenance),
        )
    except ValidationError as error:
        raise ValueError(f"these features cannot be written: {first_fault(error)}") from None
    out.parent.mkdir(parents=True, exist_ok=True)
    new = beside(out)
    try:
        new.mkdir()
        with (new / VALUES).open("wb") as file:
            np.save(file, np.ascontiguousarray(features.x), allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        text = json.dumps(header.model_dump(mode="json"), ensure_ascii=False, separators=(",", ":"))
        (new / HEADER).write_text(text, encoding="utf-8")
        load_features(new)
        if overwrite:
            move_into_place(new, out)
        else:
            os.rename(new, out)  # which fails where another process was faster
    finally:
        shutil.rmtree(new, ignore_errors=True)


def load_features(path: str | Path) -> FeatureSet:
    """Opens a store. The values stay on disk until used; everything is checked first, all values included."""
    path = Path(path).absolute()
    if not is_feature_store(path):
        raise FileNotFoundError(
            f"{path} is not a feature store: it needs {HEADER} and {VALUES}. Make one with `fedaction features`"
        )
    header = read_header(path / HEADER, _FeatureHeader, "header of features")
    _check_header(header, path)
    return FeatureSet(
        modality=header.modality,
        x=_check_values(path / VALUES, len(header.labels)),
        labels=np.array(header.labels, dtype=np.int64),
        classes=tuple(header.classes),
        subjects=tuple(header.subjects),
        names=tuple(header.names),
        provenance=header.provenance,
    )


def _check_header(header: _FeatureHeader, path: Path) -> None:
    """Refuses a header whose parts do not fit together."""
    where = f"{path}: {HEADER}"
    if header.version != VERSION:
        raise ValueError(
            f"{where} has format version {header.version}; this release reads version {VERSION}. Extract the "
            "features again with `fedaction features`"
        )
    count = len(header.labels)
    if not count:
        raise ValueError(f"{where} lists no sample")
    if len(header.names) != count:
        raise ValueError(f"{where} has {len(header.names)} names for {count} samples")
    if header.subjects and len(header.subjects) != count:
        raise ValueError(f"{where} has {len(header.subjects)} subjects for {count} samples")
    check_labels(header.labels, header.classes, where)


def _check_values(path: Path, count: int) -> npt.NDArray[np.float32]:
    """Maps the values into memory after checking type, shape, size and finiteness."""
    values = open_npy(path)
    if values.dtype != np.dtype("<f4"):
        raise ValueError(f"{path} holds {values.dtype}; a feature store holds float32")
    if values.ndim != 2 or len(values) != count or not values.size:
        raise ValueError(f"{path} has shape {values.shape}; expected ({count} samples, width)")
    check_finite(values, path)
    return values
