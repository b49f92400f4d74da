"""Names that look like something else, commands on many files of which some are bad, and runs that cannot start."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import wave
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner

from fedaction.cli import app, common
from fedaction.cli.common import Bar, show_progress
from fedaction.data.layout import OPENNI_15
from fedaction.data.store import StoreWriter
from fedaction.federation.settings import RecipeError
from fedaction.runs.recipe import load_recipe
from tests.cli.kit import RECIPE, write_kit
from tests.cli.test_bad_inputs import end_after, refused
from tests.data.signals.made import phone_csv


@pytest.fixture(scope="module")
def kit(tmp_path_factory) -> Path:
    return write_kit(tmp_path_factory.mktemp("kit"))


@pytest.fixture
def work(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDACTION_CACHE", str(tmp_path / "cache"))
    return tmp_path


def fedaction(*arguments: str | Path, columns: str = "1000") -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": columns})


# F10: names are data

PEOPLE = ("[/red]", "[bold]x[/bold]", "../up", "a/b\\", "🙂 [link=x]y[/link]", "\x1b[31mred", "n" * 200)


def test_clients_may_be_called_anything(work):
    """A run to its end, with its tables, its report and its comparison."""
    random = np.random.default_rng(0)
    with StoreWriter(work / "[bold]s", layout=OPENNI_15, classes=("[/sit]", "[red]wave")) as writer:
        for number in range(12 * len(PEOPLE)):
            sequence = random.normal(size=(1, 10, len(OPENNI_15), 3)).astype(np.float32) + number % 2
            writer.add(sequence, label=number % 2, name=f"r{number}", subject=PEOPLE[number // 12])
        writer.finish()
    (work / "small.toml").write_text(RECIPE.format(store=work / "[bold]s").replace("rounds = 2", "rounds = 1"))
    out = work / "out [/x] [red]" / "[link=y]"
    done = fedaction("run", "small.toml", "--out", out)
    assert done.exit_code == 0, done.stderr
    assert f"report: {out / 'report.html'}" in done.stdout and (out / "report.html").is_file()
    for person in PEOPLE[:3]:
        assert f"[bold]s-{person}" in done.stdout
    assert "\x1b[31m" not in done.stdout and "\\x1b[31mred" in done.stdout  # spelled out, not obeyed
    below = {path for path in work.rglob("*") if "cache" not in path.parts}
    assert not any("up" in path.name and path.parent != out / "models" / "clients" for path in below)
    compared = fedaction("compare", out)
    assert compared.exit_code == 0 and "[bold]s-[/red]" in compared.stdout and str(out) in compared.stdout
    for command in (("report", out), ("analyse", out, "curves", "confusion"), ("init", work / "[bold]s")):
        again = fedaction(*command)
        assert again.exit_code == 0, (command, again.stderr, again.exception)
    predicted = fedaction("predict", out, work / "[bold]s", "--client", "[bold]s-../up")
    assert predicted.exit_code == 0 and "[/sit]" in predicted.stdout


def test_a_terminal_is_told_names_as_they_are(monkeypatch):
    """Bars are drawn on terminals only, where markup in a label would be obeyed, or an error."""
    screen = io.StringIO()
    monkeypatch.setattr(common, "err", Console(file=screen, force_terminal=True, width=100))
    with Bar() as bar:
        bar.start("[/x] [bold]run", 0, 2, unit="round", metric="[/y]")
        bar.advance("[/x] [bold]run", 1, 0.5)
    with show_progress("[/z]", "files") as progress:
        progress(1, 2)
    assert "[/x] [bold]run" in screen.getvalue() and "[/y] 50.0%" in screen.getvalue() and "[/z]" in screen.getvalue()


@pytest.mark.slow
def test_names_in_no_encoding_are_printed(work, kit):
    """Of files that a disk has in another encoding: on a standard output that knows UTF-8 alone."""
    name = os.fsdecode(b"\xff.npy")
    shutil.copy(kit / "clip.npy", work / name)
    code = "from fedaction.cli import main; main()"
    command = [sys.executable, "-c", code, "predict", str(kit / "run"), name, "gone-" + name]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"})
    assert done.returncode == 1 and b"Traceback" not in done.stderr
    assert done.stdout.startswith(b"\\udcff.npy  ") and b"error: there is no gone-\\udcff.npy" in done.stderr


# F11: a run that cannot start

CANNOT = {
    "backbone=resnet3d": "for clips of video",
    "model_width=100000": "memory: make it smaller",
    "model_width=" + "9" * 40: "must be below 2^63",
    "speed_spread=1e10": "less than or equal to 10",
    'precision="bf16"': "needs a GPU",
    "method=fsar --set backbone=perceptron": "has no graph of joints",
    "method=fedvssl --set backbone=resnet3d": "backbone",
    "name=" + "n" * 101: "name",
    "data=stage --set stage_train=[1000000000]": "the stage would make",
    'store_paths=["\udcff"]': "is not text in UTF-8",
}


@pytest.mark.parametrize("keys", CANNOT, ids=lambda keys: keys[:40].encode(errors="replace").decode())
def test_a_run_that_cannot_start_leaves_nothing(work, kit, keys):
    if "data=stage" in keys:
        text = (kit / "small.toml").read_text()
        (work / "small.toml").write_text("".join(line for line in text.splitlines(True) if "store" not in line))
    else:
        shutil.copy(kit / "small.toml", work)
    before = sorted(work.rglob("*"))
    options = [word for key in keys.split(" --set ") for word in ("--set", key)]
    for out in ((), ("--out", "here/there")):
        assert CANNOT[keys] in refused(fedaction("run", "small.toml", *options, *out))
        assert sorted(work.rglob("*")) == before


def test_limits_are_raised_by_the_environment(monkeypatch):
    source = load_recipe("fsar/demo", ["stage_clients=5", "stage_train=[2000000]"]).source
    with pytest.raises(ValueError, match="the stage would make 10,000,500 recordings"):
        source.load(0)
    monkeypatch.setenv("FEDACTION_LIMITS", "1000")
    made: list[int] = []

    class Enough(Exception):
        pass

    def tell(done: int, total: int) -> None:
        made.append(total)
        raise Enough

    with pytest.raises(Enough):
        source.load(0, tell)
    assert made == [10_000_500]


def test_a_wrong_limit_is_not_the_files_fault(work, kit, monkeypatch):
    monkeypatch.setenv("FEDACTION_LIMITS", "much")
    assert refused(fedaction("run", kit / "small.toml")).startswith("error: FEDACTION_LIMITS = 'much' in the environ")


# What is there already


@pytest.mark.parametrize("name", ["result.json", "recipe.toml", "metrics.jsonl", "", "notes.txt"])
def test_a_report_takes_the_place_of_no_other_file(work, kit, name):
    run = shutil.copytree(kit / "run", work / "run")
    (run / "notes.txt").write_text("mine")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert "exists and is no report" in refused(fedaction("report", kit / "run", "--out", run / name))
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert fedaction("report", kit / "run", "--out", run / "report.html").exit_code == 0


def test_a_test_takes_the_place_of_no_other_result(work, kit):
    run = shutil.copytree(kit / "run", work / "run")
    before = (run / "result.json").read_bytes()
    tested = ("evaluate", kit / "run", "--on", kit / "store", "--out")
    assert "is the directory of something else" in refused(fedaction(*tested, run))
    assert (run / "result.json").read_bytes() == before
    for _ in range(2):  # again, over its own
        assert fedaction(*tested, work / "tested").exit_code == 0


# F12: what is too long or too deep, also on a command line


@pytest.mark.parametrize(
    "value", ["lr=" + "[" * 20_000, "lr=" + "9" * 5000, "rounds=" + "9" * 5000, "lr=" + "{" * 5000]
)
def test_values_of_any_depth_and_length_are_refused(work, kit, value):
    assert len(refused(fedaction("run", kit / "small.toml", "--set", value))) < 1000
    assert list(work.iterdir()) == []


# F14


def test_a_newline_in_set_is_refused():
    with pytest.raises(RecipeError, match="one key=value"):
        load_recipe("fsar/demo", ["lr=0.1\nrounds=1"])


def test_clients_are_in_the_order_in_which_people_count(work):
    text = RECIPE.partition("data =")[0] + "frames = 8\nmodel_width = 4\nmodel_last = 0\ncontrols = []\n"
    (work / "many.toml").write_text(
        text.replace("rounds = 2", "rounds = 1") + "stage_clients = 11\nstage_train = [4]\nstage_test = 4\n"
        "stage_actions = [2]\nmodel_units = [1, 1, 1]\n"
    )
    done = fedaction("run", "many.toml", "--out", "out")
    assert done.exit_code == 0, done.stderr
    for said in (done.stdout, done.stderr):
        places = [said.index(f"stage-{number}-kinect_v2") for number in range(11)]
        assert places == sorted(places)


# One bad file never ends a batch


def test_predict_goes_past_what_it_cannot_use(work, kit):
    files = work / "files"
    files.mkdir()
    for name in ("a", "z"):
        shutil.copy(kit / "clip.npy", files / f"{name}.npy")
    (files / "b.npy").write_bytes(b"\x93NUMPY\x01\x00\x05\x00{'a':")
    (files / "c.csv").write_text("9" * 30_000)
    os.mkfifo(files / "d.npy")
    (files / "e.npy").symlink_to("e.npy")
    os.mkfifo(work / "pipe.npy")
    done = fedaction("predict", kit / "run", files, "pipe.npy", "gone.npy")
    assert done.exit_code == 1 and not done.stdout.count("error")
    assert [line.split()[0] for line in done.stdout.splitlines()] == [str(files / "a.npy"), str(files / "z.npy")]
    wrong = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert {name for name in ("b.npy", "c.csv", "pipe.npy", "gone.npy") if any(name in line for line in wrong)} == {
        *("b.npy", "c.csv", "pipe.npy", "gone.npy")
    }
    assert f"{len(wrong)} of {len(wrong) + 2} recordings could not be used" in done.stderr
    assert fedaction("predict", kit / "run", files / "b.npy", "gone.npy").exit_code == 2  # nothing was done


def test_evaluate_goes_past_what_it_cannot_use(work, kit):
    for label in ("sit", "wave"):
        (work / "test" / label).mkdir(parents=True)
        shutil.copy(kit / "clip.npy", work / "test" / label / "a.npy")
    (work / "test" / "sit" / "b.npy").write_bytes(b"\x93NUMPY")
    done = fedaction("evaluate", kit / "run", "--on", work / "test", "--json")
    assert done.exit_code == 1 and f"left out: {work / 'test' / 'sit' / 'b.npy'}" in done.stderr
    result = json.loads(done.stdout)
    assert result["n"] == 2 and len(result["broken"]) == 1


def test_import_goes_past_what_it_cannot_use(work):
    phone_csv(work / "csv" / "a.csv", [("walk", 4), ("stand", 4)])
    good = fedaction("data", "import", "csv", "--kind", "inertial", "--out", "good")
    assert good.exit_code == 0, good.stderr
    (work / "csv" / "b.csv").write_bytes(bytes(range(256)))
    os.mkfifo(work / "csv" / "c.csv")
    done = fedaction("data", "import", "csv", "--kind", "inertial", "--out", "store")
    assert done.exit_code == 1 and "b.csv" in done.stdout and "imported to store" in done.stdout
    assert "could not be used, and are named above" in done.stderr
    assert (work / "store/signals.npy").read_bytes() == (work / "good/signals.npy").read_bytes()
    assert fedaction("data", "import", "csv", "--kind", "inertial", "--out", "strict", "--strict").exit_code == 2
    assert not (work / "strict").exists()


def test_features_go_past_what_they_cannot_use(work):
    random = np.random.default_rng(0)
    for label in ("sit", "wave"):
        (work / "sounds" / label).mkdir(parents=True)
        with wave.open(str(work / "sounds" / label / "a.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(random.integers(-1000, 1000, 8000, dtype=np.int16).tobytes())
    (work / "sounds" / "sit" / "b.wav").write_bytes(b"RIFF....WAVE")
    done = fedaction("features", "sounds", "--modality", "audio", "--out", "store", "--json")
    assert done.exit_code == 1 and json.loads(done.stdout)["samples"] == 2
    assert "1 recordings could not be used and were left out: sit/b.wav" in done.stderr
    assert fedaction("features", "sounds", "--modality", "audio", "--out", "store").exit_code == 1  # still so


@pytest.mark.parametrize("options", [(), ("--copy", "mine.toml")])
def test_a_recipe_without_an_end_is_not_shown(work, options):
    os.mkfifo(work / "pipe.toml")
    (work / "endless.toml").symlink_to("/dev/zero")
    for name in ("pipe.toml", "endless.toml"):
        assert f"{name} is not a file" in refused(fedaction("recipes", name, *options))
    assert not (work / "mine.toml").exists()


def test_the_list_of_recipes_waits_for_no_pipe(work):
    (work / "recipes").mkdir()
    os.mkfifo(work / "recipes" / "a.toml")
    with end_after(20):
        assert fedaction("recipes").exit_code == 0


@pytest.mark.parametrize("number", ["9" * 10, "9" * 5000])
def test_a_run_is_not_made_longer_by_a_part_of_a_number(work, kit, number):
    before = (kit / "run" / "recipe.toml").read_bytes()
    assert f"{len(number)} digits" in refused(fedaction("resume", kit / "run", "--extend", f"rounds={number}"))
    assert (kit / "run" / "recipe.toml").read_bytes() == before


# What is not installed


@pytest.mark.parametrize(
    "words",
    [
        ("data", "stage", "--kind", "video", "--out", "places"),
        ("join", "127.0.0.1:1", "--data", "videos", "--name", "hall", "--insecure"),
        ("bench", "video"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_where_video_cannot_be_read_commands_say_what_to_install(work, monkeypatch, words):
    """In one line, and nothing is left behind: `fedaction[flower]` alone has no PyAV."""
    monkeypatch.setattr("fedaction.engines.flower.launch.check_flower", lambda: None)  # whether or not it is here
    monkeypatch.setitem(sys.modules, "av", None)
    for number in range(4):
        video = work / "videos" / "wave" / f"{number}.mp4"
        video.parent.mkdir(parents=True, exist_ok=True)
        video.write_bytes(b"\0\0\0\x18ftypmp42 as a video begins")
    assert "pip install 'fedaction[video]'" in refused(fedaction(*words))
    assert not (work / "places").exists() and not (work / "sites").exists()


def test_a_module_of_our_own_that_is_missing_is_a_fault_with_a_traceback():
    with pytest.raises(ModuleNotFoundError), common.exit_on_refusal():
        import_module("fedaction.no_such_module")


# Told to stop before it has begun

AT_IMPORT = """
import os, signal, sys
def strike(event, arguments):
    if event == "import" and arguments[0] == "{where}":
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(strike)
from fedaction.command import main
main()
"""
AT_CALL = """
import os, signal
import fedaction.cli as cli
import fedaction.cli.common as common
def strike(*_):
    os.kill(os.getpid(), signal.{number})
{where} = strike
cli.main()
"""
TWICE = """
import atexit, os, signal
import fedaction.cli as cli
def strike():
    os.kill(os.getpid(), signal.SIGINT)
atexit.register(strike)
cli.app = strike
cli.main()
"""
EARLY = [
    (AT_IMPORT.format(where="rich.table"), -signal.SIGINT),  # silently, as a shell shows it: 130
    (AT_IMPORT.format(where="fedaction.cli.study"), -signal.SIGINT),
    (AT_CALL.format(where="cli.app", number="SIGINT"), 130),
    (AT_CALL.format(where="cli.app", number="SIGTERM"), 143),
    (AT_CALL.format(where="common.Commands.parse_args", number="SIGINT"), 130),
    (TWICE, -signal.SIGINT),
]
STOPPED = "warning: stopped before it was done; nothing half-written is left\n"


@pytest.mark.parametrize(("code", "status"), EARLY)
def test_a_command_that_is_stopped_while_it_starts_shows_no_traceback(code, status):
    """Real processes: Ctrl-C in the first second, while modules are loaded and words are read."""
    done = subprocess.run([sys.executable, "-c", code, "recipes"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (status, STOPPED if status > 0 or code == TWICE else "")
