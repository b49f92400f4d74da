"""Feature stores on disk: one vector of fixed width for each recording of one modality.

A store is a folder with two files:

- `features.json`: format version, modality, device, classes, for each sample its label, subject and name,
  provenance: what the vectors were made with and of; and a checksum, since what is kept in the cache lies there long;
- `features.npy`: float32 (samples N, width F), mapped into memory when opened.

Values are as the extractor gave them. They are not standardised over the store: a mean over all samples would carry
test data into training. `fedaction.data.features.clients` does that for each client, from its training samples.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
from pydantic import JsonValue, ValidationError

from fedaction.data import files
from fedaction.data.folders import new_folder

Modality = Literal["skeleton", "inertial", "audio", "video", "flow", "image"]
MODALITIES: tuple[Modality, ...] = get_args(Modality)

HEADER, VALUES = "features.json", "features.npy"


@dataclass(frozen=True)
class FeatureSet:
    """Feature vectors of one modality, with what they mean."""

    modality: Modality  # what was recorded; one of `MODALITIES`
    # (N, F) float32, finite; a read-only view of the file when loaded from disk
    x: npt.NDArray[np.float32] = field(repr=False)
    labels: npt.NDArray[np.int64] = field(repr=False)  # (N,) int64, indices into classes
    classes: tuple[str, ...]  # action names
    subjects: tuple[str, ...] = field(repr=False)  # who performed each sample; empty when not known
    names: tuple[str, ...] = field(repr=False)  # where each sample came from
    # `extractor` (its name, version and parameters) and `source` (what was read, with a fingerprint)
    provenance: Mapping[str, Any]
    device: str = ""  # what recorded them, such as "watch"; "": it has no name of its own

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def width(self) -> int:
        """F."""
        return self.x.shape[1]


class _FeatureHeader(files.Header):
    """The contents of features.json."""

    current: ClassVar[int] = 1
    remedy: ClassVar[str] = ". Extract the features again with `fedaction features`"

    format: Literal["fedaction-features"]
    modality: Modality
    device: str = ""
    classes: list[str]
    labels: list[int]
    subjects: list[str]
    names: list[str]
    provenance: dict[str, JsonValue]
    crc: int | None = None
    """CRC-32 of the values, then of all that is said here; None: of an older version, or changed on purpose."""


def is_feature_store(path: Path) -> bool:
    """Whether a path looks like a feature store."""
    return (path / HEADER).is_file() and (path / VALUES).is_file()


def save_features(features: FeatureSet, out: str | Path, *, overwrite: bool = False) -> None:
    """Writes a store, whole or not at all.

    A folder that exists is refused, unless `overwrite` is set and it is a feature store.
    """
    out = Path(out).absolute()
    files.refuse_existing(out, overwrite, is_feature_store(out), "feature store")
    try:
        header = _FeatureHeader(
            format="fedaction-features",
            version=_FeatureHeader.current,
            modality=features.modality,
            device=features.device,
            classes=list(features.classes),
            labels=[int(label) for label in features.labels],
            subjects=list(features.subjects),
            names=list(features.names),
            provenance=dict(features.provenance),
        )
    except ValidationError as error:
        raise ValueError(f"these features cannot be written: {files.first_fault(error)}") from None
    with new_folder(out, replace=overwrite) as new:  # else it fails where another process was faster
        with (new / VALUES).open("wb") as file:
            np.save(file, np.ascontiguousarray(features.x), allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        files.write_header(new / HEADER, header.model_copy(update={"crc": _checksum(header, new / VALUES)}))
        load_features(new)


def load_features(path: str | Path) -> FeatureSet:
    """Opens a store. The values stay on disk until used; everything is checked first, all values included."""
    path = Path(path).absolute()
    if not is_feature_store(path):
        raise FileNotFoundError(
            f"{path} is not a feature store: it needs {HEADER} and {VALUES}. Make one with `fedaction features`"
        )
    where = path / HEADER
    header = files.read_header(where, _FeatureHeader, "header of features")
    count = len(header.labels)
    if not count:
        raise ValueError(f"{where} lists no sample")
    files.check_columns(where, count, {"names": header.names, "subjects": header.subjects or None})
    files.check_labels(header.labels, header.classes, where)
    values = files.open_npy(path / VALUES)
    if values.dtype != np.dtype("<f4"):
        raise ValueError(f"{path / VALUES} holds {values.dtype}; a feature store holds float32")
    if values.ndim != 2 or len(values) != count or not values.size:
        raise ValueError(f"{path / VALUES} has shape {values.shape}; expected ({count} samples, width)")
    files.check_finite(values, path / VALUES)
    if header.crc not in (None, _checksum(header, path / VALUES)):
        raise ValueError(
            f"{path} is not as it was written: extract its features again or, if you changed it on purpose, set crc "
            f"in {HEADER} to null"
        )
    return FeatureSet(
        modality=header.modality,
        x=values,
        labels=np.array(header.labels, dtype=np.int64),
        classes=tuple(header.classes),
        subjects=tuple(header.subjects),
        names=tuple(header.names),
        provenance=header.provenance,
        device=header.device,
    )


def _checksum(header: _FeatureHeader, values: Path) -> int:
    about = json.dumps(header.model_dump(mode="json", exclude={"crc"}), sort_keys=True)
    return zlib.crc32(about.encode(), files.checksum(values))
