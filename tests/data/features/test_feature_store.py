"""Feature stores: what is written comes back, and nothing that is damaged is taken."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaction.data.features import FeatureSet, load_features, save_features
from fedaction.federation.seeds import numpy_generator


def some(samples: int = 6, width: int = 5) -> FeatureSet:
    return FeatureSet(
        modality="inertial",
        x=numpy_generator(0, "x").normal(size=(samples, width)).astype(np.float32),
        labels=np.arange(samples) % 2,
        classes=("sit", "wave é"),
        subjects=tuple(f"s{i % 3}" for i in range(samples)),
        names=tuple(f"file-{i}" for i in range(samples)),
        provenance={
            "extractor": {"name": "kernels", "parameters": {"width": width}},
            "source": {"fingerprint": "ab"},
        },
    )


def test_what_is_written_comes_back_from_the_file(tmp_path: Path) -> None:
    given = some()
    save_features(given, tmp_path / "store")
    found = load_features(tmp_path / "store")
    assert np.array_equal(found.x, given.x) and np.array_equal(found.labels, given.labels)
    assert replace(found, x=given.x, labels=given.labels) == replace(given, x=given.x, labels=given.labels)
    assert len(found) == 6 and found.width == 5
    assert isinstance(found.x.base, np.memmap)  # not read into memory
    with pytest.raises(ValueError, match="read-only"):
        found.x[0] = 0
    assert sorted(item.name for item in tmp_path.iterdir()) == ["store"]


def test_nothing_is_written_over_by_accident(tmp_path: Path) -> None:
    save_features(some(), tmp_path / "store")
    with pytest.raises(FileExistsError, match="exists already"):
        save_features(some(4), tmp_path / "store")
    save_features(some(4), tmp_path / "store", overwrite=True)
    assert len(load_features(tmp_path / "store")) == 4
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileExistsError, match="not a feature store"):
        save_features(some(), tmp_path / "mine", overwrite=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.full((6, 5), np.nan, np.float32)}, "row 0 has a value that is not finite"),
        ({"x": np.zeros((6, 5))}, "holds float64"),
        ({"x": np.zeros((5, 5), np.float32)}, r"shape \(5, 5\); expected \(6 samples, width\)"),
        ({"x": np.zeros((6, 0), np.float32)}, "expected"),
        ({"labels": np.full(6, 2)}, "label 2, but only 2 classes"),
        ({"names": ("a",)}, "1 names for 6 samples"),
        ({"subjects": ("a",)}, "1 subjects for 6 samples"),
        ({"classes": ("a", "a")}, "names a class twice"),
        ({"modality": "smell"}, "modality"),
        ({"provenance": {"extractor": object()}}, "provenance"),
    ],
)
def test_faulty_features_are_not_written(change: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        save_features(replace(some(), **change), tmp_path / "store")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())  # nothing is left, not even under another name


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"version": 2}, "format version 2; this release reads version 1"),
        ({"format": "other"}, "not a valid header of features: format"),
        ({"labels": [0]}, "names for 1 samples"),
        ({"more": 1}, "more"),
    ],
)
def test_damaged_headers_are_refused(edit: dict[str, object], message: str, tmp_path: Path) -> None:
    save_features(some(), tmp_path / "store")
    path = tmp_path / "store" / "features.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **edit}))
    with pytest.raises(ValueError, match=message):
        load_features(tmp_path / "store")


def test_damaged_values_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="Make one with `fedaction features`"):
        load_features(tmp_path)
    save_features(some(), tmp_path / "store")
    path = tmp_path / "store" / "features.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    with pytest.raises(ValueError, match=r"features\.npy is not .* damaged"):
        load_features(tmp_path / "store")
    path.unlink()
    with path.open("wb") as file:
        np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"features\.npy is not a NumPy file, or is damaged"):
        load_features(tmp_path / "store")
