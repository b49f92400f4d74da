"""When a run ends: by validation, or by the virtual clock; and that stopping it in between changes nothing."""

from pathlib import Path
from typing import Any

import pytest

from fedaction.federation.progress import Quiet
from fedaction.federation.settings import RecipeError
from fedaction.runs.metrics import read_rows
from fedaction.runs.recipe import RunSettings, parse_recipe
from fedaction.runs.stop import is_over
from fedaction.runs.study import resume_study, run_study
from tests.conftest import TINY

SMALL: dict[str, Any] = {
    **TINY,
    **{"method": "fsar", "data": "stage", "stage_clients": 2, "stage_train": [12], "stage_test": 6, "controls": []},
    **{"stage_actions": [3], "frames": 8, "rounds": 8, "batch_size": 4, "workers": 1, "device": "cpu", "lr": 0.05},
}


def files(folder: Path) -> dict[str, bytes]:
    kept = ("metrics.jsonl", "evidence.json")
    checkpoints = {path.name: path.read_bytes() for path in sorted((folder / "checkpoints").iterdir())}
    return {name: (folder / name).read_bytes() for name in kept} | checkpoints


class Killed(Exception):
    """What a kill would do."""


class Kill(Quiet):
    """A `Progress` that ends everything after so many rounds."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def advance(self, label: str, done: int, value: float | None = None) -> None:
        if label == "fsar" and done == self.rounds:
            raise Killed


def test_a_run_ends_when_validation_has_not_risen_for_some_rounds(tmp_path: Path):
    recipe = parse_recipe({**SMALL, "validation": 0.25, "stop": "converged", "stop_patience": 2, "rounds": 30})
    result = run_study(recipe, tmp_path / "whole")
    rows = read_rows(tmp_path / "whole" / "metrics.jsonl")
    by_round: dict[int, list[float]] = {}
    for row in rows:
        if (row.split, row.name) == ("validation", "accuracy"):
            by_round.setdefault(row.round, []).append(float(row.value or 0))
    means = {round: sum(values) / len(values) for round, values in by_round.items()}
    best = max(sorted(means), key=lambda round: means[round])
    assert (result["chosen"], result["rounds"], result["complete"]) == (best, max(means), True)
    # It ended two rounds after some best one, and before its rounds were over.
    assert result["rounds"] == best + 2 < 30
    tests = {r.client: r.value for r in rows if (r.round, r.split, r.name) == (best, "test", "accuracy")}
    assert result["clients"] == tests
    # Killed on the way, and once more at its last round, it comes to the same bytes.
    for rounds in (1, result["rounds"]):
        with pytest.raises(Killed):
            run_study(recipe, tmp_path / "killed", Kill(rounds))
    again = resume_study(tmp_path / "killed")
    assert files(tmp_path / "killed") == files(tmp_path / "whole")
    assert (again["clients"], again["rounds"]) == (result["clients"], result["rounds"])


def test_a_run_ends_at_its_time_on_the_virtual_clock(tmp_path: Path):
    slow = {"deadline": 100.0, "seconds_per_sample": 1.0, "speed_spread": 0.0, "evaluate_every": 8}
    result = run_study(parse_recipe({**SMALL, **slow, "stop_time": 20.0}), tmp_path / "run")
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert result["rounds"] == 2 and result["complete"]  # two rounds of twelve seconds
    assert {row.round for row in rows if row.split == "test"} == {2}
    with pytest.raises(ValueError, match="stop_time: method fsar has no virtual clock here"):
        run_study(parse_recipe({**SMALL, "stop_time": 20.0}), tmp_path / "none")


@pytest.mark.parametrize(
    ("keys", "round", "best", "over"),
    [
        ({}, 7, (-1.0, 0), False),
        ({}, 8, (-1.0, 0), True),
        ({"stop": "target", "stop_target": 0.5}, 3, (0.49, 3), False),
        ({"stop": "target", "stop_target": 0.5}, 3, (0.5, 2), True),
        ({"stop": "converged", "stop_patience": 2}, 3, (0.5, 2), False),
        ({"stop": "converged", "stop_patience": 2}, 4, (0.5, 2), True),
        ({"stop": "converged", "stop_patience": 2, "evaluate_every": 3}, 5, (0.5, 3), False),  # was not tested
    ],
)
def test_when_no_round_follows(keys: dict[str, Any], round: int, best: tuple[float, int], over: bool):
    assert is_over(RunSettings(method="fsar", rounds=8, validation=0.2, **keys), round, best, 0.0) is over


def test_who_stops_needs_people_to_decide_it():
    with pytest.raises(RecipeError, match=r"say validation = 0.2, since the test may not"):
        parse_recipe({**SMALL, "stop": "converged"})
