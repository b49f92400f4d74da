"""UESTC: names, splits, and MATLAB files that are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedaction.data import store
from fedaction.data.public.cache import prepare_public
from fedaction.data.public.uestc import CLASSES, READER, TRAIN
from tests.data.public.formats import person, write_mat


def test_a_file_is_read(tmp_path: Path) -> None:
    poses = person(12, 0)
    path = write_mat(tmp_path / "a0_d1_p001_c1_skeleton.mat", "v", poses.reshape(12, 75))
    assert np.array_equal(READER.read(path), poses[None]) and READER.read(path).dtype == np.float32


def test_scipy_agrees(tmp_path: Path) -> None:
    scipy_io = pytest.importorskip("scipy.io")
    poses = person(12, 0)
    path = tmp_path / "a0_d1_p001_c1_skeleton.mat"
    scipy_io.savemat(path, {"v": poses.reshape(12, 75).astype(np.float64)}, do_compression=True)
    assert np.array_equal(READER.read(path), poses[None])
    written = write_mat(tmp_path / "w.mat", "v", poses.reshape(12, 75))
    assert np.array_equal(scipy_io.loadmat(written)["v"], poses.reshape(12, 75))


@pytest.mark.parametrize(
    ("name", "array", "kind", "message"),
    [
        ("v", np.zeros((5, 60)), 6, r"v has shape \(5, 60\); expected \(frames, 75\)"),
        ("v", np.zeros((5, 25, 3)), 6, r"v has shape \(5, 25, 3\)"),
        ("w", np.zeros((5, 75)), 6, "no array of numbers called 'v'"),
        ("v", np.zeros((5, 75)), 2, "no array of numbers called 'v'"),  # a structure
        ("v", np.zeros((5, 75)), 3, "no array of numbers called 'v'"),  # an object
    ],
)
def test_other_variables_are_refused(tmp_path: Path, name: str, array: np.ndarray, kind: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        READER.read(write_mat(tmp_path / "x.mat", name, array, kind))


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = write_mat(tmp_path / "x.mat", "v", person(5, 0).reshape(5, 75))
    whole = path.read_bytes()
    for content in (b"", whole[:100], whole[:-200], b"\x00" * 200):
        path.write_bytes(content)
        with pytest.raises(ValueError):
            READER.read(path)


def test_splits(tmp_path: Path) -> None:
    assert len(TRAIN) == 51 and max(TRAIN) <= 118 and len(CLASSES) == len(set(CLASSES)) == 40
    for p in range(1, 119):
        (tmp_path / f"a{p % 40}_d{1 + p % 8}_p{p:03d}_c{1 + p % 2}_skeleton.mat").touch()
    listing = READER.find(tmp_path)
    sides = [source.samples[0].splits for source in listing.sources]
    assert [sum(side["cross_subject"] == want for side in sides) for want in ("train", "test")] == [51, 67]
    for source in listing.sources:
        sample = source.samples[0]
        action, direction, _, camera = (part[1:] for part in sample.name.split("_"))
        assert sample.label == CLASSES[int(action)]
        view = {"1": "train", "3": "train", "5": "train", "7": "train", "2": "test", "4": "test", "6": "test"}
        assert sample.splits["cross_view"] == (view.get(direction, "") if camera == "2" else "")


def test_a_folder(tmp_path: Path) -> None:
    for name in ("a3_d1_p001_c2", "a3_d2_p004_c2", "a10_d8_p118_c2"):
        write_mat(tmp_path / "mat_from_skeleton" / f"{name}_skeleton.mat", "v", person(6, 0).reshape(6, 75))
    write_mat(tmp_path / "a40_d1_p001_c2_skeleton.mat", "v", np.zeros((1, 75)))
    write_mat(tmp_path / "z" / "a3_d1_p01_c2_skeleton.mat", "v", np.zeros((1, 75)))  # the same numbers
    item = store.load(prepare_public("uestc", tmp_path, cache=tmp_path / "cache"))
    assert item.names == ("a3_d1_p001_c2", "a3_d2_p004_c2", "a10_d8_p118_c2")
    assert item.subjects == ("p001", "p004", "p118") and item.labels.tolist() == [3, 3, 10]
    assert item.splits == {"cross_subject": ("train", "test", "test"), "cross_view": ("train", "test", "")}
    assert [(issue.kind, issue.where) for issue in item.issues] == [
        ("label", "a40_d1_p001_c2"),
        ("duplicate", "a3_d1_p01_c2"),
    ]
    with pytest.raises(ValueError, match="no file of uestc"):
        READER.find(tmp_path / "cache")
