"""A federation in Flower's own simulation."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'fedaction[flower]'")
pytest.importorskip("ray", reason="Flower's simulation needs Ray: pip install 'flwr[simulation]'")

from fedaction.federation.progress import Quiet
from fedaction.federation.settings import to_toml
from fedaction.runs.checkpoint import latest_checkpoint
from fedaction.runs.metrics import read_rows
from fedaction.runs.rayed import run_rayed
from fedaction.runs.remote import Roll, open_run
from fedaction.runs.single import SingleRun
from tests.engines.flower.places import make_recipe, make_stores, simulated
from tests.engines.flower.processes import ROOT
from tests.engines.flower.test_contract import compare

pytestmark = pytest.mark.slow


def test_flowers_simulation_comes_to_the_simulated_run(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, map(str, map(Path, sys.path)))))  # for Ray's processes
    paths = make_stores(tmp_path)
    recipe = make_recipe(paths, "fsar")
    open_run(recipe, tmp_path / "run", Roll(count=len(paths)))
    result = run_rayed(tmp_path / "run", paths, tmp_path / "sites", workers=2)  # a site's work may be done by either
    SingleRun(recipe, simulated(recipe), tmp_path / "simulated", Quiet()).execute()
    compare(tmp_path / "simulated", tmp_path / "run")
    assert set(result["clients"]) == set(paths)
    assert all((tmp_path / "sites" / name).is_dir() for name in paths)


class Simulation:
    """`fedaction serve --simulate` as a process."""

    def __init__(self, folder, paths, recipe):
        self.folder, self.run, self.stores = folder, folder / "run", folder / "stores"
        assert {path.parent for path in paths.values()} == {self.stores}
        (folder / "recipe.toml").write_text(to_toml(recipe.flat()))

    def start(self, *words):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
        environment["RAY_memory_monitor_refresh_ms"] = "0"  # else Ray ends its workers where others use the memory
        command = [sys.executable, "-c", "from fedaction.cli import main; main()", "serve", *words]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*command, "--simulate", str(self.stores)], env=environment, stdout=log, stderr=subprocess.STDOUT
            )

    def finish(self, process, seconds=900):
        try:
            assert process.wait(seconds) == 0, self.said()
        finally:
            process.kill()

    def wait_for_round(self, process, round, seconds=900):
        end = time.monotonic() + seconds
        while not any(line["kind"] == "round" and line["round"] >= round for line in self.news()):
            assert process.poll() is None and time.monotonic() < end, self.said()
            time.sleep(0.1)

    def news(self):
        path = self.run / "news.jsonl"
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []

    def said(self):
        return (self.folder / "log").read_text(errors="replace")


def test_the_command_simulates_and_one_that_was_killed_goes_on_to_the_same_end(tmp_path):
    paths = make_stores(tmp_path)
    recipe = make_recipe(paths, "fsar", rounds=4, local_epochs=3)
    simulation = Simulation(tmp_path, paths, recipe)
    first = simulation.start(str(tmp_path / "recipe.toml"), "--out", str(simulation.run))
    try:
        simulation.wait_for_round(first, 2)
    finally:
        first.kill()  # at once; Ray's processes end by themselves
        first.wait()
    assert not (simulation.run / "result.json").exists()
    simulation.finish(simulation.start(str(simulation.run)))
    SingleRun(recipe, simulated(recipe), tmp_path / "simulated", Quiet()).execute()
    compare(tmp_path / "simulated", simulation.run)
    assert "over 3 sites" in simulation.said() and (simulation.run / "report.html").is_file()
    for name in paths:
        assert list((simulation.run / "sites" / name).glob("*/model.safetensors"))


def test_the_command_simulates_an_asynchronous_method(tmp_path):
    paths = make_stores(tmp_path)
    recipe = make_recipe(paths, "edge", classifier="local", rounds=4, evaluate_every=2)
    simulation = Simulation(tmp_path, paths, recipe)
    simulation.finish(simulation.start(str(tmp_path / "recipe.toml"), "--out", str(simulation.run)))
    end = latest_checkpoint(simulation.run / "checkpoints", simulation.run / "metrics.jsonl")
    rows = read_rows(simulation.run / "metrics.jsonl")
    updates = sum(row.value for row in rows if (row.split, row.name) == ("train", "updates"))
    assert end.federation.round == 4 and end.federation.server.version == updates == 12  # three a round
    tested = {row.client for row in rows if (row.round, row.split, row.name) == (4, "test", "accuracy")}
    assert tested >= set(paths)
    times = [row.value for row in rows if (row.split, row.name) == ("clock", "time")]
    assert len(times) == 4 and times == sorted(times)
