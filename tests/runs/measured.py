"""Runs of very many clients, or rounds, with a line of JSON for each round: what it took. See `test_large.py`.

`clients_per_round` may be a list: one run for each, in the same process, so that they can be compared.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from torch import nn

import fedaction as fa
from fedaction.cli.common import Bar
from fedaction.runs import single
from fedaction.runs.checkpoint import save_checkpoint

CLOCK = time.process_time  # of this process alone, whatever else the machine does


class Meter:
    """A callback that prints what each round took."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._last, self._metrics = folder, 0.0, (0, "")
        self.start = self.checkpoint = 0.0

    def save(self, *arguments: Any) -> Any:
        """In the place of `save_checkpoint`: the same, and what it takes."""
        begun = CLOCK()
        state = save_checkpoint(*arguments)
        self.checkpoint += CLOCK() - begun
        return state

    def on_start(self, *_: Any) -> None:
        self.start = self._last = CLOCK()

    def on_round(self, rows: list[Any]) -> None:
        table, checkpoints = self.folder / "metrics.jsonl", self.folder / "checkpoints"
        round = rows[0].round
        new = [*checkpoints.glob(f"*-{round:06d}.*")]
        before, size = self._metrics[0], table.stat().st_size
        grew = size > before
        if round % 100 == 0 or round < 5:  # that nothing before has changed, too
            content = table.read_bytes()
            grew = grew and hashlib.sha256(content[:before]).hexdigest() == (self._metrics[1] or _EMPTY)
            self._metrics = size, hashlib.sha256(content).hexdigest()
        entry = {
            "round": round,
            "cpu": CLOCK() - self._last,
            "checkpoint": self.checkpoint,
            "rows": len(rows),
            "rss_mb": _resident(),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "written": sum(path.stat().st_size for path in new),
            "metrics_grew": grew,
        }
        print(json.dumps(entry), flush=True)
        self.checkpoint, self._last = 0.0, CLOCK()


_EMPTY = hashlib.sha256().hexdigest()


def _resident() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def network(client: Any) -> nn.Module:
    """A small network whose normalisation statistics stay with each client."""
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, len(client.classes)))


def main(folder: Path, clients: int, rounds: int, clients_per_round: int | list[int], **keys: Any) -> None:
    """Twelve samples of 16 values for each client, of four classes; its progress is shown."""
    begun, random, each = CLOCK(), np.random.default_rng(0), 12
    y = random.integers(0, 4, clients * each)
    x = random.normal(size=(len(y), 16)).astype(np.float32)
    x[np.arange(len(y)), y] += 2
    people = fa.clients(x, y, by=np.repeat([f"c{i:05d}" for i in range(clients)], each), holdout=0.3)
    fixed = {"lr": 0.05, "controls": [], "workers": 1, "device": "cpu", "buffers": "local", "batch_size": 8}
    for asked in [clients_per_round] if isinstance(clients_per_round, int) else clients_per_round:
        meter = Meter(folder if isinstance(clients_per_round, int) else folder / str(asked))
        single.save_checkpoint = meter.save
        with Bar() as bar:
            fa.run(
                network,
                people,
                out=meter.folder,
                rounds=rounds,
                callbacks=[meter],
                progress=bar,
                **{**fixed, "clients_per_round": asked, **keys},
            )
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"most_mb": most, "start_cpu": meter.start - begun, "cpu": CLOCK() - begun}))
        begun = CLOCK()


if __name__ == "__main__":
    main(Path(sys.argv[1]), **json.loads(sys.argv[2]))
