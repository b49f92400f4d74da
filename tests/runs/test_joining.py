"""What joining brings: fair federations, honest intervals, nothing run twice, no sentence beyond its table."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedaction.analyses.joining import describe, draw_joining, write_tables
from fedaction.cli import app
from fedaction.federation.progress import Quiet
from fedaction.federation.settings import RecipeError, to_toml
from fedaction.runs.joining import Joining, JoiningPlan, draw_sites, study_joining, subtract
from fedaction.runs.recipe import load_recipe, parse_recipe
from fedaction.runs.study import load_clients, run_study
from tests.runs.test_stop import SMALL

KEYS: dict[str, Any] = {
    **SMALL,
    "method": "fsar",
    "rounds": 2,
    "seeds": [1],
    "stage_clients": 3,
    "stage_train": [12],
    "mkd_blocks": 0,
}
PLAN = JoiningPlan(shares=(0.5, 1.0), counts=(2,), draws=2)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Joining, Path]:
    folder = tmp_path_factory.mktemp("joining")
    return study_joining(parse_recipe(KEYS), PLAN, folder, Quiet()), folder


def test_all_ways_are_trained_on_the_same_samples_and_sites(made: tuple[Joining, Path]):
    result, folder = made
    assert result["methods"] == ["local", "fedavg", "fsar"]
    half, whole = result["shares"]
    assert all(5 <= half["samples"][name] <= 7 and whole["samples"][name] == 12 for name in half["samples"])
    for setting in result["shares"]:
        alone = setting["arms"]["local"]
        assert set(setting["controls"]) == {"majority", "ridge"} and set(alone["seeds"]) == {"1"}
        for method in ("fedavg", "fsar"):
            arm = setting["arms"][method]
            assert setting["gains"][method]["value"] == pytest.approx(arm["mean"] - alone["mean"])
            for name, gains in setting["sites"].items():
                assert gains[method]["value"] == pytest.approx(arm["clients"][name] - alone["clients"][name])
    (two,) = result["counts"]
    assert two["count"] == 2 and all(len(chosen) == 2 for chosen in two["draws"])
    for number, chosen in enumerate(two["draws"], 1):
        recipe = load_recipe(folder / "sites-2" / f"draw-{number}" / "fsar" / "recipe.toml")
        assert list(recipe.run.sites) == chosen and list(load_clients(recipe)) == chosen
    seen = {name for chosen in two["draws"] for name in chosen}
    alone = [whole["arms"]["local"]["clients"][name] for name in seen]
    assert two["alone"] == pytest.approx(sum(alone) / len(alone))  # the very sites that join


def test_an_arm_is_the_run_that_its_recipe_gives(made: tuple[Joining, Path], tmp_path: Path):
    recipe = parse_recipe({**KEYS, "train_share": 0.5})
    result = run_study(recipe, tmp_path / "run")
    assert made[0]["shares"][0]["arms"]["fsar"]["seeds"]["1"] == result["mean"]
    assert made[0]["shares"][0]["arms"]["fsar"]["configuration"] == result["configuration"]


def test_what_is_done_is_not_done_again(made: tuple[Joining, Path]):
    result, folder = made
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("metrics.jsonl")}
    assert len(before) == 2 * 3 + 2 * 2  # shares x ways + draws x ways of joining
    (folder / "share-1" / "fsar" / "result.json").unlink()
    assert study_joining(parse_recipe(KEYS), PLAN, folder, Quiet()) == result
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_side_by_side_is_the_same(tmp_path: Path):
    recipe, plan = (
        parse_recipe({**KEYS, "seeds": [1, 2], "rounds": 1}),
        JoiningPlan(shares=(0.5,), counts=(2,), draws=1),
    )
    beside = study_joining(recipe, plan, tmp_path / "beside", Quiet(), jobs=2)
    assert beside == study_joining(recipe, plan, tmp_path / "one", Quiet())
    assert (tmp_path / "beside" / "share-0.5" / "fsar" / "seeds" / "2" / "result.json").exists()


def test_every_site_is_in_as_many_federations_as_any_other():
    names = [f"site-{n}" for n in range(6)]
    for count, draws in itertools.product((2, 3, 5), (1, 2, 3, 6, 9)):
        drawn = draw_sites(names, count, draws, seed=0)
        assert len({tuple(chosen) for chosen in drawn}) == len(drawn) == min(draws, 6)
        assert all(chosen == sorted(set(chosen)) and len(chosen) == count for chosen in drawn)
        often = [sum(name in chosen for chosen in drawn) for name in names]
        assert max(often) - min(often) <= 1 or draws * count < 6
    assert draw_sites(names, 3, 2, seed=0) != draw_sites(names, 3, 2, seed=1)


def test_a_gain_is_told_from_chance_only_where_intervals_allow():
    far = subtract(0.8, 0.6, (0.75, 0.84), (0.55, 0.65))
    assert far["verdict"] == "helps"
    assert far["low"] == pytest.approx(0.2 - (0.05**2 + 0.05**2) ** 0.5)
    assert far["high"] == pytest.approx(0.2 + (0.04**2 + 0.05**2) ** 0.5)
    back = subtract(0.6, 0.8, (0.55, 0.65), (0.75, 0.84))
    assert (back["verdict"], back["low"], back["high"]) == ("harms", -far["high"], -far["low"])
    assert subtract(0.62, 0.6, (0.57, 0.67), (0.55, 0.65))["verdict"] == "not shown"
    assert subtract(0.9, 0.1, None, (0.0, 0.2))["verdict"] == "not shown"


def test_the_sentences_say_for_whom_and_no_more(made: tuple[Joining, Path]):
    result = json.loads(json.dumps(made[0]))
    gains = result["shares"][0]["sites"]
    (first, second, third) = gains
    gains[first]["fsar"] = {"value": 0.2, "low": 0.1, "high": 0.3, "verdict": "helps"}
    gains[second]["fsar"] = {"value": -0.2, "low": -0.3, "high": -0.1, "verdict": "harms"}
    gains[third]["fsar"] = {"value": 0.0, "low": -0.1, "high": 0.1, "verdict": "not shown"}
    result["shares"][0]["gains"]["fsar"] = {"value": 0.0, "low": -0.05, "high": 0.05, "verdict": "not shown"}
    said = describe(result)[0]
    assert said.startswith("With 50 % of their samples: FSAR is not told from training alone on the mean (+0.0 (")
    assert f"harms: {second}; helps: {first}; not shown: {third}" in said
    result["shares"][0]["gains"]["fsar"] = {"value": -0.04, "low": -0.06, "high": -0.01, "verdict": "harms"}
    assert "costs 4.0 points on the mean (1.0 to 6.0)" in describe(result)[0]


def test_the_picture_is_the_same_to_the_byte(made: tuple[Joining, Path]):
    picture = draw_joining(made[0])
    assert picture == draw_joining(made[0])
    text = picture.decode()
    assert all(word in text for word in ("mean of all sites", "sites that join", "FSAR", "alone", "ridge"))


def test_the_command(tmp_path: Path):
    recipe = tmp_path / "small.toml"
    recipe.write_text(to_toml({**KEYS, "rounds": 1, "seeds": [0]}))
    asked = ["study", "joining", str(recipe), "--shares", "1", "--out", str(tmp_path / "study")]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    text = (tmp_path / "study" / "joining.md").read_text()
    assert "# What joining brings: " in text and "| 100 % | 12 |" in text
    assert text.count("FSAR − alone") == 2 and "picture: " in done.output
    result = json.loads((tmp_path / "study" / "joining.json").read_text())
    assert write_tables(result, "x").splitlines()[4:] == text.splitlines()[4:]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--shares", "0,1"], "shares must be above 0 and at most 1"),
        (["--shares", "0.5,0.50000001"], "shares must differ in their first six digits"),
        (["--shares", "1", "--lr", "nan,0.1"], "two or more unlike numbers above 0"),
        (["--shares", "a"], "--shares takes numbers with commas between"),
        (["--sites", "1"], "a federation has two sites or more"),
        (["--sites", "2.5"], "--sites takes whole numbers"),
        (["--sites", "9"], "there are 3 sites, so that no federation has 9"),
        (["--plain", "fedavgg"], "no method is called 'fedavgg'; did you mean 'fedavg'?"),
        (["--set", "method=local"], "asked of a method that sites join with labels"),
    ],
)
def test_what_cannot_be_asked_is_refused(tmp_path: Path, arguments: list[str], words: str):
    recipe = tmp_path / "small.toml"
    recipe.write_text(to_toml(KEYS))
    done = CliRunner().invoke(app, ["study", "joining", str(recipe), "--out", str(tmp_path / "study"), *arguments])
    assert done.exit_code == 2 and words in " ".join(done.output.split()), done.output
    assert not (tmp_path / "study").exists()


def test_a_site_that_is_not_there_is_named():
    with pytest.raises(
        RecipeError, match=r"no client is called 'stage-1-kinect'; did you mean 'stage-1-kinect_v2'\?"
    ):
        load_clients(parse_recipe({**KEYS, "sites": ["stage-1-kinect"]}))
