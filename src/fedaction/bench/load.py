"""What many sites over Flower cost: real SuperNodes as far as a machine goes, hundreds in its simulation.

Every number of sites has a run of its own, in processes of its own, with the same small work for each site.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from fedaction.bench.flower import SMALL, carry_out_real
from fedaction.engines.flower.launch import check_flower, check_ray
from fedaction.runs.metrics import read_rows, read_seconds
from fedaction.runs.recipe import parse_recipe
from fedaction.runs.remote import NEWS, Roll, open_run
from fedaction.stage.stores import write_stage_stores


def bench_load(
    sizes: Sequence[int], rounds: int = 3, tell: Callable[[str], object] = lambda _: None, *, rayed: bool = False
) -> list[dict[str, Any]]:
    """One line for each number of sites: real SuperNodes, or `rayed`, in Flower's simulation.

    Returns:
        Of each: `sites` and `rayed`; `round`, seconds of a round of training and test, the median without the first;
        `memory`, bytes that the server app had at most; `busy`, CPU seconds of its work by round and site;
        `link_memory` and `link_busy`, the same of the SuperLink, and `site_memory`, the mean of what a site's
        SuperNode and worker had at most, all None in the simulation;
        `bytes`, what a site is sent and sends in a round of training; `lost`, answers that did not come.
    """
    (check_ray if rayed and sizes else check_flower)()
    lines: list[dict[str, Any]] = []
    for size in sizes:
        tell(f"{size} sites{' in the simulation' if rayed else ''}")
        with tempfile.TemporaryDirectory(prefix="fedaction-") as name:
            lines.append(_load(Path(name), size, rounds, rayed))
    return lines


def _load(folder: Path, size: int, rounds: int, rayed: bool) -> dict[str, Any]:
    names = [f"site-{place:04}" for place in range(size)]
    stores = write_stage_stores(folder / "stores", names=names, recordings=(8,), actions=(3,), frames=12)
    values = {"method": "fedavg", "data": "store", "store_paths": ["sites"], "frames": 12, "rounds": rounds + 1}
    recipe = parse_recipe({**values, **SMALL, "device": "cpu", "batch_size": 4})
    home = folder / "run"
    open_run(recipe, home, Roll(count=size, wait=3600.0))
    real = None
    if not rayed:
        real = carry_out_real(folder, home, stores, 120.0 * rounds + 30.0 * size)
    else:
        sites = {site: str(path) for site, path in stores.items()}
        told = {"home": str(home), "state": str(folder / "sites"), "sites": sites}
        (folder / "told.json").write_text(json.dumps(told), encoding="utf-8")
        command = [sys.executable, "-m", "fedaction.bench.load", str(folder / "told.json")]
        with (folder / "log").open("wb") as log:
            ended = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
        if ended.returncode:
            raise ValueError(f"Flower's simulation of {size} sites failed:\n{(folder / 'log').read_text()[-2000:]}")
    news = [json.loads(line) for line in (home / NEWS).read_text(encoding="utf-8").splitlines()]
    done = [line for line in news if line["kind"] == "round"]
    rows = read_rows(home / "metrics.jsonl")
    of = {name: [row.value or 0 for row in rows if row.split == "server" and row.name == name] for name in _COUNTED}
    seconds = list(read_seconds(home / "clock.jsonl", "total").values())[1:]
    visits = (len(done) - 1) * size
    return {
        "sites": size,
        "rayed": rayed,
        "round": median(seconds),
        "memory": done[-1].get("memory", 0),
        "busy": (done[-1]["cpu"] - done[0]["cpu"]) / visits,
        "link_memory": real and real[0].memory,
        "link_busy": real and real[0].cpu_between(done[0]["time"], done[-1]["time"]) / visits,
        "site_memory": real and mean(sum(process.memory for process in site) for site in real[1].values()),
        "bytes": (sum(of["bytes_up"]) + sum(of["bytes_down"])) / len(of["participants"]) / size,
        "lost": size * len(of["participants"]) - int(sum(of["participants"])),
    }


_COUNTED = ("participants", "bytes_up", "bytes_down")


def _main() -> None:
    """A run in Flower's simulation, in a process of its own."""
    from fedaction.runs.rayed import run_rayed

    told = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    run_rayed(Path(told["home"]), {name: Path(data) for name, data in told["sites"].items()}, Path(told["state"]))


if __name__ == "__main__":
    _main()
