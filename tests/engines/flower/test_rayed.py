"""A federation in Flower's own simulation."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'fedaction[flower]'")
pytest.importorskip("ray", reason="Flower's simulation needs Ray: pip install 'flwr[simulation]'")

from fedaction.federation.progress import Quiet
from fedaction.runs.rayed import run_rayed
from fedaction.runs.remote import Roll, open_run
from fedaction.runs.single import SingleRun
from tests.engines.flower.places import make_recipe, make_stores, simulated
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
