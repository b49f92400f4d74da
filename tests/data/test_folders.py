"""Stores are whole or not there: what kills and full disks leave behind, with real processes."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fedaction.data.folders import NewFolder, clear_leftovers, new_folder
from tests.data.signals.made import phone_csv

WRITE = """
import sys, time
import numpy as np
from pathlib import Path
from fedaction.data.layout import OPENNI_15
from fedaction.data.store import StoreWriter
with StoreWriter(Path(sys.argv[1]), layout=OPENNI_15, classes=("sit",), overwrite=True) as writer:
    writer.add(np.zeros((1, 4, 15, 3), np.float32), label=0, name="a")
    print("writing", flush=True)
    sys.stdin.readline()
    writer.finish()
"""


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def start_writing(out: Path) -> subprocess.Popen[str]:
    """A process in the middle of writing a store."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stdout.readline() == "writing\n"
    return process


def write(out: Path) -> None:
    with new_folder(out) as new:
        (new / "file").write_text("new")


def fedaction(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    code = "from fedaction.cli import main; main()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload]


@pytest.fixture
def phones(tmp_path) -> Path:
    phone_csv(tmp_path / "csv" / "ann.csv", [("walk", 40), ("stand", 40)], person="ann")
    return tmp_path / "csv"


def test_what_a_killed_import_left_is_cleared_by_the_next_one(tmp_path, phones):
    out = tmp_path / "places" / "clinic [2]"
    process = start_writing(out)
    process.kill()
    process.wait()
    (left,) = names(out.parent)
    assert left.startswith(".clinic [2].")
    done = fedaction("data", "import", phones, "--kind", "inertial", "--out", out)
    assert done.returncode == 0, done.stderr
    assert names(out.parent) == ["clinic [2]"] and names(out) == ["signals.json", "signals.npy"]


def test_what_an_older_version_left_goes_too(tmp_path):
    old = tmp_path / f".store.{'0' * 32}"
    shutil.copytree(Path(__file__).parent / "signals", old)
    clear_leftovers(tmp_path / "store")
    assert old.exists()  # it may be all that there is
    write(tmp_path / "store")
    clear_leftovers(tmp_path / "store")
    assert names(tmp_path) == ["store"]


@pytest.mark.slow
def test_a_folder_that_somebody_writes_in_is_left_alone(tmp_path):
    process = start_writing(tmp_path / "store")
    write(tmp_path / "store")
    assert len(names(tmp_path)) == 2
    process.communicate("\n", timeout=60)
    assert process.returncode == 0 and names(tmp_path) == ["store"]
    assert names(tmp_path / "store") == ["dataset.json", "frames.npy"]  # the later one, without its lock


@pytest.mark.slow
def test_a_full_disk_leaves_nothing(tmp_path, phones):
    """A disk with room for the header and no more: the operating system refuses to write on."""

    def fill() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    out = tmp_path / "new" / "place" / "clinic"
    done = fedaction("data", "import", phones, "--kind", "inertial", "--out", out, preexec_fn=fill)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.count("error:") == 1 and "File too large" in done.stderr
    assert names(tmp_path) == ["csv"]


@pytest.mark.parametrize("renames", [1, 2])
def test_a_store_that_is_being_replaced_is_never_lost(tmp_path, monkeypatch, renames):
    """Killed between moving the old one out of its place and the new one into it; and after both."""
    out = tmp_path / "store"
    write(out)
    (out / "file").write_text("old")
    done: list[tuple[str, str]] = []
    rename = os.rename

    class Killed(BaseException):
        pass

    def count(source: str, target: str) -> None:
        rename(source, target)
        done.append((source, target))
        if len(done) == renames:
            raise Killed

    new = NewFolder(out)
    (new.path / "file").write_text("new")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, "rename", count)
        new.put_in_place()
    new._lock.release()  # as a process does that ends
    assert len(names(tmp_path)) == 2 and not any(name.endswith(".gone") for name in names(tmp_path))
    clear_leftovers(out)
    assert (out / "file").read_text() == ("old" if renames == 1 else "new")
    clear_leftovers(out)
    assert names(tmp_path) == ["store"]


def test_writers_at_once_never_put_half_a_folder_in_place(tmp_path):
    """Processes that write to one place, each of which takes the others' folders for leftovers where it can."""
    code = """
import sys
from pathlib import Path
from fedaction.data.folders import new_folder
for number in range(40):
    try:
        with new_folder(Path(sys.argv[1])) as new:
            for part in "ab":
                (new / part).write_text(f"{sys.argv[2]}-{number}")
    except OSError:
        pass  # another was faster
"""
    racers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "store"), name]) for name in "xyz"]
    seen = 0
    while any(racer.poll() is None for racer in racers):
        time.sleep(0.01)
        if (tmp_path / "store").exists():
            seen += 1
            assert set(names(tmp_path / "store")) <= {"a", "b"}  # it may be replaced at this moment
    assert all(racer.returncode == 0 for racer in racers) and seen
    clear_leftovers(tmp_path / "store")
    clear_leftovers(tmp_path / "store")
    assert names(tmp_path) == ["store"]
    both = [(tmp_path / "store" / part).read_text() for part in "ab"]
    assert both[0] == both[1] and np.size(both) == 2
