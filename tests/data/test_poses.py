"""Skeletons as people have them: JSON, named columns, labels in names and tables, units and axes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from typer.testing import CliRunner

from fedaction.cli import app
from fedaction.data import store
from fedaction.data.axes import UPS, guess_body, turn_up
from fedaction.data.imports import import_recordings, inspect
from fedaction.data.layout import COCO_17, KINECT_V2, OPENNI_15, Layout
from fedaction.data.poses import plain_name, read_pose
from fedaction.data.public.readers import READERS
from fedaction.federation.seeds import numpy_generator
from tests.conftest import recordings

HEIGHTS = {"head": 1.65, "neck": 1.45, "shoulder": 1.4, "elbow": 1.1, "hand": 0.85, "wrist": 0.9, "spine_mid": 1.2}
HEIGHTS |= {"hip": 0.95, "knee": 0.5, "foot": 0.05, "ankle": 0.1, "nose": 1.6, "eye": 1.63, "ear": 1.62}


def standing(frames: int, seed: int = 0, layout: Layout = OPENNI_15) -> npt.NDArray[np.float64]:
    """(T, V, 3) a person who stands and sways: metres, x to the right, y up."""
    random = numpy_generator(seed, "standing")
    names = [joint.removeprefix("left_").removeprefix("right_") for joint in layout.joints]
    sides = [-0.2 if j.startswith("left_") else 0.2 if j.startswith("right_") else 0.0 for j in layout.joints]
    body = np.array([[side, HEIGHTS.get(name, 1.0), 2.0] for side, name in zip(sides, names, strict=True)])
    return body + 0.02 * random.normal(size=(frames, len(layout), 3))


def write_json(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def test_forms_of_json(tmp_path: Path) -> None:
    body = standing(6)
    plain = body.tolist()
    named = [{joint: point for joint, point in zip(OPENNI_15.joints, frame, strict=True)} for frame in plain]
    camel = [
        {"".join(w.title() for w in joint.split("_")): p for joint, p in reversed(list(frame.items()))}
        for frame in named
    ]
    forms: dict[str, Any] = {
        "list": plain,
        "object": {"rate": 30, "frames": plain},
        "keypoints": {"keypoints": plain},
        "named": {"frames": named},
        "camel": {"frames": camel},
        "joints": {"frames": [{"t": i, "joints": frame} for i, frame in enumerate(plain)]},
        "rows": body.reshape(6, -1).tolist(),
    }
    for name, value in forms.items():
        array = read_pose(write_json(tmp_path / f"{name}.json", value), 3, OPENNI_15)
        np.testing.assert_allclose(array, body[None], err_msg=name)
    two = read_pose(write_json(tmp_path / "two.json", [[frame, frame] for frame in plain]), 3, OPENNI_15)
    assert two.shape == (2, 6, 15, 3)
    holes = [dict(frame) for frame in named]
    del holes[2]["head"]
    holes[3]["neck"] = None
    array = read_pose(write_json(tmp_path / "holes.json", holes), 3, OPENNI_15)
    assert np.isnan(array).any(axis=(0, 2, 3)).tolist() == [False, False, True, True, False, False]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"data": []}, "none of the lists frames, keypoints"),
        ([], "no list of frames"),
        ([[["a", 1, 2]]], "or hold no numbers"),
        ([[[1, 2, 3]], [[1, 2, 3], [1, 2, 3]]], "differ in their number of joints"),
        ([[[1, 2, 3, 4]]], r"\(1, 1, 4\) is not a list|is not a list of frames"),
        ([{"tail": [1, 2, 3]}], "name tail; of the layout 'openni_15' they lack head, neck"),
        ([{"head": [1, 2, 3]}], "it never has neck, left_shoulder"),
        (7, "no list of frames"),
    ],
)
def test_json_that_is_no_recording(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_pose(write_json(tmp_path / "a.json", value), 3, OPENNI_15)


def test_bad_json_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    for i in range(3):
        write_json(tmp_path / "in" / f"wave_p{i}.json", standing(5, i).tolist())
    (tmp_path / "in" / "wave_p7.json").write_text("[[[" * 100_000)
    write_json(tmp_path / "in" / "sit_p0.json", [standing(1)[0].tolist()])
    summary = import_recordings(
        tmp_path / "in", tmp_path / "out", layout="openni_15", label_pattern=r"^([a-z]+)_", subject=r"_(p\d)"
    )
    assert summary.classes == {"sit": 1, "wave": 3} and summary.subjects == {"p0": 2, "p1": 1, "p2": 1}
    assert summary.counts == {"one_frame": 1, "unreadable": 1}
    assert "sit_p0.json: one frame, which cannot move; kept" in str(summary)
    with pytest.raises(ValueError, match="label pattern 'z' does not occur in the file name"):
        import_recordings(tmp_path / "in", tmp_path / "new", layout="openni_15", label_pattern="z")
    with pytest.raises(ValueError, match=r"file names \(--label-pattern\), or give a table"):
        import_recordings(tmp_path / "in", tmp_path / "new", layout="openni_15")


def test_columns_are_matched_by_name_in_any_order(tmp_path: Path) -> None:
    body = standing(7)
    order = numpy_generator(0, "columns").permutation(15 * 3)
    names = [f"{joint}_{axis}" for joint in OPENNI_15.joints for axis in "xyz"]
    flat = body.reshape(7, -1)
    rows = [",".join(["frame", *(names[i] for i in order), "confidence"])]
    rows += [",".join([str(t), *(f"{flat[t, i]:.6f}" for i in order), "0.9"]) for t in range(7)]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    np.testing.assert_allclose(read_pose(tmp_path / "a.csv", 3, OPENNI_15)[0], body, atol=1e-6)
    (tmp_path / "b.csv").write_text("\n".join(row.split(",", 2)[0] + "," + row.split(",", 2)[2] for row in rows))
    with pytest.raises(ValueError, match="named after joints, but lack"):
        read_pose(tmp_path / "b.csv", 3, OPENNI_15)
    np.savetxt(tmp_path / "c.txt", body.reshape(-1, 3))
    np.testing.assert_allclose(read_pose(tmp_path / "c.txt", 3, OPENNI_15)[0], body)
    assert [plain_name(n) for n in ("LeftWrist", "wrist_l", "Left Wrist", "r.hand", "head")] == [
        *("left_wrist", "left_wrist", "left_wrist", "right_hand", "head")
    ]


def test_labels_of_clips_in_a_table(tmp_path: Path) -> None:
    for i in range(4):
        np.save(_folder(tmp_path / "in") / f"clip{i}.npy", standing(5, i))
    table = tmp_path / "labels.csv"
    table.write_text("file,label,subject\nclip0.npy,sit,a\nclip1,wave,a\nclip2,wave,b\n")
    summary = import_recordings(tmp_path / "in", tmp_path / "out", layout="openni_15", labels=table)
    assert summary.classes == {"sit": 1, "wave": 2} and summary.subjects == {"a": 2, "b": 1}
    assert "1 files are not in labels.csv" in str(summary)
    assert inspect(tmp_path / "in", layout="openni_15", labels=table).samples == 3


@pytest.mark.parametrize(("factor", "unit"), [(1.0, "metres"), (100.0, "centimetres"), (1000.0, "millimetres")])
@pytest.mark.parametrize("up", UPS)
def test_units_and_axes_are_recognised_and_put_right(tmp_path: Path, factor: float, unit: str, up: Any) -> None:
    bodies = [standing(5, i).astype(np.float32)[None] for i in range(3)]
    back = {"y": "y", "-y": "-y", "z": "-z", "-z": "z", "x": "-x", "-x": "x"}[up]
    given = [turn_up(turn_up(body, back), "y") * np.float32(factor) for body in bodies]
    guess = guess_body(given, OPENNI_15)
    assert (guess.up, guess.unit) == (up, unit)
    for i, body in enumerate(given):
        np.save(_folder(tmp_path / "in" / "stand") / f"{i}.npy", body)
    summary = import_recordings(tmp_path / "in", tmp_path / "out", layout="openni_15")
    item = store.load(tmp_path / "out")
    for own, body in zip(item.sequences, bodies, strict=True):
        np.testing.assert_allclose(own, body, atol=1e-4)  # turned back to what it was: no mirror image
    assert unit in summary.body and f"{up} is up" in summary.body
    assert ("multiplied by" in summary.body) == (factor != 1) and ("turned so that" in summary.body) == (up != "y")
    assert "metres; y is up" in inspect(tmp_path / "out").body


def test_units_and_axes_may_be_kept(tmp_path: Path) -> None:
    body = turn_up(standing(5).astype(np.float32)[None], "-z") * np.float32(1000)
    np.save(_folder(tmp_path / "in" / "stand") / "a.npy", body)
    runner = CliRunner()
    options = ["--layout", "openni_15", "--out", str(tmp_path / "out")]
    shown = runner.invoke(app, ["data", "import", str(tmp_path / "in"), *options])
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.output.split())
    assert "tall: millimetres; z is up; multiplied by 0.001 to be metres (--scale 1 keeps them)" in text
    kept = ["--scale", "1", "--up", "y", "--overwrite"]
    assert runner.invoke(app, ["data", "import", str(tmp_path / "in"), *options, *kept]).exit_code == 0
    np.testing.assert_array_equal(store.load(tmp_path / "out").sequences[0], body)
    shown = runner.invoke(app, ["data", "inspect", str(tmp_path / "out")])
    assert "millimetres; z is up" in shown.output
    shown = runner.invoke(app, ["data", "import", str(tmp_path / "in"), *options, "--scale", "much"])
    assert shown.exit_code == 2 and "--scale much: give a number" in shown.output
    shown = runner.invoke(app, ["data", "import", str(tmp_path / "in"), "--out", str(tmp_path / "new")])
    assert shown.exit_code == 2 and "need --layout" in shown.output
    for more, words in (
        (["--window", "2"], "--window goes with --kind inertial"),
        (["--kind", "inertial"], "--layout"),
    ):
        shown = runner.invoke(app, ["data", "import", str(tmp_path / "in"), *options, "--overwrite", *more])
        assert shown.exit_code == 2 and words in shown.output


def test_pixels_are_recognised(tmp_path: Path) -> None:
    body = standing(5, layout=COCO_17)[:, :, :2]
    np.save(_folder(tmp_path / "in" / "stand") / "a.npy", (body * (1, -1) + (1, 2)) * 240)
    summary = import_recordings(tmp_path / "in", tmp_path / "out", layout="coco_17")
    assert "pixels; -y is up" in summary.body
    own = store.load(tmp_path / "out").sequences[0][0]
    guess = guess_body([own[None]], COCO_17)
    assert guess.up == "y" and guess.height == pytest.approx(1.7, abs=0.02)
    with pytest.raises(ValueError, match="two coordinates have y or -y up"):
        import_recordings(tmp_path / "in", tmp_path / "new", layout="coco_17", up="z")


def test_what_cannot_be_told_is_left_as_it_is() -> None:
    noise = numpy_generator(0, "noise").normal(size=(1, 40, 25, 3)).astype(np.float32)
    guess = guess_body([noise], KINECT_V2)
    assert guess.up is None and guess.scale == 1.0 and "cannot be told" in str(guess)
    assert guess_body([], KINECT_V2).height is None
    assert guess_body([noise[:, :, :2]], Layout("two", ("a", "b"), ((0, 1),), 0)).up is None


def test_real_skeletons_as_they_lie_there(tmp_path: Path) -> None:
    root = recordings("florence3d")
    summary = import_recordings(
        root, tmp_path / "out", layout="florence_15", label_pattern=r"^(a\d+)_s\d+", subject=r"_(s\d+)_"
    )
    item = store.load(tmp_path / "out")
    assert summary.samples == 215 and len(summary.classes) == 9 and len(summary.subjects) == 10
    assert "tall: millimetres; y is up; multiplied by 0.001" in summary.body
    files = {source.samples[0].name: source.path for source in READERS["florence3d"].find(root).sources}
    for name, own in list(zip(item.names, item.sequences, strict=True))[:20]:  # as its own reader has them
        np.testing.assert_allclose(own, READERS["florence3d"].read(files[Path(name).stem]), atol=1e-6)


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path
