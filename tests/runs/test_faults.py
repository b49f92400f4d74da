"""What becomes of a run when the machine, or somebody at it, does something to it. Real processes throughout."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs import commands
from tests.runs.commands import KILLED, LIMIT, Launcher, is_stopped, lasting, waits_for

RECIPE = """
method = "fedavg"
rounds = {rounds}
clients_per_round = 2
workers = 2
stage_clients = 3
stage_layouts = ["openni_15"]
stage_train = [6]
stage_test = 4
stage_actions = [3]
frames = 8
batch_size = 4
lr = 0.05
model_width = 4
model_last = 0
model_units = [1, 1, 1]
model_projection = 8
controls = []
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recipes") / "small.toml"
    path.write_text(RECIPE.format(rounds=5))
    return path


@pytest.fixture(scope="module")
def endless(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recipes") / "endless.toml"
    path.write_text(RECIPE.format(rounds=100_000))
    return path


@pytest.fixture(scope="module")
def whole(launcher, recipe, tmp_path_factory) -> dict[str, object]:
    """What is left by a run to which nothing happened."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert launcher.do("run", recipe, "--out", folder) == 0, launcher.said()
    return lasting(folder)


def assert_goes_on(launcher: Launcher, folder: Path, whole: dict[str, object]) -> None:
    assert launcher.do("resume", folder) == 0, launcher.said()
    assert lasting(folder) == whole
    assert "warning" not in launcher.said()


def errors_in(launcher: Launcher) -> int:
    said = launcher.said()
    assert "Traceback" not in said, said
    return said.count("error:")


def test_a_command_that_hangs_ends_its_test_and_no_other(launcher, recipe, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    process = launcher.start("run", recipe, "--out", folder, signal=(str(folder), 3, signal.SIGSTOP))
    waits_for(lambda: is_stopped(process), "a change of a file")
    monkeypatch.setattr(commands, "LIMIT", 0.1)
    with pytest.raises(AssertionError, match=r"more than 0\.1 s; so far it said: .*loading PyTorch"):
        launcher.status()
    monkeypatch.undo()
    assert launcher.do("run", "nowhere.toml") == 2 and "nowhere.toml" in launcher.said()


# Told to stop


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_told_to_stop_says_what_is_kept_and_how_to_go_on(
    launcher, recipe, whole, tmp_path, number, status
):
    folder = tmp_path / "run"
    third = (f"{folder}/clock.jsonl", 1 + 3, number)  # the first: an old one would be removed
    assert launcher.do("run", recipe, "--out", folder, signal=third) == status
    said = launcher.said()
    assert (
        f"warning: stopped; kept up to round 2; `fedaction resume {folder}` resumes from the last checkpoint" in said
    )
    assert said.count("warning:") == 1 and not errors_in(launcher)
    assert not list(folder.rglob("*.part"))
    assert_goes_on(launcher, folder, whole)


def test_stopped_before_anything_is_kept_it_says_that(launcher, recipe, tmp_path):
    folder = tmp_path / "run"
    assert launcher.do("run", recipe, "--out", folder, signal=(str(folder), 1, signal.SIGTERM)) == 143
    assert "warning: stopped; nothing was kept; the same command begins it again" in launcher.said()
    assert not list(folder.rglob("[!.]*"))


def test_a_run_is_stopped_from_outside_wherever_it_is(launcher, endless, tmp_path):
    folder = tmp_path / "run"
    process = launcher.start("run", endless, "--out", folder)
    waits_for((folder / "checkpoints" / "round-000001.json").exists, "the first checkpoint")
    os.kill(process, signal.SIGTERM)
    assert launcher.status() == 143
    assert launcher.said().count("warning: stopped; kept up to round") == 1 and not errors_in(launcher)
    assert not list(folder.rglob("*.part"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_other_commands_stop_with_one_message_too(launcher, tmp_path, number):
    places = tmp_path / "places"
    assert launcher.do("data", "stage", "--out", places, signal=(str(places), 4, number)) == 128 + number
    assert launcher.said() == "warning: stopped before it was done; nothing half-written is left"
    assert not list(tmp_path.rglob(".*"))


# Disks


@pytest.mark.parametrize(
    "number", [1, 9, 20, 46, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 5, 14, 27, 35, 60))]
)
def test_whatever_cannot_be_written_ends_a_run_with_one_message_and_it_goes_on_later(
    launcher, recipe, whole, tmp_path, number
):
    """The operating system refuses one change of a file, and all after it: as a full disk does, and a broken one."""
    folder, code = tmp_path / "run", (errno.ENOSPC, errno.EROFS)[number % 2]
    assert launcher.do("run", recipe, "--out", folder, fail=(str(folder), number, code)) == 2, launcher.said()
    assert errors_in(launcher) == 1
    assert os.strerror(code) in launcher.said() and str(folder) in launcher.said()
    begun = (folder / "recipe.toml").exists()
    if begun:
        assert "Once that is mended: " in launcher.said()
        assert f"`fedaction resume {folder}`" in launcher.said()
        assert_goes_on(launcher, folder, whole)
    else:
        assert launcher.do("run", recipe, "--out", folder) == 0, launcher.said()
        assert lasting(folder) == whole


def in_namespace(script: str) -> subprocess.CompletedProcess[str]:
    """Runs a script where it may mount what nobody else sees."""
    return subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def mounts() -> None:
    if not shutil.which("unshare") or in_namespace("mount -t tmpfs tmpfs /mnt").returncode:
        pytest.skip("nothing can be mounted here; the same is tested with refused changes of files")


COMMAND = f"{sys.executable} -c 'from fedaction.cli import main; main()'"


@pytest.mark.slow
def test_a_disk_that_is_really_full_and_then_has_room_again(mounts, recipe, whole, tmp_path):
    """A small disk fills up in some round; then it is made larger, and the run goes on."""
    script = f"""
set -e
said=$(mktemp)
mount -t tmpfs -o size=100k tmpfs {tmp_path}
set +e
{COMMAND} run {recipe} --out {tmp_path}/run > /dev/null 2> "$said"
echo "status $?"
cat "$said"; rm "$said"
find {tmp_path} -name '*.part' | wc -l
mount -o remount,size=50m {tmp_path}
{COMMAND} resume {tmp_path}/run > /dev/null || echo "not resumed"
cp -r {tmp_path}/run {recipe.parent}/copied
"""
    done = in_namespace(script)
    lines = done.stdout.splitlines()
    assert lines[0] == "status 2", done.stdout + done.stderr
    said = " ".join(lines[1:])
    assert "No space left on device" in said and "Once that is mended" in said and "Traceback" not in said
    assert lines[-1].strip() == "0" and "not resumed" not in done.stdout
    assert lasting(recipe.parent / "copied") == whole
    shutil.rmtree(recipe.parent / "copied")


@pytest.mark.slow
def test_a_disk_that_really_is_read_only(mounts, recipe, whole, tmp_path):
    script = f"""
set -e
mount -t tmpfs -o size=50m tmpfs {tmp_path}
set +e
{COMMAND} run {recipe} --set rounds=3 --out {tmp_path}/run > /dev/null 2>&1
mount -o remount,ro {tmp_path}
{COMMAND} resume {tmp_path}/run --extend rounds=5 2>&1; echo "status $?"
{COMMAND} run {recipe} --out {tmp_path}/other 2>&1; echo "status $?"
{COMMAND} report {tmp_path}/run 2>&1; echo "status $?"
mount -o remount,rw {tmp_path}
{COMMAND} resume {tmp_path}/run --extend rounds=5 > /dev/null 2>&1; echo "status $?"
"""
    done = in_namespace(script)
    statuses = [line for line in done.stdout.splitlines() if line.startswith("status")]
    assert statuses == ["status 2", "status 2", "status 2", "status 0"], done.stdout
    assert done.stdout.count("Read-only file system") == 3 and "Traceback" not in done.stdout


# The clock


def test_a_clock_that_goes_back_changes_nothing(launcher, recipe, whole, tmp_path):
    folder = tmp_path / "run"
    assert launcher.do("run", recipe, "--out", folder, die=(f"{folder}/clock.jsonl", 4), backwards=True) == KILLED
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (4e9, 4e9))  # as if everything had been written long after now
    assert launcher.do("resume", folder, backwards=True) == 0, launcher.said()
    assert lasting(folder) == whole
    seconds = [json.loads(line) for line in (folder / "clock.jsonl").read_text().splitlines()]
    assert all(entry["total"] >= entry["train"] >= 0 for entry in seconds)
    assert json.loads((folder / "result.json").read_text())["seconds"] >= 0


# The directory


@pytest.mark.parametrize("how", ["removed", "moved"])
def test_a_directory_that_goes_while_a_run_writes_it_ends_the_run(launcher, endless, tmp_path, how):
    folder = tmp_path / "run"
    launcher.start("run", endless, "--out", folder)
    waits_for((folder / "checkpoints" / "round-000002.json").exists, "the second checkpoint")
    os.rename(folder, tmp_path / "elsewhere")
    if how == "removed":
        shutil.rmtree(tmp_path / "elsewhere")
    assert launcher.status() == 2  # and not at the end of all rounds
    assert errors_in(launcher) == 1 and "is not there any more: somebody has removed, moved" in launcher.said()
    assert not [path for path in tmp_path.rglob("run/**/*") if path.is_file()]  # nor was it begun anew


def test_a_directory_that_was_moved_goes_on_where_it_is_now(launcher, recipe, whole, tmp_path):
    folder = tmp_path / "run"
    assert launcher.do("run", recipe, "--out", folder, die=(f"{folder}/clock.jsonl", 4)) == KILLED
    folder.rename(tmp_path / "elsewhere")
    assert_goes_on(launcher, tmp_path / "elsewhere", whole)


# Two writers


def test_a_second_writer_is_kept_out_and_the_first_is_not_disturbed(recipe, whole, launcher, tmp_path):
    folder = tmp_path / "run"
    second = Launcher(tmp_path)
    process = launcher.start("run", recipe, "--out", folder)
    try:
        waits_for((folder / "checkpoints" / "round-000001.json").exists, "the first checkpoint")
        os.kill(process, signal.SIGSTOP)  # so that it is still there
        assert second.do("resume", folder) == 2
        assert "is being written by another process; wait for it, or stop it" in second.said()
        assert second.do("run", recipe, "--out", folder) == 2 and errors_in(second) == 1
    finally:
        os.kill(process, signal.SIGCONT)
        second.close()
    assert launcher.status() == 0, launcher.said()
    assert lasting(folder) == whole


# Memory


def test_memory_that_runs_out_ends_a_run_with_one_message_and_it_goes_on_later(launcher, recipe, whole, tmp_path):
    """The kernel gives the process no more than it has; a network of 600 channels wants more, and says so."""
    folder, wide = tmp_path / "run", tmp_path / "wide.toml"
    wide.write_text(RECIPE.format(rounds=2).replace("model_width = 4", "model_width = 600"))
    limit = {"RLIMIT_AS": _address_space(launcher) + (300 << 20)}
    assert launcher.do("run", wide, "--out", folder, limits=limit) == 2, launcher.said()
    assert errors_in(launcher) == 1 and "memory" in launcher.said(), launcher.said()
    assert launcher.do("run", recipe, "--out", tmp_path / "small") == 0  # the machine is as it was
    assert lasting(tmp_path / "small") == whole


def _address_space(launcher: Launcher) -> int:
    """Bytes of address space that a process of a launcher has before it does anything."""
    text = Path(f"/proc/{launcher._process.pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("VmSize"))


JOBS = ("paper", "fsar/s-table5", "--scale", "tiny", "--jobs", "2", "--device", "cpu")


def children_of(process: int) -> list[int]:
    """Worker processes, as the kernel lists them; a process that tracks resources is none."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            words = (path.parent / "cmdline").read_bytes()
        except (OSError, IndexError):
            continue
        if parent == process and b"spawn_main" in words:
            found.append(int(path.parent.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("how", ["worker", "parent"])
def test_a_worker_that_the_kernel_kills_ends_the_command_and_so_does_stopping_it(tmp_path, how):
    """As its out-of-memory killer does, with SIGKILL; and told to stop, a command does not wait for its workers."""
    command = [sys.executable, "-c", "from fedaction.cli import main; main()", *JOBS, "--out", str(tmp_path / "a")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    waits_for(lambda: any((tmp_path / "a").rglob("recipe.toml")), "a run", seconds=240)
    workers = children_of(process.pid)
    assert workers
    os.kill(workers[0] if how == "worker" else process.pid, signal.SIGKILL if how == "worker" else signal.SIGTERM)
    _, errors = process.communicate(timeout=240)
    said = " ".join(errors.split())
    assert "Traceback" not in said and "the same command resumes from the last checkpoint" in said, said
    if how == "worker":
        assert process.returncode == 2 and "error: a worker process has died" in said and "memory ran out" in said
    else:
        assert process.returncode == 143 and "stopped;" in said
    waits_for(lambda: not any(Path(f"/proc/{one}").exists() for one in workers), "the workers' end", seconds=120)
    assert subprocess.run(command, capture_output=True, timeout=LIMIT).returncode == 0
