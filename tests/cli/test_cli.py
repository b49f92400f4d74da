"""The command: what it prints where, its exit status, what it leaves behind."""

import csv
import io
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import Result
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

from fedaction import __version__
from fedaction.cli import app
from fedaction.cli.common import Bar
from fedaction.cli.results import result_tables
from fedaction.federation.files import LOCK, read_sealed_json
from fedaction.federation.order import natural_key, order_names
from fedaction.federation.pace import Pace, say_duration
from fedaction.federation.progress import Quiet, tell_of
from fedaction.federation.recipes import PACKAGED
from fedaction.runs.metrics import read_rows
from fedaction.runs.recipe import load_recipe

RECIPE = """# Two clients, for the tests.
method = "fsar"
baselines = ["fedavg"]
rounds = 2
workers = 1
stage_clients = 2
stage_layouts = ["kinect_v2", "openni_15"]
stage_train = [8]
stage_test = 6
stage_actions = [3]
frames = 16
batch_size = 4
model_width = 4
model_last = 0
model_units = [1, 1, 1]
model_projection = 8
report_samples = 1
controls = ["majority", "ridge"]
"""
CLIENTS = {"stage-0-kinect_v2", "stage-1-openni_15"}


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and group of commands, by the words that call it."""
    yield path
    for name, part in getattr(command, "commands", {}).items():
        yield from commands(part, (*path, name))


COMMANDS = list(commands(get_command(app)))


def fedaction(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def only(text: str) -> dict:
    """The one JSON object that a text is, on its one line."""
    assert text.endswith("\n") and text.count("\n") == 1, text
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert isinstance(found, dict)
    return found


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """An empty current directory, but for a recipe."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes" / "small").mkdir(parents=True)
    (tmp_path / "recipes" / "small" / "two.toml").write_text(RECIPE)
    return tmp_path


RECIPE_PATH = Path("recipes/small/two.toml")


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> tuple[Path, Result]:
    """A run with two seeds, and what the command said."""
    folder = tmp_path_factory.mktemp("done")
    (folder / "two.toml").write_text(RECIPE)
    result = fedaction("run", folder / "two.toml", "--seeds", "0,1", "--out", folder / "out", "--json")
    assert result.exit_code == 0, result.stderr
    return folder / "out", result


# run


def test_json_is_one_object_on_standard_output(done):
    folder, result = done
    found = only(result.stdout)
    expected = {
        *("run", "name", "method", "metric", "mean", "std", "clients", "rounds", "seconds"),
        *("bytes_up", "bytes_down", "configuration", "seeds", "baselines", "complete"),
        *("interval", "balanced_accuracy", "macro_f1", "n", "controls", "warnings"),
    }
    assert expected <= found.keys()
    assert (found["run"], found["method"], found["metric"]) == (str(folder), "fsar", "accuracy")
    assert found["clients"].keys() == CLIENTS and found["rounds"] == 2 and found["complete"] is True
    assert found["configuration"] == load_recipe(folder / "recipe.toml").configuration()
    assert found["seconds"] > 0
    assert found == read_sealed_json(folder / "result.json")


def test_progress_goes_to_standard_error(done):
    _, result = done
    for line in ("fsar: round 2 of 2, accuracy", "fedavg: round 2 of 2, accuracy"):  # no terminal: lines, not bars
        assert line in result.stderr
    assert "round" not in re.sub('"rounds?"', "", result.stdout)


def test_seeds_give_a_mean_and_a_standard_deviation(done):
    folder, result = done
    found = only(result.stdout)
    homes = {"0": folder, "1": folder / "seeds" / "1"}
    assert found["seeds"].keys() == homes.keys()
    assert found["mean"] == pytest.approx(statistics.fmean(found["seeds"].values()))
    assert found["std"] == pytest.approx(statistics.stdev(found["seeds"].values()))
    for method, part in (("fsar", found), ("fedavg", found["baselines"]["fedavg"])):
        means, up, down = {}, 0, 0
        for seed, home in homes.items():
            rows = read_rows((home if method == "fsar" else home / "baselines" / method) / "metrics.jsonl")
            last = {r.client: r.value for r in rows if (r.round, r.split, r.name) == (2, "test", "accuracy")}
            means[seed] = last
            up += sum(int(r.value or 0) for r in rows if r.name == "bytes_up")
            down += sum(int(r.value or 0) for r in rows if r.name == "bytes_down")
        for client in CLIENTS:
            assert part["clients"][client] == pytest.approx((means["0"][client] + means["1"][client]) / 2)
        assert (part["bytes_up"], part["bytes_down"]) == (up, down) and up < down
        assert part["seeds"]["1"] == pytest.approx(statistics.fmean(means["1"].values()))


def test_every_part_of_a_study_is_a_run_of_its_own(done):
    folder, _ = done
    for part in (folder, folder / "baselines/fedavg", folder / "seeds/1", folder / "seeds/1/baselines/fedavg"):
        for name in (
            "metrics.jsonl",
            "recipe.toml",
            "result.json",
            "environment.json",
            "evidence.json",
            "clock.jsonl",
        ):
            assert (part / name).is_file(), part / name
    assert load_recipe(folder / "seeds/1/baselines/fedavg/recipe.toml").run.seeds == (1,)
    seeds = [(home / "metrics.jsonl").read_bytes() for home in (folder, folder / "seeds/1")]
    assert seeds[0] != seeds[1]
    assert (folder / "report.html").read_text().startswith("<!")


def test_without_out_runs_are_numbered_and_a_table_is_printed(home):
    for number in (1, 2):
        result = fedaction("run", RECIPE_PATH, "--set", "rounds=1", "--set", "baselines=[]", "--device", "cpu")
        assert result.exit_code == 0, result.stderr
        assert f"report: runs/small-two-{number}/report.html" in result.stdout
        assert (home / f"runs/small-two-{number}/report.html").is_file()
    assert "test accuracy" in result.stdout and "fsar" in result.stdout and "fedavg" not in result.stdout
    assert "majority" in result.stdout and "warning: Fewer than 50 test samples" in result.stdout


def test_engine_device_and_overrides_reach_the_run(home):
    options = ("--engine", "vectorised", "--device", "cpu", "--set", "rounds=1", "--set", "method=fedavg")
    result = fedaction("run", RECIPE_PATH, *options, "--set", "baselines=[]", "--out", "here", "--json")
    found = only(result.stdout)
    assert (found["engine"], found["device"], found["method"], found["rounds"]) == ("vectorised", "cpu", "fedavg", 1)
    assert load_recipe(home / "here" / "recipe.toml").run.engine == "vectorised"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--set", "ruonds=3"), ("there is no key 'ruonds'", "did you mean 'rounds'?", "recipes/small/two.toml")),
        (("--set", "lr=-1"), ("lr", "greater than 0", "got -1")),
        (("--set", "lr"), ("--set takes key=value",)),
        (("--set", "lr=0.1\nrounds=1"), ("--set takes one key=value",)),
        (("--engine", "warp"), ("engine", "sequential", "got 'warp'")),
        (("--seeds", "1,1"), ("a seed is named twice",)),
        (("--seeds", "one"), ("seeds",)),
        (("--set", "method=fsra"), ("did you mean 'fsar'?",)),
        (("--set", "stage_layouts=kinect"), ("stage_layouts",)),
        (("--set", 'stage_layouts=["kinect_v9"]'), ("kinect_v9",)),
        (("--set", "model_graph=round"), ("'round'", "spatial_legacy")),  # found only when the network is built
        (("--set", "data=store", "--set", 'store_paths=["nowhere"]'), ("stage_clients",)),
    ],
)
def test_a_run_that_cannot_start_exits_with_2_and_leaves_nothing_behind(home, options, words):
    before = sorted(home.rglob("*"))
    result = fedaction("run", RECIPE_PATH, "--out", "here/there", "--json", *options)
    assert result.exit_code == 2 and result.stdout == ""
    said = flat(result.stderr)
    assert "error:" in said and "Traceback" not in said
    for word in words:
        assert word in said
    assert sorted(home.rglob("*")) == before


def test_a_recipe_that_is_not_there_is_an_error(home):
    result = fedaction("run", "recipes/absent.toml")
    assert result.exit_code == 2 and "there is no recipe recipes/absent.toml" in flat(result.stderr)
    assert not (home / "runs").exists()


def test_a_store_that_is_not_there_is_an_error(home):
    (home / "mine.toml").write_text('method = "fedavg"\ndata = "store"\nstore_paths = ["nowhere"]\n')
    result = fedaction("run", "mine.toml", "--out", "here")
    assert result.exit_code == 2 and "nowhere" in result.stderr
    assert not (home / "here").exists()


def test_another_method_may_be_chosen_for_a_recipe_with_keys_of_its_own(home):
    RECIPE_PATH.write_text(RECIPE + "tau = 0.5\n")
    found = fedaction("run", RECIPE_PATH, "--set", "method=fedprox", "--set", "rounds=1", "--out", "here")
    assert found.exit_code == 0, found.stderr
    lines = [line for line in found.stderr.splitlines() if "warning" in line]
    assert lines == [f"warning: {RECIPE_PATH}: left out, since no method that is run reads it: tau"]
    assert "tau" not in (home / "here" / "recipe.toml").read_text()  # what was run
    assert load_recipe(home / "here" / "recipe.toml").run.method == "fedprox"


def test_a_folder_that_is_not_empty_is_refused_and_left_alone(home):
    (home / "taken").mkdir()
    (home / "taken" / "thesis.txt").write_text("mine")
    (home / "file").write_text("mine")
    for name in ("taken", "file"):
        result = fedaction("run", RECIPE_PATH, "--out", name)
        assert result.exit_code == 2 and f"{name} exists and is not empty" in flat(result.stderr)
    assert os.listdir(home / "taken") == ["thesis.txt"] and (home / "file").read_text() == "mine"


def test_an_empty_folder_is_used(home):
    (home / "empty").mkdir()
    (home / "empty" / LOCK).touch()  # of a run that was killed before it had written anything
    options = ("--set", "rounds=1", "--set", "baselines=[]")
    assert fedaction("run", RECIPE_PATH, "--out", "empty", *options).exit_code == 0
    assert (home / "empty" / "result.json").is_file()


# resume, compare, report


def test_resuming_what_is_not_a_run_is_an_error(home):
    (home / "empty").mkdir()
    result = fedaction("resume", "empty")
    assert result.exit_code == 2 and "empty is not a run directory: it has no recipe.toml" in flat(result.stderr)
    assert os.listdir(home / "empty") == []
    assert fedaction("resume", "absent").exit_code == 2


def test_resuming_a_finished_run_gives_its_result(done):
    folder, result = done
    before = (folder / "metrics.jsonl").read_bytes()
    again = fedaction("resume", folder, "--json")
    assert again.exit_code == 0 and only(again.stdout) == only(result.stdout)
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_compare_puts_runs_and_their_baselines_side_by_side(done, tmp_path):
    folder, result = done
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    found = only(fedaction("compare", folder, other, "--json").stdout)["runs"]
    expected = only(result.stdout)
    assert [run["method"] for run in found] == ["fsar", "fedavg", "fsar", "fedavg"]
    assert [run["mean"] for run in found[:2]] == [expected["mean"], expected["baselines"]["fedavg"]["mean"]]
    table = fedaction("compare", folder, other)
    assert table.exit_code == 0 and f"{100 * expected['mean']:.1f} ±" in table.stdout
    for client in CLIENTS:
        assert client in table.stdout
    # Controls have columns of their own, and what the numbers do not bear stands below them.
    ridge = 100 * expected["controls"]["ridge"]["mean"]
    assert "ridge" in table.stdout and f"{ridge:.1f}" in table.stdout and "95 % interval" in table.stdout
    assert "warning: Fewer than 50 test samples" in table.stdout
    for at, words in (("rounds", "after 2 rounds"), ("epochs", "after 2 local epochs")):
        assert words in flat(fedaction("compare", folder, other, "--at", at).stdout)


def test_compare_says_which_run_is_not_finished(done, tmp_path):
    folder, _ = done
    (tmp_path / "begun").mkdir()
    result = fedaction("compare", folder, tmp_path / "begun", "--json")
    assert result.exit_code == 2 and result.stdout == ""
    assert "begun has no result.json" in flat(result.stderr)


def test_report_is_written_where_it_is_asked_for(done, tmp_path):
    folder, _ = done
    result = fedaction("report", folder, "--out", tmp_path / "page.html")
    assert result.exit_code == 0 and result.stdout.strip() == str(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == (folder / "report.html").read_text()


def test_a_report_of_what_is_not_a_run_is_an_error(tmp_path):
    result = fedaction("report", tmp_path)
    assert result.exit_code == 2 and "error:" in result.stderr and "Traceback" not in result.stderr
    assert os.listdir(tmp_path) == []


# recipes, help, version


def test_recipes_are_listed_with_what_they_are(home):
    found = only(fedaction("recipes", "--json").stdout)["recipes"]
    assert found[-1] == {"recipe": "recipes/small/two.toml", "about": "Two clients, for the tests."}
    about = {item["recipe"]: item["about"] for item in found}
    assert about["fsar/demo"].startswith("FSAR beside plain averaging: five skeleton clients")
    table = CliRunner().invoke(app, ["recipes"], env={"COLUMNS": None}).stdout
    for item in found:
        assert f"{item['recipe']} " in table and item["about"] in table  # whole, since this is no terminal
    narrow = CliRunner().invoke(app, ["recipes"], env={"COLUMNS": "60"}).stdout
    assert max(map(len, narrow.splitlines())) <= 60 and "recipes/small/two.toml" in narrow


def test_a_recipe_that_says_strange_things_is_listed_all_the_same(home):
    (home / "recipes" / "[bold]a.toml").write_bytes(b"# \xff [/y] [red]\nmethod = 1\n")
    result = fedaction("recipes")
    assert result.exit_code == 0 and "recipes/[bold]a.toml" in result.stdout and "[/y] [red]" in result.stdout
    result = fedaction("recipes", "recipes/[bold]a.toml")
    assert result.exit_code == 2 and "Traceback" not in result.stderr


def test_recipes_come_with_the_package_and_one_can_be_printed_and_copied(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = fedaction("recipes", "fsar/demo").stdout
    assert printed == (PACKAGED / "fsar" / "demo.toml").read_text()
    assert fedaction("recipes", "recipes/fsar/demo.toml", "--copy", "my.toml").exit_code == 0
    assert (tmp_path / "my.toml").read_text() == printed
    again = fedaction("recipes", "fsar/demo", "--copy", "my.toml")
    assert again.exit_code == 2 and "my.toml exists" in flat(again.stderr)
    absent = fedaction("recipes", "fsar/dmeo")
    assert absent.exit_code == 2 and "did you mean fsar/demo" in flat(absent.stderr) and absent.stdout == ""


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(command):
    result = fedaction(*command, "--help")
    assert result.exit_code == 0 and "Usage:" in result.stdout and "--help" in result.stdout
    assert len(flat(result.stdout)) > 100


def test_the_commands_are_there():
    names = {"run", "resume", "compare", "report", "recipes", "bench"}
    assert names <= {command[0] for command in COMMANDS if command} and ("bench", "loop") in COMMANDS


def test_help_does_not_wait_for_torch():
    code = """
import sys
from fedaction.cli import app
for words in (["--help"], ["recipes"], ["recipes", "fsar/demo"], ["run", "fsar/dmeo"]):
    try:
        app(words, standalone_mode=False)
    except SystemExit:
        pass
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_version():
    result = fedaction("--version")
    assert result.exit_code == 0 and result.stdout.strip() == __version__


def test_an_unknown_command_is_an_error():
    result = fedaction("rnu")
    assert result.exit_code == 2 and result.stdout == ""


@pytest.mark.parametrize("value", ["lr=[abc]", "stage_layouts=[/x]"])
def test_user_text_is_not_read_as_markup(tmp_path, value):
    path = tmp_path / "two.toml"
    path.write_text(RECIPE)
    result = CliRunner().invoke(app, ["run", str(path), "--set", value, "--out", str(tmp_path / "x")])
    assert result.exit_code == 2 and value.partition("=")[2] in result.stderr
    assert not (tmp_path / "x").exists()


def test_every_key_is_listed_with_its_default():
    result = fedaction("recipes", "--keys", "all")
    assert result.exit_code == 0
    for words in ("clients_per_round", "ats_coefficients", "stage_layouts", "store_paths", "(must be given)"):
        assert words in result.stdout


def test_keys_are_asked_for_by_who_reads_them():
    short = fedaction("recipes", "--keys").stdout
    assert len(short.splitlines()) < 60 and 'method = "fsar"' in short and "`--keys all`" in short
    one = fedaction("recipes", "--keys", "lr").stdout
    assert "Learning rate of the clients' optimiser." in one and "momentum" not in one
    run = only(fedaction("recipes", "--keys", "run", "--json").stdout)["keys"]
    assert list(run) == ["run"] and run["run"]["rounds"] == {
        "default": "20",
        "about": "How often the server combines updates.",
    }
    wrong = fedaction("recipes", "--keys", "fsra")
    assert wrong.exit_code == 2 and "did you mean 'fsar'?" in flat(wrong.stderr)


# Tables


def study(clients: dict[str, float], run: str = "runs/one", **more: object) -> dict[str, object]:
    found = {"run": run, "method": "fedavg", "clients": clients, "n": dict.fromkeys(clients, 9), "mean": 0.5}
    found |= {"std": None, "seconds": 3.0, "bytes_up": 1e6, "bytes_down": 2e6, "interval": (0.4, 0.6)}
    return found | {"balanced_accuracy": 0.123, "macro_f1": 0.456, **more}


def printed(studies: list[dict[str, object]], width: int | None) -> list[str]:
    console = Console(width=width or 10_000, file=io.StringIO())
    for table in result_tables(studies, named=True, width=width):
        console.print(table)
    return console.file.getvalue().splitlines()


def test_rows_of_a_table_stay_together_on_a_narrow_terminal():
    """A label that is folded moves its own values along, and nobody else's."""
    for width in (28, 80):
        lines = printed([study({"a-long-name-of-a-clinic": 0.5}, run="", n={})], width)
        rows = {label: next(line for line in lines if label in line) for label in ("balanced", "macro-F1", "seconds")}
        assert "12.3" in rows["balanced"] and "45.6" in rows["macro-F1"] and " 3 " in rows["seconds"]


def test_samples_that_several_clients_are_tested_on_count_once():
    (mean,) = (
        line for line in printed([study(dict.fromkeys("abc", 0.5), tests={"a": "x", "b": "x"})], 80) if "mean" in line
    )
    assert mean.split()[-2] == "18"  # nine each, and a and b have the same nine


FORTY = {name: 0.5 for name in sorted(f"inertial-{number}-of-the-clinic-in-the-north" for number in range(40))}


@pytest.mark.parametrize("width", [80, 120, None])
def test_forty_clients_and_eight_runs_are_whole_and_in_order(width):
    runs = [study(FORTY, run=f"runs/a-rather-long-name-{number}") for number in range(8)]
    lines = printed(runs, width)
    if width:
        assert max(map(len, lines)) <= width
    names = [found[0] for line in lines if (found := re.findall(r"inertial-\S+", line))]
    tables = len(names) // 40
    assert names == sorted(FORTY, key=lambda name: int(name.split("-")[1])) * tables  # whole, 2 before 10
    assert (tables == 1) is (width is None)
    assert "…" not in "".join(lines)
    for number in range(8):
        assert any(f"runs/a-rather-long-name-{number}" in line for line in lines)


def test_a_thousand_clients_are_quantiles_on_a_terminal_and_rows_in_a_file():
    clients = {f"phone-{number}": number / 1000 for number in range(1001)}
    terminal, file = printed([study(clients)], 80), printed([study(clients)], None)
    assert len(terminal) < 25 and "1001 clients" in "".join(terminal)
    values = {label: next(line for line in terminal if label in line) for label in ("worst", "median", "best")}
    assert " 0.0 " in values["worst"] and " 50.0 " in values["median"] and " 100.0 " in values["best"]
    assert sum("phone-" in line for line in file) == 1001


def test_compare_as_csv_has_a_line_for_each_client_of_each_run(done):
    folder, result = done
    lines = list(csv.DictReader(io.StringIO(fedaction("compare", folder, "--csv").stdout)))
    expected = only(result.stdout)
    assert {(line["method"], line["client"]) for line in lines} == {
        (method, client) for method in ("fsar", "fedavg", "majority", "ridge") for client in CLIENTS
    }
    for line in lines:
        if line["method"] == "fsar":
            assert float(line["accuracy"]) == expected["clients"][line["client"]] and line["run"] == str(folder)
            assert int(line["n"]) == expected["n"][line["client"]]


@pytest.mark.parametrize(
    ("names", "ordered"),
    [
        (["c10", "c2", "c1"], ["c1", "c2", "c10"]),
        (["a-10-b-2", "a-9-b-10", "a-9-b-9", "b", "a"], ["a", "a-9-b-9", "a-9-b-10", "a-10-b-2", "b"]),
        (["x007", "x7", "x08", "10", "9" * 5000], ["10", "9" * 5000, "x007", "x7", "x08"]),
    ],
)
def test_names_sort_as_people_count(names, ordered):
    assert sorted(names, key=natural_key) == ordered == order_names(sorted(names))
    assert order_names(["kitchen", "gym", "kitchen"]) == ["kitchen", "gym"]  # as somebody has put them


# Folders


def test_runs_started_at_once_take_folders_of_their_own(home):
    """Real processes, which all ask for a folder in the same instant."""
    code = """
import sys, time
from pathlib import Path
from fedaction.federation.files import take_folder
print("ready", flush=True)
sys.stdin.readline()
for _ in range(30):
    with take_folder(Path("runs"), "demo") as folder:
        (folder / "mine").touch(exist_ok=False)
        print(folder.name, flush=True)
"""
    start = [sys.executable, "-c", code]
    racers = [subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for racer in racers:
        assert racer.stdout and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin
        print(file=racer.stdin, flush=True)
    taken = [name for racer in racers for name in racer.communicate(timeout=60)[0].split()]
    assert sorted(taken, key=natural_key) == [f"demo-{number}" for number in range(1, 91)]


def test_a_run_that_cannot_start_gives_its_folder_back(home):
    assert fedaction("run", RECIPE_PATH, "--set", "model_graph=round").exit_code == 2
    assert not (home / "runs").exists()


# Time left


def test_a_pace_says_how_long_the_rest_takes():
    now = [100.0]
    pace = Pace(10, 60, lambda: now[0])  # resumed after 10
    assert pace.seconds_left is None and pace.say_left() == ""
    now[0] += 30
    pace.advance(20)  # ten in 30 s: forty more take 120
    assert pace.seconds_left == pytest.approx(120) and pace.say_left() == "about 2 min left"
    now[0] += 20
    assert pace.seconds_left == pytest.approx(100)  # while nothing is reported, the time goes on
    pace.advance(60)
    assert pace.say_left() == ""


def test_a_pace_follows_a_change_of_speed():
    now = [0.0]
    pace = Pace(0, 1000, lambda: now[0])
    for done in range(1, 101):
        now[0] += 10 if done <= 50 else 1  # the first are slow
        pace.advance(done)
    assert pace.seconds_left == pytest.approx(900, rel=0.01)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (7, "7 s"), (44, "40 s"), (89, "90 s"), (100, "2 min"), (3000, "50 min"), (9000, "2.5 h")],
)
def test_times_are_said_as_people_say_them(seconds, words):
    assert say_duration(seconds) == words


def test_a_log_says_how_long_the_rest_takes_and_what_is_done_from_the_start(home):
    more = ("--set", "rounds=3", "--set", "baselines=[]")
    said = fedaction("run", RECIPE_PATH, "--out", "here", *more).stderr.splitlines()
    assert said[:2] == [f"loading PyTorch and the recipe {RECIPE_PATH} ...", "run directory: here"]
    lines = [line for line in said if line.startswith("fsar: round")]
    assert len(lines) == 3
    assert re.fullmatch(r"fsar: round 1 of 3, accuracy [0-9.]+%, about \d+ s left", lines[0])
    assert re.fullmatch(r"fsar: round 3 of 3, accuracy [0-9.]+%", lines[2])


def test_a_log_has_ten_lines_and_one_more_after_a_slow_first_round(capsys):
    for seconds, first in ((0, 10), (120, 1)):
        with Bar() as bar:
            bar.start("fsar", 0, 100, unit="round", metric="accuracy")
            pace = bar._work["fsar"][1]
            pace.start -= seconds
            pace._steps[0] = (pace.start, 0)
            for done in range(1, 101):
                bar.advance("fsar", done)
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 10 + (first == 1) and lines[0].startswith(f"fsar: round {first} of 100")
        assert first != 1 or lines[0].endswith(", about 3.3 h left")


def test_the_stage_tells_of_every_recording_it_makes():
    source = load_recipe("fsar/demo", ["stage_train=[300, 20]", "stage_clients=3", "stage_test=7", "frames=8"]).source
    told: list[tuple[int, int]] = []
    clients = source.load(0, lambda done, total: told.append((done, total)))
    total = sum(len(client.train) + len(client.test) for client in clients)
    assert told[-1] == (total, total) == (641, 641) and told == sorted(told)
    assert told[0] == (256, total)  # before the first client is done


def test_work_done_in_parts_is_shown_in_parts():
    class Told(Quiet):
        def __init__(self) -> None:
            self.calls: list[tuple[object, ...]] = []

        def start(self, label: str, done: int, total: int, *, unit: str = "", metric: str = "") -> None:
            self.calls.append(("start", label, total))

        def advance(self, label: str, done: int, value: float | None = None) -> None:
            self.calls.append((label, done))

    told = Told()
    tell = tell_of(told, "data")
    for done, total in ((1, 2), (2, 2), (5, 9), (9, 9), (4, 9)):
        tell(done, total)
    expected: list[tuple[object, ...]] = [("start", "data", 2), ("data", 1), ("data", 2)]
    expected += [("start", "data, part 2", 9), ("data, part 2", 5), ("data, part 2", 9)]
    assert told.calls == [*expected, ("start", "data, part 3", 9), ("data, part 3", 4)]


# doctor


def test_doctor_finds_what_there_is_and_trains(home, monkeypatch):
    (home / "sets" / "kard").mkdir(parents=True)
    monkeypatch.setenv("FEDACTION_DATA", str(home / "sets"))
    monkeypatch.setenv("FEDACTION_CACHE", str(home / "cache"))
    before = sorted(home.rglob("*"))
    found = only(fedaction("doctor", "--json").stdout)
    about = {finding["name"]: finding for finding in found["findings"]}
    assert found["ok"] is True and "broken" not in {finding["state"] for finding in found["findings"]}
    assert "one round on cpu" in about["training"]["about"] and "cores" in about["device"]["about"]
    assert about["FEDACTION_DATA"]["about"].endswith("sets: kard") and "not there yet" in about["cache"]["about"]
    assert {"torch", "filelock", "av", "onnxruntime", "flwr", "disk", "run folder"} <= about.keys()
    for finding in found["findings"]:
        if finding["state"] == "absent":
            assert "pip install" in finding["about"] or finding["name"] == "FEDACTION_DATA"
    assert sorted(home.rglob("*")) == before  # nothing is left behind


def test_doctor_ends_with_1_where_something_is_broken(home, monkeypatch):
    monkeypatch.setenv("FEDACTION_DATA", "nowhere")
    monkeypatch.setenv("FEDACTION_CACHE", str(home / "cache"))
    result = fedaction("doctor")
    assert result.exit_code == 1 and "broken: FEDACTION_DATA" in result.stdout
    assert "nowhere is not a folder" in result.stdout and "one round on cpu" in result.stdout
