"""One modality of a dataset from its folder: which files are taken, and what is said of the others."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fedaction.bench.video import make_video
from fedaction.data.clips.decode import read_clips
from fedaction.data.features import Collection, FeatureSet, Modality, built_in, extract, from_egocentric
from fedaction.data.features.egocentric.collect import dataset_of
from tests.conftest import recordings
from tests.data.features.egocentric import folders
from tests.data.features.egocentric.made import write_inertial, write_sound


def refused(name: str, root: Path, modality: Modality) -> str:
    with pytest.raises(ValueError) as caught:
        from_egocentric(name, root, modality)
    return str(caught.value)


def test_epic_is_dealt_to_sixteen_people(tmp_path: Path) -> None:
    folders.write_epic(tmp_path)
    held = {m: from_egocentric("epic", tmp_path, m) for m in ("video", "flow", "audio", "inertial")}
    assert isinstance(held["video"], FeatureSet) and isinstance(held["audio"], Collection)
    people = {modality: sorted(set(item.subjects)) for modality, item in held.items()}
    assert people["video"] == ["P01", "P06", "P12", "P26"] and people["inertial"] == ["P04", "P11", "P25", "P30"]
    # Signals are of 2020 alone: two of the eight segments of each person are of 2018.
    assert [len(item) for item in held.values()] == [32, 32, 32, 24]
    assert all(len(item.classes) == 97 for item in held.values())
    sound = held["audio"].read(0)
    assert sound.rate_hz == 16000 and sound.array.shape == (24000,)
    assert dataset_of(held["flow"]) == "epic"  # type: ignore[arg-type]


def test_segments_without_a_recording_are_left_out_with_a_warning(tmp_path: Path) -> None:
    folders.write_annotations(tmp_path)
    write_inertial(tmp_path, "P04_101")
    write_inertial(tmp_path, "P11_101", seconds=4.0)
    found = from_egocentric("epic", tmp_path, "inertial")
    assert isinstance(found, Collection) and len(found) == 24
    with pytest.warns(
        UserWarning, match=r"15 samples are left out.*the first: P11_101_5: P11_101-accl\.csv has no s"
    ):
        features = extract(found, built_in("inertial", width=16))
    assert set(features.subjects) == {"P04", "P11"} and len(features) == 9
    assert features.names[:2] == ("P04_101_1", "P04_101_2") and features.labels.tolist()[:2] == [1, 0]
    write_sound(tmp_path / "P02_01.wav", np.zeros((16000, 1), "<i2"))
    sounds = from_egocentric("epic", tmp_path, "audio")
    assert isinstance(sounds, Collection)
    with pytest.raises(ValueError, match="none of the 32 recordings can be used; the first: P03_01_0"):
        extract(sounds, built_in("audio", width=16))


def test_faults_of_a_folder_are_said_in_words(tmp_path: Path) -> None:
    folders.write_annotations(tmp_path)
    assert (
        refused("epic", tmp_path, "image")
        == "Epic-Kitchens has video, flow, audio, inertial; there is no image in it"
    )
    assert "holds no flow features: expected flow/P02_01_0.npy, or flow/P02_01.npz" in refused(
        "epic", tmp_path, "flow"
    )
    assert "neither videos, such as P01_01.mp4, nor features" in refused("epic", tmp_path, "video")
    (tmp_path / "Extension_Participants.csv").unlink()
    assert "needs Extension_Participants.csv" in refused("epic", tmp_path, "inertial")
    assert "vectors must be there, all of one width; there are widths []" in refused(
        "ego_exo", _exo(tmp_path / "exo"), "image"
    )


def _exo(root: Path) -> Path:
    root.mkdir()
    people, kinds = np.repeat(["a", "b"], 4), np.repeat("sensor", 8)
    np.savez(root / "one.npz", x=np.ones((8, 4)), y=np.arange(8) % 2, client=people, modality=kinds)
    return root


def test_real_annotations_have_no_inertial_segments() -> None:
    """The public validation file is of 2018."""
    root = recordings("epic_kitchens_100_annotations")
    with pytest.raises(ValueError, match=r"no segment of P04, P11, P25, P30, who hold inertial, in a video of 2020"):
        from_egocentric("epic", root, "inertial")


def test_ego_exo_joins_the_clients_of_its_files(tmp_path: Path) -> None:
    _exo(tmp_path / "exo")
    with np.load(tmp_path / "exo" / "one.npz") as one:
        np.savez(
            tmp_path / "exo" / "two.npz", **{**one, "client": np.repeat(["c", "d"], 4), "y": np.arange(8) % 2 + 1}
        )
    found = from_egocentric("ego_exo", tmp_path / "exo", "inertial")
    assert found.classes == ("0", "1", "2") and sorted(set(found.subjects)) == [*"abcd"]
    assert isinstance(found, FeatureSet) and found.labels.tolist() == [0, 1] * 4 + [1, 2] * 4


def test_pieces_of_videos(tmp_path: Path) -> None:
    """Stanford-ECM's pieces and Multimodal-EA's clips are decoded where there are no vectors."""
    folders.write_stanford_ecm(tmp_path / "ecm", videos=2, pieces=3)
    for path in (tmp_path / "ecm" / "video").iterdir():
        path.unlink()
    make_video(tmp_path / "ecm" / "video" / "v0.mp4", frames=120, height=96, width=128, rate=20)  # 6 seconds
    found = from_egocentric("stanford_ecm", tmp_path / "ecm", "video")
    assert isinstance(found, Collection) and found.names[1] == "v0:2-4" and len(found) == 6 and found.subjects == ()
    clip = found.read(1).array
    assert clip.shape == (16, 96, 128, 3)
    expected = read_clips(tmp_path / "ecm" / "video" / "v0.mp4", [40], 16, 2)[
        0
    ]  # every other frame of the 3rd and 4th s
    assert np.array_equal(clip, expected)
    with pytest.warns(UserWarning, match=re.escape("3 samples are left out") + ".*: v1:0-2: there is no video v1"):
        features = extract(found, built_in("video", width=32))
    assert features.names == ("v0:0-2", "v0:2-4", "v0:4-6") and features.classes == tuple(
        f"activity {number}" for number in range(3)
    )
    (tmp_path / "ea" / "video").mkdir(parents=True)
    make_video(tmp_path / "ea" / "video" / "act03seq02.mp4", frames=40, height=64, width=64)
    clips = from_egocentric("multimodal_ea", tmp_path / "ea", "video")
    assert isinstance(clips, Collection)
    with pytest.warns(UserWarning, match="199 samples are left out"):
        features = extract(clips, built_in("video", width=32))
    assert features.names == ("act03seq02",) and features.classes[features.labels[0]] == "walking downstairs"
    make_video(tmp_path / "ea" / "act03seq02.avi", frames=4, height=64, width=64)
    assert "holds the video act03seq02 twice" in refused("multimodal_ea", tmp_path / "ea", "video")
