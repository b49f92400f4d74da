"""`--profile`: where a run's time goes, and that asking changes nothing."""

import json

import pytest
from typer.testing import CliRunner

from fedaction.cli import app
from fedaction.federation.profile import Profile
from fedaction.report import resume_and_report, run_and_report
from fedaction.runs.recipe import parse_recipe
from tests.conftest import TINY

VALUES = {
    "method": "fedavg",
    "rounds": 3,
    "batch_size": 4,
    "validation": 0.3,
    "controls": [],
    "stage_clients": 2,
    "stage_train": [6],
    "stage_actions": [2],
    "stage_layouts": ["openni_15"],
    "stage_test": 2,
    "frames": 8,
    **TINY,
}
ROUND = {"guards and averaging", "steps", "test", "validation", "metrics", "checkpoint", "copy"}
OF_ENGINE = {"sequential": {"load", "draw"}, "vectorised": {"stack", "feed", "split"}}


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
def test_a_profile_names_all_work_and_changes_no_byte(tmp_path, engine):
    recipe, profile = parse_recipe({**VALUES, "engine": engine}), Profile()
    plain, measured = tmp_path / "plain", tmp_path / "measured"
    run_and_report(recipe, plain)
    run_and_report(recipe, measured, profile=profile)
    record = json.loads((measured / "profile.json").read_text())
    names = {row["name"] for row in record["sections"]}
    wanted = ROUND - {"copy"} if engine == "vectorised" else ROUND
    assert wanted | OF_ENGINE[engine] | {"data", "models", "evidence", "report", "other"} <= names | {"controls"}
    assert sum(row["seconds"] for row in record["sections"]) == pytest.approx(record["wall"])
    assert record["rounds"] == 3 and 0 < record["steps"] < 1
    assert not (plain / "profile.json").exists()
    for name in ("metrics.jsonl", "recipe.toml", "evidence.json", "model.safetensors"):
        if name != "model.safetensors" or (plain / name).exists():
            assert (plain / name).read_bytes() == (measured / name).read_bytes(), name
    for path in sorted((plain / "checkpoints").iterdir()):
        assert path.read_bytes() == (measured / "checkpoints" / path.name).read_bytes(), path.name
    pages = [(home / "report.html").read_text() for home in (plain, measured)]
    assert '"profile":null' in pages[0] and '"profile":{' in pages[1] and "of rounds 3 to 3" in pages[1]


def test_the_command_prints_it_and_a_resumed_run_counts_the_rounds_that_it_did(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in VALUES.items()))
    home = tmp_path / "run"
    done = CliRunner().invoke(app, ["run", str(path), "--set", "rounds=1", "--out", str(home), "--profile", "--json"])
    assert done.exit_code == 0, done.stderr
    assert "training steps: " in done.stderr and "of rounds 1 to 1" in done.stderr
    assert json.loads(done.stdout)["rounds"] == 1
    profile = Profile()
    resume_and_report(home, rounds=4, profile=profile)
    assert (profile.record().rounds, profile.record().first, profile.record().last) == (3, 4, 4)
