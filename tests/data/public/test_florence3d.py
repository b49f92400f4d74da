"""Florence 3D Actions: the whole dataset, which is small."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedaction.data.layout import FLORENCE_15, OPENNI_15
from fedaction.data.public.florence3d import READER
from tests.conftest import recordings
from tests.data.public import bodies


@pytest.fixture(scope="module")
def root() -> Path:
    return recordings("florence3d")


def test_the_whole_dataset(root: Path) -> None:
    listing = READER.find(root)
    samples = [source.samples[0] for source in listing.sources]
    assert len(samples) == 215 and len(listing.classes) == 9 and not listing.issues
    assert Counter(sample.splits["cross_subject"] for sample in samples) == {"train": 107, "test": 108}
    assert min(Counter(sample.label for sample in samples).values()) >= 20
    assert len({sample.subject for sample in samples}) == 10
    lengths = []
    for source in listing.sources:
        body = READER.read(source.path)
        assert body.shape[0] == 1 and body.shape[2:] == (15, 3) and np.isfinite(body).all()
        assert 1.5 < np.median(body[..., 2]) < 3.5  # metres from the camera, not millimetres
        lengths.append(body.shape[1])
    assert (min(lengths), max(lengths)) == (7, 34)


def test_joints_axes_and_sides(root: Path) -> None:
    people = bodies.some(READER, root, 40)
    bodies.assert_joints_are_in_order(people, FLORENCE_15)
    bodies.assert_sides_are_alike(people, FLORENCE_15, within=0.03)
    bodies.assert_person_before_a_kinect(people, FLORENCE_15, "ankle")


def test_waving_and_drinking_are_mostly_done_with_the_right_hand(root: Path) -> None:
    right = []
    for source in READER.find(root).sources:
        if source.samples[0].label in ("wave", "drink from a bottle", "answer phone"):
            body = READER.read(source.path)[0].astype(np.float64)
            moved = [bodies.path_length(body, FLORENCE_15, f"{side}_wrist") for side in ("left", "right")]
            right.append(moved[1] > moved[0])
    assert np.mean(right) > 0.65


def test_layout_differs_from_openni_in_wrists_and_ankles_only() -> None:
    swapped = {name.replace("wrist", "hand").replace("ankle", "foot") for name in FLORENCE_15.joints}
    assert swapped == set(OPENNI_15.joints) and FLORENCE_15.joints != OPENNI_15.joints
