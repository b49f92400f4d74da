"""A run directory vouches for itself: what does not fit together is refused, and what can be made again is."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from safetensors.torch import load_file
from typer.testing import CliRunner

from fedaction.cli import app
from fedaction.data.layout import OPENNI_15
from fedaction.data.store import StoreWriter
from fedaction.federation.files import read_sealed_json, write_sealed_json
from fedaction.federation.progress import Quiet
from fedaction.federation.seeds import derive
from fedaction.runs.metrics import read_seconds, write_seconds
from fedaction.runs.recipe import load_recipe
from fedaction.runs.study import extend, run_study
from fedaction.serve.network import find_model

RECIPE = """
method = "fedavg"
classifier = "shared"
buffers = "average"
rounds = 4
lr = 0.05
workers = 1
data = "store"
store_paths = ["{store}"]
store_by = "subject"
frames = 8
batch_size = 4
model_width = 4
model_last = 0
model_units = [1, 1, 1]
model_projection = 8
controls = ["majority"]
"""


def write_store(path: Path, seed: int) -> Path:
    """Two people, two classes; another seed is other values in a file of the same size."""
    random = np.random.default_rng(derive(seed, "seal"))
    with StoreWriter(path, layout=OPENNI_15, classes=("sit", "wave"), rate_hz=30, overwrite=path.exists()) as writer:
        for number in range(24):
            shape = (1, 10, len(OPENNI_15), 3)
            sequence = random.normal(size=shape).astype(np.float32) + number % 2
            writer.add(sequence, label=number % 2, name=f"r{number}", subject="ab"[number // 12])
        writer.finish()
    return path


def fedaction(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "1000"})


def refuse(*arguments: str | Path) -> str:
    """What a command says that refuses, in one line."""
    result = fedaction(*arguments)
    assert result.exit_code == 2, (arguments, result.stdout, result.stderr)
    return " ".join(result.stderr.split())


def accept(*arguments: str | Path) -> str:
    result = fedaction(*arguments)
    assert result.exit_code == 0, result.stderr
    return " ".join((result.stdout + result.stderr).split())


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def result_of(folder: Path) -> dict[str, object]:
    """A result without where it lies and how long it took."""
    result = read_sealed_json(folder / "result.json")
    return {key: value for key, value in result.items() if key not in ("run", "seconds")}


def tensors(folder: Path) -> dict[str, list[float]]:
    """What a run's model file holds; its header may have its entries in another order each time."""
    return {name: tensor.flatten().tolist() for name, tensor in load_file(folder / "model.safetensors").items()}


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / "recipe.toml"
    text = path.read_text()
    assert text.count(old) == 1, text
    path.write_text(text.replace(old, new))


class Stop(Exception):
    """Ends a run as a kill would: what is on the disk stays."""


class StopAfter:
    """A callback that ends a run when a round and its checkpoint are done."""

    def __init__(self, round: int) -> None:
        self.round = round

    def on_round(self, rows) -> None:
        if rows[0].round == self.round:
            raise Stop


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with a store, a recipe and the run of it."""
    folder = tmp_path_factory.mktemp("seal")
    write_store(folder / "mine", 0)
    (folder / "small.toml").write_text(RECIPE.format(store=folder / "mine"))
    accept("run", folder / "small.toml", "--out", folder / "run")
    return folder


@pytest.fixture
def done(made, tmp_path) -> Path:
    """A copy of the finished run, whose result says where it lies."""
    folder = shutil.copytree(made / "run", tmp_path / "run")
    report = folder / "report.html"
    report.write_text(report.read_text().replace(str(made / "run"), str(folder)))
    write_sealed_json(folder / "result.json", {**read_sealed_json(folder / "result.json"), "run": str(folder)})
    return folder


def interrupt(folder: Path, recipe: Path, round: int) -> Path:
    with pytest.raises(Stop):
        run_study(load_recipe(recipe), folder, Quiet(), callbacks=[StopAfter(round)])
    return folder


def readers(folder: Path) -> list[tuple[str | Path, ...]]:
    """Commands that read a finished run."""
    export = ("export", folder, "--out", folder.parent / "exported")
    store = Path(json.loads((folder / "recipe.toml").read_text().partition("store_paths = ")[2].splitlines()[0])[0])
    uses = [("predict", folder, store / "none.npy"), ("evaluate", folder, "--on", store)]
    return [("report", folder), ("compare", folder), ("analyse", folder, "curves"), export, *uses]


# What every checkpoint and the result carry


def test_the_seal_is_in_every_checkpoint_and_in_the_result(made):
    run = made / "run"
    table = (run / "metrics.jsonl").read_bytes()
    seals = []
    for path in sorted((run / "checkpoints").glob("*.json")):
        record = json.loads(path.read_text())
        sealed = table[: record["metrics_length"]]
        assert record["metrics_sha256"] == hashlib.sha256(sealed).hexdigest()
        assert (
            record["seal"]["seed"] == 0 and record["seal"]["rounds"] == 4 and set(record["seal"]["data"]) == {"mine"}
        )
        assert record["seal"]["settings"]["lr"] == 0.05
        seals.append(len(sealed))
    assert len(set(seals)) == 2 and seals[-1] == len(table)
    seal = json.loads((run / "result.json").read_text())["seal"]
    assert seal["data"] == record["seal"]["data"] and seal["metrics_sha256"] == record["metrics_sha256"]
    assert seal["configuration"] == load_recipe(run / "recipe.toml").checkpoint_hash and seal["round"] == 4
    for name in ("evidence.json", "models.json"):
        assert json.loads((run / name).read_text())["round"] == 4


# F1: a finished run whose recipe was edited

EDITS = [
    ("lr = 0.05", "lr = 0.5", "lr = 0.05, now it is 0.5: put recipe.toml back as it was"),
    ("seeds = [0]", "seeds = [1]", "seed 0, now it is 1: put recipe.toml back as it was"),
    ('engine = "auto"', 'engine = "vectorised"', "engine = 'auto', now it is 'vectorised'"),
    ("rounds = 4", "rounds = 6", "rounds = 4, now they are 6: put recipe.toml back as it was"),
]


@pytest.mark.parametrize(("old", "new", "words"), EDITS)
def test_a_finished_run_is_not_relabelled_by_an_edited_recipe(done, old, new, words):
    edit(done, old, new)
    before = content(done)
    for command in (("resume", done), *readers(done)):
        said = refuse(*command)
        assert f"{done} was begun with {words}" in said, command
    assert content(done) == before


def test_keys_that_decide_nothing_may_be_edited(done, made):
    edit(done, "report_samples = 0", "report_samples = 1")
    accept("resume", done)
    assert result_of(done) == result_of(made / "run")


# F2: another seed


def test_an_interrupted_run_is_not_continued_with_another_seed(made, tmp_path):
    folder = interrupt(tmp_path / "run", made / "small.toml", 2)
    edit(folder, "seeds = [0]", "seeds = [1]")
    before = content(folder)
    assert f"{folder} was begun with seed 0, now it is 1" in refuse("resume", folder)
    assert content(folder) == before
    edit(folder, "seeds = [1]", "seeds = [0]")
    accept("resume", folder)
    assert result_of(folder) == result_of(made / "run")
    assert (folder / "metrics.jsonl").read_bytes() == (made / "run" / "metrics.jsonl").read_bytes()


# F3: made longer


def test_a_run_is_made_longer_by_extend_alone_and_says_so(done, made, tmp_path):
    assert "--extend takes rounds=NUMBER" in refuse("resume", done, "--extend", "lr=0.1")
    assert "the run has 4 rounds, and can only be made longer" in refuse("resume", done, "--extend", "rounds=4")
    edit(done, "rounds = 4", "rounds = 6")  # which is not the way, and does not count
    assert "--extend rounds=6` makes a run longer" in refuse("resume", done)
    accept("resume", done, "--extend", "rounds=6")
    result = result_of(done)
    assert result["extended"] == [4] and result["rounds"] == 6 and result["complete"]
    assert "extended = [4]\n" in (done / "recipe.toml").read_text()
    accept("run", made / "small.toml", "--set", "rounds=6", "--out", tmp_path / "six")
    assert (done / "metrics.jsonl").read_bytes() == (tmp_path / "six" / "metrics.jsonl").read_bytes()
    assert (done / "evidence.json").read_bytes() == (tmp_path / "six" / "evidence.json").read_bytes()
    assert tensors(done) == tensors(tmp_path / "six")
    for command in readers(done)[:2]:
        accept(*command)
    assert find_model(done) == done / "model.safetensors"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("rounds = 4", "rounds = 2\nextended = [4]", "rounds = 4, now they are 2 (extended = [4])"),
        ("rounds = 4", "rounds = 4\nextended = [2]", "rounds = 4, now they are 4 (extended = [2])"),
        ("rounds = 4", "rounds = 6\nextended = [2, 4]", "rounds = 4, now they are 6 (extended = [2, 4])"),
    ],
)
def test_how_long_a_run_was_to_be_is_not_relabelled(done, old, new, words):
    edit(done, "extended = []\n", "")
    edit(done, old, new)
    before = content(done)
    for command in (("resume", done), *readers(done)):
        assert f"{done} was begun with {words}" in refuse(*command), command
    assert content(done) == before


def test_what_was_of_the_shorter_run_is_noticed_and_made_again(done, made):
    recipe, old = load_recipe(done / "recipe.toml"), done.parent / "old"
    shutil.copytree(done, old)
    with pytest.raises(Stop):  # after the last checkpoint of the longer run
        run_study(extend(recipe, 6), done, Quiet(), callbacks=[StopAfter(6)])
    assert not any((done / name).exists() for name in ("evidence.json", "models.json", "result.json"))
    for name in ("evidence.json", "models.json", "result.json"):  # as a version left them that did not remove them
        shutil.copy(old / name, done / name)
    assert "result.json is of an earlier end of this run" in refuse("compare", done)
    (done / "result.json").unlink()
    assert "evidence.json is of round 4, but the run's is 6" in refuse("report", done)
    (done / "evidence.json").unlink()
    assert "is of round 4, but the run's is 6" in refuse("export", done, "--out", done.parent / "x")
    shutil.copy(old / "evidence.json", done / "evidence.json")
    accept("resume", done)
    assert json.loads((done / "evidence.json").read_text())["round"] == 6
    assert json.loads((done / "models.json").read_text())["round"] == 6
    assert tensors(done) != tensors(old)
    assert result_of(done)["rounds"] == 6


# F4: metrics and side files


def cut_last_line(blob: bytes) -> bytes:
    return blob[: blob.rstrip(b"\n").rindex(b"\n") + 1]


def flip_digit(blob: bytes, line: int) -> bytes:
    """Another digit in the value of a line; it stays a table of as many bytes that can be read."""
    lines = blob.splitlines(keepends=True)
    value = re.search(rb'"value":-?[\d.]*(\d)', lines[line])
    assert value, lines[line]
    at, digit = value.start(1), b"%d" % ((int(value[1]) + 1) % 10)
    lines[line] = lines[line][:at] + digit + lines[line][at + 1 :]
    return b"".join(lines)


def add_line(blob: bytes) -> bytes:
    return blob + blob.splitlines(keepends=True)[-1]


DAMAGE = {
    "shortened": (cut_last_line, "bytes were sealed, but only"),
    "altered": (lambda blob: flip_digit(blob, -1), "are not as they were sealed"),
    "added to": (add_line, "bytes follow after what was sealed"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_metrics_of_a_finished_run_that_differ_are_refused_and_the_last_round_is_made_again(done, made, how):
    damage, words = DAMAGE[how]
    table = done / "metrics.jsonl"
    table.write_bytes(damage(table.read_bytes()))
    for command in readers(done):
        said = refuse(*command)
        assert words in said and f"{table}:" in said and f"fedaction resume {done}" in said, command
    accept("resume", done)
    assert table.read_bytes() == (made / "run" / "metrics.jsonl").read_bytes()
    assert result_of(done) == result_of(made / "run")


@pytest.mark.parametrize("how", ["altered", "deleted"])
def test_metrics_that_no_checkpoint_goes_with_are_refused_and_nothing_is_thrown_away(done, how):
    table = done / "metrics.jsonl"
    table.write_bytes(flip_digit(table.read_bytes(), 0) if how == "altered" else b"")
    before = content(done / "checkpoints")
    said = refuse("resume", done)
    assert "that of round 4 is sound. Put metrics.jsonl back from a copy" in said
    assert content(done / "checkpoints") == before


SIDE = ["evidence.json", "environment.json", "models.json", "model.safetensors", "controls.json", "result.json"]


@pytest.mark.parametrize("how", ["deleted", "damaged"])
def test_what_follows_from_the_checkpoint_is_made_again(done, made, how):
    for name in (*SIDE, "report.html"):
        path = done / name
        path.unlink() if how == "deleted" else path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    accept("resume", done)
    assert result_of(done) == result_of(made / "run")
    for name in ("evidence.json", "controls.json", "metrics.jsonl"):
        assert (done / name).read_bytes() == (made / "run" / name).read_bytes(), name
    assert tensors(done) == tensors(made / "run")
    assert "made again" in json.loads((done / "environment.json").read_text())["note"]


def test_a_digit_of_evidence_or_a_bit_of_a_model_file_is_noticed(done, made):
    evidence, model = done / "evidence.json", done / "model.safetensors"
    matrices = json.loads(evidence.read_text())
    first = next(iter(matrices["confusion"].values()))["matrix"]
    first[0][0] += 1
    evidence.write_text(json.dumps(matrices))
    assert f"{evidence} is not as it was written" in refuse("report", done)
    shutil.copy(made / "run" / "evidence.json", evidence)
    blob = bytearray(model.read_bytes())
    blob[-3] ^= 1
    model.write_bytes(bytes(blob))
    assert "not as it was written: `fedaction resume" in refuse("export", done, "--out", done.parent / "x")
    accept("resume", done)
    assert tensors(done) == tensors(made / "run")


FOLLOWING = [
    (("evidence.json",), "report"),
    (("models.json", "model.safetensors"), "predict"),
    (("controls.json",), "report"),
    (("environment.json",), "report"),
]


@pytest.mark.parametrize(("names", "reader"), FOLLOWING)
def test_files_of_another_run_are_not_taken_for_its_own(done, made, tmp_path, names, reader):
    """Whole files of the same round, as they were written: by another seed."""
    other = tmp_path / "other"
    accept("run", made / "small.toml", "--seeds", "1", "--out", other)
    for name in names:
        shutil.copy(other / name, done / name)
    commands = {command[0]: command for command in readers(done)}
    assert f"{done / names[-1]} is of another run: `fedaction resume {done}` makes it again" in refuse(
        *commands[reader]
    )
    accept("resume", done)
    accept("report", done)
    assert find_model(done) == done / "model.safetensors"
    for name in ("evidence.json", "controls.json"):
        assert (done / name).read_bytes() == (made / "run" / name).read_bytes()
    assert tensors(done) == tensors(made / "run") and result_of(done) == result_of(made / "run")


def test_a_changed_word_of_the_environment_is_noticed_and_missing_evidence_too(done):
    path = done / "environment.json"
    path.write_text(path.read_text().replace('"device": "cpu"', '"device": "cuda"'))
    for command in readers(done):
        assert f"{path} is not as it was written: `fedaction resume {done}`" in refuse(*command)
    accept("resume", done)
    (done / "evidence.json").unlink()
    assert f"{done / 'evidence.json'} is not there: `fedaction resume {done}`" in refuse("report", done)


def test_a_run_without_checkpoints_says_that_it_begins_again(done, made):
    shutil.rmtree(done / "checkpoints")
    accept("report", done)
    assert f"{done} has a result, but no checkpoint: it is trained from the beginning" in accept("resume", done)
    assert result_of(done) == result_of(made / "run")


def test_a_result_of_something_else_is_not_the_runs(done, made):
    (done / "result.json").write_text('{"n": 8, "accuracy": 0.9}')
    for command in readers(done):
        refuse(*command)
    accept("resume", done)
    assert result_of(done) == result_of(made / "run")


def test_seconds_that_are_lost_are_said_to_be(done):
    (done / "clock.jsonl").unlink()
    assert "clock.jsonl lacks 4 of 4 rounds: what they took is not known" in accept("resume", done)
    assert "compare at equal rounds or epochs" in refuse("compare", done, "--at", "time")


def change_clock(text: str, old: str, new: str | Callable[[re.Match[str]], str]) -> str:
    line, *rest = text.splitlines(keepends=True)
    return "".join([re.sub(old, new, line), *rest])


def next_digit(match: re.Match[str]) -> str:
    return match[1] + str((int(match[2]) + 1) % 10)


CLOCKS = {
    "shortened": lambda text: "".join(text.splitlines(keepends=True)[:2]),
    "altered": lambda text: change_clock(text, r'("train": \d+\.)(\d)', next_digit),
    "without end": lambda text: change_clock(text, r": \d+\.\d+(e-\d+)?", ": 1e999"),
    "not a number": lambda text: change_clock(text, r": \d+\.\d+(e-\d+)?", ": NaN"),
    "negative": lambda text: change_clock(text, r'("train": )', r"\g<1>-"),
}


@pytest.mark.parametrize("how", CLOCKS)
def test_a_clock_that_is_not_whole_is_no_measure(done, how):
    """What is left would be a shorter time: a comparison at equal times would be another one."""
    clock = done / "clock.jsonl"
    accept("compare", done, "--at", "time")
    before = clock.read_text()
    clock.write_text(CLOCKS[how](before))
    assert clock.read_text() != before
    assert "compare at equal rounds or epochs" in refuse("compare", done, "--at", "time")
    accept("report", done)
    accept("compare", done)
    assert re.search(r"clock.jsonl lacks [12] of 4 rounds", accept("resume", done))


def test_a_clock_goes_on_after_half_a_line(tmp_path):
    clock = tmp_path / "clock.jsonl"
    write_seconds(clock, 1, 0.25, 0.5)
    with clock.open("a") as file:
        file.write('{"round": 2, "tr')  # a disk that was full
    for round in (2, 3):
        write_seconds(clock, round, 0.5, 1.0)
    assert read_seconds(clock, "train") == {1: 0.25, 2: 0.5, 3: 0.5}


# F5: other data


def test_a_run_is_not_continued_on_other_data(made, tmp_path):
    store = shutil.copytree(made / "mine", tmp_path / "mine")
    (tmp_path / "small.toml").write_text(RECIPE.format(store=store))
    folder = interrupt(tmp_path / "run", tmp_path / "small.toml", 2)
    before = content(folder)
    sizes = {path.name: path.stat().st_size for path in store.iterdir()}
    write_store(store, 1)
    assert sizes == {path.name: path.stat().st_size for path in store.iterdir()}
    said = refuse("resume", folder)
    assert f"{folder} was begun with other data than there are now (mine): bring those back" in said
    assert content(folder) == before
    write_store(store, 0)  # the same again, with other times
    accept("resume", folder)
    assert (folder / "metrics.jsonl").read_bytes() == (made / "run" / "metrics.jsonl").read_bytes()
    write_store(store, 1)
    assert "other data than there are now (mine)" in refuse("resume", folder)
    assert "other data than there are now (mine)" in refuse("analyse", folder, "cka")


# Older runs


def test_a_run_of_an_older_version_goes_on_and_says_once_that_it_had_no_seal(made, tmp_path):
    folder = interrupt(tmp_path / "run", made / "small.toml", 2)
    for path in (folder / "checkpoints").glob("*.json"):
        record = json.loads(path.read_text())
        for key in ("seal", "metrics_sha256", "sha256"):
            del record[key]
        blob = path.with_suffix(".safetensors").read_bytes()
        digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode() + b"\n" + blob).hexdigest()
        path.write_text(json.dumps({**record, "sha256": digest}))
    assert "sealed neither seed, data nor metrics" not in accept("report", folder)
    assert "sealed neither seed, data nor metrics" in (folder / "report.html").read_text()
    said = accept("resume", folder)
    assert said.count("sealed neither seed, data nor metrics: it is taken as it is") == 1
    assert result_of(folder) == result_of(made / "run")  # sealed from here on
