"""Features that were extracted elsewhere, as a `FeatureSet`."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.dataset import Issue
from fedaction.data.features.egocentric.tables import KIND, Floats, read_each
from fedaction.data.features.store import FeatureSet, Modality
from fedaction.data.files import open_npy, read_npz, to_float32

_MOST_WIDTH = 1 << 20


@dataclass(frozen=True)
class Piece:
    """A labelled piece of a video, or a whole one."""

    name: str  # unique in its dataset
    video: str  # the video's name
    label: int  # index into the dataset's classes
    subject: str = ""  # who wore the camera, where that is known
    span: tuple[float, float] | None = None  # seconds of the video; None: all of it


class FeatureFiles:
    """Feature vectors made elsewhere: `<root>/<modality>/<piece>.npy`, or one `<video>.npz` per video.

    An .npy file holds the vector (width,); an .npz file one such array per piece, by its name. In the name of a file
    "_" stands for ":".
    """

    def __init__(self, root: str | Path, modality: Modality) -> None:
        """Reads from the modality's folder in `root`."""
        self.folder = Path(root) / modality
        self._last: dict[Path, dict[str, npt.NDArray[np.generic]]] = {}

    def __bool__(self) -> bool:
        """Whether there is any such file."""
        return self.folder.is_dir() and any(path.suffix in (".npy", ".npz") for path in self.folder.iterdir())

    def read(self, piece: Piece) -> Floats:
        """(width,) float32."""
        single, video = self.folder / f"{piece.name.replace(':', '_')}.npy", self.folder / f"{piece.video}.npz"
        if single.is_file():
            return check_vector(open_npy(single), str(single))
        if not video.is_file():
            raise ValueError(f"{self.folder} has neither {single.name} nor {video.name}")
        if video not in self._last:
            # One video at a time: together they may exceed memory.
            self._last = {video: read_npz(video)[0]}
        if piece.name not in self._last[video]:
            raise ValueError(f"{video} has no array {piece.name}")
        return check_vector(self._last[video][piece.name], f"{video}: {piece.name}")


def read_features(
    root: str | Path, modality: Modality, pieces: Sequence[Piece], classes: Sequence[str], dataset: str
) -> tuple[FeatureSet, tuple[Issue, ...]]:
    """Features of many pieces, and what was left out. Vectors of another width than most are left out."""
    kept, arrays, issues = read_each(pieces, FeatureFiles(root, modality).read)
    if not kept:
        example = f": {issues[0].where}: {issues[0].detail}" if issues else ""
        raise ValueError(f"{root} has no {modality} features for any of {len(pieces)} samples{example}")
    width = Counter(len(array) for array in arrays).most_common(1)[0][0]
    for piece, array in zip(kept, arrays, strict=True):
        if len(array) != width:
            fault = f"{len(array)} numbers, where most have {width}"
            issues.append(Issue(kind="unreadable", where=piece.name, detail=fault))
    kept = [piece for piece, array in zip(kept, arrays, strict=True) if len(array) == width]
    x = np.stack([array for array in arrays if len(array) == width])
    people = [piece.subject for piece in kept] if all(piece.subject for piece in kept) else []
    labels, names = [piece.label for piece in kept], [piece.name for piece in kept]
    return given_features(modality, x, labels, classes, people, names, dataset), tuple(issues)


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
    dataset: str,
) -> FeatureSet:
    """A `FeatureSet` of features from elsewhere, with a fingerprint of its values, labels, people and names."""
    digest = hashlib.sha256(np.ascontiguousarray(x).tobytes())
    digest.update(repr((list(map(int, labels)), list(classes), list(subjects), list(names))).encode())
    provenance = {
        "extractor": {"name": "given", "width": int(x.shape[1])},
        "source": {"kind": KIND, "name": dataset, "samples": len(names), "fingerprint": digest.hexdigest()},
    }
    kept = np.asarray(labels, dtype=np.int64)
    return FeatureSet(modality, x, kept, tuple(classes), tuple(subjects), tuple(names), provenance)
