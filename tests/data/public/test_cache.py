"""The cache of public datasets: what makes it stale, what it survives, and how much memory it takes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from fedaction.data import store
from fedaction.data.layout import KINECT_V2
from fedaction.data.public import cache as cache_module
from fedaction.data.public import pool
from fedaction.data.public.base import unique
from fedaction.data.public.cache import prepare_public
from fedaction.data.public.ntu import NTU60
from fedaction.data.public.readers import READERS
from tests.conftest import recordings
from tests.data.public.formats import person, skeleton_lines, write_one_person, write_skeleton
from tests.data.public.made import Made


def write_dataset(root: Path, count: int = 6, frames: int = 14) -> dict[str, npt.NDArray[np.float32]]:
    """So many good files, in order of their names."""
    names = [f"S001C{1 + i // 40:03d}P{1 + i % 40:03d}R001A{1 + i % 3:03d}" for i in range(count)]
    return {name: write_one_person(root / f"{name}.skeleton", frames, i) for i, name in enumerate(names)}


def left_in(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock"))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_dataset_becomes_a_store_and_faults_are_named(tmp_path: Path, workers: int) -> None:
    root = tmp_path / "data"
    arrays = write_dataset(root)
    lines = skeleton_lines([[(1, pose)] for pose in person(5, 0)])
    (root / "S001C001P007R001A001.skeleton").write_text("\n".join(lines[:40]))
    write_skeleton(root / "S001C001P008R001A001.skeleton", [[], [], []])
    write_skeleton(root / "S001C001P009R001A001.skeleton", [])
    gaps = person(8, 1)
    gaps[2, 4] = np.nan
    write_skeleton(root / "S001C001P010R001A001.skeleton", [[(1, p)] if i != 5 else [] for i, p in enumerate(gaps)])
    lines[3] = "20"
    (root / "sub").mkdir()
    (root / "sub" / "S001C001P011R001A001.skeleton").write_text("\n".join(lines))
    seen: list[tuple[int, int]] = []
    path = prepare_public(
        "ntu60", root, cache=tmp_path / "cache", workers=workers, progress=lambda *done: seen.append(done)
    )
    item = store.load(path)
    assert path.name == item.name == "ntu60" and item.layout == KINECT_V2 and item.rate_hz == 30
    assert item.names == (*arrays, "S001C001P010R001A001")
    for name, sequence in zip(item.names[:6], item.sequences, strict=False):
        assert np.array_equal(sequence, arrays[name])
    assert [item.classes[label] for label in item.labels[:3]] == [
        "A001 drink water",
        "A002 eat meal/snack",
        "A003 brushing teeth",
    ]
    assert item.splits["cross_subject"] == ("train", "train", "test", "train", "train", "test", "test")
    assert np.allclose(item.sequences[6][0, 2], (gaps[1] + gaps[3]) / 2) and not item.sequences[6][0, 5].any()
    assert [(issue.kind, issue.where, issue.count) for issue in item.issues] == [
        ("unreadable", "S001C001P007R001A001.skeleton", 1),
        ("empty", "S001C001P008R001A001", 1),
        ("empty", "S001C001P009R001A001", 1),
        ("nan_frames", "S001C001P010R001A001", 1),
        ("zero_frames", "S001C001P010R001A001", 1),
        ("unreadable", "sub/S001C001P011R001A001.skeleton", 1),
    ]
    assert (
        "line 32 (frame 2 of 5): the file ends within the body" in item.issues[0].detail
        and "has 20 joints" in item.issues[5].detail
    )
    assert seen == [(i, 11) for i in range(1, 12)]


def test_real_files_become_clients(tmp_path: Path) -> None:
    path = prepare_public("ntu60", recordings("ntu_rgbd_samples"), cache=tmp_path)
    client = store.clients_from_store(path, protocol="cross_subject")[0]
    assert client.info.id == "ntu60" and client.info.shape == (2, 50, 25, 3)
    assert (len(client.train), len(client.test)) == (3, 2)
    assert client.info.classes == (
        "A003 brushing teeth",
        "A011 reading",
        "A017 take off a shoe",
        "A034 rub two hands together",
        "A058 handshaking",
    )


def test_what_has_not_changed_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, cache = tmp_path / "data", tmp_path / "cache"
    write_dataset(root)
    built: list[int] = []

    def prepare() -> Path:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            built.clear()
            path = prepare_public("ntu60", root, cache=cache, progress=lambda done, _: built.append(done))
        notes.append(str(caught[0].message) if caught else "")
        assert store.load(path).name == "ntu60" and len(left_in(cache)) == 1
        return path

    notes: list[str] = []
    path = prepare()
    before = (path / "frames.npy").stat().st_ino
    assert len(built) == 6 and prepare() == path and not built and (path / "frames.npy").stat().st_ino == before
    assert notes == ["", ""]

    source = root / "S001C001P001R001A001.skeleton"
    content, when = source.read_bytes(), source.stat()
    os.utime(source, ns=(when.st_atime_ns, when.st_mtime_ns + 1))  # another time
    prepare()
    source.write_bytes(content[:-2])  # another size, the same time
    os.utime(source, ns=(when.st_atime_ns, when.st_mtime_ns + 1))
    prepare()
    write_one_person(root / "S002C001P001R001A001.skeleton", 5, 9)
    prepare()
    source.unlink()
    prepare()
    (root / "missing_skeletons.txt").write_text("none\n")  # it decides which samples are used
    prepare()
    assert all("files of the dataset have changed" in note for note in notes[2:]) and len(notes) == 7
    notes.clear()

    seal = path.parent / "seal.json"
    made = json.loads(seal.read_text())
    seal.write_text(json.dumps({**made, "made_by": [0, *made["made_by"][1:]]}))
    prepare()
    monkeypatch.setattr(cache_module, "VERSION", 99)
    prepare()
    monkeypatch.undo()
    prepare()
    assert len(notes) == 3 and all("made by another version" in note for note in notes)
    notes.clear()

    for text in ("", "[]", "{}", '{"made_by": 1', "null"):
        seal.write_text(text)
        prepare()
    seal.unlink()
    prepare()
    assert len(notes) == 6 and all("seal is missing or damaged" in note for note in notes)
    notes.clear()

    frames = path / "frames.npy"
    whole = bytearray(frames.read_bytes())
    whole[-3] ^= 1  # one bit, still a finite number
    frames.write_bytes(whole)
    prepare()
    frames.write_bytes(frames.read_bytes()[:-100])
    prepare()
    (path / "dataset.json").write_text("{}")
    prepare()
    frames.unlink()
    prepare()
    assert len(notes) == 4 and all("it is damaged" in note for note in notes)


def test_stores_of_other_folders_and_readers_are_kept_apart(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_dataset(tmp_path / name)
    made = {
        prepare_public(reader, tmp_path / name, cache=tmp_path / "cache")
        for name in ("one", "two")
        for reader in ("ntu60", "ntu120")
    }
    assert len(made) == 4


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dataset(tmp_path / "data")
    monkeypatch.setenv("FEDACTION_CACHE", str(tmp_path / "there"))
    assert prepare_public("ntu60", tmp_path / "data").is_relative_to(tmp_path / "there")
    monkeypatch.delenv("FEDACTION_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert prepare_public("ntu60", tmp_path / "data").is_relative_to(tmp_path / "home" / ".cache" / "fedaction")


def test_what_cannot_be_prepared(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(ValueError, match="no public dataset is called 'ntu'; there are ntu60"):
        prepare_public("ntu", tmp_path, cache=cache)
    with pytest.raises(NotADirectoryError, match="nowhere"):
        prepare_public("ntu60", tmp_path / "nowhere", cache=cache)
    with pytest.raises(ValueError, match="no file of ntu60"):
        prepare_public("ntu60", tmp_path, cache=cache)
    write_skeleton(tmp_path / "data" / "S001C001P001R001A001.skeleton", [])
    (tmp_path / "data" / "S001C001P002R001A001.skeleton").write_text("oops")
    with pytest.raises(
        ValueError, match=r"no sample of ntu60 .* 2 issues:\n  S001C001P001R001A001: empty(.|\n)*oops"
    ):
        prepare_public("ntu60", tmp_path / "data", cache=cache)
    with pytest.raises(ValueError, match="workers"):
        prepare_public("ntu60", tmp_path / "data", cache=cache, workers=-1)
    assert left_in(cache) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupted_build_leaves_nothing(tmp_path: Path, workers: int) -> None:
    write_dataset(tmp_path / "data", count=80)

    def stop(done: int, _: int) -> None:
        if done == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_public("ntu60", tmp_path / "data", cache=tmp_path / "cache", workers=workers, progress=stop)
    assert left_in(tmp_path / "cache") == []


def test_a_killed_build_is_never_used_and_its_workers_end(tmp_path: Path) -> None:
    root, cache = tmp_path / "data", tmp_path / "cache"
    write_dataset(root, count=80)
    code = (
        "import multiprocessing, os, signal, sys\n"
        "def stop(done, _):\n"
        "    if done == 40:\n"
        "        print(*(child.pid for child in multiprocessing.active_children()), flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "if __name__ == '__main__':\n"
        "    from fedaction.data.public.cache import prepare_public\n"
        "    prepare_public('ntu60', sys.argv[1], cache=sys.argv[2], workers=2, progress=stop)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    ended = subprocess.run([sys.executable, str(script), str(root), str(cache)], stdout=subprocess.PIPE, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    assert [name[0] for name in left_in(cache)] == ["."]  # only what it wrote under another name
    workers = [int(pid) for pid in ended.stdout.split()]
    assert len(workers) == 2
    until = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() and "Z" not in _state(pid) for pid in workers):
        assert time.monotonic() < until, "workers outlive the process that started them"
        time.sleep(0.05)
    path = prepare_public("ntu60", root, cache=cache)
    assert len(store.load(path)) == 80 and left_in(cache) == [path.parent.name]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_the_second_of_two_waits_for_the_first(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data")
    first_is_in, go_on = threading.Event(), threading.Event()
    calls: list[str] = []
    made: list[Path] = []

    def prepare(who: str) -> None:
        def progress(*_: int) -> None:
            calls.append(who)
            first_is_in.set()
            assert go_on.wait(20)

        made.append(prepare_public("ntu60", tmp_path / "data", cache=tmp_path / "cache", progress=progress))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        threads = [threading.Thread(target=prepare, args=(who,)) for who in ("first", "second")]
        threads[0].start()
        assert first_is_in.wait(20)
        threads[1].start()
        until = time.monotonic() + 20
        while not any("another process" in str(item.message) for item in caught):
            assert time.monotonic() < until
            time.sleep(0.01)
        go_on.set()
        for thread in threads:
            thread.join(20)
    assert calls == ["first"] * 6 and len(set(made)) == 1 and len(made) == 2


def write_made(root: Path, count: int) -> Path:
    root.mkdir()
    for i in range(count):
        (root / f"{i:03d}").write_text("good")
    return root


def test_memory_does_not_grow_with_the_dataset(tmp_path: Path) -> None:
    root = write_made(tmp_path / "data", 100)
    tracemalloc.start()
    path = prepare_public(Made(), root, cache=tmp_path / "cache", workers=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    written = (path / "frames.npy").stat().st_size
    assert written > 100e6 and peak < 20e6, (written, peak)
    assert len(store.load(path)) == 100


def test_few_results_are_in_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_made(tmp_path / "data", 60)
    listing = Made().find(root)
    monkeypatch.setattr(pool, "_CHUNK_FILES", 1)
    submitted: list[int] = []
    submit = ProcessPoolExecutor.submit

    def count(self: object, *args: object) -> object:
        submitted.append(1)
        return submit(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(ProcessPoolExecutor, "submit", count)
    contents = pool.read_sources(Made(frames=2), listing.sources, 2)
    for taken, content in enumerate(contents, 1):
        assert content.samples[0].shape == (2, 2, 25, 3) and len(submitted) <= taken + 6
    assert len(submitted) == 60


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bug_in_a_reader_costs_one_file_and_a_crash_is_reported(tmp_path: Path, workers: int) -> None:
    root = write_made(tmp_path / "data", 4)
    (root / "002").write_text("bug")
    item = store.load(prepare_public(Made(frames=3), root, cache=tmp_path / "cache", workers=workers))
    assert item.names == ("000", "001", "003")
    assert [(issue.kind, issue.where, issue.detail) for issue in item.issues] == [
        ("unreadable", "002", "IndexError: of a strange file")
    ]
    if workers == 2:
        (root / "002").write_text("crash")
        with (
            pytest.warns(UserWarning, match="files of the dataset have changed"),
            pytest.raises(ChildProcessError, match="a worker process has died"),
        ):
            prepare_public(Made(frames=3), root, cache=tmp_path / "cache", workers=workers)


def test_a_reader_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    root = write_made(tmp_path / "data", 2)
    with pytest.raises(ValueError, match="lists a sample twice"):
        prepare_public(Made(again=True), root, cache=tmp_path / "cache")
    with pytest.raises(ValueError, match="unknown label or split"):
        prepare_public(Made(protocols=()), root, cache=tmp_path / "cache")


def test_all_readers() -> None:
    assert {"ntu60", "ntu120", "pku1", "pku2", "uestc"} <= set(READERS)
    for name, item in READERS.items():
        assert item.name == name and item.version >= 1 and "cross_subject" in item.protocols
        assert "expects" in item.about and "\n" not in item.about
    with pytest.raises(ValueError, match="two readers are called 'ntu60'"):
        unique([NTU60, NTU60])
