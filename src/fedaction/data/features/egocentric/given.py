"""Features that were extracted elsewhere: arrays from .npy and .npz files, checked, as a `FeatureSet`."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.features.store import FeatureSet, Modality

_MOST_BYTES = 4 * 2**30
_MOST_WIDTH = 1 << 20


def read_npy(path: Path) -> npt.NDArray[np.generic]:
    """One array. Pickled objects are refused, and a false header allocates nothing."""
    try:
        return np.asarray(np.lib.format.open_memmap(path, mode="r"))
    except (ValueError, OSError, EOFError, SyntaxError) as error:
        raise ValueError(f"{path} is not a NumPy file of numbers: {error}") from None


def read_npz(path: Path, names: Collection[str] | None = None) -> dict[str, npt.NDArray[np.generic]]:
    """The named arrays of an .npz file, or all. Pickled objects are refused, as is more than 4 GiB when unpacked."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > _MOST_BYTES:
            raise ValueError(f"it unpacks to {size} bytes, more than the {_MOST_BYTES} allowed")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files if names is None or name in names}
    except (ValueError, OSError, EOFError, AttributeError, TypeError, MemoryError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as an .npz file without pickled objects: {error}") from None


def check_vector(values: npt.NDArray[np.generic], where: str) -> npt.NDArray[np.float32]:
    """A feature vector (F,) float32, finite."""
    if values.ndim != 1 or values.dtype.kind not in "fiu" or not 1 <= len(values) <= _MOST_WIDTH:
        raise ValueError(f"{where} is {values.dtype} {values.shape}; expected numbers (width,)")
    with np.errstate(over="ignore"):  # too large for float32 becomes infinity, which is refused
        vector = values.astype(np.float32)
    if not np.isfinite(vector).all():
        raise ValueError(f"{where} has values that are not finite")
    return vector


def given_features(
    modality: Modality,
    x: npt.NDArray[np.float32],
    labels: Sequence[int],
    classes: Sequence[str],
    subjects: Sequence[str],
    names: Sequence[str],
    source: str,
) -> FeatureSet:
    """A `FeatureSet` of features from elsewhere, with a fingerprint of its values and names."""
    digest = hashlib.sha256(np.ascontiguousarray(x).tobytes())
    digest.update("\n".join(names).encode())
    provenance = {
        "extractor": {"name": "given", "width": int(x.shape[1])},
        "source": {"dataset": source, "samples": len(names), "sha256": digest.hexdigest()},
    }
    kept = np.asarray(labels, dtype=np.int64)
    return FeatureSet(modality, x, kept, tuple(classes), tuple(subjects), tuple(names), provenance)
