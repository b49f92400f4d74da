"""FDARN's own datasets, from their files through the commands to the paper's clients and its Table 1."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from fedaction.cli import app
from fedaction.data.features import EGOCENTRIC, load_features, save_features
from fedaction.federation.recipes import PACKAGED
from fedaction.papers.fdarn.items import COLUMNS, MODALITIES
from fedaction.papers.fdarn.setting import CLIENTS, fdarn_setting
from fedaction.runs.recipe import load_recipe
from tests.data.features.egocentric import folders

RECIPES = PACKAGED / "fdarn"
PAPER = {  # clients of each modality, samples of each (None: not said), classes; as the paper has them
    "epic": ((4, 4, 4, 4), None, 97),
    "multimodal_ea": ((2, 2), 100, 20),
    "stanford_ecm": ((5, 5), 112, 23),
    "ego_exo": ((7, 7), 465, 15),
}
QUICK = [f"--set={key}" for key in ("rounds=1", "feature_samples=12", "report_samples=0")]
"""For runs of which only the way through matters."""
SMALL = [f"--set={key}" for key in ("model_features=8", "model_hidden=8", "seeds=[0]", "baselines=['fedavg']")]


def fedaction(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of the datasets in raw/, and in features/ what the command makes of them."""
    root = tmp_path_factory.mktemp("own")
    for name, dataset in EGOCENTRIC.items():
        getattr(folders, f"write_{name}")(root / "raw" / name)
        for modality in dataset.modalities:
            store = root / "features" / name / modality
            options = ("--modality", modality, "--width", folders.WIDTH, "--out", store)
            fedaction("features", name, root / "raw" / name, *options)
    return root


@pytest.fixture
def here(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same as the current directory, where recipes look for features/."""
    monkeypatch.chdir(home)
    return home


@pytest.mark.parametrize("name", PAPER)
def test_stores_say_what_they_are_of_and_are_made_once(home: Path, name: str) -> None:
    for modality in EGOCENTRIC[name].modalities:
        store = home / "features" / name / modality
        found = load_features(store)
        assert found.modality == modality and found.provenance["source"]["name"] == name
        assert len(set(found.labels.tolist())) == (2 if name == "epic" else PAPER[name][2])
        options = ("--modality", modality, "--width", folders.WIDTH, "--out", store, "--json")
        assert json.loads(fedaction("features", name, home / "raw" / name, *options).stdout)["new"] is False
    if name == "epic":
        held = {m: set(load_features(home / "features" / name / m).subjects) for m in EGOCENTRIC[name].modalities}
        assert sorted(who for people in held.values() for who in people) == folders.RETURNING  # each of them once
        videos = {item.rsplit("_", 1)[0][4:] for item in load_features(home / "features/epic/inertial").names}
        assert videos == {"101"}  # there are no signals of 2018


def test_the_command_says_what_it_leaves_out_and_what_it_cannot_take(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "raw" / "multimodal_ea" / "sensor", tmp_path / "raw")
    (tmp_path / "raw" / "act01seq01.csv").write_text("1,2,3\n")
    options = ("--modality", "inertial", "--width", 16, "--out", tmp_path / "store")
    result = fedaction("features", "multimodal_ea", tmp_path / "raw", *options)
    assert "199 recordings, 20 classes, 16 numbers each" in result.stdout
    assert "1 sample is left out" in result.stderr and "act01seq01" in result.stderr
    vectors = ("features", "multimodal_ea", home / "raw" / "multimodal_ea", "--modality", "video")
    for option in (("--extractor", "cells"), ("--width", 99)):
        said = fedaction(*vectors, *option, "--out", tmp_path / "other", code=2).stderr
        assert "holds video features of 24 numbers, which are taken as they are: leave out" in " ".join(said.split())
    said = fedaction("features", "stanford_ecm", "--modality", "video", "--out", tmp_path / "other", code=2).stderr
    assert "say where stanford_ecm lies: fedaction features stanford_ecm ROOT" in said


@pytest.mark.parametrize("name", PAPER)
def test_recipes_give_the_papers_clients(here: Path, name: str) -> None:
    recipe = load_recipe(RECIPES / f"{name}.toml")
    clients = recipe.source.load(recipe.run.data_seed)
    counts, samples, classes = PAPER[name]
    assert Counter(client.info.group for client in clients) == dict(
        zip(EGOCENTRIC[name].modalities, counts, strict=True)
    )
    for client in clients:
        total = len(client.train) + len(client.test)
        assert samples is None or total == samples
        assert len(client.test) == pytest.approx(total / 4, abs=1) and len(client.info.classes) == classes
    assert recipe.run.rounds == 300 and recipe.run.local_epochs == 2
    assert not recipe.flat()["model_norm"] and recipe.flat()["model_features"] == 1024
    assert (recipe.run.lr, recipe.run.batch_size) == ((0.001, 64) if name == "epic" else (0.01, 32))
    # The paper's table has the same clients, from the same stores.
    assert {"feature_paths": recipe.flat()["feature_paths"], **CLIENTS[EGOCENTRIC[name].title]}.items() <= {
        **recipe.flat(),
        **fdarn_setting("features", "paper").federations[EGOCENTRIC[name].title],
    }.items()


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER)
def test_recipes_train(here: Path, tmp_path: Path, name: str) -> None:
    ran = fedaction("run", RECIPES / f"{name}.toml", "--out", tmp_path / "run", "--json", *SMALL, *QUICK)
    made = json.loads(ran.stdout)
    assert made["complete"] and len(made["clients"]) == sum(PAPER[name][0])
    assert made["baselines"]["fedavg"]["clients"].keys() == made["clients"].keys()


def test_a_recipe_says_how_its_stores_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = " ".join(fedaction("run", RECIPES / "epic.toml", "--out", "run", code=2).stderr.split())
    assert "there is no feature store features/epic/video: make it with" in said
    assert "fedaction features epic ROOT --modality video --out features/epic/video" in said


def test_table_1_has_the_columns_of_all_datasets(here: Path, tmp_path: Path) -> None:
    options = ("--data", "features", "--scale", "tiny", "--out", tmp_path, "--json", *QUICK)
    made = json.loads(fedaction("paper", "fdarn/table1", "--rows", "FedAvg", "--rows", "FDARN", *options).stdout)
    cells = {(record["row"], record["column"]): record for record in made["table"]}
    assert len(cells) == 2 * len(COLUMNS) and all(record["n"] == 1 for record in cells.values())
    words = {"sensor": "inertial"}
    for (_, column), record in cells.items():
        assert record["client"] == words.get(column.split()[-1], column.split()[-1])
    # One run for each dataset, named by it, with the paper's clients.
    assert {run["row"] for run in made["runs"]} == {
        f"{row} ({name})" for row in ("FedAvg", "FDARN") for name in MODALITIES
    }
    sizes = {}
    for run in made["runs"]:
        (path,) = tmp_path.glob(f"runs/{run['method']}-{run['configuration']}/seed-0/result.json")
        sizes[run["row"]] = len(json.loads(path.read_text())["clients"])
    assert [sizes[f"FDARN ({name})"] for name in MODALITIES] == [16, 4, 10, 14]
    # Other items share the runs: an ablation's last row is Table 1's.
    before = {path.name for path in (tmp_path / "runs").iterdir()}
    whole = json.loads(fedaction("paper", "fdarn/table3", "--rows", "FDARN", *options).stdout)["table"]
    assert {path.name for path in (tmp_path / "runs").iterdir()} == before
    for record in whole:
        of = [cells["FDARN", column]["ours_mean"] for column in COLUMNS if column.startswith(record["column"])]
        assert record["ours_mean"] == pytest.approx(np.mean(of), abs=1e-3)  # modalities have as many clients each
    alone = json.loads(fedaction("paper", "fdarn/table2", "--rows", "FDARN", *options).stdout)
    (path,) = tmp_path.glob(f"runs/fdarn-{alone['runs'][0]['configuration']}/seed-0/result.json")
    assert list(json.loads(path.read_text())["clients"]) == ["audio-P03", "flow-P02", "inertial-P04", "video-P01"]
    curves = json.loads(fedaction("paper", "fdarn/fig3", "--rows", "FDARN", *options).stdout)
    assert [record["n"] for record in curves["table"]] == [1] * 4


def test_datasets_that_are_missing_leave_their_columns_empty(home: Path, tmp_path: Path) -> None:
    """Two modalities are Stanford-ECM's where their stores say so, wherever these lie."""
    for modality in ("video", "inertial"):
        shutil.copytree(home / "features" / "stanford_ecm" / modality, tmp_path / "two" / f"my-{modality}")
    options = ("--rows", "FDARN", "--data", tmp_path / "two", "--scale", "tiny", "--out", tmp_path / "out")
    made = json.loads(fedaction("paper", "fdarn/table1", *options, "--set", "rounds=1", "--json").stdout)
    assert [record["column"] for record in made["table"] if record["n"]] == [
        "Stanford-ECM video",
        "Stanford-ECM sensor",
    ]
    (path,) = (tmp_path / "out" / "runs").glob("*/seed-0/recipe.toml")
    assert [len(c.train) + len(c.test) for c in load_recipe(path).source.load(0)] == [112] * 10
    said = " ".join(fedaction("paper", "fdarn/table1", *options, "--set", "rounds=1").stdout.split())
    for name, folder in (("Epic-Kitchens", "epic"), ("Multimodal-EA", "multimodal_ea"), ("Ego-Exo-AR", "ego_exo")):
        assert f"No feature stores of {name} are there (folder {folder})" in said
    assert "No feature stores of Stanford-ECM" not in said
    assert "Stanford-ECM: 10 clients, 1,120 samples; the paper has 10 and 1,120." in said


def test_stores_that_do_not_fit(home: Path, tmp_path: Path) -> None:
    options = ("--data", tmp_path / "some", "--scale", "tiny", "--out", tmp_path / "out")
    shutil.copytree(home / "features" / "epic" / "audio", tmp_path / "some" / "epic" / "audio")
    said = " ".join(fedaction("paper", "fdarn/table1", *options, code=2).stderr.split())
    assert (
        "holds feature stores of audio for Epic-Kitchens, which has one each of video, flow, audio, inertial" in said
    )
    assert "fedaction features epic ROOT --modality ..." in said
    # Stores that do not say what they are of are what their folder is called.
    for modality in EGOCENTRIC["epic"].modalities:
        path = tmp_path / "some" / "epic" / modality
        found = load_features(home / "features" / "epic" / modality)
        shutil.rmtree(path, ignore_errors=True)
        unknown = {"extractor": {"name": "another"}, "source": "elsewhere"}
        save_features(type(found)(**{**vars(found), "provenance": unknown}), path)
    assert list(fdarn_setting(str(tmp_path / "some"), "tiny").federations) == ["Epic-Kitchens"]
    shutil.move(tmp_path / "some" / "epic" / "audio", tmp_path / "some" / "audio")
    said = " ".join(fedaction("paper", "fdarn/table1", *options, code=2).stderr.split())
    assert "audio is of none of the paper's datasets" in said


def test_two_stores_of_one_modality(home: Path, tmp_path: Path) -> None:
    """First and third person: both images, two groups of clients, by the names of their folders or by a key."""
    for name in ("first", "third"):
        shutil.copytree(home / "features" / "ego_exo" / "image", tmp_path / name)
    lines = (RECIPES / "ego_exo.toml").read_text().splitlines()
    paths = [str(tmp_path / "first"), str(tmp_path / "third"), str(home / "features" / "ego_exo" / "inertial")]
    lines[[line.startswith("feature_paths") for line in lines].index(True)] = f"feature_paths = {json.dumps(paths)}"
    recipe = tmp_path / "two.toml"
    recipe.write_text("\n".join(lines))
    made = json.loads(fedaction("run", recipe, "--out", tmp_path / "run", "--json", *SMALL, *QUICK).stdout)
    assert Counter(name.split("-")[0] for name in made["clients"]) == {"first": 4, "third": 3, "inertial": 7}
    named = load_recipe(recipe, ["feature_groups=['ego', 'exo', 'bracelet']"]).source.load(0)
    assert Counter(client.info.group for client in named) == {"ego": 4, "exo": 3, "bracelet": 7}
    said = fedaction("run", recipe, "--set", "feature_groups=['ego']", code=2).stderr
    assert "feature_groups has 1 names for 3 feature_paths" in " ".join(said.split())
