"""Distillation at a tiny size: networks of width 4 on clips of 8 x 16 x 16."""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from fedaction.cli.distil import distil
from fedaction.data.samples import in_memory
from fedaction.federation.files import LOCK, read_sealed_json
from fedaction.federation.progress import Quiet
from fedaction.federation.settings import RecipeError, to_toml
from fedaction.models.files import load_model, read_card
from fedaction.runs.metrics import read_rows
from fedaction.training.distil import DistilResult, run_distil, stages_of
from fedaction.training.distil_recipe import load_distil_recipe, parse_distil_recipe
from tests.conftest import few
from tests.training.distilling import CLASSES, recipe_of, write_arrays


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_arrays(tmp_path_factory.mktemp("clips") / "arrays")


LEARNS = {"epochs": 20, "width": 8, "lr": 0.01, "augment": False}
"""Keys with which these few clips are learned."""


class Stop(Exception):
    """What an interrupted run ends with in these tests."""


class Counting(Quiet):
    """Hears which epochs were trained; stops the run after one of them."""

    def __init__(self, stop: tuple[str, int] | None = None) -> None:
        self.epochs: list[tuple[str, int]] = []
        self.stop = stop

    def advance(self, label: str, done: int, value: float | None = None) -> None:
        self.epochs.append((label, done))
        if self.stop == (label, done):
            raise Stop


def kept(folder: Path) -> dict[str, bytes]:
    """Every file of a run, but for what tells the time, without seconds and names of directories."""
    found: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "clock.jsonl":
            found[str(path.relative_to(folder))] = path.read_bytes()

    def timeless(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: timeless(v) for k, v in value.items() if k not in ("seconds", "run")}
        return [timeless(v) for v in value] if isinstance(value, list) else value

    for name in list(found):
        if name.endswith(("stage.json", "result.json")):  # and without hashes of themselves, which follow from times
            value = {k: v for k, v in json.loads(found[name]).items() if k != "sha256"}
            found[name] = json.dumps(timeless(value)).encode()
    return found


@pytest.fixture(scope="module")
def whole(arrays: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DistilResult, Counting]:
    """A run with kept logits that nobody interrupted."""
    folder, heard = tmp_path_factory.mktemp("whole") / "run", Counting()
    return folder, run_distil(recipe_of(arrays, augment=False), folder, heard), heard


# The chain


def test_a_chain_is_trained_in_order_and_its_files_say_so(whole):
    folder, result, heard = whole
    teacher, student = "ResNet-22 (teacher)", "ResNet-18 (student)"
    assert heard.epochs == [(teacher, 1), (teacher, 2), (student, 1), (student, 2)]
    assert read_sealed_json(folder / "result.json") == result
    assert load_distil_recipe(folder / "recipe.toml").settings.chain == (22, 18)
    first, second = result["stages"]["0"]
    assert (first["stage"], first["teacher"]) == ("stage-1-resnet22", None)
    assert (second["stage"], second["teacher"]) == ("stage-2-resnet18", "stage-1-resnet22")
    assert result["clip_accuracy"] == second["clip_accuracy"] and result["seconds"] > 0
    for stage in (first, second):
        home = folder / stage["stage"]
        network, card = load_model(home / "model.safetensors")
        assert stage["parameters"] == sum(p.numel() for p in network.parameters())
        assert (card.classes, card.frames, card.crop) == (CLASSES, 8, 16)
        assert card.provenance["configuration"] == stage["configuration"]
        rows = read_rows(home / "metrics.jsonl")
        tests = {(row.round, row.name): row.value for row in rows if row.split == "test"}
        assert (
            tests[2, "accuracy"] == stage["clip_accuracy"] and tests[2, "video_accuracy"] == stage["video_accuracy"]
        )
        assert tuple(stage["recall"]) == CLASSES
        assert sum(stage["recall"].values()) / 3 == pytest.approx(stage["balanced_accuracy"])
        assert {row.round for row in rows} == {1, 2}
        assert ({"cls", "kd"} <= {row.name for row in rows}) == (stage["teacher"] is not None)
    names = {path.name for path in folder.rglob("*") if path.is_file()}
    assert names == {
        *("recipe.toml", "data.json", "environment.json", "result.json", LOCK),
        *("model.safetensors", "metrics.jsonl", "clock.jsonl", "stage.json", "logits.npy", "logits.json"),
    }


def test_what_the_model_files_say_is_what_the_result_says(whole, arrays):
    folder, result, _ = whole
    data = recipe_of(arrays).source.pool(0)
    network, _ = load_model(folder / "stage-2-resnet18" / "model.safetensors")
    with torch.no_grad():
        probabilities = network(in_memory(data.test).x).double().softmax(-1)
    clip = sum(int(p.argmax()) == int(y) for p, y in zip(probabilities, data.test.labels, strict=True)) / 12
    video = sum(
        int((probabilities[i] + probabilities[i + 1]).argmax()) == int(data.test.labels[i]) for i in range(0, 12, 2)
    )
    assert (result["clip_accuracy"], result["video_accuracy"]) == (clip, video / 6)


def test_kept_logits_are_the_teachers(whole, arrays):
    folder, _, _ = whole
    data = recipe_of(arrays).source.pool(0)
    network, _ = load_model(folder / "stage-1-resnet22" / "model.safetensors")
    with torch.no_grad():
        expected = network(in_memory(data.train).x)
    logits = np.load(folder / "stage-1-resnet22" / "logits.npy", allow_pickle=False)
    torch.testing.assert_close(torch.from_numpy(logits), expected, rtol=1e-4, atol=1e-5)


def test_kept_logits_teach_what_the_teacher_itself_does(whole, arrays, tmp_path):
    """Random windows that cannot move and are never mirrored: the teacher sees every batch, of the same clips."""
    folder, _, _ = whole
    still = recipe_of(arrays, augment=True, augment_pad=0, augment_flip=False)
    run_distil(still, tmp_path / "run")
    assert not list((tmp_path / "run").rglob("logits.*"))
    for name in ("stage-1-resnet22", "stage-2-resnet18"):
        one, other = (load_model(home / name / "model.safetensors")[0] for home in (folder, tmp_path / "run"))
        for (key, a), b in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4, msg=key)


def test_a_student_begins_the_same_whoever_teaches_it(whole, arrays, tmp_path):
    """With alpha = 1 the teacher says nothing: the student of the chain is the one trained from scratch."""
    run_distil(recipe_of(arrays, scratch=True, alpha=1.0, augment=False), tmp_path / "run")
    taught = load_model(tmp_path / "run" / "stage-2-resnet18" / "model.safetensors")[0].state_dict()
    alone = load_model(tmp_path / "run" / "scratch-resnet18" / "model.safetensors")[0].state_dict()
    assert all(torch.equal(taught[name], alone[name]) for name in alone)
    other = load_model(whole[0] / "stage-2-resnet18" / "model.safetensors")[0].state_dict()
    assert not torch.equal(other["classifier.weight"], alone["classifier.weight"])


def test_a_given_teacher_is_not_trained_and_teaches_the_same(whole, arrays, tmp_path):
    folder, result, _ = whole
    given = recipe_of(arrays, augment=False, teacher=str(folder / "stage-1-resnet22" / "model.safetensors"))
    heard = Counting()
    again = run_distil(given, tmp_path / "run", heard)
    assert {label for label, _ in heard.epochs} == {"ResNet-18 (student)"}
    assert again["stages"]["0"][0]["epochs"] == 0
    assert again["stages"]["0"][0]["clip_accuracy"] == result["stages"]["0"][0]["clip_accuracy"]
    one, other = (load_model(f / "stage-2-resnet18" / "model.safetensors")[0] for f in (folder, tmp_path / "run"))
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def test_seeds_have_directories_of_their_own_and_can_be_added(whole, arrays, tmp_path):
    shutil.copytree(whole[0], tmp_path / "run")
    heard = Counting()
    result = run_distil(recipe_of(arrays, augment=False, seeds=[0, 3]), tmp_path / "run", heard)
    assert len(heard.epochs) == 4 and all("seed 3" in label for label, _ in heard.epochs)
    assert list(result["stages"]) == ["0", "3"] and result["std"] is not None
    assert (tmp_path / "run" / "seeds" / "3" / "stage-2-resnet18" / "model.safetensors").exists()


def test_a_network_learns(arrays, tmp_path):
    values = {"augment_flip": False, "augment_pad": 1, "lr_schedule": "cosine", "warmup_epochs": 1}
    run_distil(recipe_of(arrays, chain=[18], epochs=12, width=8, **values), tmp_path / "run")
    rows = [row for row in read_rows(tmp_path / "run" / "stage-1-resnet18" / "metrics.jsonl") if row.split == "train"]
    losses, rates = ([row.value or 0.0 for row in rows if row.name == name] for name in ("loss", "lr"))
    assert losses[-1] < 0.6 * losses[0]
    assert rates[0] == 0.025 and max(rates) < 0.05 and rates[1:] == sorted(rates[1:], reverse=True)


def test_hintons_form_with_soft_targets(whole, arrays, tmp_path):
    given = str(whole[0] / "stage-1-resnet22" / "model.safetensors")
    recipe = recipe_of(arrays, kd_loss="kl", temperature=4.0, cls_target="teacher_soft", epochs=1, teacher=given)
    run_distil(recipe, tmp_path / "run")
    rows = read_rows(tmp_path / "run" / "stage-2-resnet18" / "metrics.jsonl")
    found = {row.name: row.value for row in rows if row.split == "train"}
    assert found["loss"] == pytest.approx(0.5 * found["cls"] + 0.5 * found["kd"], rel=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_chain_on_a_gpu_in_bfloat16(arrays, tmp_path):
    result = run_distil(recipe_of(arrays, **LEARNS, device="cuda", precision="bf16"), tmp_path / "run")
    assert result["device"] == "cuda"
    rows = read_rows(tmp_path / "run" / "stage-2-resnet18" / "metrics.jsonl")
    losses = [row.value for row in rows if row.split == "train" and row.name == "loss"]
    assert losses[0] is not None and losses[-1] is not None and losses[-1] < 0.6 * losses[0]  # 0.3 on a CPU


# Interrupted runs


@pytest.mark.parametrize(
    ("label", "epoch"), [("ResNet-22 (teacher)", 1), ("ResNet-22 (teacher)", 2), ("ResNet-18 (student)", 1)]
)
def test_a_run_stopped_after_an_epoch_ends_as_if_it_had_not_been(whole, arrays, tmp_path, label, epoch):
    recipe, stopped, after = recipe_of(arrays, augment=False), Counting((label, epoch)), Counting()
    with pytest.raises(Stop):
        run_distil(recipe, tmp_path / "run", stopped)
    assert not (tmp_path / "run" / "result.json").exists()
    (tmp_path / "run" / "stage-1-resnet22" / ".model.safetensors.7.part").write_bytes(b"half")  # as a kill would
    run_distil(recipe, tmp_path / "run", after)
    assert stopped.epochs + after.epochs == whole[2].epochs  # nothing was trained twice
    assert kept(tmp_path / "run") == kept(whole[0])


@pytest.mark.parametrize("optimiser", few(["sgd", "adam", "adamw"], "adamw"))
def test_windows_rates_and_what_the_optimiser_remembers_go_on_where_they_were(arrays, tmp_path, optimiser):
    values = {"chain": [18], "epochs": 4, "checkpoint_every": 2, "lr_schedule": "cosine", "clip_norm": 1.0}
    values |= {"optimiser": optimiser, "lr": 0.01}
    recipe, stopped = recipe_of(arrays, augment=True, **values), Counting(("ResNet-18 (student)", 3))
    run_distil(recipe, tmp_path / "whole")
    with pytest.raises(Stop):
        run_distil(recipe, tmp_path / "run", stopped)
    after = Counting()
    run_distil(recipe, tmp_path / "run", after)
    assert [epoch for _, epoch in after.epochs] == [3, 4]  # the third is done again: its checkpoint was not due
    assert kept(tmp_path / "run") == kept(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("write", [1, 5, 7, 9, 12])  # recipe, checkpoint, finished stage, kept logits, model
def test_a_run_that_dies_at_any_write_leaves_nothing_half_written(whole, arrays, tmp_path, monkeypatch, write):
    """The n-th file is written beside, but never gets its name: a crash between the two."""
    recipe, rename, count = recipe_of(arrays, augment=False, checkpoint_every=2), os.replace, 0

    def dying(source: Any, target: Any) -> None:
        nonlocal count
        count += 1
        if count == write:
            raise Stop
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", dying)
        with pytest.raises(Stop):
            run_distil(recipe, tmp_path / "run")
    assert not list(tmp_path.rglob("*.part"))
    run_distil(recipe, tmp_path / "run")
    expected, found = kept(whole[0]), kept(tmp_path / "run")
    assert found.pop("recipe.toml") != expected.pop("recipe.toml")  # checkpoint_every differs, and decides nothing
    assert found == expected


def test_a_finished_run_is_not_done_again(whole, arrays, tmp_path):
    shutil.copytree(whole[0], tmp_path / "run")
    heard = Counting()
    run_distil(recipe_of(arrays, augment=False), tmp_path / "run", heard)
    assert heard.epochs == [] and kept(tmp_path / "run") == kept(whole[0])


def test_a_changed_recipe_or_changed_clips_are_refused(whole, arrays, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(whole[0], run)
    before = kept(run)
    with pytest.raises(ValueError, match=r"was begun with lr = 0\.05, but now it is 0\.2.*another directory"):
        run_distil(recipe_of(arrays, augment=False, lr=0.2), run)
    shutil.copytree(arrays, tmp_path / "arrays")
    clips = np.load(tmp_path / "arrays" / "train_clips.npy")
    clips[3, 2, 1, 0, 0] ^= 1
    np.save(tmp_path / "arrays" / "train_clips.npy", clips)
    with pytest.raises(ValueError, match="was begun with other clips"):
        run_distil(recipe_of(tmp_path / "arrays", augment=False), run)
    assert kept(run) == before
    with (run / "stage-1-resnet22" / "model.safetensors").open("ab") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match=r"model\.safetensors is not as it was written"):
        run_distil(recipe_of(arrays, augment=False), run)


STAGE = "stage-2-resnet18"


def change_digit(path: Path) -> object:
    other = re.sub(r'("(?:clip_accuracy|value)": ?)[\d.]+', r"\g<1>0.7531", path.read_text(), count=1)
    return path.write_text(other)


DAMAGE = {
    "another digit": (f"{STAGE}/stage.json", change_digit),
    "a list": (f"{STAGE}/stage.json", lambda path: path.write_text("[]")),
    "an object": (f"{STAGE}/stage.json", lambda path: path.write_text("{}")),
    "half": (f"{STAGE}/stage.json", lambda path: path.write_bytes(path.read_bytes()[:40])),
    "metrics": (f"{STAGE}/metrics.jsonl", change_digit),
    "no metrics": (f"{STAGE}/metrics.jsonl", lambda path: path.unlink()),
    "a network": (f"{STAGE}/model.safetensors", lambda path: path.unlink()),
    "a pipe": (f"{STAGE}/model.safetensors", lambda path: (path.unlink(), os.mkfifo(path))),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_stage_that_is_not_as_it_was_written_is_refused_and_made_again(whole, arrays, tmp_path, how):
    run = shutil.copytree(whole[0], tmp_path / "run")
    file, damage = DAMAGE[how]
    damage(run / file)
    recipe = recipe_of(arrays, augment=False)
    with pytest.raises(ValueError, match=rf"{file} is not .* remove (it|.*stage\.json) and what was taught by it"):
        run_distil(recipe, run)
    (run / STAGE / "stage.json").unlink()
    if how == "a pipe":
        (run / file).unlink()
    run_distil(recipe, run)
    assert kept(run) == kept(whole[0])


@pytest.mark.parametrize("text", ["[]", "null", '{"clips": "x"}', '{"clips": 1, "sha256": "y"}'])
def test_what_says_which_clips_there_were_is_not_made_up(whole, arrays, tmp_path, text):
    run = shutil.copytree(whole[0], tmp_path / "run")
    (run / "data.json").write_text(text)
    with pytest.raises(ValueError, match=r"data\.json is|was begun with other clips"):
        run_distil(recipe_of(arrays, augment=False), run)


def test_another_directory_is_not_touched(arrays, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="is not empty and holds no distillation"):
        run_distil(recipe_of(arrays), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_network_that_diverges_is_stopped_with_advice(arrays, tmp_path):
    with pytest.raises(ValueError, match=r"ResNet-18 diverged in epoch 1.*lower lr"):
        run_distil(recipe_of(arrays, chain=[18], lr=1e30), tmp_path / "run")
    assert not list((tmp_path / "run").rglob("*.safetensors"))


# Recipes and the command


def test_the_resolved_recipe_reads_back_as_itself(arrays):
    recipe = recipe_of(arrays, epochs=[2, 3], teacher="a.safetensors")
    again = parse_distil_recipe(tomllib.loads(to_toml(recipe.flat())))
    assert again == recipe
    assert [stage.epochs for stage in stages_of(recipe)] == [0, 3]


def test_the_recipe_of_the_project_is_read():
    recipe = load_distil_recipe("edge/distil")
    assert recipe.settings.name == "edge-distil" and recipe.settings.chain == (34, 26, 18)


def test_the_chains_of_table_1():
    for chain in ([34, 18], [34, 26, 18], [34, 28, 24, 18], [34, 30, 26, 22, 18]):
        recipe = recipe_of(Path("x"), chain=chain, scratch=True)
        roles = ["teacher", *["assistant"] * (len(chain) - 2), "student", "scratch"]
        assert [stage.role for stage in stages_of(recipe)] == roles
        assert [stage.depth for stage in stages_of(recipe)] == [*chain, 18]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"alhpa": 0.3}, "there is no key 'alhpa'; did you mean 'alpha'?"),
        ({"chain": [34, 20]}, "there is no ResNet-20; depths are 18, 22"),
        ({"chain": [18, 34]}, r"\[18, 34\] must go down"),
        ({"epochs": [1, 2, 3]}, "3 numbers for a chain of 2"),
        ({"epochs": True}, "epochs is not a yes-or-no key"),
        ({"epochs": 0}, "greater than 0"),
        ({"alpha": 1.5}, "alpha: Input should be less than or equal to 1"),
        ({"data": "array"}, "data = 'array' is unknown; did you mean 'arrays'?"),
        ({"chain": [18], "scratch": True}, "trained from scratch already"),
        ({"chain": [18], "teacher": "a"}, "a chain of one has none"),
        ({"seeds": [1, 1]}, "one is named twice"),
        ({"lr": {"start": 1}}, "a recipe is flat"),
    ],
)
def test_a_recipe_that_cannot_be_run_says_why(values, message):
    with pytest.raises(RecipeError, match=message):
        recipe_of(Path("x"), **values)


def test_what_cannot_start_leaves_nothing_behind(whole, arrays, tmp_path):
    student = whole[0] / "stage-2-resnet18" / "model.safetensors"
    with pytest.raises(ValueError, match="is a ResNet-18, but the chain begins with 22"):
        run_distil(recipe_of(arrays, teacher=str(student)), tmp_path / "run")
    with pytest.raises(ValueError, match="crop = 20, but frames are 16 x 16"):
        run_distil(recipe_of(arrays, crop=20), tmp_path / "run")
    with pytest.raises(ValueError, match="needs a GPU"):
        run_distil(recipe_of(arrays, precision="bf16"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_command(arrays, whole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(distil)
    recipe = recipe_of(arrays, augment=False)
    Path("small.toml").write_text(to_toml(recipe.flat()))
    shutil.copytree(whole[0], "done")
    shown = CliRunner().invoke(app, ["small.toml", "--out", "done"], env={"COLUMNS": "160"})
    assert shown.exit_code == 0 and "ResNet-18 (student)" in shown.stdout and "stage-1-resnet22" in shown.stdout
    said = CliRunner().invoke(app, ["done", "--json"])
    assert json.loads(said.stdout)["clip_accuracy"] == whole[1]["clip_accuracy"]
    new = CliRunner().invoke(app, ["small.toml", "--set", "chain=[18]", "--set", "epochs=1", "--json"])
    assert json.loads(new.stdout)["run"] == "runs/distil-1" and "epoch 1 of 1" in new.stderr
    assert read_card("runs/distil-1/stage-1-resnet18/model.safetensors")[1]["depth"] == 18
    for arguments, message in (
        (["small.toml", "--set", "widht=3"], "did you mean 'width'"),
        (["absent.toml"], "there is no recipe absent.toml"),
        (["done", "--set", "lr=7"], "was begun with lr"),
        (["runs"], "has no recipe.toml"),
    ):
        refused = CliRunner().invoke(app, arguments, env={"COLUMNS": "400"})
        assert refused.exit_code == 2 and message in refused.stderr
