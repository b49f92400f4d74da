"""What stands beside a study's result, and the warnings about it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedaction as fa
from fedaction.evaluation.accuracy import mean_interval, wilson
from fedaction.evaluation.controls import SIMPLE
from fedaction.evaluation.site import EVIDENCE
from fedaction.federation.files import read_json
from fedaction.federation.progress import Quiet
from fedaction.guard.reports import _KINDS
from fedaction.runs.judge import judge
from fedaction.runs.recipe import load_recipe, parse_recipe
from fedaction.runs.study import load_clients, resume_study, run_study, sum_up_seeds
from tests.conftest import TINY

SMALL: dict[str, Any] = {
    **TINY,
    **{
        "method": "fsar",
        "data": "stage",
        "stage_clients": 2,
        "stage_train": [8],
        "stage_test": 6,
        "stage_actions": [3],
    },
    **{"frames": 8, "rounds": 1, "batch_size": 4, "workers": 1, "device": "cpu"},
}


def test_a_study_has_its_controls_by_default(tmp_path: Path):
    recipe = parse_recipe(SMALL)
    result = run_study(recipe, tmp_path)
    assert list(result["baselines"]) == ["local"]
    assert load_recipe(tmp_path / "recipe.toml").run.baselines == ("local",)
    clients = load_clients(recipe)
    for name, control in result["controls"].items():
        assert control["clients"] == {client: SIMPLE[name](data).accuracy for client, data in clients.items()}
    assert result["n"] == dict.fromkeys(clients, 6)
    assert result["interval"] == mean_interval([(result["clients"][client] or 0.0, 6) for client in clients])
    assert any("Fewer than 50 test samples" in text for text in result["warnings"])
    split = read_json(tmp_path / "controls.json")["split"]
    assert {client: (own["train"], own["test"]) for client, own in split.items()} == dict.fromkeys(clients, (8, 6))
    assert resume_study(tmp_path) == result


def test_controls_may_be_left_out(tmp_path: Path):
    result = run_study(parse_recipe({**SMALL, "controls": ["majority"]}), tmp_path)
    assert result["baselines"] == {} and list(result["controls"]) == ["majority"]


def test_training_alone_is_left_out_where_it_has_no_network(tmp_path: Path):
    features = {"data": "stage_features", "method": "fdarn", "model_features": 4, "model_hidden": 4, "rounds": 1}
    recipe = {**features, "feature_cache": str(tmp_path / "cache"), "stage_train": 4, "stage_test": 2, "workers": 1}
    said = list[str]()
    heard = Quiet()
    heard.warn = said.append  # type: ignore[method-assign]
    result = run_study(parse_recipe(recipe), tmp_path / "run", heard)
    assert result["baselines"] == {} and "ridge" in result["controls"]
    assert any("training alone is left out" in text for text in said)


# What is said of results


def result(method: str = "fsar", mean: float = 0.8, n: int = 100, **more: Any) -> dict[str, Any]:
    return {
        "run": f"runs/{method}",
        "method": method,
        "mean": mean,
        "interval": wilson(mean, n),
        "n": {"a": n},
        **more,
    }


def test_a_result_without_fault_is_left_alone():
    assert judge([result(baselines={"fedavg": result("fedavg", 0.5)}, rise=0.01, never={})]) == []


@pytest.mark.parametrize(
    ("study", "said"),
    [
        (
            result(controls={"ridge": {"mean": 0.85, "clients": {}}}),
            "Below a ridge classifier on the input (85.0 %): fsar (80.0 %).",
        ),
        (
            result(mean=0.3, controls={"majority": {"mean": 0.4, "clients": {}}}),
            "Below always answering each client's commonest class (40.0 %): fsar (30.0 %).",
        ),
        (
            result(baselines={"fedavg": result("fedavg", 0.82), "local": result("local", 0.4)}),
            "Not told apart by this test (within the 95 % interval): fedavg (82.0 %) from fsar (80.0 %).",
        ),
        (result(never={"a": ["fall", "sit"]}), "fsar never answers: fall, sit at a."),
        (result(never={"a": ["fall"]}, seeds={"0": 0.8, "1": 0.8}), "fsar with some seed never answers: fall at a."),
        (result(never={"a": list("vwxyz")}), "fsar never answers: v, w, x and 2 more at a."),
        (result(rise=0.2), "Still rising in the last quarter of the rounds: fsar (by 20.0 points)."),
        (result(n=31), "Fewer than 50 test samples: a (31)."),
    ],
)
def test_what_a_reader_is_told(study: dict[str, Any], said: str):
    assert judge([study]) == [said]


def test_of_many_runs_the_classes_never_answered_are_counted():
    names = ("fedavg", "fedprox", "fedbn", "moon")
    runs = {name: result(name, 0.1 * n, never={"a": ["fall"] * n, "b": []}) for n, name in enumerate(names, 1)}
    said = judge([result(mean=0.9, baselines=runs)])
    counts = "fedavg (1 at 1 clients), fedprox (2 at 1 clients), fedbn (3 at 1 clients) and 1 more"
    assert f"Classes of the test are never the answer: {counts}." in said
    assert not any("never answers" in text for text in said)


def test_a_class_that_one_seed_never_answers_is_named():
    run = {"mean": 0.5, "clients": {"a": 0.5}, "groups": {}, "n": {"a": 60}, "tests": {}, "seed": 0, "complete": True}
    run |= dict.fromkeys(("balanced_accuracy", "macro_f1", "rise")) | dict.fromkeys(
        ("seconds", "bytes_up", "bytes_down"), 0
    )
    never: list[dict[str, list[str]]] = [{}, {"a": ["fall", "sit"]}, {"a": ["fall"]}]
    runs: Any = [run | {"seed": seed, "never": own} for seed, own in enumerate(never)]
    assert sum_up_seeds(runs)["never"] == {"a": ["fall", "sit"]}


def test_runs_of_several_studies_are_told_apart_by_their_directories():
    one, other = result(mean=0.8), result(mean=0.79) | {"run": "runs/again"}
    (text,) = judge([one, other])
    assert text.endswith("fsar in fsar (80.0 %) from fsar in again (79.0 %).")


def test_an_older_result_is_not_judged():
    assert judge([{"run": "runs/a", "method": "fsar", "mean": 0.5}]) == []


def test_clients_with_one_test_have_one_tests_interval(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = rng.normal(size=(60, 4)) + y[:, None]
    clients = fa.clients(x, y, by=np.repeat(["anna", "ben", "carl"], 20), holdout=["carl"])
    keys = {"backbone": "perceptron", "model_features": 4, "model_hidden": 4, "controls": [], "device": "cpu"}
    run = fa.run("fedavg", clients, rounds=1, out=tmp_path / "run", progress=Quiet(), **keys)
    assert len({*run.result["tests"].values()}) == 1 and len(run.result["tests"]) == 2
    assert run.result["interval"] == pytest.approx(wilson(run.mean, 20))


def test_every_kind_of_evidence_is_let_through():
    assert {*_KINDS} == {*EVIDENCE}
