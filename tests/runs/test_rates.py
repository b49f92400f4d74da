"""Learning rates chosen on training people."""

import json
import math
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from typer.testing import CliRunner

from fedaction.cli import app
from fedaction.federation.settings import RecipeError, to_toml
from fedaction.runs.metrics import read_rows
from fedaction.runs.rates import _choose, choose_rate
from fedaction.runs.recipe import parse_recipe
from tests.runs.test_stop import SMALL

KEYS: dict[str, Any] = {**SMALL, "method": "fedavg", "rounds": 3, "stage_train": [20], "controls": ["ridge", "local"]}


def validated(home: Path) -> float:
    """The best round's mean over clients, by hand."""
    rows = [row for row in read_rows(home / "metrics.jsonl") if (row.split, row.name) == ("validation", "accuracy")]
    return max(fmean(row.value or 0.0 for row in rows if row.round == round) for round in (1, 2, 3))


def test_rates_are_chosen_by_people_who_neither_train_nor_test(tmp_path: Path):
    result = choose_rate(parse_recipe(KEYS), (0.1, 0.001), tmp_path)
    assert result["rates"] == [0.001, 0.1] and result["validation"] == 0.2
    homes = [tmp_path / "lr-0.001", tmp_path / "lr-0.1"]
    assert result["methods"] == {
        "fedavg": [validated(home) for home in homes],
        "local": [validated(home / "baselines" / "local") for home in homes],  # who trains alone is asked, too
    }
    assert result["mean"] == [fmean(values) for values in zip(*result["methods"].values(), strict=True)]
    assert result["mean"][result["rates"].index(result["best"])] == max(result["mean"])
    sizes = json.loads((homes[0] / "controls.json").read_text())["split"]
    assert result["n"] == 40 - sum(own["train"] for own in sizes.values()) > 0
    kept = {path: path.read_bytes() for path in tmp_path.rglob("metrics.jsonl")}
    assert choose_rate(parse_recipe(KEYS), (0.1, 0.001), tmp_path) == result  # nothing is run again
    assert {path: path.read_bytes() for path in kept} == kept


def test_what_is_said_of_a_choice():
    told = _choose(0.2, 400, [0.01, 0.02, 0.04], {"fsar": [0.70, 0.80, 0.78], "local": [0.64, 0.50, 0.10]})
    assert told["mean"] == pytest.approx([0.67, 0.65, 0.44]) and told["points"] == pytest.approx(0.046, abs=1e-3)
    assert (told["best"], told["best_of"]) == (0.01, {"fsar": 0.02, "local": 0.01})
    assert told["warnings"] == [
        "The best rate is the smallest that was tried: try smaller ones, too.",
        "Not told apart from it by these samples (within the 95 % interval): 0.02.",
    ]
    clear = _choose(0.2, 4000, [0.01, 0.02, 0.04], {"fsar": [0.5, 0.8, 0.6]})
    assert clear["best"] == 0.02 and clear["warnings"] == []


@pytest.mark.parametrize(
    "rates", [(0.1,), (0.1, 0.1), (0.0, 0.1), (0.1, math.nan), (0.1, math.inf), (0.1, 0.1 + 1e-9)]
)
def test_there_must_be_something_to_choose_from(tmp_path: Path, rates: tuple[float, ...]):
    with pytest.raises(RecipeError, match="two or more unlike numbers above 0"):
        choose_rate(parse_recipe(KEYS), rates, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(to_toml({**KEYS, "controls": [], "rounds": 1, "seeds": [3, 4]}))
    found = CliRunner().invoke(app, ["rates", "small.toml", "--lr", "0.01,0.1"])
    assert found.exit_code == 0 and "best on the mean of the methods: lr = " in found.stdout
    assert "lr = 3" not in found.stdout and not list(Path("runs/rates-small/lr-0.1").glob("seeds/*"))  # one seed
    again = CliRunner().invoke(app, ["rates", "small.toml", "--lr", "0.01,0.1", "--json"])
    assert json.loads(again.stdout) == json.loads(Path("runs/rates-small/rates.json").read_text())
    wrong = CliRunner().invoke(app, ["rates", "small.toml", "--lr", "0.01,fast"])
    assert wrong.exit_code == 2 and "such as 0.01,0.02" in wrong.stderr
