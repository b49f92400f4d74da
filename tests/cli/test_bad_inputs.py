"""No input breaks a command: whatever it is given, it says in one message what is wrong, with status 2, or works.

Tables of bad inputs over all commands. A part of each table runs by default, chosen by the names of its rows; the
others are among the slow tests, and the environment variable FEDACTION_PART=2/8 takes the second eighth of those.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fedaction.cli import app
from tests.cli.kit import NAMES, THINGS, nest, noise, write_kit

K = "{kit}"
INPUTS: dict[str, tuple[str, ...]] = {
    "run": ("run", "@"),
    "run store": ("run", f"{K}/small.toml", "--set", 'store_paths=["@"]'),
    "run devices": ("run", f"{K}/small.toml", "--set", "devices=x@.toml"),
    "run method": ("run", f"{K}/small.toml", "--set", "method=@"),
    "run seeds": ("run", f"{K}/small.toml", "--seeds", "@"),
    "run engine": ("run", f"{K}/small.toml", "--engine", "@"),
    "run device": ("run", f"{K}/small.toml", "--device", "@"),
    "run key": ("run", f"{K}/small.toml", "--set", "@=1"),
    "run value": ("run", f"{K}/small.toml", "--set", "lr=@"),
    "rates": ("rates", "@", "--lr", "0.1"),
    "resume": ("resume", "@"),
    "resume extend": ("resume", f"{K}/run", "--extend", "@"),
    "compare": ("compare", "@"),
    "compare two": ("compare", f"{K}/run", "@"),
    "compare at": ("compare", f"{K}/run", "--at", "@"),
    "report": ("report", "@"),
    "init": ("init", "@"),
    "init two": ("init", f"{K}/store", "@"),
    "doctor": ("doctor", "@"),
    "serve": ("serve", "@", "--insecure"),
    "serve keys": ("serve", f"{K}/small.toml", "--keys", "@"),
    "serve simulate": ("serve", f"{K}/small.toml", "--simulate", "@"),
    "join": ("join", "127.0.0.1:1", "--data", "@", "--name", "x", "--insecure"),
    "join address": ("join", "@", "--data", f"{K}/store", "--name", "x", "--insecure"),
    "join keys": ("join", "127.0.0.1:1", "--data", f"{K}/store", "--name", "x", "--keys", "@"),
    "status": ("status", "@"),
    "status site": ("status", "--site", "@"),
    "keys show": ("keys", "show", "@"),
    "paper": ("paper", "@"),
    "paper data": ("paper", "fsar/table1", "--data", "@", "--scale", "tiny"),
    "paper scale": ("paper", "fsar/table1", "--scale", "@"),
    "paper seeds": ("paper", "fsar/table1", "--scale", "tiny", "--seeds", "@"),
    "paper rows": ("paper", "fsar/table1", "--scale", "tiny", "--rows", "@"),
    "analyse": ("analyse", "@"),
    "analyse name": ("analyse", f"{K}/run", "@"),
    "data list": ("data", "list", "@"),
    "data inspect": ("data", "inspect", "@"),
    "data inspect layout": ("data", "inspect", f"{K}/csv", "--layout", "@"),
    "data inspect labels": ("data", "inspect", f"{K}/csv", "--labels", "@"),
    "data import": ("data", "import", "@", "--layout", "kinect_v2", "--out", "x"),
    "data import signals": ("data", "import", "@", "--kind", "inertial", "--out", "x"),
    "data import layout": ("data", "import", f"{K}/csv", "--layout", "@", "--out", "x"),
    "data import labels": ("data", "import", f"{K}/csv", "--kind", "inertial", "--labels", "@", "--out", "x"),
    "data import scale": ("data", "import", f"{K}/csv", "--layout", "kinect_v2", "--scale", "@", "--out", "x"),
    "data import label": ("data", "import", f"{K}/csv", "--kind", "inertial", "--label", "@", "--out", "x"),
    "data prepare": ("data", "prepare", "@", f"{K}/csv"),
    "data prepare root": ("data", "prepare", "kard", "@"),
    "data stage": ("data", "stage", "--kind", "@", "--out", "x"),
    "features": ("features", "@", "--modality", "inertial", "--out", "x"),
    "features sounds": ("features", "@", "--modality", "audio", "--out", "x"),
    "features root": ("features", "epic", "@", "--modality", "video", "--out", "x"),
    "features modality": ("features", f"{K}/store", "--modality", "@", "--out", "x"),
    "features extractor": ("features", f"{K}/store", "--modality", "skeleton", "--extractor", "x@", "--out", "x"),
    "features onnx": ("features", f"{K}/store", "--modality", "skeleton", "--extractor", "@.onnx", "--out", "x"),
    "distil": ("distil", "@"),
    "distil arrays": ("distil", f"{K}/distil.toml", "--set", "arrays=@"),
    "distil seeds": ("distil", f"{K}/distil.toml", "--seeds", "@"),
    "predict": ("predict", "@", f"{K}/clip.npy"),
    "predict client": ("predict", f"{K}/run", f"{K}/clip.npy", "--client", "@"),
    "predict format": ("predict", f"{K}/run", f"{K}/clip.npy", "--format", "@"),
    "predict file": ("predict", f"{K}/run", "@"),
    "predict array": ("predict", f"{K}/run", "@.npy"),
    "predict table": ("predict", f"{K}/run", "@.csv"),
    "predict video": ("predict", f"{K}/video.safetensors", "@.mp4"),
    "evaluate": ("evaluate", "@", "--set", "data=arrays", "--set", f"arrays={K}/arrays", "--device", "cpu"),
    "evaluate recipe": ("evaluate", f"{K}/video.safetensors", "--recipe", "@"),
    "evaluate on": ("evaluate", f"{K}/run", "--on", "@"),
    "evaluate model on": ("evaluate", "@", "--on", f"{K}/store"),
    "evaluate arrays": ("evaluate", f"{K}/video.safetensors", "--set", "data=arrays", "--set", "arrays=@"),
    "evaluate video": ("evaluate", f"{K}/video.safetensors", "--set", "data=video", "--set", "video_root=@"),
    "evaluate protocols": ("evaluate", f"{K}/video.safetensors", "--protocols", "@"),
    "export": ("export", "@"),
    "export client": ("export", f"{K}/run", "--client", "@"),
    "export format": ("export", f"{K}/run", "--format", "@"),
    "bench video": ("bench", "video", "@"),
    "bench engines": ("bench", "engines", "--device", "@"),
    "bench fdarn": ("bench", "fdarn", "--device", "@"),
    "bench pretext": ("bench", "pretext", "--task", "@"),
    "bench load": ("bench", "load", "--real", "@"),
    "bench scale": ("bench", "scale", "--clients", "@"),
    "bench peers": ("bench", "peers", "--no-install", "--peers", "@"),
    "study joining": ("study", "joining", "@"),
    "study joining plain": ("study", "joining", f"{K}/small.toml", "--plain", "@"),
    "recipes": ("recipes", "@"),
    "recipes keys": ("recipes", "--keys", "@"),
    "no command": ("@",),
}
"""Commands, with @ where something is that is not what it should be."""

SOUND = {
    ("recipes", "text"),  # printed as it is, whatever it says
    ("recipes", "empty"),
    ("recipes", "deep"),
    ("recipes", "deep json"),
    ("recipes", "digits"),
    ("recipes", "digits json"),
    ("data import label", "spaces"),
    ("evaluate recipe", "empty"),  # all keys have their defaults
    ("distil", "empty"),
    ("run devices", "absent"),
}
"""Rows that are no errors."""

OUTPUTS: dict[str, tuple[str, ...]] = {
    "run": ("run", f"{K}/small.toml", "--out", "@"),
    "report": ("report", f"{K}/run", "--out", "@"),
    "init": ("init", f"{K}/store", "--out", "@"),
    "serve": ("serve", f"{K}/small.toml", "--insecure", "--out", "@"),
    "join": ("join", "127.0.0.1:1", "--data", f"{K}/store", "--name", "x", "--insecure", "--state", "@"),
    "keys site": ("keys", "site", "x", "--out", "@"),
    "keys server": ("keys", "server", "x", "--out", "@"),
    "paper": ("paper", "fsar/table1", "--scale", "tiny", "--out", "@"),
    "data import": ("data", "import", f"{K}/csv", "--kind", "inertial", "--out", "@"),
    "data stage": ("data", "stage", "--out", "@"),
    "features": ("features", f"{K}/store", "--modality", "skeleton", "--out", "@"),
    "distil": ("distil", f"{K}/distil.toml", "--out", "@"),
    "evaluate": (
        "evaluate",
        f"{K}/video.safetensors",
        "--set",
        "data=arrays",
        "--set",
        f"arrays={K}/arrays",
        "--out",
        "@",
    ),
    "evaluate on": ("evaluate", f"{K}/run", "--on", f"{K}/store", "--out", "@"),
    "export": ("export", f"{K}/run", "--out", "@"),
    "recipes": ("recipes", "fsar/demo", "--copy", "@"),
    "study joining": ("study", "joining", f"{K}/small.toml", "--shares", "1", "--out", "@"),
}
"""Commands that write, with @ for where."""

PLACES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a file": ("it", lambda path: path.write_text("mine")),
    "below a file": ("it/x/y", lambda path: path.parent.parent.write_text("mine")),
    "a pipe": ("it", os.mkfifo),
    "a device": ("/dev/null", lambda path: None),
    "below a device": ("/dev/null/x", lambda path: None),
    "a loop": ("it", lambda path: path.symlink_to(path.name)),
    "a long name": ("n" * 300, lambda path: None),
    "no text": (os.fsdecode(b"\xff"), lambda path: None),
}


NUMBERS = (
    "nan",
    "inf",
    "-inf",
    "-1",
    "1e999",
    "9" * 5000,
    "-" + "9" * 5000,
    "0x",
    "",
    "1e",
    "٣",
    "1_0",
    "true",
    "[1]",
)
"""What may be given for a number; not all of it is wrong everywhere."""

OPTIONS: dict[str, tuple[str, ...]] = {
    "serve sites": ("serve", f"{K}/none.toml", "--insecure", "--sites", "#"),
    "serve port": ("serve", f"{K}/none.toml", "--insecure", "--port", "#"),
    "serve wait": ("serve", f"{K}/none.toml", "--insecure", "--wait", "#"),
    "join memory": ("join", "127.0.0.1:1", "--data", f"{K}/none", "--name", "x", "--insecure", "--memory", "#"),
    "join port": ("join", "127.0.0.1:#", "--data", f"{K}/none", "--name", "x", "--insecure"),
    "resume extend": ("resume", f"{K}/run", "--extend", "rounds=#"),
    "analyse target": ("analyse", f"{K}/run", "curves", "--target", "#"),
    "data import rate": ("data", "import", f"{K}/none", "--kind", "inertial", "--rate", "#", "--out", "x"),
    "data import window": ("data", "import", f"{K}/none", "--kind", "inertial", "--window", "#", "--out", "x"),
    "data import scale": ("data", "import", f"{K}/csv", "--layout", "kinect_v2", "--scale", "#", "--out", "x"),
    "data prepare workers": ("data", "prepare", "kard", f"{K}/csv", "--workers", "#"),
    "data stage seed": ("data", "stage", "--out", f"{K}/small.toml", "--seed", "#"),
    "features width": ("features", f"{K}/none", "--modality", "inertial", "--width", "#", "--out", "x"),
    "features frames": ("features", f"{K}/none", "--modality", "inertial", "--frames", "#", "--out", "x"),
    "predict top": ("predict", f"{K}/run", f"{K}/none.npy", "--top", "#"),
    "predict every": ("predict", f"{K}/run", f"{K}/none.npy", "--every", "#"),
    "predict rate": ("predict", f"{K}/run", f"{K}/none.npy", "--rate", "#"),
    "evaluate depth": (
        "evaluate",
        "random",
        "--depth",
        "#",
        "--width",
        "1",
        "--set",
        "data=arrays",
        "--set",
        "arrays=x",
    ),
    "evaluate seeds": ("evaluate", "random", "--seeds", "#", "--set", "data=arrays", "--set", "arrays=x"),
    "bench rounds": ("bench", "video", f"{K}/none.mp4", "--rounds", "#"),
    "bench loop": ("bench", "loop", "--clients", "0", "--rounds", "#"),
    "bench events": ("bench", "events", "--devices", "0", "--updates", "#"),
    "bench flower": ("bench", "flower", "--rounds", "-#"),
    "bench width": ("bench", "pretext", "--task", "none", "--width", "#"),
    "paper jobs": ("paper", "fsar/none", "--jobs", "#"),
    "paper seeds": ("paper", "fsar/none", "--seeds", "#"),
    "run lr": ("run", f"{K}/small.toml", "--set", "lr=-#"),
    "run rounds": ("run", f"{K}/small.toml", "--set", "rounds=-#"),
    "run width": ("run", f"{K}/small.toml", "--set", "model_width=-#e9"),
    "run seeds": ("run", f"{K}/small.toml", "--seeds", "#,#"),
    "study joining shares": ("study", "joining", f"{K}/small.toml", "--sites", "1", "--shares", "#"),
    "study joining sites": ("study", "joining", f"{K}/small.toml", "--shares", "2", "--sites", "#"),
    "study joining rates": ("study", "joining", f"{K}/small.toml", "--shares", "2", "--lr", "#"),
    "study joining draws": ("study", "joining", f"{K}/small.toml", "--shares", "2", "--draws", "#"),
    "distil epochs": ("distil", f"{K}/distil.toml", "--set", "epochs=-#"),
}
"""Commands with # where a number is; each of them is wrong in another way too, so that none can succeed."""


@pytest.fixture(scope="module")
def kit(tmp_path_factory) -> Path:
    return write_kit(tmp_path_factory.mktemp("kit"))


@pytest.fixture
def work(tmp_path, monkeypatch) -> Path:
    """An empty current directory.

    Whether or not Flower is here, `serve` and `join` take it to be: that it is missing would refuse anything.
    """
    for check in ("check_flower", "check_ray"):
        monkeypatch.setattr(f"fedaction.engines.flower.launch.{check}", lambda: None)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FEDACTION_CACHE", str(tmp_path / "cache"))
    return folder


class Hangs(BaseException):
    """Is caught by nobody."""


@contextmanager
def end_after(seconds: int) -> Iterator[None]:
    """A command that waits for ever is a failure."""

    def end(*_: object) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fedaction(*arguments: str) -> Result:
    with end_after(200):
        return CliRunner().invoke(app, arguments, env={"COLUMNS": "1000"})


def content(*folders: Path) -> dict[str, object]:
    """Everything that lies in folders, and when it was written."""
    found: dict[str, object] = {}
    for folder in folders:
        for path in folder.rglob("*"):
            status = path.lstat()
            found[str(path)] = status.st_mode, path.is_dir() or (status.st_size, status.st_mtime_ns)
    return found


def refused(result: Result) -> str:
    """What a command says that refuses: one message, status 2, nothing else."""
    if not isinstance(result.exception, SystemExit):
        raise AssertionError("a traceback") from result.exception
    errors = [line for line in result.stderr.splitlines() if line.startswith("error:")]
    assert result.exit_code == 2 and len(errors) == 1, (result.exit_code, result.stdout, result.stderr)
    assert "Traceback" not in result.stderr and "\x1b" not in result.stderr and len(errors[0]) > len("error: ")
    assert len(result.stderr) < 20_000
    return errors[0]


def rows(*tables: tuple[str, ...], share: int) -> list:
    """Rows of a table: a share of them by default, the others (or a part of those) only with the slow tests."""
    part, parts = (int(number) for number in os.environ.get("FEDACTION_PART", "1/1").split("/"))
    listed = []
    for words in tables:
        name = ": ".join(words)
        number = zlib.crc32(name.encode())
        if number % share == 0:
            listed.append(pytest.param(*words, id=name))
        elif number % parts == part - 1:
            listed.append(pytest.param(*words, id=name, marks=[pytest.mark.slow]))
    return listed


def fill(template: tuple[str, ...], kit: Path, mark: str, value: str) -> list[str]:
    return [word.replace("{kit}", str(kit)).replace(mark, value) for word in template]


GIVEN = [(command, thing) for command in INPUTS for thing in THINGS if (command, thing) not in SOUND]


@pytest.mark.parametrize(("command", "thing"), rows(*GIVEN, share=12))
def test_what_is_not_what_it_should_be_is_refused(kit, work, command, thing):
    suffix = next((word.partition("@")[2] for word in INPUTS[command] if "@." in word), "")
    suffix = suffix if suffix.isidentifier() or suffix.startswith(".") else ""
    THINGS[thing](work / f"it{suffix}")
    before = content(work, kit)
    refused(fedaction(*fill(INPUTS[command], kit, "@", "it")))
    assert content(work, kit) == before


CALLED = [(command, name) for command in INPUTS for name in NAMES if (command, name) not in SOUND]


@pytest.mark.parametrize(("command", "name"), rows(*CALLED, share=12))
def test_names_are_data(kit, work, command, name):
    before = content(work, kit)
    refused(fedaction(*fill(INPUTS[command], kit, "@", NAMES[name])))
    assert content(work, kit) == before


WRITTEN = [(command, place) for command in OUTPUTS for place in PLACES]


@pytest.mark.parametrize(("command", "place"), rows(*WRITTEN, share=4))
def test_a_place_that_cannot_be_written_is_refused_before_the_work(kit, work, command, place):
    name, make = PLACES[place]
    make(work / name)
    before = content(work, kit)
    refused(fedaction(*fill(OUTPUTS[command], kit, "@", name)))
    assert content(work, kit) == before


GIVEN_NUMBERS = [(command, number) for command in OPTIONS for number in NUMBERS]


@pytest.mark.parametrize(
    ("command", "number"),
    [pytest.param(*p.values, id=p.id[:60], marks=p.marks) for p in rows(*GIVEN_NUMBERS, share=12)],
)
def test_numbers_that_are_none_are_refused(kit, work, command, number):
    before = content(work, kit)
    refused(fedaction(*fill(OPTIONS[command], kit, "#", number)))
    assert content(work, kit) == before


def test_the_tables_have_every_command():
    from tests.cli.test_cli import COMMANDS

    groups = {command[:-1] for command in COMMANDS if command}
    leaves = {command for command in COMMANDS if command and command not in groups}
    tables = (*INPUTS.values(), *OUTPUTS.values(), *OPTIONS.values())
    assert leaves - {table[: len(leaf)] for table in tables for leaf in leaves} == set()


# A run's own files

FILES = (
    "result.json",
    "recipe.toml",
    "environment.json",
    "controls.json",
    "models.json",
    "evidence.json",
    "metrics.jsonl",
    "clock.jsonl",
    "profile.json",
    "analyses/curves.json",
    "analyses/curves.svg",
    "model.safetensors",
    "checkpoints/round-000002.json",
    "checkpoints/round-000002.safetensors",
)


def _edit(change: Callable[[dict], object]) -> Callable[[Path], object]:
    """Another value in the first JSON object of a file; in what is none, other bytes."""

    def edit(path: Path) -> object:
        try:
            first, _, rest = path.read_text().partition("\n" if path.suffix == ".jsonl" else "\0")
            value = json.loads(first)
            change(value)
        except ValueError:
            return path.write_bytes(path.read_bytes()[::-1])
        return path.write_text(json.dumps(value) + "\n" + rest)

    return edit


DAMAGE: dict[str, Callable[[Path], object]] = {
    "gone": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "noise": lambda path: path.write_bytes(noise(2000)),
    "list": lambda path: path.write_text("[]\n"),
    "null": lambda path: path.write_text("null\n"),
    "number": lambda path: path.write_text("17\n"),
    "object": lambda path: path.write_text("{}\n"),
    "not a number": lambda path: path.write_text('{"mean": NaN, "round": Infinity}\n'),
    "deep": lambda path: path.write_text(nest(100_000) + "\n"),
    "deep toml": lambda path: path.write_text("lr = " + nest(20_000) + "\n"),
    "digits": lambda path: path.write_text('{"round": ' + "9" * 5000 + "}\n"),
    "latin": lambda path: path.write_bytes('{"run": "Müller"}\n'.encode("latin-1")),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "loop": lambda path: (path.unlink(), path.symlink_to(path.name)),
    "pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "other types": _edit(lambda value: value.update(dict.fromkeys(value, "x"))),
    "lists": _edit(lambda value: value.update({key: [1] for key in value})),
    "nothing": _edit(lambda value: value.update(dict.fromkeys(value))),
    "negative": _edit(lambda value: value.update(dict.fromkeys(value, -1))),
}
READERS = {
    "compare": ("compare", "run"),
    "compare at rounds": ("compare", "run", "--at", "rounds"),
    "report": ("report", "run"),
    "analyse": ("analyse", "run", "curves"),
    "predict": ("predict", "run", f"{K}/clip.npy"),
    "evaluate": ("evaluate", "run", "--on", f"{K}/store"),
    "status": ("status", "run"),
    "resume": ("resume", "run"),
}
DAMAGED = [(command, file, how) for command in READERS for file in FILES for how in DAMAGE]


@pytest.mark.parametrize(("command", "file", "how"), rows(*DAMAGED, share=60))
def test_a_damaged_file_of_a_run_is_repaired_refused_or_not_needed(kit, work, command, file, how):
    shutil.copytree(kit / "run", work / "run")
    DAMAGE[how](work / "run" / file)
    result = fedaction(*fill(READERS[command], kit, "@", ""))
    if result.exit_code != 0:
        refused(result)


WAITED = [
    ("report", "recipe.toml"),
    ("report", "environment.json"),
    ("report", "profile.json"),
    ("report", "analyses/curves.svg"),
    ("compare", "clock.jsonl"),
    ("resume", "clock.jsonl"),
    ("analyse", "checkpoints/round-000002.safetensors"),
]


@pytest.mark.parametrize(("command", "file"), WAITED)
@pytest.mark.parametrize("how", ["pipe", "device"])
def test_a_pipe_or_a_device_among_a_runs_files_is_not_waited_for(kit, work, command, file, how):
    shutil.copytree(kit / "run", work / "run")
    DAMAGE[how](work / "run" / file)
    with end_after(20):
        result = fedaction(*fill(READERS[command], kit, "@", ""))
    if result.exit_code != 0:
        refused(result)


STATUSES = {
    "a time that no calendar has": {"remarks": [{"time": 1e300, "text": "x"}]},
    "a number that no float holds": {"sent": 10**400},
    "less than nothing": {"sites": {"a": {"refused": -1}}},
    "no number": {"time": "soon"},
}


@pytest.mark.parametrize("what", STATUSES)
def test_a_status_that_cannot_be_shown_is_refused(work, what):
    (work / "served").mkdir()
    (work / "served" / "sites.json").write_text("{}")
    (work / "served" / "status.json").write_text(json.dumps(STATUSES[what]))
    for options in ((), ("--json",)):
        assert "served/status.json cannot be read: " in refused(fedaction("status", "served", *options))


@pytest.mark.parametrize("name", ["status.json", "serve.json"])
def test_a_pipe_among_a_served_runs_files_is_refused(work, name):
    (work / "served").mkdir()
    (work / "served" / "sites.json").write_text("{}")
    os.mkfifo(work / "served" / name)
    assert f"{name} is not a file" in refused(fedaction("status", "served"))


# The findings, each by itself

RESULTS = {
    "half": DAMAGE["half"],
    "a list": DAMAGE["list"],
    "without what is shown": _edit(lambda value: value.pop("clients")),
    "words for numbers": _edit(lambda value: value.update(mean="x", clients={"a": "b"})),
    "no number": _edit(lambda value: value.update(mean=float("nan"))),
    "another number": _edit(lambda value: value.update(mean=0.99)),
    "deep": DAMAGE["deep"],
    "digits": DAMAGE["digits"],
}


@pytest.mark.parametrize("how", RESULTS)
def test_compare_refuses_a_damaged_result_and_says_what_makes_it_again(kit, work, how):
    shutil.copytree(kit / "run", work / "run")
    RESULTS[how](work / "run" / "result.json")
    assert "`fedaction resume run` makes it again" in refused(fedaction("compare", "run"))
    assert fedaction("resume", "run").exit_code == 0
    assert fedaction("compare", "run").exit_code == 0
    assert (
        json.loads((work / "run/result.json").read_text())["mean"]
        == json.loads((kit / "run/result.json").read_text())["mean"]
    )
