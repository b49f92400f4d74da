"""Features that were extracted elsewhere, as a `FeatureSet`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedaction.data.features.store import FeatureSet, Modality
from fedaction.data.files import to_float32

_MOST_WIDTH = 1 << 20


def check_vector(values: npt.NDArray[np.generic], where: str) -> npt.NDArray[np.float32]:
    """A feature vector (F,) float32, finite."""
    if values.ndim != 1 or values.dtype.kind not in "fiu" or not 1 <= len(values) <= _MOST_WIDTH:
        raise ValueError(f"{where} is {values.dtype} {values.shape}; expected numbers (width,)")
    vector = to_float32(values)
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
