"""KARD against its own files: millimetres, right before left, and a mirrored x axis."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedaction.data.layout import OPENNI_15
from fedaction.data.public.kard import READER
from tests.conftest import recordings
from tests.data.public import bodies


@pytest.fixture(scope="module")
def root() -> Path:
    return recordings("kard")


def test_listing(root: Path) -> None:
    listing = READER.find(root)
    samples = [source.samples[0] for source in listing.sources]
    assert len(samples) == 540 and len(listing.classes) == 18 and not listing.issues
    assert Counter(sample.label for sample in samples) == dict.fromkeys(listing.classes, 30)
    assert Counter(sample.splits["cross_subject"] for sample in samples) == {"train": 270, "test": 270}
    assert {s.subject for s in samples if s.splits["cross_subject"] == "test"} == {f"s{n:02d}" for n in range(6, 11)}


def test_classes_are_those_of_its_documentation(root: Path) -> None:
    text = (root / "README.md").read_text().lower()
    for number, name in enumerate(READER.find(root).classes, start=1):
        assert f"-\t{number} {name}\n" in text


def test_a_file_line_by_line(root: Path) -> None:
    path = READER.find(root).sources[7].path
    rows = np.loadtxt(path)
    body = READER.read(path)
    assert body.shape == (1, len(rows) // 15, 15, 3)
    frame = 3
    for line, joint in ((1, "head"), (3, "right_shoulder"), (8, "left_hand"), (9, "spine_mid"), (15, "left_foot")):
        expected = rows[15 * frame + line - 1] * (-0.001, 0.001, 0.001)
        assert np.allclose(body[0, frame, OPENNI_15.index(joint)], expected)


def test_joints_axes_and_sides(root: Path) -> None:
    people = bodies.some(READER, root, 25)
    bodies.assert_joints_are_in_order(people, OPENNI_15)
    bodies.assert_sides_are_alike(people, OPENNI_15, within=0.03)
    bodies.assert_person_before_a_kinect(people, OPENNI_15, "foot")


def test_one_handed_actions_are_done_with_the_right_hand(root: Path) -> None:
    labels = ("high arm wave", "draw x", "draw tick", "drink")
    sources = [source for source in READER.find(root).sources if source.samples[0].label in labels][::5]
    right = 0
    for source in sources:
        body = READER.read(source.path)[0].astype(np.float64)
        moved = {side: bodies.path_length(body, OPENNI_15, f"{side}_hand") for side in ("left", "right")}
        right += moved["right"] > 1.5 * moved["left"]
    assert right / len(sources) > 0.8


def test_screen_coordinates_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "a01_s01_e01_screen.txt").write_text("1 2 3\n" * 15)
    with pytest.raises(ValueError, match="none of the expected files"):
        READER.find(tmp_path)
