"""Commands that are killed before any change of a file: the same command again, and all is as if nothing had been."""

import errno
import itertools
import os
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import few
from tests.data.public.test_cache import write_dataset
from tests.data.signals.made import phone_csv
from tests.runs.commands import KILLED, Launcher, content, is_stopped, lasting, waits_for
from tests.training.distilling import write_arrays

DISTIL = """
chain = [22, 18]
width = 4
epochs = 2
batch_size = 10
lr = 0.05
checkpoint_every = 1
device = "cpu"
data = "arrays"
arrays = "{arrays}"
"""
KEYS = {"data": "arrays", "clip_frames": 4, "probe_epochs": 2, "finetune_epochs": 2, "checkpoint_every": 1}


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> Path:
    """What the commands work on."""
    root = tmp_path_factory.mktemp("given")
    write_arrays(root / "arrays")
    (root / "distil.toml").write_text(DISTIL.format(arrays=root / "arrays"))
    phone_csv(root / "phones" / "ann.csv", [("walk", 40), ("stand", 40)], person="ann")
    random = np.random.default_rng(0)
    np.savez(root / "skeletons.npz", x=random.normal(size=(6, 1, 9, 15, 3)), y=np.arange(6) % 2)
    write_dataset(root / "ntu", count=6)
    return root


@pytest.fixture(scope="module")
def whole(launcher, given, tmp_path_factory) -> Callable[[str], dict[str, Any]]:
    """What a command leaves to which nothing happened."""

    @cache
    def carry_out(name: str) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("whole") / "out"
        assert launcher.do(*command(name, given, folder)) == 0, launcher.said()
        return lasting(folder)

    return carry_out


def command(name: str, given: Path, out: Path) -> list[Any]:
    """A command that leaves something in a folder."""
    sets = itertools.chain.from_iterable(("--set", f"{key}={value}") for key, value in KEYS.items())
    return {
        "distil": ["distil", given / "distil.toml", "--out", out],
        "evaluate": [
            *("evaluate", "random", "--width", "2", "--device", "cpu", "--out", out, *sets),
            *("--set", f"arrays={given / 'arrays'}", "--set", "batch_size=6", "--set", "clips=2"),
        ],
        "paper": ["paper", "fsar/s-table5", "--scale", "tiny", "--device", "cpu", "--out", out],
        "import skeletons": [
            *(
                "data",
                "import",
                given / "skeletons.npz",
                "--layout",
                "openni_15",
                "--overwrite",
                "--out",
                out / "store",
            )
        ],
        "import signals": [
            *("data", "import", given / "phones", "--kind", "inertial", "--overwrite", "--out", out / "store")
        ],
        "prepare": ["data", "prepare", "ntu60", given / "ntu", "--workers", "1", "--cache", out],
    }[name]


# How far a command gets before it is killed, the first time, and how much further each time after.
QUICK = [("distil", 20, 40), ("evaluate", 4, 12), ("import skeletons", 1, 4)]
EVERY = [
    ("distil", 1, 1),
    ("evaluate", 1, 1),
    ("paper", 1, 1),
    ("import skeletons", 1, 1),
    ("import signals", 1, 1),
    ("prepare", 1, 1),
]


@pytest.mark.parametrize(
    ("name", "first", "step"), [*QUICK, *(pytest.param(*how, marks=pytest.mark.slow) for how in EVERY)]
)
def test_killed_before_any_change_of_a_file_and_begun_again(name, first, step, launcher, given, whole, tmp_path):
    folder, kills = tmp_path / "killed", 0
    for number in itertools.count(first, step):
        status = launcher.do(*command(name, given, folder), die=(str(folder), number))
        if status == 0:
            break
        assert status == KILLED, launcher.said()
        kills += 1
    assert kills >= 2
    assert lasting(folder) == whole(name)  # the same files, too: nothing is left over


@pytest.mark.parametrize("name", ["import skeletons", pytest.param("import signals", marks=pytest.mark.slow)])
def test_a_store_that_is_imported_anew_is_the_old_or_the_new_one_whenever_it_is_killed(
    name, launcher, given, tmp_path
):
    folder = tmp_path / "out"
    assert launcher.do(*command(name, given, folder)) == 0, launcher.said()
    before = content(folder / "store")
    for number in itertools.count(1):
        status = launcher.do(*command(name, given, folder), die=(str(folder), number))
        if status == 0:
            break
        assert status == KILLED
        # At no instant is there less than one whole store; at one of them it has another name.
        assert any(content(place) == before for place in folder.iterdir() if place.is_dir())
    assert content(folder / "store") == before and [place.name for place in folder.iterdir()] == ["store"]


SLOW = pytest.mark.slow
STOPPED = "warning: stopped"


@pytest.mark.parametrize(
    ("name", "at", "how", "said"),
    [
        ("distil", 25, signal.SIGTERM, "{0} resumes from the last checkpoint"),
        ("evaluate", 9, signal.SIGINT, "the same command resumes it"),
        ("import skeletons", 4, signal.SIGTERM, "nothing half-written is left"),
        ("prepare", 6, signal.SIGINT, "nothing half-written is left"),
        pytest.param("distil", 40, signal.SIGINT, "{0} resumes from the last checkpoint", marks=SLOW),
        pytest.param("evaluate", 20, signal.SIGTERM, "the same command resumes it", marks=SLOW),
        pytest.param("paper", 50, signal.SIGTERM, "the same command resumes from the last checkpoint", marks=SLOW),
        pytest.param("import signals", 3, signal.SIGINT, "nothing half-written is left", marks=SLOW),
        pytest.param("prepare", 4, signal.SIGTERM, "nothing half-written is left", marks=SLOW),
    ],
)
def test_told_to_stop_it_says_how_to_go_on(name, at, how, said, launcher, given, whole, tmp_path):
    folder = tmp_path / "out"
    assert launcher.do(*command(name, given, folder), signal=(str(folder), at, how)) == 128 + how, launcher.said()
    text = launcher.said()
    assert text.count("warning:") == 1 and STOPPED in text and said.format(f"`fedaction distil {folder}`") in text
    assert "error:" not in text and "Traceback" not in text, text
    assert not list(tmp_path.rglob("*.part")) and {*folder.glob(".*.*")} <= {*folder.glob(".*.lock")}
    assert launcher.do(*command(name, given, folder)) == 0, launcher.said()
    assert lasting(folder) == whole(name)


@pytest.mark.parametrize(
    ("name", "at", "code"),
    [
        ("distil", 30, errno.ENOSPC),
        ("evaluate", 8, errno.EROFS),
        ("prepare", 5, errno.ENOSPC),
        *(
            pytest.param(name, at, (errno.EROFS, errno.ENOSPC)[at % 2], marks=SLOW)
            for name in ("distil", "evaluate", "paper", "prepare", "import skeletons", "import signals")
            for at in ((1, 2, 4, 7) if "import" in name or name == "prepare" else (1, 2, 7, 20, 33))
        ),
    ],
)
def test_a_disk_that_takes_nothing_more_ends_it_with_one_message(name, at, code, launcher, given, whole, tmp_path):
    folder = tmp_path / "out"
    assert launcher.do(*command(name, given, folder), fail=(str(folder), at, code)) == 2, launcher.said()
    text = launcher.said()
    assert text.count("error:") == 1 and os.strerror(code) in text and str(folder) in text, text
    assert "Traceback" not in text, text
    assert code != errno.ENOSPC or not list(tmp_path.rglob("*.part"))
    assert launcher.do(*command(name, given, folder)) == 0, launcher.said()
    assert lasting(folder) == whole(name)


@pytest.mark.parametrize("name", few(("evaluate", "paper"), "distil"))
def test_a_second_writer_is_kept_out(name, launcher, given, tmp_path):
    second = Launcher(tmp_path)
    folder = tmp_path / "out"
    where = ("metrics.jsonl", 1) if name == "paper" else (str(folder), 12)
    process = launcher.start(*command(name, given, folder), signal=(*where, signal.SIGSTOP))
    try:
        waits_for(lambda: is_stopped(process), "the first writer's change of a file")
        assert second.do(*command(name, given, folder)) == 2
        assert "is being written by another process; wait for it, or stop it" in second.said()
    finally:
        second.close()
        os.kill(process, signal.SIGCONT)
    assert launcher.status() == 0, launcher.said()
