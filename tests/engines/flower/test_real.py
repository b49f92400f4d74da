"""Federations of real processes: a SuperLink and three SuperNodes on this machine, started by the commands."""

import json

import pytest

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'fedaction[flower]'")

from fedaction.federation.progress import Quiet
from fedaction.runs.single import SingleRun
from tests.engines.flower.places import make_recipe, make_stores, simulated
from tests.engines.flower.processes import Machine
from tests.engines.flower.test_contract import compare

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("method", ["fedavg", "fsar"])
def test_real_sites_come_to_the_simulated_run(tmp_path, method):
    paths = make_stores(tmp_path)
    recipe = make_recipe(paths, method)
    with Machine(tmp_path, paths, recipe) as machine:
        machine.serve("--sites", "3")
        for name in paths:
            machine.join(name)
        machine.finish()
    SingleRun(recipe, simulated(recipe), tmp_path / "simulated", Quiet()).execute()
    compare(tmp_path / "simulated", machine.run)
    result = json.loads((machine.run / "result.json").read_text())
    assert result["engine"] == "flower" and set(result["clients"]) == set(paths)
    said = (tmp_path / "clinic.log").read_text()
    assert "leaves this site" in said and "bytes) come and go" in said
