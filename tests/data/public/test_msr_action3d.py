"""MSR Action3D against its own files: a joint order that is not the Kinect's, and recordings without a person."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedaction.data.layout import KINECT_V1
from fedaction.data.preprocess import prepare
from fedaction.data.public.msr_action3d import READER, UNUSABLE
from tests.conftest import recordings
from tests.data.public import bodies


@pytest.fixture(scope="module")
def root() -> Path:
    return recordings("msr_action3d")


def test_listing_is_that_of_the_usable_files(root: Path) -> None:
    listing = READER.find(root)
    samples = [source.samples[0] for source in listing.sources]
    usable = next(root.rglob("files_used_in_cvpr12_paper.txt")).read_text().split()
    assert len(usable) == 557 and {sample.name for sample in samples} == set(usable)
    assert {issue.where for issue in listing.issues} == set(UNUSABLE) and len(UNUSABLE) == 10
    assert all("unusable" in issue.detail for issue in listing.issues)
    assert Counter(sample.splits["cross_subject"] for sample in samples) == {"train": 284, "test": 273}
    assert {s.subject for s in samples if s.splits["cross_subject"] == "train"} == {f"s0{n}" for n in (1, 3, 5, 7, 9)}
    assert len(listing.classes) == 20 and len({sample.label for sample in samples}) == 20


def test_joint_order_is_found_from_the_bones(root: Path) -> None:
    people = bodies.some(READER, root, 25)
    bodies.assert_joints_are_in_order(people, KINECT_V1)
    bodies.assert_sides_are_alike(people, KINECT_V1, within=0.01)
    bodies.assert_person_before_a_kinect(people, KINECT_V1, "foot")


def test_file_order_is_not_the_kinects(root: Path) -> None:
    paths = [source.path for source in READER.find(root).sources[::40]]
    read = [READER.read(path)[0].astype(np.float64) for path in paths]
    plain = [np.loadtxt(path)[:, :3].reshape(-1, 20, 3) for path in paths]
    with pytest.raises(AssertionError, match=" and "):
        bodies.assert_joints_are_in_order(plain, KINECT_V1)
    _, ours = bodies.distances(read)
    _, theirs = bodies.distances(plain)
    stretch, stretch_in_file_order = (bodies.along(KINECT_V1.edges, values).mean() for values in (ours, theirs))
    assert stretch < 0.006 and stretch_in_file_order > 10 * stretch  # metres


def test_one_handed_actions_are_done_with_the_right_hand(root: Path) -> None:
    labels = ("high arm wave", "hammer", "draw x", "draw circle", "tennis swing")
    sources = [source for source in READER.find(root).sources if source.samples[0].label in labels]
    right = 0
    for source in sources[::6]:
        body = READER.read(source.path)[0].astype(np.float64)
        body = body[(body != 0).any(axis=(1, 2))]
        moved = {side: bodies.path_length(body, KINECT_V1, f"{side}_hand") for side in ("left", "right")}
        right += moved["right"] > 1.5 * moved["left"]
    assert right / len(sources[::6]) > 0.8


def test_recordings_without_a_person(root: Path) -> None:
    folder = READER.find(root).sources[0].path.parent
    nobody = READER.read(folder / "a13_s09_e02_skeleton3D.txt")
    assert nobody.shape == (1, 38, 20, 3) and not nobody.any()
    longest = READER.read(folder / "a13_s09_e03_skeleton3D.txt")
    assert longest.shape[1] == 936 and int((longest == 0).all(axis=(0, 2, 3)).sum()) == 740
    x, report = prepare([nobody, longest], KINECT_V1)
    assert report.empty == (0,) and report.zero_frames == 38 + 740 and x.shape == (1, 1, 50, 20, 3)


def test_usable_files_with_zero_frames_stay_usable(root: Path) -> None:
    gaps = 0
    for source in READER.find(root).sources:
        body = READER.read(source.path)
        zero = int((body == 0).all(axis=(0, 2, 3)).sum())
        gaps += zero > 0
        assert np.isfinite(body).all() and zero < body.shape[1] < 300
    assert gaps == 13  # of the 20 files with such a frame; the other seven are among the unusable


def test_faulty_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a01_s01_e01_skeleton3D.txt"
    for text, message in (
        ("", "is empty"),
        ("1 2 3 4\n" * 21, "21 rows; expected 20 rows to a frame"),
        ("1 2 3\n" * 20, "rows of 3 numbers; expected rows of 4"),
        ("1 2 3 4\n" * 19 + "1 2 x 4\n", "not a table of rows of 4 numbers.*'x'"),
        ("1 2 3 4\n" * 19 + "1 2 3\n", "not a table of rows of 4 numbers"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            READER.read(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not a table of rows of 4 numbers"):
        READER.read(path)
    path.write_text("1 2 nan 4\n" * 20)
    assert np.isnan(READER.read(path)[..., 2]).all()
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / path.name).touch()
    with pytest.raises(ValueError, match="a01_s01_e01 twice"):
        READER.find(tmp_path)
    with pytest.raises(ValueError, match="none of the expected files"):
        READER.find(tmp_path / "absent")
