"""A run killed at any instant and resumed leaves the same bytes as one that was not."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.runs.commands import KILLED, LIMIT, content, waits_for

ENGINES = ["sequential", "vectorised"]
ONE_ENGINE = [ENGINES[0], pytest.param(ENGINES[1], marks=pytest.mark.slow)]
"""Which engine trained makes no difference to files; the other one is in the long run."""
ROUNDS = 6
RECIPE = f"""
method = "fsar"
baselines = ["fedavg"]
rounds = {ROUNDS}
clients_per_round = 2
failure_rate = 0.1
workers = 2
stage_clients = 3
stage_layouts = ["kinect_v2", "openni_15"]
stage_train = [8, 6]
stage_test = 6
stage_actions = [4, 3]
frames = 8
batch_size = 4
lr = 0.05
model_width = 4
model_last = 0
model_units = [1, 1, 1]
model_projection = 8
model_dropout = 0.2
report_samples = 1
controls = ["majority", "ridge"]
validation = 0.3
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recipes") / "small.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="module")
def whole(launcher, recipe, tmp_path_factory) -> dict[str, Path]:
    """For each engine a run that nothing interrupted."""
    found = {engine: tmp_path_factory.mktemp(engine) / "whole" for engine in ENGINES}
    for engine, folder in found.items():
        assert launcher.do("run", recipe, "--engine", engine, "--out", folder) == 0, launcher.errors.read_text()
    return found


def timeless(path: Path) -> dict[str, object]:
    """A result without what differs between any two runs: where they lie and how long they took."""
    result = json.loads(path.read_text())
    del result["sha256"]  # of all that
    for part in (result, *result["baselines"].values()):
        del part["run"], part["seconds"]
    return result


def assert_same_run(folder: Path, whole: Path, files: bool = True) -> None:
    """Metrics, models, evidence and results are equal, byte for byte; no file is missing, none is left over."""
    found, expected = content(folder), content(whole)
    for name in ("metrics.jsonl", "evidence.json", "checkpoints/best.safetensors", "checkpoints/best.json"):
        for part in ("", "baselines/fedavg/"):
            assert found[part + name] == expected[part + name], part + name
    last = f"checkpoints/round-{ROUNDS:06d}.safetensors"
    assert found[last] == expected[last] and found["baselines/fedavg/" + last] == expected["baselines/fedavg/" + last]
    assert timeless(folder / "result.json") == timeless(whole / "result.json")
    if files:
        assert found.keys() == expected.keys()
        for name in expected:
            if "checkpoints/" in name or name.endswith("recipe.toml"):
                assert found[name] == expected[name], name


def rounds_in(path: Path) -> set[int]:
    return {json.loads(line)["round"] for line in path.read_text().splitlines()}


def parts_in(folder: Path) -> list[Path]:
    return list(folder.rglob(".*.part"))


# Killed


# The slow tests kill it before every change of a file; the default run before every fifth.
@pytest.mark.parametrize(
    ("engine", "step"), [(ENGINES[0], 5), *(pytest.param(engine, 1, marks=pytest.mark.slow) for engine in ENGINES)]
)
def test_killed_before_its_first_change_of_a_file_and_further_and_further_on(
    engine, step, whole, launcher, recipe, tmp_path
):
    """One run, killed over and over: each time it goes on, it gets a little further before it is killed again."""
    expected = whole[engine]
    folder = tmp_path / "killed"
    inside = str(folder)
    assert launcher.do("run", recipe, "--engine", engine, "--out", folder, die=(inside, 24)) == KILLED
    assert (folder / "recipe.toml").exists() and not (folder / "evidence.json").exists()
    kills, torn, halves = 0, 0, 0
    for number in itertools.count(1, step):
        status = launcher.do("resume", folder, die=(inside, number))
        if status == 0:
            break
        assert status == KILLED, launcher.errors.read_text()
        kills += 1
        torn += bool(parts_in(folder))  # inside the writing of a file
        checkpoints = [path.name for path in folder.rglob("round-*")]
        halves += sum(name.endswith(".json") for name in checkpoints) * 2 != len(checkpoints)  # between its two files
    assert kills >= 16 / step, kills
    assert step > 1 or (torn >= 2 and halves >= 1), (torn, halves)
    assert_same_run(folder, expected)


@pytest.mark.parametrize(("engine", "delay"), [("sequential", 0.0), ("vectorised", 0.06)])
def test_killed_from_outside(engine, whole, launcher, recipe, tmp_path, delay):
    expected = whole[engine]
    folder = tmp_path / "killed"
    process = launcher.start("run", recipe, "--engine", engine, "--out", folder)
    waits_for((folder / "checkpoints" / "round-000002.json").exists, "the second checkpoint")
    time.sleep(delay)
    os.kill(process, signal.SIGKILL)
    assert launcher.status() == KILLED
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"round":5,"client":"stage-0')  # as if the kill had come in the middle of a line
    assert launcher.do("resume", folder) == 0, launcher.errors.read_text()
    assert_same_run(folder, expected)


# With one engine: what a process of its own adds has nothing to do with engines, and it loads torch twice.
@pytest.mark.parametrize("engine", ["vectorised"])
def test_killed_as_a_command_of_its_own(engine, whole, recipe, tmp_path):
    expected = whole[engine]
    folder = tmp_path / "killed"
    command = [sys.executable, "-c", "from fedaction.cli import main; main()"]
    begun = subprocess.Popen(
        [*command, "run", str(recipe), "--engine", engine, "--out", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    checkpoints = folder / "checkpoints"
    waits_for((checkpoints / "round-000001.json").exists, "the first checkpoint")
    # While it writes a checkpoint if it can be caught at that, else after the third.
    waits_for(
        lambda: bool(parts_in(checkpoints)) or (checkpoints / "round-000003.json").exists(), "the third", pause=0
    )
    begun.kill()
    assert begun.wait(timeout=LIMIT) == KILLED
    again = [*command, "resume", str(folder), "--json"]
    done = subprocess.run(again, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["run"] == str(folder)
    assert_same_run(folder, expected)


@pytest.mark.parametrize("engine", ONE_ENGINE)
def test_killed_in_its_baseline(engine, whole, launcher, recipe, tmp_path):
    expected = whole[engine]
    folder = tmp_path / "killed"
    clock = str(folder / "baselines" / "fedavg" / "clock.jsonl")
    assert launcher.do("run", recipe, "--engine", engine, "--out", folder, die=(clock, 1 + 4)) == KILLED
    assert rounds_in(folder / "baselines/fedavg/metrics.jsonl") == {1, 2, 3, 4}
    method = content(folder)["metrics.jsonl"], (folder / "clock.jsonl").read_bytes()
    assert launcher.do("resume", folder) == 0
    assert_same_run(folder, expected)
    assert method == (content(folder)["metrics.jsonl"], (folder / "clock.jsonl").read_bytes())  # not done again


@pytest.mark.parametrize("engine", ONE_ENGINE)
def test_rounds_after_the_last_checkpoint_are_done_again_and_not_twice_in_the_table(
    engine, whole, launcher, recipe, tmp_path
):
    expected = whole[engine]
    folder = tmp_path / "killed"
    status = launcher.do(
        *("run", recipe, "--engine", engine, "--out", folder, "--set", "checkpoint_every=3"),
        die=(f"{folder}/clock.jsonl", 1 + 5),  # the first: an old one would be removed
    )
    assert status == KILLED
    assert rounds_in(folder / "metrics.jsonl") == {1, 2, 3, 4, 5}
    assert [path.stem for path in (folder / "checkpoints").glob("round-*.json")] == ["round-000003"]
    assert launcher.do("resume", folder) == 0
    assert_same_run(folder, expected, files=False)
    kept = sorted(path.stem for path in (folder / "checkpoints").glob("round-*.json"))
    assert kept == ["round-000003", "round-000006"]
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    keys = [tuple(json.loads(line)[key] for key in ("round", "client", "split", "name")) for line in lines]
    assert len(set(keys)) == len(keys)


# Damaged


def unfinished(whole: Path, folder: Path) -> Path:
    """The run as a kill right before its end would have left it."""
    shutil.copytree(whole, folder)
    for name in ("evidence.json", "result.json", "report.html"):
        (folder / name).unlink()
    return folder


def flip(path: Path) -> None:
    blob = bytearray(path.read_bytes())
    blob[len(blob) // 2] ^= 8
    path.write_bytes(bytes(blob))


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(whole, launcher, tmp_path):
    expected = whole["sequential"]
    folder = unfinished(expected, tmp_path / "damaged")
    flip(folder / "checkpoints" / "round-000006.safetensors")
    assert launcher.do("resume", folder, "--json") == 0
    assert_same_run(folder, expected)
    said = " ".join(launcher.errors.read_text().split())
    assert "warning: checkpoint 'round-000006' is not as it was written; going back to round 5" in said
    assert json.loads(launcher.output.read_text())["rounds"] == ROUNDS  # and nothing of it on standard output


def test_where_nothing_is_left_to_go_on_from_the_run_starts_again(whole, launcher, tmp_path):
    expected = whole["sequential"]
    folder = unfinished(expected, tmp_path / "damaged")
    for path in (folder / "checkpoints").glob("round-*.json"):
        path.write_text("{")
    # Killed again on the way: the checkpoints of the new start must count, not the useless later ones.
    assert launcher.do("resume", folder, die=(f"{folder}/clock.jsonl", 1 + 4)) == KILLED
    assert "going back to the beginning" in " ".join(launcher.errors.read_text().split())
    assert launcher.do("resume", folder) == 0
    assert "beginning" not in launcher.errors.read_text()
    assert [json.loads(line)["round"] for line in (folder / "clock.jsonl").read_text().splitlines()] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]
    assert_same_run(folder, expected)


def test_metrics_that_were_cut_short_go_back_to_a_checkpoint_they_suffice_for(whole, launcher, tmp_path):
    expected = whole["sequential"]
    folder = unfinished(expected, tmp_path / "damaged")
    table = folder / "metrics.jsonl"
    table.write_bytes(table.read_bytes()[:-1])
    assert launcher.do("resume", folder) == 0
    assert "going back to round 5" in " ".join(launcher.errors.read_text().split())
    assert_same_run(folder, expected)


# Done


def test_resuming_a_finished_run_changes_nothing(whole, launcher, tmp_path):
    expected = whole["sequential"]
    folder = tmp_path / "finished"
    shutil.copytree(expected, folder)
    assert launcher.do("resume", folder) == 0
    before = content(folder)  # now that results say where the copy lies
    assert launcher.do("resume", folder, "--json") == 0
    assert content(folder) == before
    assert_same_run(folder, expected)
    written = json.loads((folder / "result.json").read_text())
    assert written.pop("sha256")
    assert json.loads(launcher.output.read_text()) == written
