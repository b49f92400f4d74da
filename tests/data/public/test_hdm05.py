"""HDM05: people of plausible size who stand on the floor, out of nothing but angles."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedaction.data.layout import MOCAP_31
from fedaction.data.public.acclaim import read_asf
from fedaction.data.public.hdm05 import BONES, READER
from tests.conftest import recordings
from tests.data.public import bodies


@pytest.fixture(scope="module")
def root() -> Path:
    return recordings("hdm05")


def test_listing(root: Path) -> None:
    listing = READER.find(root)
    samples = [source.samples[0] for source in listing.sources]
    assert len(samples) == 108 and len(listing.classes) == 11 and not listing.issues
    assert list(listing.classes) == sorted(path.name for path in root.iterdir() if path.is_dir())
    assert Counter(sample.splits["cross_subject"] for sample in samples) == {"train": 64, "test": 44}
    assert {s.subject for s in samples if s.splits["cross_subject"] == "test"} == {"mm", "tr"}
    assert all(source.path.parent.name == source.samples[0].label for source in listing.sources)
    assert [path.name for path in listing.inputs] == [f"HDM_{who}.asf" for who in ("bd", "bk", "dg", "mm", "tr")]


def test_joints_are_the_far_ends_of_the_skeleton_files_bones(root: Path) -> None:
    skeleton = read_asf(root / "HDM_bd.asf")
    assert set(skeleton.joints) == {"root", *BONES} and len(BONES) == 30
    joints = ("root", *BONES)
    edges = {frozenset((joints[a], joints[b])) for a, b in MOCAP_31.edges}
    assert edges == {frozenset((bone.name, skeleton.joints[bone.parent + 1])) for bone in skeleton.bones}


def test_bones_keep_their_length_and_bodies_their_place_on_the_floor(root: Path) -> None:
    sources = READER.find(root).sources
    upright = [s for s in sources if s.samples[0].label in ("squat1Reps", "grabHighR", "throwBasketball")][::4]
    heights: dict[str, float] = {}
    for source in upright:
        body = READER.read(source.path)[0, ::4].astype(np.float64)
        lengths, stretch = bodies.distances([body])
        assert bodies.along(MOCAP_31.edges, stretch).max() < 1e-5
        assert 0.3 < lengths[MOCAP_31.index("left_hip"), MOCAP_31.index("left_knee")] < 0.55
        start = body[: len(body) // 10]  # standing
        head, toes = (start[:, MOCAP_31.index(joint), 1] for joint in ("head", "left_toes"))
        assert abs(toes.mean()) < 0.12 and head.min() > 1.4
        heights[source.samples[0].subject] = float(head.max())
        right = body[:, MOCAP_31.index("right_hip")] - body[:, MOCAP_31.index("left_hip")]
        ahead = body[:, MOCAP_31.index("left_toes")] - body[:, MOCAP_31.index("left_ankle")]
        assert np.median(np.cross(right, ahead)[:, 1]) > 0  # right-handed: right x ahead is up
    assert set(heights) == {"bd", "bk", "dg", "mm", "tr"}
    assert all(1.45 < height < 2.0 for height in heights.values())


def test_sides_are_alike(root: Path) -> None:
    people = [body[::20] for body in bodies.some(READER, root, 8)]
    bodies.assert_sides_are_alike(people, MOCAP_31, within=0.06)
    lengths, _ = bodies.distances(people)
    assert 0.05 < lengths[MOCAP_31.index("head"), MOCAP_31.index("skull_base")] < 0.15


def test_upper_case_suffix_and_skeleton_beside_the_clip(root: Path, tmp_path: Path) -> None:
    source = READER.find(root).sources[0]
    shutil.copy(source.path, tmp_path / f"{source.path.stem}.AMC")
    listing = READER.find(tmp_path)
    assert not listing.sources and listing.issues[0].detail == "there is no HDM_bd.asf"
    with pytest.raises(ValueError, match="no skeleton file"):
        READER.read(tmp_path / f"{source.path.stem}.AMC")
    shutil.copy(root / "HDM_bd.asf", tmp_path)
    found = READER.find(tmp_path).sources
    assert [item.samples for item in found] == [source.samples]
    assert np.array_equal(READER.read(found[0].path), READER.read(source.path))


def test_uncut_takes_and_other_people(tmp_path: Path) -> None:
    (tmp_path / "HDM_bd_01-01_01_120.amc").touch()  # a whole take: no action in its name
    with pytest.raises(ValueError, match="none of the expected files"):
        READER.find(tmp_path)
    (tmp_path / "HDM_xy_squat_001_120.amc").touch()
    (tmp_path / "HDM_xy.asf").touch()
    assert [issue.detail for issue in READER.find(tmp_path).issues] == ["person 'xy' is not one of the dataset's"]
    (tmp_path / "HDM_bd_squat_001_120.amc").touch()
    (tmp_path / "HDM_bd.asf").write_text(":units\n length 0.45\n angle deg\n")
    with pytest.raises(ValueError, match="not a skeleton"):
        READER.read(tmp_path / "HDM_bd_squat_001_120.amc")
