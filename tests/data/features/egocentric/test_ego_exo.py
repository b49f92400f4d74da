"""Features per client from an .npz file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedaction.data.features import load_features, save_features
from fedaction.data.features.egocentric import ego_exo

RNG = np.random.default_rng(0)
GOOD: dict[str, np.ndarray] = {
    "x": RNG.normal(size=(30, 8)),
    "y": np.arange(30) % 3,
    "client": np.repeat(["p1", "p2", "p3"], 10),
    "modality": np.repeat(["image", "sensor", "image"], 10),
    "classes": np.array(["sit", "walk", "eat"]),
}


def test_each_client_becomes_a_feature_set(tmp_path: Path) -> None:
    np.savez(tmp_path / "ego.npz", **GOOD)  # pyright: ignore[reportArgumentType]
    (path,) = ego_exo.find(tmp_path)
    clients = ego_exo.read(path)
    assert {name: item.modality for name, item in clients.items()} == {"p1": "image", "p2": "inertial", "p3": "image"}
    assert np.array_equal(clients["p2"].x, GOOD["x"][10:20].astype(np.float32))
    assert clients["p2"].labels.tolist() == GOOD["y"][10:20].tolist() and clients["p2"].classes == (
        "sit",
        "walk",
        "eat",
    )
    assert clients["p2"].names[0] == "ego:10" and set(clients["p2"].subjects) == {"p2"}
    save_features(clients["p2"], tmp_path / "store")
    assert np.array_equal(load_features(tmp_path / "store").x, clients["p2"].x)


def test_labels_by_name_and_by_any_number(tmp_path: Path) -> None:
    names = GOOD["classes"][GOOD["y"]]
    np.savez(tmp_path / "a.npz", **{**GOOD, "y": names})  # pyright: ignore[reportArgumentType]
    assert ego_exo.read(tmp_path / "a.npz")["p1"].labels.tolist() == GOOD["y"][:10].tolist()
    rest = {name: array for name, array in GOOD.items() if name != "classes"}
    np.savez(tmp_path / "b.npz", **{**rest, "y": GOOD["y"] * 10 - 5})  # pyright: ignore[reportArgumentType]
    item = ego_exo.read(tmp_path / "b.npz")["p1"]
    assert item.classes == ("-5", "5", "15") and item.labels.tolist() == GOOD["y"][:10].tolist()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"x": np.zeros((30, 2, 4))}, r"x is float64 \(30, 2, 4\)"),
        ({"x": np.full((30, 8), np.inf)}, "x: row 0 has a value that is not finite"),
        ({"x": np.full((30, 8), None)}, "without pickled objects"),
        ({"y": np.arange(29)}, "y is int64 .*one value for each of 30 samples"),
        ({"y": np.arange(30)}, "y has 3, for 3 classes"),
        ({"y": np.array(["run"] * 30)}, "'run', which is not one of the 3"),
        ({"modality": np.array(["image", "sensor"] * 15)}, "client p1 holds image, inertial; expected one"),
        ({"modality": np.array(["radar"] * 30)}, "client p1 holds radar"),
        ({"modality": np.arange(30)}, "modality is int64"),
        ({"classes": np.array(["a", "a", "b"])}, "names a class twice"),
    ],
)
def test_faults_are_refused_in_words(tmp_path: Path, change: dict[str, np.ndarray], why: str) -> None:
    np.savez(tmp_path / "ego.npz", **{**GOOD, **change})  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=why):
        ego_exo.read(tmp_path / "ego.npz")


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no \.npz file with the arrays x, y, client and modality"):
        ego_exo.find(tmp_path)
    np.savez(tmp_path / "ego.npz", x=GOOD["x"], y=GOOD["y"])
    with pytest.raises(ValueError, match="it lacks client, modality"):
        ego_exo.read(tmp_path / "ego.npz")
