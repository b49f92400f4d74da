import fcntl
import os
import shutil
import subprocess
import sys

import pytest

from fedaction.federation.files import (
    hold_folder,
    lock_folder,
    make_folder,
    read_json,
    remove_partial,
    write_atomically,
)


def test_a_second_writer_is_kept_out_until_the_first_is_gone(tmp_path):
    hold = f"""
import os
from pathlib import Path
from fedaction.federation.files import lock_folder
with lock_folder(Path({str(tmp_path)!r})):
    print("held", flush=True)
    input()
"""
    # A process of its own takes the folder, and is killed with it.
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout and holder.stdout.readline().strip() == b"held"
        with pytest.raises(ValueError, match="being written by another process"), lock_folder(tmp_path):
            raise AssertionError("two writers at once")
        holder.kill()
    with (
        lock_folder(tmp_path),
        pytest.raises(ValueError, match="being written by another process"),
        lock_folder(tmp_path),
    ):
        raise AssertionError("two writers at once")
    with lock_folder(tmp_path):
        pass


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    write_atomically(path, b"old")

    def fail(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_an_error_names_the_file_and_not_what_it_was_called_before(tmp_path):
    (tmp_path / "report.html").mkdir()
    with pytest.raises(IsADirectoryError) as found:
        write_atomically(tmp_path / "report.html", b"new")
    assert found.value.filename == str(tmp_path / "report.html")


def test_what_killed_writers_left_is_cleared(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / ".best.json.123.part").write_text("half")
    (tmp_path / "kept.part").write_text("not ours")
    remove_partial(tmp_path)
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["kept.part"]


def test_broken_json_is_named(tmp_path):
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(ValueError, match=r"result\.json is not valid JSON"):
        read_json(tmp_path / "result.json")


@pytest.mark.parametrize("how", ["moved", "removed", "replaced"])
def test_a_folder_that_is_held_is_not_made_anew(tmp_path, how):
    folder = tmp_path / "run"
    make_folder(folder / "models")
    with pytest.raises(FileNotFoundError, match="run is not there any more: somebody has"), hold_folder(folder):
        write_atomically(folder / "models" / "deep" / "a", b"a")
        folder.rename(tmp_path / "elsewhere")
        if how != "moved":
            shutil.rmtree(tmp_path / "elsewhere")
        if how == "replaced":
            folder.mkdir()
        write_atomically(folder / "models" / "deep" / "b", b"b")
    assert not list(tmp_path.rglob("run/*")) and folder.exists() == (how == "replaced")
    make_folder(folder / "models")  # by somebody who does not hold it


def test_what_fails_in_a_folder_that_has_gone_says_that_it_has(tmp_path):
    make_folder(tmp_path / "run" / "seeds" / "1")

    def work() -> None:
        with hold_folder(tmp_path / "run"), hold_folder(tmp_path / "run" / "seeds" / "1"):
            (tmp_path / "run").rename(tmp_path / "elsewhere")
            raise ValueError("checkpoint 'best' is damaged")

    with pytest.raises(FileNotFoundError, match=r"/run is not there any more"):
        work()
    with pytest.raises(ValueError, match="damaged"), hold_folder(tmp_path):
        raise ValueError("checkpoint 'best' is damaged")
    with pytest.raises(FileNotFoundError, match="is not there any more"), lock_folder(tmp_path / "run"):
        pass


def test_what_a_killed_writer_of_a_file_left_goes_when_it_is_written_again(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    path = tmp_path / "small.toml"
    theirs = tmp_path / f".small.toml.{ended.pid}.part"
    others = [
        tmp_path / f".small.toml.{os.getppid()}.part",  # of a process that is still there
        tmp_path / f".small.toml.old.{ended.pid}.part",  # of another file
        tmp_path / ".small.toml.backup.part",
        tmp_path / f"small.toml.{ended.pid}.part",
    ]
    for left in (theirs, *others):
        left.write_text("half")
    write_atomically(path, b"whole")
    assert {*tmp_path.iterdir()} == {path, *others}
    theirs.write_text("half")
    with theirs.open("rb") as file:  # of a writer elsewhere, whose number means nothing here
        fcntl.flock(file, fcntl.LOCK_EX)
        write_atomically(path, b"again")
        assert theirs.exists()
    write_atomically(path, b"again")
    assert not theirs.exists() and path.read_bytes() == b"again"
