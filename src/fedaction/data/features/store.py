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

from fedaction.data.store_file import beside, move_into_place

Modality = Literal["skeleton", "inertial", "audio", "video", "flow", "image"]
MODALITIES: tuple[Modality, ...] = get_args(Modality)

FORMAT = "fedaction-features"
VERSION = 1
HEADER, VALUES = "features.json", "features.npy"
_MOST_HEADER_BYTES = 256 * 2**20
_CHECK_ROWS = 4096  # rows checked for finiteness at a time, so that a check never needs the whole file


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


def refuse_existing(out: Path, overwrite: bool) -> None:
    """Refuses to write over anything but a feature store, and over a feature store unless told to."""
    if not out.exists():
        return
    if not is_feature_store(out):
        raise FileExistsError(f"{out} is not a feature store, so it is not overwritten: choose another folder")
    if not overwrite:
        raise FileExistsError(f"{out} exists already: choose another folder, or ask to overwrite it")


def save_features(features: FeatureSet, out: str | Path, *, overwrite: bool = False) -> None:
    """Writes a store, whole or not at all.

    Args:
        features: what to write.
        out: folder to create. One that exists is refused, unless `overwrite` is set and it is a feature store.
        overwrite: replace an existing store.
    """
    out = Path(out).absolute()
    refuse_existing(out, overwrite)
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
        raise ValueError(f"these features cannot be written: {_first(error)}") from None
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
    size = (path / HEADER).stat().st_size
    if size > _MOST_HEADER_BYTES:
        raise ValueError(f"{path / HEADER} has {size} bytes, more than the {_MOST_HEADER_BYTES} allowed")
    try:
        header = _FeatureHeader.model_validate_json((path / HEADER).read_bytes())
    except ValidationError as error:
        raise ValueError(f"{path / HEADER} is not a valid header of features: {_first(error)}") from None
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


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc']) or 'the file'}: {first['msg']}"


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
    if len(set(header.classes)) != len(header.classes):
        raise ValueError(f"{where} names a class twice")
    wrong = [label for label in header.labels if not 0 <= label < len(header.classes)]
    if wrong:
        raise ValueError(f"{where} has label {wrong[0]}, but only {len(header.classes)} classes")


def _check_values(path: Path, count: int) -> npt.NDArray[np.float32]:
    """Maps the values into memory after checking type, shape, size and finiteness."""
    try:
        values = np.asarray(np.lib.format.open_memmap(path, mode="r"))  # unlike np.load: no pickle, and no zip either
    except (ValueError, OSError, EOFError, SyntaxError) as error:
        raise ValueError(f"{path} is damaged or is not a NumPy file: {error}") from None
    if values.dtype != np.dtype("<f4"):
        raise ValueError(f"{path} holds {values.dtype}; a feature store holds float32")
    if values.ndim != 2 or len(values) != count or not values.size:
        raise ValueError(f"{path} has shape {values.shape}; expected ({count} samples, width)")
    for first in range(0, count, _CHECK_ROWS):
        finite = np.isfinite(values[first : first + _CHECK_ROWS]).all(axis=1)
        if not finite.all():
            raise ValueError(f"{path}: row {first + int(np.argmin(finite))} has a value that is not finite")
    return values
