"""PKU-MMD: long sequences cut by labels, splits read from the dataset, faults named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaction.data import store
from fedaction.data.public.cache import prepare_public
from fedaction.data.public.pku import PKU1, PKU2
from tests.data.public.formats import person

SPLIT = "Training videos: \n0002-L, 0002-M, \n\nValidataion videos: \n0003-L, 0003-M, 0009-R\n"
ROW = " ".join(["0.5"] * 150)


def write_sequence(path: Path, frames: int, seed: int, second: slice = slice(0, 0)) -> np.ndarray:
    """A skeleton file; the second body is there in some frames. Returns (2, T, 25, 3)."""
    bodies = np.stack([person(frames, seed), np.zeros((frames, 25, 3), np.float32)])
    bodies[1, second] = person(frames, seed + 50)[second]
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savetxt(path, bodies.transpose(1, 0, 2, 3).reshape(frames, 150), fmt="%.9g")
    return bodies


def write_phase_1(root: Path) -> dict[str, np.ndarray]:
    """Four sequences in the folders of the public release."""
    arrays = {}
    for seed, name in enumerate(("0002-L", "0002-M", "0003-L", "0004-R")):
        second = slice(0, 20) if seed == 0 else slice(0, 0)
        arrays[name] = write_sequence(root / "Data/PKU_Skeleton_Renew" / f"{name}.txt", 60, seed, second)
        labels = root / "Label/Train_Label_PKU_final" / f"{name}.txt"
        labels.parent.mkdir(parents=True, exist_ok=True)
        labels.write_text(f"{5 + seed},1,20,2\n51,31,60,1\n")
    (root / "Split").mkdir()
    (root / "Split" / "cross-subject.txt").write_text(SPLIT)
    (root / "Split" / "cross-view.txt").write_text(SPLIT.replace("-M", "-R"))
    return arrays


def samples(listing: Any) -> dict[str, Any]:
    return {sample.name: sample for source in listing.sources for sample in source.samples}


def test_sequences_are_cut_by_their_labels(tmp_path: Path) -> None:
    arrays = write_phase_1(tmp_path)
    listing = PKU1.find(tmp_path)
    found = samples(listing)
    assert listing.classes == ("A05", "A06", "A07", "A08", "A51")
    assert len(found) == 8 and found["0002-L:1"].span == (0, 20) and found["0004-R:2"].span == (30, 60)
    assert found["0003-L:1"].label == "A07" and found["0003-L:2"].label == "A51" and found["0003-L:1"].subject == ""
    assert np.array_equal(PKU1.read(tmp_path / "Data/PKU_Skeleton_Renew/0002-L.txt"), arrays["0002-L"])
    item = store.load(prepare_public(PKU1, tmp_path, cache=tmp_path / "cache"))
    by_name = dict(zip(item.names, item.sequences, strict=True))
    assert np.array_equal(by_name["0002-L:1"], arrays["0002-L"][:, :20])  # both bodies
    assert np.array_equal(by_name["0002-L:2"], arrays["0002-L"][:1, 30:])  # the second is absent
    assert item.splits["cross_subject"] == ("train", "train", "train", "train", "test", "test", "", "")
    assert item.splits["cross_view"] == ("train", "train", "", "", "test", "test", "", "")
    named = {issue.where for issue in item.issues}
    assert item.subjects == () and named == {"0003-M", "0009-R", "0002-R", "0003-R"}


def test_faults_of_splits_are_named(tmp_path: Path) -> None:
    write_phase_1(tmp_path)
    issues = PKU1.find(tmp_path).issues
    assert {(issue.kind, issue.where) for issue in issues if issue.detail.startswith("cross_subject")} == {
        ("split", "0003-M"),
        ("split", "0009-R"),
    }
    (tmp_path / "Split" / "cross-view.txt").unlink()
    (tmp_path / "Split" / "cross-subject.txt").write_text("Training videos:\n0002-L, 0002-M\n")
    listing = PKU1.find(tmp_path)
    assert all(sample.splits == {} for sample in samples(listing).values())
    assert [(issue.kind, issue.where) for issue in listing.issues] == [
        ("split", "Split/cross-subject.txt"),
        ("split", "cross_subject"),
        ("split", "cross_view"),
    ]
    (tmp_path / "Split" / "cross-subject.txt").write_text(SPLIT + "Test videos:\n0004-R")
    assert "expected a heading" in PKU1.find(tmp_path).issues[0].detail
    (tmp_path / "Split" / "cross-subject.txt").write_text(SPLIT)
    (tmp_path / "cross_subject.txt").write_text(SPLIT)
    assert any("there is another cross_subject split" in issue.detail for issue in PKU1.find(tmp_path).issues)


def test_faults_of_labels_are_named(tmp_path: Path) -> None:
    write_phase_1(tmp_path)
    folder = tmp_path / "Label/Train_Label_PKU_final"
    (folder / "0002-L.txt").write_text(
        "3,50,90,2\n3,61,70,2\n3,10,9,2\n3,0,9,2\n52,1,9,2\n3,1\nwave,1,9,2\n\n4,1,9,2"
    )
    (folder / "0002-M.txt").write_text("\n")
    (folder / "0004-R.txt").unlink()
    (folder / "0077-R.txt").write_text("1,1,9,2")
    item = store.load(prepare_public(PKU1, tmp_path, cache=tmp_path / "cache"))
    details = {issue.where: issue.detail for issue in item.issues if issue.kind == "label"}
    assert details == {
        "0002-L:1": "frames 50 to 90 of a file of 60",
        "0002-L:2": "frames 61 to 70 of a file of 60",
        "0002-L:3": "frames 10 to 9 are no frames",
        "0002-L:4": "frames 0 to 9 are no frames",
        "0002-L:5": "action 52 is not in 1 to 51",
        "0002-L:6": "expected action, first, last, confidence; found '3,1'",
        "0002-L:7": "expected action, first, last, confidence; found 'wave,1,9,2'",
        "0002-M": "the label file is empty",
        "0004-R": "there is no label file",
        "0077-R": "there are labels but no skeleton file",
    }
    kept = dict(zip(item.names, item.sequences, strict=True))
    assert set(kept) == {"0002-L:1", "0002-L:9", "0003-L:1", "0003-L:2"}
    assert kept["0002-L:1"].shape[1] == 11  # cut at the end of the file
    assert item.classes == ("A03", "A04", "A07", "A51")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        (" \n\n", "empty"),
        (f"{ROW}\n{ROW} 1\n", "not a table of rows of 150 numbers"),
        (f"{ROW} 1\n{ROW} 1\n", "rows of 151 numbers; expected rows of 150"),
        (f"{ROW}\n{ROW[:-3]}x\n", "not a table of rows of 150 numbers.*row 1"),
        (f"{ROW}\n{ROW[:200]}", "not a table of rows of 150 numbers"),
        ("\xff", "not a table of rows of 150 numbers"),
    ],
)
def test_files_that_are_damaged_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "0002-L.txt").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=message):
        PKU1.read(tmp_path / "0002-L.txt")


def test_phase_2_beside_phase_1_with_names_of_actions(tmp_path: Path) -> None:
    write_phase_1(tmp_path / "v1")
    base = tmp_path / "v2"
    write_sequence(base / "skeleton" / "A01N01-L.txt", 30, 7)
    write_sequence(base / "skeleton" / "A26N13-R.skeleton", 30, 8)
    write_sequence(base / "copy" / "A01N01-L.txt", 30, 9)
    (base / "label").mkdir()
    (base / "label" / "A01N01-L.txt").write_text("1 , 2, 11, 1\n")
    (base / "A26N13-R.label").write_text("3,1,30,2,\n")
    (base / "cross_subject_v2.txt").write_text("train\nA01N01-L\ntest\nA26N13-R\n")
    (base / "Actions.csv").write_text("\ufeffid,name\n1, bow\n3,brushing teeth\n")
    listing = PKU2.find(tmp_path)
    found = samples(listing)
    assert listing.classes == ("A01 bow", "A03 brushing teeth")
    assert {name: sample.span for name, sample in found.items()} == {"A01N01-L:1": (1, 11), "A26N13-R:1": (0, 30)}
    assert [sample.splits for sample in found.values()] == [{"cross_subject": "train"}, {"cross_subject": "test"}]
    assert [(issue.kind, issue.where) for issue in listing.issues] == [
        ("duplicate", "A01N01-L"),
        ("split", "cross_view"),
    ]
    assert len(samples(PKU1.find(tmp_path))) == 8


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no skeleton file of pku1: expected 0002-L\.txt skeletons"):
        PKU1.find(tmp_path)
    write_sequence(tmp_path / "0002-L.txt", 3, 0)
    with pytest.raises(ValueError, match="no label file of pku1"):
        PKU1.find(tmp_path)
