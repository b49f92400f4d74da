"""Ego-Exo-AR: 14 people, 15 activities, bracelets and phone cameras; known only by its features.

The paper's authors give out features, not recordings, in a form that is not documented. What is read here is this
project's own layout: an .npz file with `x` (N, width), `y` (N,) integers or strings, `client` (N,) and `modality`
(N,) strings, and optionally `classes`. Any dataset that comes as features per client can be brought into it.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np

from fedaction.data.features.egocentric.given import given_features
from fedaction.data.features.store import FeatureSet, Modality
from fedaction.data.files import check_finite, read_npz, to_float32
from fedaction.federation.outside import shorten

_ARRAYS = ("x", "y", "client", "modality", "classes")
_PAPER = {"sensor": "inertial"}  # the paper's word for what is called inertial here


def find(root: str | Path) -> tuple[Path, ...]:
    """The .npz files of a folder, in order; or the one file given."""
    root = Path(root)
    files = (root,) if root.is_file() else tuple(sorted(root.glob("*.npz"))) if root.is_dir() else ()
    if not files:
        raise ValueError(f"{root} holds no .npz file with the arrays x, y, client and modality")
    return files


def read(path: str | Path) -> dict[str, FeatureSet]:
    """The features of each client, by its name. Every client holds one modality."""
    path = Path(path)
    arrays, _ = read_npz(path, _ARRAYS)
    missing = [name for name in _ARRAYS[:4] if name not in arrays]
    if missing:
        raise ValueError(f"{path} needs the arrays x, y, client and modality; it lacks {', '.join(missing)}")
    x, y = arrays["x"], arrays["y"]
    if x.ndim != 2 or x.dtype.kind not in "fiu" or not x.size:
        raise ValueError(f"{path}: x is {x.dtype} {x.shape}; expected numbers (samples, width)")
    for name, kinds in (("y", "iuU"), ("client", "iuU"), ("modality", "U")):
        if arrays[name].shape != (len(x),) or arrays[name].dtype.kind not in kinds:
            form = f"{arrays[name].dtype} {arrays[name].shape}"
            raise ValueError(f"{path}: {name} is {form}; expected one value for each of {len(x)} samples")
    values = to_float32(x)
    check_finite(values, f"{path}: x")
    classes = [str(name) for name in arrays.get("classes", np.unique(y)).reshape(-1)]
    if len(set(classes)) != len(classes):
        raise ValueError(f"{path}: classes names a class twice")
    labels = _labels(path, y.tolist(), classes, numbered="classes" in arrays and y.dtype.kind != "U")
    people = arrays["client"].astype(str)
    modalities = np.array([_PAPER.get(str(name), str(name)) for name in arrays["modality"]])
    features: dict[str, FeatureSet] = {}
    for person in sorted(set(people.tolist())):
        rows = np.flatnonzero(people == person)
        held = sorted(set(modalities[rows].tolist()))
        if len(held) != 1 or held[0] not in get_args(Modality):
            raise ValueError(
                f"{path}: client {shorten(person, 80)} holds {shorten(', '.join(held))}; expected one of "
                f"{', '.join(get_args(Modality))}"
            )
        names = [f"{path.stem}:{row}" for row in rows.tolist()]
        own = [labels[row] for row in rows.tolist()]
        features[person] = given_features(held[0], values[rows], own, classes, [person] * len(rows), names, "ego_exo")
    return features


def _labels(path: Path, y: list[int] | list[str], classes: list[str], *, numbered: bool) -> list[int]:
    """Indices into the classes, of numbers or of names."""
    if numbered:
        wrong = [value for value in y if not 0 <= int(value) < len(classes)]
        if wrong:
            raise ValueError(f"{path}: y has {wrong[0]}, for {len(classes)} classes")
        return [int(value) for value in y]
    positions = {name: position for position, name in enumerate(classes)}
    unknown = sorted({str(value) for value in y} - positions.keys())
    if unknown:
        raise ValueError(f"{path}: y has {shorten(unknown[0], 80)!r}, which is not one of the {len(classes)} classes")
    return [positions[str(value)] for value in y]
