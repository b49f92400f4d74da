"""Features, inertial signals and sound of segments, from files in the documented layouts."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from fedaction.data.features import built_in, clients_from_features, extract, load_features, save_features
from fedaction.data.features.egocentric.epic_signals import Audio, Inertial, gather
from fedaction.data.features.egocentric.given import FeatureFiles, read_features
from fedaction.data.features.store import Modality
from tests.data.features.egocentric.made import pieces, segment, write_inertial, write_sound

VERBS = tuple(f"verb {number}" for number in range(97))


def test_inertial_signals_are_cut_and_brought_to_one_rate(tmp_path: Path) -> None:
    write_inertial(tmp_path, "P01_101")
    signal = Inertial(tmp_path, rate_hz=50).read(segment(start=1.25, stop=3.25))
    times = 1.25 + np.arange(100) / 50
    slopes = np.stack([times, times + 10, times + 20], axis=1)
    assert signal.dtype == np.float32
    assert np.allclose(signal, np.concatenate([slopes, -slopes], axis=1), atol=1e-4)


def test_inertial_files_of_other_layouts_are_refused_in_words(tmp_path: Path) -> None:
    write_inertial(tmp_path, "P01_101", accl="Milliseconds,One,Two,Three")
    write_inertial(tmp_path, "P02_101", accl="time [s],acc_x,acc_y,acc_z")
    reader = Inertial(tmp_path)
    with pytest.raises(
        ValueError,
        match=r"accl\.csv is not a table .*: expected a header with one time column.*it has Milliseconds, One",
    ):
        reader.read(segment())
    with pytest.raises(ValueError, match=r"times run from 0\.00 to 9995\.00 s"):  # seconds, though written as 1000 t
        reader.read(segment("P02_101", start=10.0, stop=14.0))
    with pytest.raises(ValueError, match=r"none of the expected files: P01/meta_data/P01_101-accl\.csv"):
        Inertial(tmp_path / "P03")


def test_segments_without_signals_are_reported(tmp_path: Path) -> None:
    write_inertial(tmp_path, "P01_101")
    (tmp_path / "P01" / "meta_data" / "P01_102-accl.csv").write_text("Milliseconds,AcclX,AcclY,AcclZ\n0,1,2\n")
    (tmp_path / "P01" / "meta_data" / "P01_102-gyro.csv").write_text("Milliseconds,GyroX,GyroY,GyroZ\n")
    wanted = [
        segment(number=0, verb=4),
        segment("P01_11"),
        segment("P01_102"),
        segment("P01_103"),
        segment(number=1, start=8.0, stop=12.0),
        segment(number=2, start=5.0, stop=6.5, verb=7),
    ]
    found = gather(Inertial(tmp_path), wanted, VERBS)
    assert found.names == ("P01_101_0", "P01_101_2") and found.labels.tolist() == [4, 7]
    assert [array.shape for array in found.arrays] == [(200, 6), (150, 6)]
    assert found.subjects == ("P01", "P01") and len(found.channels) == 6
    why = {issue.where: issue.detail for issue in found.issues}
    assert "is of 2018" in why["P01_11_0"]
    assert "P01_102-accl.csv" in why["P01_102_0"]
    assert "holds no P01_103-accl.csv" in why["P01_103_0"]
    assert "no sample for 2.00 s" in why["P01_101_1"]
    features = extract(found.collection("EPIC-KITCHENS-100"), built_in("inertial", width=64))
    assert features.x.shape == (2, 64) and features.subjects == found.subjects


def test_16_bit_sound_of_two_channels(tmp_path: Path) -> None:
    ramp = np.arange(-16000, 16000, dtype="<i2")
    write_sound(tmp_path / "P01_01.wav", np.stack([ramp, ramp + 100], axis=1))
    piece = Audio(tmp_path).read(segment("P01_01", start=0.5, stop=0.75))
    assert piece.dtype == np.float32
    assert np.allclose(piece, (ramp[8000:12000].astype(float) + 50) / 32768)


def test_8_bit_sound(tmp_path: Path) -> None:
    bytes_ = (np.arange(16000) % 256).astype(np.uint8)
    write_sound(tmp_path / "P01_01.wav", bytes_[:, None], rate=8000, width=1)
    piece = Audio(tmp_path, rate_hz=8000).read(segment("P01_01", start=1.0, stop=2.0))
    assert np.array_equal(piece, (bytes_[8000:].astype(np.float32) - 128) / 128)
    assert piece.min() == -1 and piece.max() < 1


def test_other_sounds_are_refused_in_words(tmp_path: Path) -> None:
    silence = np.zeros((32000, 1), "<i2")
    write_sound(tmp_path / "P01_01.wav", np.zeros((88200, 1), "<i2"), rate=44100)
    write_sound(tmp_path / "P01_02.wav", np.full((32000, 1), 2**30, "<i4"), width=4)
    write_sound(tmp_path / "P01_03.wav", silence)
    (tmp_path / "P01_04.wav").write_bytes(b"not a sound at all")
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 44, b"WAVE", b"fmt ", 16, 3, 1, 16000, 64000, 4, 32, b"data", 8)
    (tmp_path / "P01_05.wav").write_bytes(head + bytes(8))  # floating point
    whole = (tmp_path / "P01_03.wav").read_bytes()
    (tmp_path / "P01_06.wav").write_bytes(whole[:40000])
    wanted = [segment(f"P01_0{number}", start=0.5, stop=1.5) for number in range(1, 8)]
    wanted.append(segment("P01_03", number=1, start=1.5, stop=2.5))
    sounds = gather(Audio(tmp_path), wanted, VERBS)
    assert sounds.names == ("P01_02_0", "P01_03_0") and sounds.arrays[1].shape == (16000,)
    assert (sounds.arrays[0] == 0.5).all()  # 32 bits are read too
    why = {issue.where: issue.detail for issue in sounds.issues}
    assert "P01_01.wav has 44100 Hz; expected 16000: convert it, e.g. ffmpeg" in why["P01_01_0"]
    assert "is not an uncompressed (PCM) wave file" in why["P01_04_0"] and "unknown format" in why["P01_05_0"]
    assert "though its header says otherwise" in why["P01_06_0"]
    assert "holds no P01_07.wav" in why["P01_07_0"]
    assert "has 2.00 s; it has no piece from 1.50 to 2.50 s" in why["P01_03_1"]


def test_features_from_both_layouts_make_a_store(tmp_path: Path) -> None:
    folder = tmp_path / "features" / "flow"
    folder.mkdir(parents=True)
    vectors = np.random.default_rng(0).normal(size=(5, 16))
    np.save(folder / "P01_01_0.npy", vectors[0])
    np.savez(folder / "P02_01.npz", P02_01_0=vectors[1], P02_01_1=vectors[2].astype(np.float32))
    wanted = [segment("P01_01", verb=96), segment("P02_01", 0, verb=3), segment("P02_01", 1, verb=4)]
    features, issues = read_features(tmp_path / "features", "flow", pieces(wanted), VERBS, "epic")
    assert not issues
    save_features(features, tmp_path / "store")
    loaded = load_features(tmp_path / "store")
    assert loaded.modality == "flow" and np.array_equal(loaded.x, vectors[:3].astype(np.float32))
    assert loaded.labels.tolist() == [96, 3, 4] and loaded.subjects == ("P01", "P02", "P02")
    assert loaded.names == ("P01_01_0", "P02_01_0", "P02_01_1") and loaded.classes == VERBS
    assert loaded.provenance == features.provenance
    other, _ = read_features(tmp_path / "features", "flow", pieces(wanted[:2]), VERBS, "epic")
    assert other.provenance["source"]["fingerprint"] != features.provenance["source"]["fingerprint"]


def test_bad_features_are_reported(tmp_path: Path) -> None:
    folder = tmp_path / "video"
    folder.mkdir()
    arrays = (np.zeros(16), np.ones(16), np.zeros(8), np.full(16, np.nan), np.zeros((2, 16)), np.full(16, 1e39))
    for number, array in enumerate((*arrays, np.array(["a"] * 16))):
        np.save(folder / f"P01_01_{number}.npy", array)
    np.save(folder / "P01_01_7.npy", np.array([{}] * 16), allow_pickle=True)
    (folder / "P01_01_8.npy").write_bytes((folder / "P01_01_0.npy").read_bytes()[:-8])
    (folder / "P01_02.npz").write_bytes(b"PK nothing")
    np.savez(folder / "P01_03.npz", P01_03_1=np.zeros(16))
    wanted = [segment("P01_01", number) for number in range(9)]
    wanted += [segment("P01_02"), segment("P01_03"), segment("P01_04")]
    features, issues = read_features(tmp_path, "video", pieces(wanted), VERBS, "epic")
    assert features.names == ("P01_01_0", "P01_01_1") and features.width == 16
    why = {issue.where: issue.detail for issue in issues}
    assert len(why) == 10 and why["P01_01_2"] == "8 numbers, where most have 16"
    assert "not finite" in why["P01_01_3"] and "not finite" in why["P01_01_5"]
    assert "(2, 16); expected numbers (width,)" in why["P01_01_4"] and "expected numbers" in why["P01_01_6"]
    assert "is not a NumPy file" in why["P01_01_7"] and "is not a NumPy file" in why["P01_01_8"]
    assert "without pickled objects" in why["P01_02_0"] and "has no array P01_03_0" in why["P01_03_0"]
    assert "neither P01_04_0.npy nor P01_04.npz" in why["P01_04_0"]
    with pytest.raises(ValueError, match=r"no audio features for any of 12 samples: P01_01_0: .*neither"):
        read_features(tmp_path, "audio", pieces(wanted), VERBS, "epic")


def test_pickled_arrays_in_npz_are_refused(tmp_path: Path) -> None:
    (tmp_path / "video").mkdir()
    np.savez(tmp_path / "video" / "P01_01.npz", P01_01_0=np.array([{}] * 4, dtype=object))
    with pytest.raises(ValueError, match="without pickled objects"):
        FeatureFiles(tmp_path, "video").read(*pieces([segment("P01_01")]))


def test_from_segments_to_one_client_for_each_modality(tmp_path: Path) -> None:
    held: dict[Modality, str] = {"video": "P01", "flow": "P02", "audio": "P03", "inertial": "P04"}
    rng = np.random.default_rng(0)
    segments = {
        m: [segment(f"{who}_101", n, 1.0 + n, 2.5 + n, verb=n % 2) for n in range(8)] for m, who in held.items()
    }
    write_inertial(tmp_path, "P04_101")
    write_sound(tmp_path / "P03_101.wav", rng.integers(-9000, 9000, (160000, 1)).astype("<i2"))
    sets = []
    for modality in ("video", "flow"):
        (tmp_path / modality).mkdir()
        vectors = {item.name: rng.normal(size=64) for item in segments[modality]}
        np.savez(tmp_path / modality / f"{held[modality]}_101.npz", **vectors)
        sets.append(read_features(tmp_path, modality, pieces(segments[modality]), VERBS, "epic")[0])
    for modality, reader in (("audio", Audio(tmp_path)), ("inertial", Inertial(tmp_path))):
        signals = gather(reader, segments[modality], VERBS)
        sets.append(extract(signals.collection("EPIC-KITCHENS-100"), built_in(modality, width=64)))
    clients = clients_from_features(sets, by="subject", deal="all", test=0.25)
    assert {client.info.id: client.info.group for client in clients} == {f"{m}-{who}": m for m, who in held.items()}
    assert all(len(client.train) == 6 and len(client.test) == 2 for client in clients)
    assert all(client.info.shape == (64,) and len(client.info.classes) == 97 for client in clients)
