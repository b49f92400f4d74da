"""What `serve` says to whoever sets up the sites, before any of them is there."""

import shlex
import sys
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from fedaction.cli import app
from fedaction.engines.flower.server import QuorumError

RECIPE = 'method = "fedavg"\ndata = "store"\nrounds = 1\nframes = 8\nmodel_width = 4\nmodel_units = [1, 1, 1]\n'
RESULT = {"mean": 0.5, "clients": {"clinic": 0.5, "gym": 0.5}}


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Serves nothing: what would start Flower is told, and what is said comes back as one line."""
    monkeypatch.setattr("fedaction.engines.flower.launch.check_flower", lambda: None)  # whether or not it is here
    monkeypatch.setattr(sys.modules["fedaction.cli.serve"], "_serve", lambda *given: RESULT)
    monkeypatch.setattr("fedaction.report.write_report", lambda home: home / "report.html")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "three.toml").write_text(RECIPE)
    (tmp_path / "keys" / "sites").mkdir(parents=True)
    for name in ("ca.crt", "server.pem", "server.key", "sites/gym.pub", "sites/clinic.pub"):
        (tmp_path / "keys" / name).write_text("")

    def say(*words):
        result = CliRunner().invoke(app, ["serve", "three.toml", "--out", "run", *words], env={"COLUMNS": "1000"})
        assert result.exit_code == 0, result.output
        return result.stderr

    return say


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--insecure",), "fedaction join 127.0.0.1:8000 --data STORE --name NAME --insecure"),
        (("--insecure", "--port", "8123"), "fedaction join 127.0.0.1:8123 --data STORE --name NAME --insecure"),
        (("--keys", "keys"), "fedaction join 127.0.0.1:8000 --data STORE --name NAME --keys FOLDER"),
        (
            ("--keys", "keys", "--host", "0.0.0.0"),
            "fedaction join THIS_MACHINE:8000 --data STORE --name NAME --keys FOLDER",
        ),
        (
            ("--keys", "keys", "--superlink"),
            "fedaction join THIS_MACHINE:8000 --data STORE --name NAME --keys FOLDER",
        ),
    ],
)
def test_what_to_type_at_each_site_is_said(served, words, told):
    said = served(*words)
    (line,) = [line for line in said.splitlines() if line.startswith("at each site: ")]
    assert line.removeprefix("at each site: ") == told
    assert ("sites that may join: clinic, gym; give each keys/ca.crt" in said) == ("--keys" in words)


def test_what_is_said_for_sites_is_a_command_that_there_is(served):
    """But for the words in capitals, which each site has its own of."""
    (line,) = [line for line in served("--insecure").splitlines() if line.startswith("at each site: ")]
    words = shlex.split(line.removeprefix("at each site: "))
    assert words[:2] == ["fedaction", "join"]
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 2 and "there is no folder STORE" in " ".join(result.stderr.split())


def test_a_simulation_that_loses_its_sites_ends_with_one_message(tmp_path, monkeypatch):
    def lose(*given):
        raise QuorumError("round 5: 1 of 3 sites answered")

    for check in ("check_flower", "check_ray"):
        monkeypatch.setattr(f"fedaction.engines.flower.launch.{check}", lambda: None)
    monkeypatch.setitem(sys.modules, "fedaction.runs.rayed", SimpleNamespace(run_rayed=lose))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "three.toml").write_text(RECIPE)
    (tmp_path / "stores" / "gym").mkdir(parents=True)
    words = ["serve", "three.toml", "--out", "run", "--simulate", "stores"]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "1000"})
    assert result.exit_code == 2 and "Traceback" not in result.stderr
    assert "error: round 5: 1 of 3 sites answered; `fedaction serve run --simulate FOLDER` resumes" in result.stderr
