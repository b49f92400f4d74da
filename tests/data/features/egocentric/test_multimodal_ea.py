"""Multimodal Egocentric Activity, from files written in its layout."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedaction.data.features import built_in, clients_from_features, extract
from fedaction.data.features.egocentric import multimodal_ea


def write_clip(root: Path, name: str, rows: np.ndarray, separator: str = ",") -> Path:
    (root / "sensor").mkdir(parents=True, exist_ok=True)
    path = root / "sensor" / f"{name}.csv"
    path.write_text("\n".join(separator.join(f"{value:.6f}" for value in row) for row in rows) + "\n")
    return path


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All 200 clips, whose first channel is the activity, with every tenth video."""
    folder = tmp_path_factory.mktemp("ea")
    (folder / "video").mkdir()
    rng = np.random.default_rng(0)
    for activity in range(1, 21):
        for clip in range(1, 11):
            rows = rng.normal(size=(150, 19))
            rows[:, 0] = activity
            write_clip(folder, f"act{activity:02d}seq{clip:02d}", rows)
        (folder / "video" / f"act{activity:02d}seq01.mp4").touch()
    return folder


def test_all_clips_are_found_and_read(root: Path) -> None:
    clips = multimodal_ea.find(root)
    assert len(clips) == 200 and not clips.issues
    assert sum(clip.video is not None for clip in clips) == 20
    signals = multimodal_ea.read_all(root)
    assert {array.shape for array in signals.arrays} == {(150, 19)} and signals.rate_hz == 10
    assert Counter(signals.labels.tolist()) == dict.fromkeys(range(20), 10)
    assert [array[0, 0] for array in signals.arrays] == (signals.labels + 1).tolist()
    assert signals.classes[0] == "walking" and signals.classes[19] == "cycling" and len(set(signals.classes)) == 20
    assert signals.channels[15:] == ("rotation_x", "rotation_y", "rotation_z", "rotation_scalar")


def test_the_papers_clients_of_one_modality(root: Path) -> None:
    features = extract(multimodal_ea.read_all(root).collection("Multimodal-EA"), built_in("inertial", width=64))
    clients = clients_from_features([features], by="equal", deal="all", clients=2, test=0.25)
    assert [len(client.train) + len(client.test) for client in clients] == [100, 100]


def test_values_and_separators(tmp_path: Path) -> None:
    rows = np.arange(150 * 19).reshape(150, 19) / 7
    for number, separator in enumerate((",", ", ", " ", "\t"), start=1):
        path = write_clip(tmp_path, f"act01seq{number:02d}", rows, separator)
        path.write_bytes(b"\xef\xbb\xbf" * (number == 1) + path.read_bytes())
        assert np.allclose(multimodal_ea.read(path), rows, atol=1e-5)


def test_faults_are_reported(tmp_path: Path) -> None:
    good = np.ones((150, 19))
    write_clip(tmp_path, "act01seq01", good)
    write_clip(tmp_path, "act01seq02", good[:149])
    write_clip(tmp_path, "act01seq03", good[:, :18])
    bad = good.copy()
    bad[6, 3] = np.nan
    write_clip(tmp_path, "act01seq04", bad)
    write_clip(tmp_path, "act01seq05", good).write_text("accx" + ",1" * 18 + "\n" + ("1" + ",1" * 18 + "\n") * 149)
    write_clip(tmp_path, "act21seq01", good)
    (tmp_path / "act01seq06.mp4").touch()
    signals = multimodal_ea.read_all(tmp_path)
    assert signals.names == ("act01seq01",)
    why = {issue.where: issue.detail for issue in signals.issues}
    assert "has 149 rows; expected 150, 10 a second" in why["act01seq02"]
    assert "rows of [18] numbers; expected 19: acceleration_x" in why["act01seq03"]
    assert "row 6 has a value that is not finite" in why["act01seq04"]
    assert "is not a table of numbers" in why["act01seq05"]
    assert "not one of 20 activities" in why["act21seq01.csv"]
    assert why["act01seq06"] == "it has a video, but no sensor file"
    assert why["act02seq01"] == "neither its sensor file nor its video"
    assert len(why) == 6 + 194
    assert len(multimodal_ea.read_all(tmp_path, samples=None)) == 2


def test_another_folder_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none of the expected files: sensor/act01seq01\.csv"):
        multimodal_ea.find(tmp_path)
    write_clip(tmp_path / "a", "act01seq01", np.ones((150, 19)))
    write_clip(tmp_path / "b", "act01seq01", np.ones((150, 19)))
    with pytest.raises(ValueError, match="holds the sensor of act01seq01 twice"):
        multimodal_ea.find(tmp_path)
