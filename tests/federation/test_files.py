import os
import subprocess
import sys

import pytest

from fedaction.federation.files import lock_folder, read_json, remove_partial, write_atomically


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
