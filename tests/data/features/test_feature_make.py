"""From recordings on disk to feature stores, through the command too."""

from __future__ import annotations

import json
import os
import re
import wave
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from fedaction.cli.features import features
from fedaction.data.features import built_in, extract, from_folder, from_store, load_features, take_features
from fedaction.data.features.make import from_cache
from fedaction.data.features.recordings import from_public, read_wave
from fedaction.data.features.store import FeatureSet, save_features
from fedaction.data.layout import KINECT_V2
from fedaction.data.store import StoreWriter
from fedaction.federation.seeds import numpy_generator
from tests.data.public.formats import person

APP = typer.Typer()
APP.command()(features)


def command(*arguments: object, code: int = 0) -> str:
    """What the command prints, its errors without line breaks."""
    done = CliRunner().invoke(APP, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done.output.replace("\n", " ")


def sensors(root: Path, people: int = 3) -> Path:
    """A folder per class of inertial recordings: (T, 6), slow or fast."""
    for label, rate in (("slow", 0.05), ("fast", 0.4)):
        (root / label).mkdir(parents=True)
        for who in range(people):
            times = np.arange(50 + 10 * who)[:, None]
            noise = numpy_generator(who, label).normal(scale=0.1, size=(len(times), 6))
            np.save(root / label / f"p{who}_take.npy", np.sin(rate * times + np.arange(6)) + noise)
    return root


def write_wave(path: Path, values: np.ndarray, size: int = 2, channels: int = 1, rate: int = 8000) -> Path:
    """Values in [-1, 1] as PCM of `size` bytes, the same on all channels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = np.round(np.repeat(values, channels) * (2 ** (8 * size - 1) - 1)).astype(np.int64)
    data = (
        (whole + 128).astype(np.uint8).tobytes()
        if size == 1
        else b"".join(int(value).to_bytes(size, "little", signed=True) for value in whole)
    )
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(size)
        file.setframerate(rate)
        file.writeframes(data)
    return path


def test_a_folder_becomes_a_store_once(tmp_path: Path) -> None:
    root, out = sensors(tmp_path / "mine"), tmp_path / "features"
    arguments = (root, "--modality", "inertial", "--out", out, "--subject", "^(p[0-9]+)_", "--width", 128)
    assert "6 recordings, 2 classes, 3 people, 128 numbers each; written to" in command(*arguments)
    found = load_features(out)
    assert found.classes == ("fast", "slow") and found.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.subjects == ("p0", "p1", "p2") * 2 and found.names[0] == "fast/p0_take.npy"
    assert found.provenance["extractor"] == {"name": "kernels", "version": 1, "parameters": {"width": 128, "seed": 0}}
    before = (out / "features.npy").stat().st_mtime_ns
    assert "nothing to do" in command(*arguments)
    assert json.loads(command(*arguments, "--json"))["new"] is False
    assert (out / "features.npy").stat().st_mtime_ns == before
    # Another width, or another file, is another store.
    assert "made of other files, or otherwise" in command(*arguments[:-1], 64, code=2)
    np.save(root / "fast" / "p0_take.npy", np.zeros((40, 6)))
    assert "made of other files" in command(*arguments, code=2)
    assert json.loads(command(*arguments, "--overwrite", "--json"))["new"] is True
    assert not np.array_equal(load_features(out).x[0], found.x[0])


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    root = sensors(tmp_path / "mine", 1)
    out = ("--out", tmp_path / "features")
    wrong = {
        ("video", root): r"p0_take.npy holds float64 \(50, 6\); video is numbers \(frames, height, width, 3 or 1\)",
        ("audio", root): r"no folder for a class with \.wav files",
        ("skeleton", root): "import the recordings first with `fedaction data import`",
        ("inertial", tmp_path / "absent"): "neither a skeleton store, nor a folder",
        ("inertial", "utd_inertial"): "say where utd_inertial lies",
    }
    for (modality, source), message in wrong.items():
        assert re.search(message, command(source, "--modality", modality, *out, code=2))
    assert "no public dataset is called 'kinetics'" in command("kinetics", root, "--modality", "video", *out, code=2)
    assert "does not occur in the file name" in command(
        root, "--modality", "inertial", "--subject", "x(.)", *out, code=2
    )
    assert not (tmp_path / "features").exists()
    np.save(root / "fast" / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    said = command(root, "--modality", "inertial", *out, code=1)  # the others are done
    assert "objects.npy is not a NumPy file, or is damaged" in said and "left out: fast/objects.npy" in said
    assert "fast/objects.npy" not in load_features(tmp_path / "features").names


def test_missing_samples_of_a_sensor_are_filled_in(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    ramp = np.arange(20.0)[:, None] * np.ones(3)
    gap = ramp.copy()
    gap[5:8, 1] = np.nan
    np.save(tmp_path / "a" / "gap.npy", gap)
    np.save(tmp_path / "a" / "none.npy", np.full((4, 3), np.nan))
    found = from_folder(tmp_path, "inertial")
    np.testing.assert_allclose(found.read(0).array, ramp, atol=1e-5)
    with pytest.raises(ValueError, match=r"none\.npy has no sample without a missing value"):
        found.read(1)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_wave_files_of_every_width(size: int, tmp_path: Path) -> None:
    values = 0.9 * np.sin(np.arange(400) / 7)
    found = read_wave(write_wave(tmp_path / "a.wav", values, size, channels=2, rate=16000))
    assert found.rate_hz == 16000 and found.array.dtype == np.float32
    np.testing.assert_allclose(found.array, values, atol=2.0 ** (2 - 8 * size) + 1e-6)


def test_sounds_from_a_folder(tmp_path: Path) -> None:
    for label, pitch in (("low", 200), ("high", 2000)):
        for i in range(2):
            write_wave(tmp_path / label / f"{i}.wav", 0.5 * np.sin(2 * np.pi * pitch * np.arange(4000 + i) / 8000))
    x = extract(from_folder(tmp_path, "audio"), built_in("audio")).x
    near, far = np.linalg.norm(x[0] - x[1]), np.linalg.norm(x[0] - x[2])
    assert x.shape == (4, 1024) and far > 5 * near
    (tmp_path / "low" / "2.wav").write_bytes(b"RIFF0000WAVE")
    with pytest.warns(UserWarning, match=r"2\.wav is not an uncompressed"):
        found = extract(from_folder(tmp_path, "audio"), built_in("audio"))
    assert np.array_equal(found.x, x) and len(found.names) == 4  # the others are done


def test_a_skeleton_store_through_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreWriter(tmp_path / "bodies", layout=KINECT_V2, classes=("a", "b")) as writer:
        for i in range(4):
            body = person(20 + i, i)[None]
            writer.add(
                np.concatenate([body, body]) if i == 3 else body, label=i % 2, name=str(i), subject=f"s{i % 2}"
            )
        writer.finish()
    found = from_store(tmp_path / "bodies")
    assert found.bodies == 2 and found.labels == ("a", "b", "a", "b") and len(found) == 4
    monkeypatch.setenv("FEDACTION_CACHE", str(tmp_path / "cache"))
    taken = built_in("skeleton", width=64, bodies=found.bodies)
    first = take_features(found, taken)
    (place,) = (tmp_path / "cache" / "features").iterdir()
    assert place.name.startswith("bodies-") and first.subjects == ("s0", "s1", "s0", "s1")
    stamp = os.stat(place / "features.npy").st_mtime_ns
    assert np.array_equal(take_features(found, taken).x, first.x)
    assert os.stat(place / "features.npy").st_mtime_ns == stamp  # nothing was done again
    header, values = place / "features.json", place / "features.npy"
    for path, damaged in (
        (values, values.read_bytes()[:200]),
        (values, values.read_bytes()[:-1] + b"\x3e"),  # another number, as good as any
        (header, header.read_bytes().replace(b'"labels":[0,1,0,1]', b'"labels":[0,1,1,1]')),
    ):
        assert path.read_bytes() != damaged
        path.write_bytes(damaged)
        with pytest.warns(UserWarning, match="made again"):
            again = take_features(found, taken)
        assert np.array_equal(again.x, extract(found, taken).x) and again.labels.tolist() == [0, 1, 0, 1]
    with pytest.raises(ValueError, match="the extractor is for audio"):
        extract(found, built_in("audio"))


def test_what_another_process_has_put_into_the_cache_stays(tmp_path: Path) -> None:
    def features(value: float) -> FeatureSet:
        x = np.full((2, 8), value, np.float32)
        return FeatureSet("audio", x, np.array([0, 1]), ("a", "b"), (), ("0", "1"), {})

    def slow() -> FeatureSet:
        save_features(features(1.0), tmp_path / "kept")  # the other one is faster
        return features(2.0)

    found = from_cache(tmp_path / "kept", slow)
    assert (found.x == 1.0).all()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_public_dataset_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="Inertial/a<action>"):
        from_public("utd_inertial", tmp_path / "absent")
    with pytest.raises(ValueError, match="none of the expected files"):
        from_public("utd_inertial", tmp_path)
