"""Methods at equal rounds, local epochs and time."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedaction.runs.budget import equalise, read_course


def write(
    home: Path, accuracies: dict[int, float], seconds: float, rounds: int, epochs: int = 1, asked: int = 2
) -> None:
    """A run of two clients, of which so many are asked a round, that was tested in some rounds."""
    home.mkdir(parents=True)
    (home / "recipe.toml").write_text(f"local_epochs = {epochs}\n")
    rows = list[dict[str, Any]]()
    for round in range(1, rounds + 1):
        rows.append({"client": "", "split": "server", "name": "participants", "value": asked, "round": round})
        rows += [{"client": c, "split": "train", "name": "loss", "value": 1.0, "round": round} for c in "ab"[:asked]]
        for client in "ab" if round in accuracies else "":
            row = {"client": client, "split": "test", "name": "accuracy", "value": accuracies[round], "round": round}
            rows += [row, {**row, "name": "macro_f1", "value": accuracies[round] / 2}]
            rows.append({**row, "client": "unseen", "name": "macro_f1", "value": 1.0})  # which has no accuracy
    (home / "metrics.jsonl").write_text("".join(json.dumps({"group": "g", **row}) + "\n" for row in rows))
    times = [{"round": round, "train": seconds, "total": 2 * seconds} for round in (*range(1, rounds + 1), rounds)]
    (home / "clock.jsonl").write_text("".join(json.dumps(line) + "\n" for line in times))


def result(home: Path, **more: Any) -> dict[str, Any]:
    return {
        "run": str(home),
        "method": home.name,
        "mean": 0.9,
        "clients": {"a": 0.9, "b": 0.9},
        "n": {"a": 50, "b": 50},
        **more,
    }


def study(folder: Path) -> dict[str, Any]:
    """Ten seconds a round against four, one local epoch against two."""
    write(folder, {2: 0.4, 4: 0.6, 6: 0.9}, 10.0, rounds=6)
    write(folder / "baselines" / "cheap", {2: 0.3, 4: 0.5}, 4.0, rounds=4, epochs=2)
    return result(folder, baselines={"cheap": result(folder / "baselines" / "cheap")})


def test_costs_are_counted_from_a_runs_files(tmp_path: Path):
    study(tmp_path / "run")
    course = read_course(tmp_path / "run" / "baselines" / "cheap")
    assert [(test.rounds, test.epochs, test.time, test.mean) for test in course] == [(2, 4, 8, 0.3), (4, 8, 16, 0.5)]
    write(tmp_path / "half", {4: 0.5}, 1.0, rounds=4, asked=1)  # each client is asked every other round
    assert read_course(tmp_path / "half")[0].epochs == 2


def test_devices_that_do_fewer_epochs_are_counted_by_what_they_did(tmp_path: Path):
    write(tmp_path / "unlike", {2: 0.5}, 1.0, rounds=2, epochs=4)
    with (tmp_path / "unlike" / "metrics.jsonl").open("a") as file:
        for round in (1, 2):  # one of the two does four epochs, the other one
            row = {"group": "", "client": "", "split": "server", "name": "epochs", "value": 5, "round": round}
            file.write(json.dumps(row) + "\n")
    assert read_course(tmp_path / "unlike")[0].epochs == 5


@pytest.mark.parametrize(
    ("by", "budget", "means"),
    [("rounds", 4, (0.6, 0.5)), ("epochs", 6, (0.9, 0.3))],
)
def test_methods_are_shown_as_they_were_within_what_all_had(tmp_path: Path, by: Any, budget: float, means: Any):
    own = study(tmp_path / "run")
    found, (equal,) = equalise([tmp_path / "run"], [own], by)
    assert found == budget
    assert (equal["mean"], equal["baselines"]["cheap"]["mean"]) == pytest.approx(means)
    assert (equal["macro_f1"], equal["balanced_accuracy"]) == (pytest.approx(means[0] / 2), None)
    assert equal["interval"][0] < means[0] < equal["interval"][1]


def test_equal_time_is_what_the_quickest_trained_without_its_tests(tmp_path: Path):
    """Sixteen seconds: one round of the slow method, all four of the quick one."""
    home = tmp_path / "run"
    write(home, {1: 0.2, 2: 0.4, 6: 0.9}, 10.0, rounds=6)
    write(home / "baselines" / "quick", {2: 0.3, 4: 0.5}, 4.0, rounds=4, epochs=2)
    budget, (equal,) = equalise(
        [home], [result(home, baselines={"quick": result(home / "baselines" / "quick")})], "time"
    )
    assert (budget, equal["seconds"], equal["baselines"]["quick"]["seconds"]) == (16, 10, 16)
    assert (equal["mean"], equal["baselines"]["quick"]["mean"]) == pytest.approx((0.2, 0.5))
    (home / "baselines" / "quick" / "clock.jsonl").unlink()
    with pytest.raises(ValueError, match=r"how long quick trained is not known"):
        equalise([home], [result(home, baselines={"quick": result(home / "baselines" / "quick")})], "time")


def test_a_run_that_was_not_tested_in_time_is_named(tmp_path: Path):
    own = study(tmp_path / "run")
    with pytest.raises(
        ValueError, match=r"run was not tested within the 16 seconds of training that another run had"
    ):
        equalise([tmp_path / "run"], [own], "time")
