"""Programs in examples/ run as their first lines say, at tiny size."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TINY = ["rounds=1", "stage_clients=2", "stage_people=1", "stage_train=12", "stage_test=12", "feature_width=16"]
TINY += ["local_epochs=1", "workers=1", "device=cpu", "evaluate_every=1", "model_features=8", "model_hidden=8"]


@pytest.mark.slow
def test_the_sweep_over_attackers_prints_a_table_and_goes_on_where_it_was_stopped(tmp_path):
    words = ["robust/stage", "--attacks", "sign=5", "labels", "--attackers", "0", "1", "--guards", "none", "median"]
    words += ["--seeds", "0", "--out", str(tmp_path / "runs"), *(f"--set={key}" for key in TINY)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    said = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "robust.py"), *words],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said[0] == said[1]
    cell = r"\d+\.\d \(\d+ to \d+\)"
    assert re.search(rf"^Alone: {cell}$", said[0], re.MULTILINE)
    for attack in ("sign=5", "labels"):
        assert f"| {attack}: attackers | none | median |" in said[0]
    rows = re.findall(rf"^\| ([01]) \| {cell} \| {cell} \|$", said[0], re.MULTILINE)
    assert rows == ["0", "1", "0", "1"]
    # Without attackers there is nothing to tell attacks apart by: those runs are made once.
    names = {path.name for path in (tmp_path / "runs").iterdir()}
    assert len(names) == 1 + 2 + 2 * 2, names
