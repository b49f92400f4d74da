"""Fingerprints of data: what is noticed, what is not, and that every kind of data has one."""

import shutil
from pathlib import Path

import pytest
import torch

from fedaction.data import files
from fedaction.data.files import digest_files
from fedaction.data.sources import SOURCES
from fedaction.data.sources.base import Source
from fedaction.stage import VERSION, stage_federation
from tests.data.test_sources import florence_like


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def digest(root: Path) -> str:
    return digest_files(root, (path for path in root.rglob("*") if path.is_file()))


def test_names_sizes_and_contents_count_and_places_and_times_do_not(tmp_path):
    for number in range(3):
        write(tmp_path / "a" / f"{number}.mp4", bytes([number]) * 1000)
    before = digest(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b", copy_function=shutil.copyfile)  # with times of its own
    assert digest(tmp_path / "b") == before
    write(tmp_path / "b" / "1.mp4", b"\1" * 999 + b"\2")
    assert digest(tmp_path / "b") != before
    write(tmp_path / "b" / "1.mp4", b"\1" * 1000)
    assert digest(tmp_path / "b") == before
    (tmp_path / "b" / "2.mp4").rename(tmp_path / "b" / "3.mp4")
    assert digest(tmp_path / "b") != before
    (tmp_path / "b" / "3.mp4").unlink()
    assert digest(tmp_path / "b") != before


def test_of_a_large_set_a_bounded_part_is_read_and_every_size_and_name_counts(tmp_path, monkeypatch):
    """16 pieces of 64 bytes; one file of 10,000 bytes, then forty files of 100."""
    monkeypatch.setattr(files, "_PIECES", 16)
    monkeypatch.setattr(files, "_PIECE", 64)
    large = write(tmp_path / "one" / "frames.npy", bytes(10_000))
    before = digest(tmp_path / "one")
    noticed = 0
    for place in range(0, 10_000, 50):
        blob = bytearray(10_000)
        blob[place] = 1
        large.write_bytes(bytes(blob))
        noticed += digest(tmp_path / "one") != before
        assert place or noticed  # the beginning is always read
    assert 10 <= noticed <= 30  # about 1,024 of 10,000 bytes
    large.write_bytes(bytes(9_999) + b"\1")
    assert digest(tmp_path / "one") != before  # as is the end
    large.write_bytes(bytes(10_001))
    assert digest(tmp_path / "one") != before
    for number in range(40):
        write(tmp_path / "many" / f"{number:02d}.mp4", bytes(100))
    before = digest(tmp_path / "many")
    write(tmp_path / "many" / "01.mp4", b"\1" * 100)
    assert digest(tmp_path / "many") == before  # every third of forty files is opened: this is not promised
    write(tmp_path / "many" / "03.mp4", b"\1" * 100)
    assert digest(tmp_path / "many") != before
    write(tmp_path / "many" / "03.mp4", bytes(100))
    write(tmp_path / "many" / "01.mp4", bytes(101))
    assert digest(tmp_path / "many") != before


def make(kind: str, root: Path) -> tuple[Source, Path]:
    """A source of a kind, and a file of which one byte is to count."""
    if kind == "store":
        write(root / "dataset.json", b"{}")
        return SOURCES[kind](store_paths=(str(root),)), write(root / "frames.npy", b"12345")
    if kind == "signals":
        write(root / "signals.json", b"{}")
        return SOURCES[kind](signal_paths=(str(root),)), write(root / "signals.npy", b"12345")
    if kind == "features":
        write(root / "features.json", b"{}")
        return SOURCES[kind](feature_paths=(str(root),)), write(root / "features.npy", b"12345")
    if kind == "arrays":
        for name in ("classes.json", "train_clips.npy", "test_clips.npy", "test_labels.npy"):
            write(root / name, b"1")
        return SOURCES[kind](arrays=str(root)), write(root / "train_labels.npy", b"12345")
    if kind == "video":
        for name in ("run/a.mp4", "run/b.mp4", "sit/a.mp4", "sit/c.mp4"):
            write(root / name, b"12345")
        return SOURCES[kind](video_root=str(root)), root / "sit" / "a.mp4"
    assert kind == "public"
    place = florence_like(root)
    path = next(path for path in sorted((place / "florence3d").rglob("*.txt")))
    return SOURCES[kind](public_sets=("florence3d",), public_root=str(place)), path


@pytest.mark.parametrize("kind", ["store", "signals", "features", "arrays", "video", "public"])
def test_another_byte_is_another_fingerprint(tmp_path, kind):
    source, path = make(kind, tmp_path / "mine")
    before = source.fingerprint(0)
    assert len(before) == 1 and source.fingerprint(0) == before
    blob = path.read_bytes()
    path.write_bytes(blob[:-1] + bytes([blob[-1] ^ 1]))
    assert source.fingerprint(0).keys() == before.keys() and source.fingerprint(0) != before
    path.write_bytes(blob)
    assert source.fingerprint(0) == before


def test_videos_of_several_places_have_one_each(tmp_path):
    for site in ("kitchen", "hall"):
        make("video", tmp_path / site)
    source = SOURCES["video"](video_paths=(str(tmp_path / "kitchen"), str(tmp_path / "hall")))
    before = source.fingerprint(0)
    write(tmp_path / "hall" / "run" / "new.mp4", b"1")
    after = source.fingerprint(0)
    assert before.keys() == after.keys() == {"kitchen", "hall"}
    assert before["kitchen"] == after["kitchen"] and before["hall"] != after["hall"]


def test_what_the_stage_makes_has_a_version():
    """If this fails because the stage makes other recordings from the same keys, raise VERSION and the numbers."""
    for kind in ("stage", "stage_features", "stage_video"):
        assert SOURCES[kind]().fingerprint(3) == {"the stage": f"version {VERSION}"}
    (client,) = stage_federation(
        clients=1, layouts=("kinect_v2",), train=(6,), test=2, actions=(3,), seed=1, frames=16
    )
    x = client.train.take(torch.arange(6))
    found = [float(x.mean()), float(x.std()), float(x[3, 0, 5, 7].norm())]
    assert VERSION == 1 and found == pytest.approx(NUMBERS, rel=1e-3)


NUMBERS = [1.07226, 1.75135, 4.04314]
