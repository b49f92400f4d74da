"""What a review of an earlier version (04c7d39) found, seen from outside: by letter, through the command alone.

Nothing of the package is imported here and every input is written here, so that the same file runs against that
version, where each of these fails:

    git worktree add ../old 04c7d39
    PYTHONPATH=../old/src python -m pytest --noconftest tests/cli/test_review.py
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import struct
import zipfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runs.commands import Launcher, is_stopped, waits_for

pytestmark = pytest.mark.slow  # by default the rooms' own tests have all of it, from inside

RECIPE = """method = "fedavg"
classifier = "shared"
rounds = 2
lr = 0.05
workers = 1
data = "stage"
stage_clients = 2
stage_layouts = ["openni_15"]
stage_train = [8]
stage_test = 4
stage_actions = [2]
frames = 8
batch_size = 4
model_width = 4
model_last = 0
model_units = [1, 1, 1]
model_projection = 8
"""
STORE = RECIPE[: RECIPE.index("data =")] + RECIPE[RECIPE.index("frames =") :]
STORE += 'data = "store"\nstore_paths = ["store"]\nstore_by = "subject"\n'


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    home = tmp_path_factory.mktemp("launcher")
    with chdir(home):  # where its commands run
        launcher = Launcher(home)
    yield launcher
    launcher.close()


@pytest.fixture(scope="module")
def finished(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two rounds that nothing happened to."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "small.toml").write_text(RECIPE)
    assert launcher.do("run", folder / "small.toml", "--out", folder / "run") == 0, launcher.said()
    return folder / "run"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(RECIPE)
    return tmp_path


@pytest.fixture
def run(finished: Path, work: Path) -> Path:
    """A copy of the finished run."""
    return Path(shutil.copytree(finished, work / "run"))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def memory_of(launcher: Launcher) -> int:
    """Bytes of address space that every command has from the start."""
    process = launcher._process.pid  # pyright: ignore[reportPrivateUsage]
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmSize:")[2].split()[0]) << 10


def refused(launcher: Launcher, *words: str | Path, **more: Any) -> str:
    """The message of a command that ends with status 2."""
    status, said = launcher.do(*words, **more), launcher.said()
    assert (status, "Traceback" in said) == (2, False), f"status {status}: {said[-400:]}"
    return said


def write_npz(path: Path, shift: float = 0.0, people: str = "ab") -> Path:
    """Sixteen recordings of two people."""
    x = np.random.default_rng(3).normal(size=(16, 10, 15, 3)) + np.arange(16)[:, None, None, None] % 2 + shift
    subjects = np.repeat(list(people), 8)
    np.savez(path, x=x.astype(np.float32), y=np.arange(16) % 2, subjects=subjects, classes=np.array(["sit", "wave"]))
    return path


def test_f1_a_finished_run_is_not_relabelled(launcher: Launcher, run: Path) -> None:
    before = (run / "result.json").read_bytes()
    edit(run / "recipe.toml", "lr = 0.05", "lr = 0.5")
    assert "lr" in refused(launcher, "resume", run)
    assert (run / "result.json").read_bytes() == before


def test_f2_a_run_does_not_go_on_with_another_seed(launcher: Launcher, work: Path) -> None:
    launcher.do("run", work / "small.toml", "--out", work / "run", die=("round-000002", 1))
    edit(work / "run" / "recipe.toml", "seeds = [0]", "seeds = [1]")
    assert "seed" in refused(launcher, "resume", work / "run")


def test_f3_a_longer_run_has_its_own_evidence(launcher: Launcher, work: Path, finished: Path) -> None:
    run = work / "run"
    assert launcher.do("run", work / "small.toml", "--set", "rounds=1", "--out", run) == 0
    longer: tuple[str | Path, ...] = ("resume", run, "--extend", "rounds=2")
    if launcher.do("resume", "--help") == 0 and "--extend" not in launcher.output.read_text():
        edit(run / "recipe.toml", "rounds = 1", "rounds = 2")  # as it was done before there was such an option
        longer = ("resume", run)
    launcher.do(*longer, die=("evidence", 2 if len(longer) > 2 else 1))
    launcher.do("resume", run)
    evidence = [json.loads((home / "evidence.json").read_text()) for home in (run, finished)]
    assert evidence[0]["samples"] == evidence[1]["samples"]


def test_f4_metrics_that_were_cut_short_are_not_summed_up(launcher: Launcher, run: Path) -> None:
    table = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(b"".join(table[:-1]))
    assert "metrics.jsonl" in refused(launcher, "compare", run)


def test_f4_a_changed_digit_is_noticed(launcher: Launcher, run: Path) -> None:
    table = (run / "metrics.jsonl").read_text()
    place = re.search(r'"loss".*?(\d)[,}]', table)
    assert place
    digit = "1" if place[1] == "2" else "2"
    (run / "metrics.jsonl").write_text(table[: place.start(1)] + digit + table[place.end(1) :])
    assert "metrics.jsonl" in refused(launcher, "report", run)


def test_f4_a_file_that_follows_from_the_others_is_made_again(launcher: Launcher, run: Path) -> None:
    (run / "evidence.json").write_text("{")
    assert launcher.do("resume", run) == 0, launcher.said()
    assert json.loads((run / "evidence.json").read_text())["confusion"]


def test_f5_a_store_is_not_replaced_under_a_run(launcher: Launcher, work: Path) -> None:
    store = work / "store"
    (work / "store.toml").write_text(STORE.replace('"store"]', f'"{store}"]'))
    made = ("data", "import", write_npz(work / "a.npz"), "--layout", "openni_15", "--out", store)
    assert launcher.do(*made) == 0, launcher.said()
    launcher.do("run", work / "store.toml", "--out", work / "run", die=("round-000002", 1))
    write_npz(work / "a.npz", shift=0.5)
    assert launcher.do(*made, "--overwrite") == 0, launcher.said()
    assert "data" in refused(launcher, "resume", work / "run")


def test_f6_what_a_small_file_unpacks_to_is_bounded(launcher: Launcher, work: Path) -> None:
    bomb, head = work / "a.npz", io.BytesIO()
    declared = {"descr": "<f8", "fortran_order": False, "shape": (4, 200_000, 15, 3)}
    np.lib.format.write_array_header_1_0(head, declared)
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("x.npy", "w") as x:
            x.write(head.getvalue())
            for _ in range(288):
                x.write(bytes(1_000_000))
        with archive.open("y.npy", "w") as y:
            np.save(y, np.zeros(4, np.int64))
    assert bomb.stat().st_size < 2_000_000
    memory = memory_of(launcher) + 200 * 2**20
    words = ("data", "import", bomb, "--layout", "openni_15", "--out", work / "store")
    assert "allowed" in refused(launcher, *words, limits={"RLIMIT_AS": memory})


HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 15, 3), }"
TORN = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + HEADER.replace(b"(4, 15, 3)", b"(4, 15, 3 ").ljust(118)
"""An array whose header's bracket is never closed."""


def test_f7_one_damaged_file_does_not_end_an_import(launcher: Launcher, work: Path) -> None:
    for label in ("sit", "wave"):
        (work / "mine" / label).mkdir(parents=True)
        np.save(work / "mine" / label / "a.npy", np.random.default_rng(0).normal(size=(4, 15, 3)))
    (work / "mine" / "sit" / "b.npy").write_bytes(TORN + bytes(720))
    status = launcher.do("data", "import", work / "mine", "--layout", "openni_15", "--out", work / "store")
    assert "Traceback" not in launcher.said() and "b.npy" in launcher.output.read_text() + launcher.said()
    assert status == 1 and (work / "store" / "dataset.json").is_file()


def test_f8_an_unknown_codec_does_not_end_the_others(launcher: Launcher, work: Path) -> None:
    av = pytest.importorskip("av")
    arrays = work / "arrays"
    arrays.mkdir()
    for side in ("train", "test"):
        np.save(arrays / f"{side}_clips.npy", np.zeros((2, 4, 8, 8, 3), np.uint8))
        np.save(arrays / f"{side}_labels.npy", np.arange(2))
    (arrays / "classes.json").write_text('["a", "b"]')
    keys = f'chain = [18]\nwidth = 1\nepochs = 1\nbatch_size = 2\ndata = "arrays"\narrays = "{arrays}"\n'
    (work / "distil.toml").write_text(keys + 'device = "cpu"\naugment = false\n')
    assert launcher.do("distil", work / "distil.toml", "--out", work / "models") == 0, launcher.said()
    model = next(work.glob("models/**/model.safetensors"))
    with av.open(work / "good.avi", "w") as file:
        stream = file.add_stream("mpeg4", rate=25)
        stream.width = stream.height = 32
        for _ in range(12):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8))))
        file.mux(stream.encode())
    (work / "bad.avi").write_bytes((work / "good.avi").read_bytes().replace(b"FMP4", b"ZZZZ"))
    status = launcher.do("predict", model, work / "bad.avi", work / "good.avi")
    assert "Traceback" not in launcher.said() and "bad.avi" in launcher.said()
    assert status == 1 and "good.avi" in launcher.output.read_text()


DAMAGE = {"another packing": (8, 10, 99), "a password": (6, 8, 1)}
"""Where it is in the two headers of a member, and the number that is put there."""


@pytest.mark.parametrize("damage", DAMAGE)
def test_f9_a_damaged_archive_is_refused(launcher: Launcher, work: Path, damage: str) -> None:
    packed, (first, second, number) = io.BytesIO(), DAMAGE[damage]
    x = np.random.default_rng(0).normal(size=(2, 40, 15, 3))
    np.savez_compressed(packed, x=x, y=np.arange(2))
    content = bytearray(packed.getvalue())
    for mark, place in ((b"PK\x03\x04", first), (b"PK\x01\x02", second)):
        at = content.index(mark) + place
        content[at : at + 2] = number.to_bytes(2, "little")
    (work / "a.npz").write_bytes(content)
    words = ("data", "import", work / "a.npz", "--layout", "openni_15", "--out", work / "store")
    assert "a.npz" in refused(launcher, *words)


def test_f10_names_are_not_markup(launcher: Launcher, work: Path) -> None:
    out = work / "[" / "red]"
    status = launcher.do("run", work / "small.toml", "--set", "rounds=1", "--out", out)
    assert status == 0 and "Traceback" not in launcher.said(), launcher.said()[-400:]
    assert "[/red]" in launcher.said().replace(" ", "") + launcher.output.read_text()


def test_f10_recipes_are_listed_whatever_their_first_line(launcher: Launcher) -> None:
    recipes = launcher.errors.parent / "recipes" / "mine"
    recipes.mkdir(parents=True)
    (recipes / "a.toml").write_text("# [/x] of mine\n" + RECIPE)
    (recipes / "b.toml").write_bytes(b"# M\xfcller\n")
    assert (launcher.do("recipes"), "Traceback" in launcher.said()) == (0, False), launcher.said()[-400:]


STARTS = ["method=fsar backbone=resnet3d", "model_width=100000", "speed_spread=1e10", 'precision="bf16"']


@pytest.mark.parametrize("key", STARTS)
def test_f11_a_run_that_cannot_start_leaves_nothing(launcher: Launcher, work: Path, key: str) -> None:
    keys = [word for one in key.split() for word in ("--set", one)]
    refused(launcher, "run", work / "small.toml", *keys, "--out", work / "run")
    assert not (work / "run").exists()


RESULTS = {"a list": "[]", "a word": '{"mean": "x"}', "deep": "[" * 100_000, "digits": '{"mean": ' + "9" * 5000 + "}"}


@pytest.mark.parametrize("content", ["a list", "a word", "deep", "digits"])
def test_f12_a_damaged_result_is_refused(launcher: Launcher, run: Path, content: str) -> None:
    (run / "result.json").write_text(RESULTS[content])
    assert "result.json" in refused(launcher, "compare", run)


def test_f12_values_too_deep_are_refused(launcher: Launcher, work: Path) -> None:
    refused(launcher, "run", work / "small.toml", "--set", "lr=" + "[" * 20_000, "--out", work / "run")


def test_f12_a_name_too_long_is_refused(launcher: Launcher, work: Path) -> None:
    refused(launcher, "run", work / "small.toml", "--out", work / ("n" * 300))


def test_f13_what_a_killed_import_left_is_cleared(launcher: Launcher, work: Path) -> None:
    made = ("data", "import", write_npz(work / "a.npz"), "--layout", "openni_15", "--out", work / "store")
    assert launcher.do(*made, die=("dataset.json", 1)) < 0
    assert launcher.do(*made) == 0, launcher.said()
    left = [path.name for path in work.iterdir() if path.name.startswith(".store") and path.is_dir()]
    assert not left and (work / "store" / "dataset.json").is_file()


def test_f14_a_newline_does_not_drop_the_rest(launcher: Launcher, work: Path) -> None:
    refused(launcher, "run", work / "small.toml", "--set", "lr=0.1\nrounds=1", "--out", work / "run")


def test_f14_what_the_stage_makes_has_a_limit(launcher: Launcher, work: Path) -> None:
    memory = {"RLIMIT_AS": 6 * 2**30}  # where it has none, this ends it
    words = ("run", work / "small.toml", "--set", "stage_train=[100000000]", "--out", work / "run")
    assert "stage would make" in refused(launcher, *words, limits=memory)


def test_f14_runs_at_once_have_a_folder_each(launcher: Launcher, work: Path) -> None:
    """The second comes and goes while the first is held right before its first change of a file."""
    home = launcher.errors.parent
    with chdir(home):
        second = Launcher(work)
    words = ("run", work / "small.toml", "--set", "rounds=1")
    process = launcher.start(*words, signal=("runs", 1, signal.SIGSTOP))
    try:
        waits_for(lambda: is_stopped(process), "the first run's change of a file")
        assert second.do(*words) == 0, second.said()
    finally:
        second.close()
        os.kill(process, signal.SIGCONT)
    assert launcher.status() == 0, launcher.said()
    assert len(list((home / "runs").iterdir())) == 2
