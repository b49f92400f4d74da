"""UTD-MHAD against its own files and documentation."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedaction.data.layout import KINECT_V1
from fedaction.data.matlab import read_matrix
from fedaction.data.public.utd_mhad import CLASSES, READER
from tests.conftest import recordings
from tests.data.public import bodies


@pytest.fixture(scope="module")
def root() -> Path:
    return recordings("utd_mhad")


def test_listing_has_every_skeleton_and_nothing_else(root: Path) -> None:
    listing = READER.find(root)
    samples = [source.samples[0] for source in listing.sources]
    assert len(samples) == 861 and len(listing.classes) == 27 and not listing.issues
    assert {source.path.parent.name for source in listing.sources} == {"Skeleton"}  # not Depth, not Inertial
    assert [sample.name for sample in samples[:5]] == [f"a1_s1_t{n}" for n in (1, 2, 3, 4)] + ["a1_s2_t1"]
    assert Counter(sample.label for sample in samples).most_common()[-1][1] == 31
    split = {who: {s.splits["cross_subject"] for s in samples if s.subject == who} for who in ("s01", "s02", "s07")}
    assert split == {"s01": {"train"}, "s02": {"test"}, "s07": {"train"}}
    assert Counter(sample.splits["cross_subject"] for sample in samples) == {"train": 431, "test": 430}


def test_joint_order_is_the_datasets_own_list(root: Path) -> None:
    text = (root / "Skeleton" / "Skeleton_joint_order.txt").read_text()
    listed = [str(name) for name in re.findall(r"\d+\. (\w+);", text)]
    assert len(listed) == 20
    ours = {"shoulder_center": "spine_shoulder", "spine": "spine_mid", "hip_center": "spine_base"}
    path = READER.find(root).sources[100].path
    raw = read_matrix(path, "d_skel")
    body = READER.read(path)
    assert body.shape == (1, raw.shape[2], 20, 3) and body.dtype == np.float32
    for row, name in enumerate(listed):
        assert np.allclose(body[0, :, KINECT_V1.index(ours.get(name, name))], raw[row].T)


def test_joints_axes_and_sides(root: Path) -> None:
    people = bodies.some(READER, root, 25)
    bodies.assert_joints_are_in_order(people, KINECT_V1)
    bodies.assert_sides_are_alike(people, KINECT_V1, within=0.02)
    bodies.assert_person_before_a_kinect(people, KINECT_V1, "foot")


def test_right_hand_actions_are_done_with_the_right_hand(root: Path) -> None:
    sources = [source for source in READER.find(root).sources if "right hand draw" in source.samples[0].label]
    for source in sources[::12]:
        body = READER.read(source.path)[0].astype(np.float64)
        moved = {side: bodies.path_length(body, KINECT_V1, f"{side}_hand") for side in ("left", "right")}
        assert moved["right"] > 2 * moved["left"], source.path.name


def test_faulty_folders_and_files_are_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="none of the expected files: Skeleton/a<action>_s<person>_t<trial>_skeleton"
    ):
        READER.find(tmp_path)
    with pytest.raises(ValueError, match="no array of numbers called 'd_skel'; it has d_iner"):
        READER.read(root / "Inertial" / "a1_s1_t1_inertial.mat")
    (tmp_path / "a28_s1_t1_skeleton.mat").touch()
    (tmp_path / "a1_s9_t1_skeleton.mat").touch()
    (tmp_path / "a1_s8_t1_skeleton.mat").touch()
    listing = READER.find(tmp_path)
    assert [source.samples[0].name for source in listing.sources] == ["a1_s8_t1"]
    assert [issue.where for issue in listing.issues] == ["a1_s9_t1", "a28_s1_t1"]
    with pytest.raises(ValueError, match="not a MATLAB 5 file"):
        READER.read(tmp_path / "a1_s8_t1_skeleton.mat")
    assert len(set(CLASSES)) == 27
