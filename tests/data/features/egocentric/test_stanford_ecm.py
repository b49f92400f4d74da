"""Stanford-ECM's layouts, as far as they are understood by rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedaction.data.features.egocentric import stanford_ecm

ACCELERATION = "time,x,y,z\n" + "".join(f"{t / 20},{t / 20},{-t / 20},9.8\n" for t in range(20 * 60))
HEART = "time,heart rate\n" + "".join(f"{t},{60 + t}\n" for t in range(0, 60, 5))
LABELS = (
    "start,end,activity\n0,10,Walking\n10,00:20,background\n20,50.5,climbing  Stairs\n55,70,Walking\n30,30,Sitting\n"
)
LAYOUTS = (
    ("v1_acc.csv", "v1_hr.csv", "v1_labels.csv"),
    ("v1/acceleration.csv", "v1/heart_rate.csv", "v1/activity.csv"),
    ("acc/v1.csv", "heart_rate/v1.csv", "labels/v1.csv"),
)


def write(root: Path, names: tuple[str, ...], texts: tuple[str, ...] = (ACCELERATION, HEART, LABELS)) -> Path:
    for name, text in zip(names, texts, strict=True):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize("names", LAYOUTS)
def test_a_video_is_cut_into_its_activities(tmp_path: Path, names: tuple[str, str, str]) -> None:
    signals = stanford_ecm.read_all(write(tmp_path, names), rate_hz=10)
    assert signals.names == ("v1:0-10", "v1:20-50.5") and signals.classes == ("climbing stairs", "walking")
    assert signals.labels.tolist() == [1, 0]
    times = 20 + np.arange(305) / 10
    expected = np.stack([times, -times, np.full(305, 9.8), 60 + times], axis=1)
    assert np.allclose(signals.arrays[1], expected, atol=1e-4)
    assert signals.channels[3] == "heart_rate"
    why = {issue.where: issue.detail for issue in signals.issues}
    assert "no sample for" in why["v1:55-70"] and "run from 0.00 to 59.95 s" in why["v1:55-70"]
    labels = Path(names[2]).name
    assert "'Sitting' from 30.0 to 30.0 s is no labelled piece" in why[f"{labels}, line 6"]
    assert len(why) == 2


def test_a_video_without_heart_rate(tmp_path: Path) -> None:
    write(tmp_path, ("v1_acc.csv", "v1_labels.csv"), (ACCELERATION, LABELS))
    write(tmp_path, ("v2_acc.csv", "notes.csv"), (ACCELERATION, ""))
    signals = stanford_ecm.read_all(tmp_path)
    assert not len(signals)
    why = {issue.where: issue.detail for issue in signals.issues}
    assert "heart=False" in why["v1"] and why["v2"] == "there is no file of its labels"
    assert "says which signal it is" in why["notes.csv"]
    alone = stanford_ecm.read_all(tmp_path, heart=False)
    assert [array.shape for array in alone.arrays] == [(300, 3), (915, 3)]


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (("time,x,y\n0,1,2\n", HEART, LABELS), r"one column each for x, y, z; it has time, x, y$"),
        (("x,y,z\n0,1,2\n", HEART, LABELS), "one time column"),
        (("time,x,y,z\n", HEART, LABELS), "has no samples"),
        (("time,x,y,z\n0,1,2,3\n5,a,2,3\n", HEART, LABELS), "v1_acc.csv is not a table .*: could not convert"),
        (("time,x,y,z\n50,1,2,3\n0,1,2,3\n", HEART, LABELS), "its clock goes back by 50.00 s"),
        ((ACCELERATION, "time,pulse\n0,1\n", LABELS), "for heart rate; it has time, pulse"),
        ((ACCELERATION, HEART, "from,to,what\n"), "begins with start, with stop or end"),
    ],
)
def test_other_columns_are_refused_in_words(tmp_path: Path, texts: tuple[str, str, str], why: str) -> None:
    (recording,) = stanford_ecm.find(write(tmp_path, LAYOUTS[0], texts))
    with pytest.raises(ValueError, match=why):
        stanford_ecm.read(recording)
    (issue,) = stanford_ecm.read_all(tmp_path).issues
    assert issue.where == "v1"


def test_missing_values_are_reported(tmp_path: Path) -> None:
    rows = ACCELERATION.splitlines()
    rows[101] = "5.0,nan,0,0"
    signals = stanford_ecm.read_all(write(tmp_path, LAYOUTS[0], ("\n".join(rows), HEART, LABELS)))
    assert signals.names == ("v1:20-50.5",)
    assert any("not finite from 0.00 to 10.00 s" in issue.detail for issue in signals.issues)


def test_samples_within_a_second_are_put_in_order(tmp_path: Path) -> None:
    rows = ["time,x,y,z", *(f"{t / 20},{t * t},0,0" for t in range(20 * 60))]
    mixed = [*rows[:700], *rows[705:710], *rows[700:705], *rows[710:]]
    straight = stanford_ecm.read_all(write(tmp_path / "a", LAYOUTS[0], ("\n".join(rows), HEART, LABELS)))
    turned = stanford_ecm.read_all(write(tmp_path / "b", LAYOUTS[0], ("\n".join(mixed), HEART, LABELS)))
    assert np.array_equal(turned.arrays[1], straight.arrays[1])


def test_another_folder_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no video with acceleration and labels: expected <video>_acc\.csv"):
        stanford_ecm.find(tmp_path)
    write(tmp_path, ("v1_acc.csv", "v1_labels.csv", "acc/v1.csv"), (ACCELERATION, LABELS, ACCELERATION))
    with pytest.raises(ValueError, match="holds the acceleration of v1 twice"):
        stanford_ecm.find(tmp_path)
