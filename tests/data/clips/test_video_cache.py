import multiprocessing
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from fedaction.data.clips.cache import ClipCache


def source(tmp_path, name="video.mp4"):
    path = tmp_path / name
    path.write_bytes(b"some video")
    return path


def clips(value, count=2):
    return np.full((count, 3, 4, 5, 3), value, dtype=np.uint8)


def never():
    raise AssertionError("it was in the cache")


def entries(cache):
    return sorted(path for path in cache.folder.iterdir())


def test_what_was_made_is_found_again_and_mapped(tmp_path):
    video, cache = source(tmp_path), ClipCache(tmp_path / "cache")
    made = cache.clips(video, {"frames": 8}, lambda: clips(7))
    found = ClipCache(tmp_path / "cache").clips(video, {"frames": 8}, never)
    assert np.array_equal(found, made) and found.dtype == np.uint8
    assert isinstance(found, np.memmap) and not found.flags.writeable
    assert np.array_equal(np.load(entries(cache)[0], allow_pickle=False), made)  # any reader of .npy reads it


def test_anything_that_decides_clips_is_part_of_the_key(tmp_path):
    video, cache = source(tmp_path), ClipCache(tmp_path / "cache")
    cache.clips(video, {"frames": 8}, lambda: clips(1))
    assert cache.clips(video, {"frames": 9}, lambda: clips(2)).max() == 2
    assert cache.clips(source(tmp_path, "other.mp4"), {"frames": 8}, lambda: clips(3)).max() == 3
    os.utime(video, ns=(1, 1))
    assert cache.clips(video, {"frames": 8}, lambda: clips(4)).max() == 4
    video.write_bytes(b"some other video")
    os.utime(video, ns=(1, 1))
    assert cache.clips(video, {"frames": 8}, lambda: clips(5)).max() == 5
    assert cache.clips(video, {"frames": 8}, never).max() == 5
    with pytest.raises(FileNotFoundError):
        cache.clips(tmp_path / "none.mp4", {}, never)


@pytest.mark.parametrize("damage", ["flip", "cut", "longer", "empty", "text", "shape", "pickle"])
def test_a_damaged_entry_is_made_again(damage, tmp_path):
    video, cache = source(tmp_path), ClipCache(tmp_path / "cache")
    cache.clips(video, {}, lambda: clips(1))
    (path,) = entries(cache)
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[200] ^= 4
    elif damage == "cut":
        data = data[:-20]
    elif damage == "longer":
        data += b"more"
    elif damage == "empty":
        data = bytearray()
    elif damage == "text":
        data = bytearray(b"not an array" * 50)
    elif damage == "shape":
        data = bytearray(bytes(data).replace(b"(2, 3, 4, 5, 3)", b"(2, 3, 4, 15,3)"))
    path.write_bytes(data)
    if damage == "pickle":
        with path.open("wb") as file:
            np.save(file, np.array([{"a": 1}], dtype=object))
    with pytest.warns(UserWarning, match=r"made again: .* is damaged"):
        assert cache.clips(video, {}, lambda: clips(9)).max() == 9
    assert cache.clips(video, {}, never).max() == 9


def test_what_was_not_used_for_longest_goes_first(tmp_path):
    one = clips(0).nbytes + 200  # with header and foot
    cache = ClipCache(tmp_path / "cache", limit_bytes=4 * one)
    videos = [source(tmp_path, f"{i}.mp4") for i in range(5)]
    for i, video in enumerate(videos[:4]):
        cache.clips(video, {}, lambda i=i: clips(i))
    assert len(entries(cache)) == 4
    for age, path in zip(
        (400, 300, 200, 100), sorted(entries(cache), key=lambda p: p.stat().st_mtime_ns), strict=True
    ):
        then = path.stat().st_mtime - age
        os.utime(path, (then, then))
    cache.clips(videos[0], {}, never)  # the oldest has been used again
    cache.clips(videos[4], {}, lambda: clips(4))
    assert cache.size_bytes() <= 4 * one
    for number in (0, 4):
        cache.clips(videos[number], {}, never)
    assert cache.clips(videos[1], {}, lambda: clips(11)).max() == 11


def test_the_limit_holds_whatever_others_put_there(tmp_path):
    one = clips(0).nbytes + 200
    mine, other = (ClipCache(tmp_path / "cache", limit_bytes=10 * one) for _ in range(2))
    for i in range(30):
        mine.clips(source(tmp_path, f"a{i}.mp4"), {}, lambda i=i: clips(i))
        other.clips(source(tmp_path, f"b{i}.mp4"), {}, lambda i=i: clips(i))
        assert mine.size_bytes() <= 11 * one
    huge = mine.clips(source(tmp_path), {}, lambda: clips(3, count=100))
    assert len(huge) == 100 and mine.size_bytes() <= 10 * one  # given, but not kept


def test_what_a_killed_process_left_is_removed_in_time(tmp_path):
    cache = ClipCache(tmp_path / "cache")
    old, new = cache.folder / ".a.npy.1", cache.folder / ".b.npy.2"
    old.write_bytes(b"x" * 10)
    new.write_bytes(b"x" * 10)
    os.utime(old, (1, 1))
    assert cache.size_bytes() == 10 and entries(cache) == [new]


def test_a_full_disk_costs_only_time(tmp_path, monkeypatch):
    cache = ClipCache(tmp_path / "cache")

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedaction.data.clips.cache.os.replace", full)
    with pytest.warns(UserWarning, match="No space left"):
        assert cache.clips(source(tmp_path), {}, lambda: clips(1)).max() == 1
    assert not entries(cache)


def test_what_cannot_be_made_is_not_kept(tmp_path):
    cache = ClipCache(tmp_path / "cache")
    with pytest.raises(ZeroDivisionError):
        cache.clips(source(tmp_path), {}, lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="uint8"):
        cache.clips(source(tmp_path), {}, lambda: clips(1).astype(float))
    with pytest.raises(ValueError, match="limit"):
        ClipCache(tmp_path, limit_bytes=0)
    assert not entries(cache)


def test_the_cache_is_where_the_others_are(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDACTION_CACHE", str(tmp_path / "there"))
    assert ClipCache().folder == tmp_path / "there" / "clips" and ClipCache(tmp_path).folder == tmp_path / "clips"
    monkeypatch.delenv("FEDACTION_CACHE")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert ClipCache().folder == tmp_path / "home" / ".cache" / "fedaction" / "clips"


def _work(folder, videos, failed):
    """Reads and makes entries in a cache that is too small for them, and looks at each."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            cache = ClipCache(folder, limit_bytes=4 * (clips(0).nbytes + 200))
            for turn in range(20):
                for number, video in enumerate(videos):
                    found = cache.clips(video, {}, lambda n=number: clips(n))
                    if not (found == number).all() or len(found) != 2:
                        failed.put(f"turn {turn}: {number}")
    except BaseException as error:
        failed.put(repr(error))
        raise


def test_two_processes_may_use_one_cache(tmp_path):
    videos = [source(tmp_path, f"{i}.mp4") for i in range(8)]
    context = multiprocessing.get_context("fork")
    failed = context.SimpleQueue()
    processes = [context.Process(target=_work, args=(tmp_path / "cache", videos, failed)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0] and failed.empty()
