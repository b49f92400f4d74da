"""NTU RGB+D: real files against a literal parser, the rules for bodies, damaged files, official splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedaction.data.layout import KINECT_V2
from fedaction.data.public.ntu import NTU60, NTU120, TRAIN_60, TRAIN_120, list_missing
from tests.conftest import recordings
from tests.data.public.formats import person, skeleton_lines, write_one_person, write_skeleton

NAME = "S001C002P003R002A013.skeleton"


def literal(path: Path) -> dict[str, dict[int, list[list[float]]]]:
    """Body id -> frame -> 25 positions, one token after another."""
    words = iter(path.read_text().split())
    tracks: dict[str, dict[int, list[list[float]]]] = {}
    for frame in range(int(next(words))):
        for _ in range(int(next(words))):
            who = next(words)
            for _ in range(9):
                next(words)
            joints = [[float(next(words)) for _ in range(12)][:3] for _ in range(int(next(words)))]
            tracks.setdefault(who, {})[frame] = joints
    assert next(words, None) is None
    return tracks


def test_real_files_agree_with_a_literal_parser() -> None:
    frames = {}
    for path in sorted(recordings("ntu_rgbd_samples").rglob("*.skeleton")):
        array, tracks = NTU60.read(path), literal(path)
        frames[path.stem] = array.shape[:2]
        assert array.dtype == np.float32 and array.shape[2:] == (25, 3) and np.isfinite(array).all()
        assert len(array) == len(tracks) <= 2
        expected = np.zeros_like(array)
        for body, track in enumerate(tracks.values()):
            expected[body, list(track)] = list(track.values())
        if len(array) == 2 and not np.array_equal(array, expected):
            expected = expected[::-1]  # bodies come in the order of their motion
        assert np.array_equal(array, expected)
        depth = array[..., 2][array[..., 2] != 0]
        assert depth.min() > 2.0 and depth.max() < 4.5
    assert frames == {
        "S001C001P001R001A011": (1, 82),
        "S001C003P008R002A058": (2, 70),
        "S002C001P003R001A003": (1, 100),
        "S003C001P015R001A034": (1, 71),
        "S004C002P003R001A017": (1, 124),
    }


def test_real_files_are_listed_with_labels_and_splits() -> None:
    listing = NTU60.find(recordings("ntu_rgbd_samples"))
    samples = [source.samples[0] for source in listing.sources]
    assert [sample.label for sample in samples] == [
        "A011 reading",
        "A058 handshaking",
        "A003 brushing teeth",
        "A034 rub two hands together",
        "A017 take off a shoe",
    ]
    assert [sample.subject for sample in samples] == ["P001", "P008", "P003", "P015", "P003"]
    assert [sample.splits["cross_subject"] for sample in samples] == ["train", "train", "test", "train", "test"]
    assert [sample.splits["cross_view"] for sample in samples] == ["test", "train", "test", "test", "train"]
    setups = [
        source.samples[0].splits["cross_setup"] for source in NTU120.find(recordings("ntu_rgbd_samples")).sources
    ]
    assert setups == ["test", "test", "train", "test", "train"]


def test_the_official_splits(tmp_path: Path) -> None:
    assert len(TRAIN_60) == 20 and max(TRAIN_60) <= 40
    assert len(TRAIN_120) == 53 and max(TRAIN_120) <= 106
    assert {p for p in TRAIN_120 if p <= 40} == TRAIN_60  # what the reader of NTU 60 relies on
    for p in range(1, 107):
        for camera in (1, 2, 3):
            (tmp_path / f"S{1 + p % 32:03d}C{camera:03d}P{p:03d}R001A0{1 + p % 60:02d}.skeleton").touch()
    (tmp_path / "S003C001P050R001A120.skeleton").touch()
    big = NTU120.find(tmp_path)
    people = {(s.subject, s.splits["cross_subject"]) for source in big.sources for s in source.samples}
    assert [sum(side == want for _, side in people) for want in ("train", "test")] == [53, 53]
    for source in big.sources:
        assert source.samples[0].splits["cross_setup"] == ("train" if int(source.path.name[1:4]) % 2 == 0 else "test")
    assert len(big.classes) == 120 and big.classes[119] == "A120 finger-guessing game (playing rock-paper-scissors)"
    small = NTU60.find(tmp_path)
    people = {(s.subject, s.splits["cross_subject"]) for source in small.sources for s in source.samples}
    assert len(small.classes) == 60 and all(int(source.path.name[1:4]) <= 17 for source in small.sources)
    assert {who for who, side in people if side == "train"} <= {f"P{p:03d}" for p in TRAIN_60}
    wrong = [issue for issue in small.issues if issue.kind == "label"]
    assert any("is not in 1 to 40" in issue.detail for issue in wrong)
    assert any("is not in 1 to 17" in issue.detail for issue in wrong)
    assert not any("A120" in issue.where for issue in wrong)  # not a fault: it belongs to the other dataset
    views = {(s.name[4:8], s.splits["cross_view"]) for source in small.sources for s in source.samples}
    assert views == {("C001", "test"), ("C002", "train"), ("C003", "train")}


def test_empty_frames_are_zero_frames(tmp_path: Path) -> None:
    poses = person(20, 0)
    frames = [[] if i in (0, 7, 8) else [(9, pose)] for i, pose in enumerate(poses)]
    array = NTU60.read(write_skeleton(tmp_path / NAME, frames))
    assert array.shape == (1, 20, 25, 3)
    assert [i for i in range(20) if not array[0, i].any()] == [0, 7, 8]
    assert np.array_equal(array[0, 9:], poses[9:])
    for nothing in ([], [[], [], []]):
        array = NTU60.read(write_skeleton(tmp_path / NAME, nothing))
        assert array.shape == (1, len(nothing), 25, 3) and not array.any()


def test_bodies_are_told_apart_by_ids_longer_than_a_float(tmp_path: Path) -> None:
    one, two = 72057594037944738, 72057594037944734
    assert float(one) == float(two)
    still, moving = person(30, 0, step=0.01), person(30, 1, step=0.1)
    frames = [[(one, still[i]), (two, moving[i])][:: 1 if i % 2 else -1] for i in range(30)]
    array = NTU60.read(write_skeleton(tmp_path / NAME, frames))
    assert np.array_equal(array, np.stack([moving, still]))


def test_the_two_bodies_that_move_most_are_kept(tmp_path: Path) -> None:
    bodies = [person(30, i, step=step) for i, step in enumerate((0.002, 0.08, 0.03))]
    array = NTU60.read(
        write_skeleton(tmp_path / NAME, [[(i, b[t]) for i, b in enumerate(bodies)] for t in range(30)])
    )
    assert np.array_equal(array, np.stack([bodies[1], bodies[2]]))


def test_ghosts_are_dropped_and_lost_people_found_again(tmp_path: Path) -> None:
    person_1, person_2, ghost = person(40, 0), person(40, 1, step=0.01), person(40, 2, step=3.0)
    frames = []
    for t in range(40):
        bodies = [(100 if t < 25 else 101, person_1[t]), (200, person_2[t])]  # the first gets a new id
        if 10 <= t < 21:  # eleven frames, moving wildly
            bodies.insert(0, (300, ghost[t]))
        frames.append(bodies)
    array = NTU60.read(write_skeleton(tmp_path / NAME, frames))
    assert np.array_equal(array, np.stack([person_1, person_2]))
    short = NTU60.read(write_skeleton(tmp_path / NAME, [[(1, pose)] for pose in person_1[:5]]))
    assert np.array_equal(short, person_1[None, :5])  # short, but all there is
    single = [[(1, pose)] for pose in person_1]
    single[3] = [(2, ghost[3]), *single[3]]  # a ghost of one frame
    assert np.array_equal(NTU60.read(write_skeleton(tmp_path / NAME, single)), person_1[None])


def test_missing_numbers_are_nan(tmp_path: Path) -> None:
    poses = person(20, 0)
    poses[4, 3, 1] = np.nan
    poses[5, 0, 0] = np.inf
    array = NTU60.read(write_skeleton(tmp_path / NAME, [[(1, pose)] for pose in poses]))
    assert np.array_equal(array[0], poses, equal_nan=True)
    other = skeleton_lines([[(1, pose)] for pose in poses])
    other[4] = " ".join(["1.5", "2", "1e-3", *["NaN"] * 8, "0"])  # only x, y and z matter
    (tmp_path / NAME).write_text("\n".join(other))
    assert NTU60.read(tmp_path / NAME)[0, 0, 0].tolist() == [1.5, 2.0, np.float32(1e-3)]


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    frames = [[(1, pose), (2, pose)] for pose in person(2, 0)]
    path = write_skeleton(tmp_path / NAME, frames)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for count in range(len(lines)):
        path.write_bytes(b"".join(lines[:count]))
        with pytest.raises(ValueError, match="line"):
            NTU60.read(path)
    for cut in (len(whole) - 10, len(whole) // 2, len(lines[0])):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"line \d+"):
            NTU60.read(path)
    path.write_bytes(whole.rstrip())  # no line end at the end
    assert NTU60.read(path).shape == (2, 2, 25, 3)


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (0, "many", r"line 1: expected the number of frames, found b'many'"),
        (0, "2", r"line 58: there is more text after the last of 2 frames"),
        (0, "4", r"line 86 \(frame 4 of 4\)"),
        (1, "-1", r"line 2 \(frame 1 of 3\): expected the number of bodies"),
        (1, "2", r"line 30 \(frame 1 of 3\): expected a body's id"),
        (2, "12 0 1", r"line 3 \(frame 1 of 3\): expected a body's id"),
        (2, "x 0 1 1 1 1 0 0 0 2", r"line 3 \(frame 1 of 3\): expected a body's id"),
        (3, "20", r"line 4 \(frame 1 of 3\): the body has 20 joints; expected 25"),
        (5, "1 2 3", r"line 6 \(frame 1 of 3\): expected 12 numbers"),
        (35, "1 2 zwei 0 0 0 0 0 0 0 0 0", r"line 36: b'zwei' is not a number"),
        (35, "\xff 2 3 0 0 0 0 0 0 0 0 0", r"line 36: .* is not a number"),
        (-1, "1 2 3 0 0 0 0 0 0 0 0 0\n1", r"line 86: there is more text"),
    ],
)
def test_files_that_are_damaged_are_refused(tmp_path: Path, line: int, text: str, message: str) -> None:
    lines = skeleton_lines([[(1, pose)] for pose in person(3, 0)])
    lines[line] = text
    (tmp_path / NAME).write_text("\n".join(lines), encoding="latin-1")
    with pytest.raises(ValueError, match=message):
        NTU60.read(tmp_path / NAME)


def test_duplicates_and_the_official_list(tmp_path: Path) -> None:
    folder = tmp_path / "nturgb+d_skeletons"
    for action in (1, 2, 3):
        write_one_person(folder / f"S001C001P001R001A{action:03d}.skeleton", 12, action)
    write_one_person(tmp_path / "z" / "S001C001P001R001A001.skeleton", 12, 9)
    (tmp_path / "NTU_RGBD_samples_with_missing_skeletons.txt").write_text(
        "The following samples are missing:\n\nS001C001P001R001A002\nS017C003P020R002A060\n"
    )
    listing = NTU60.find(tmp_path)
    assert [source.samples[0].name for source in listing.sources] == ["S001C001P001R001A001", "S001C001P001R001A003"]
    assert listing.sources[0].path.parent == folder
    assert [(issue.kind, issue.where) for issue in listing.issues] == [
        ("duplicate", "S001C001P001R001A001"),
        ("empty", "S001C001P001R001A002"),
    ]
    assert [path.name for path in listing.inputs] == ["NTU_RGBD_samples_with_missing_skeletons.txt"]
    (tmp_path / "loop").symlink_to(tmp_path)
    assert NTU60.find(tmp_path) == listing


def test_samples_that_the_authors_list_are_left_out_without_their_file(tmp_path: Path) -> None:
    names = list_missing()
    assert len(set(names)) == len(names) == 535  # as they say
    assert sum(int(name[1:4]) <= 17 for name in names) == 302  # of NTU 60
    for name in ("S007C003P027R002A013", "S007C003P027R002A014"):  # the end of a range, and the one after it
        write_one_person(tmp_path / f"{name}.skeleton", 12, 1)
    listing = NTU60.find(tmp_path)
    assert [source.samples[0].name for source in listing.sources] == ["S007C003P027R002A014"]
    assert [(issue.kind, issue.where) for issue in listing.issues] == [("empty", "S007C003P027R002A013")]


def test_other_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a01_s01_e01.txt").touch()
    (tmp_path / "S001C001P001R001A061.skeleton").touch()
    with pytest.raises(ValueError, match=r"no file of ntu60: expected names such as .* up to A060"):
        NTU60.find(tmp_path)
    assert len(NTU120.find(tmp_path).sources) == 1
    assert NTU60.layout == KINECT_V2
