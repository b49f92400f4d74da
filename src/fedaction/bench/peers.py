"""The same federated training by other frameworks: rounds, start-up and memory beside fedaction's, as ratios.

Everybody gets the same network, first weights, samples and batches, and averages plainly. Each runs in processes of
its own, as its users start it, one after another, with fedaction before and after each, so that drift is seen.
The programs are in `programs/`; those of others run in environments that have torch and that framework alone.
"""

# NumPy's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import torch

from fedaction.bench.environments import NotToBeHad, find_version, make_environment
from fedaction.bench.loop import MLP_CLIENTS, STGCN_CLIENTS, Workload
from fedaction.bench.shared_work import Arrays, read_plain, write_work
from fedaction.bench.timing import Tick, ignore
from fedaction.bench.watch import Watched, watch
from fedaction.federation.processes import cores
from fedaction.runs.environment import environment

PROGRAMS = Path(__file__).parent / "programs"
WORKLOADS = {"stgcn": STGCN_CLIENTS, "mlp": MLP_CLIENTS}
SAME = 0.02
"""Two contenders did the same work if, after the first round, they are apart by less than this share of what was
learned. Later rounds make more of their last bits."""
_LIMIT = 3600.0
"""Seconds that a contender may take."""


@dataclass(frozen=True)
class Contender:
    """A framework, and how it is started."""

    title: str
    program: str
    arguments: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """What its environment has, as pip takes it; none: it is fedaction's own."""
    launcher: tuple[str, ...] = ()
    """What starts the program; `CORES` stands for their number."""
    client_bytes: int = 0
    """Memory that it takes for each client, about, where that is much."""

    @property
    def place(self) -> str:
        """The folder of its environment."""
        return self.needs[0].partition("[")[0].partition(">")[0]


_FLOWER = ("flwr[simulation]>=1.41,<1.43",)
_PFL = ("pfl>=0.6,<0.7",)
_NVFLARE = ("nvflare>=2.9,<2.10",)
OWN = Contender("fedaction", "run_own.py", ("given",))
NAMED = Contender("fedaction, its own ST-GCN", "run_own.py", ("named",))
PEERS = {
    "flower": Contender("Flower, an actor a core", "run_flower.py", needs=_FLOWER),
    "pfl": Contender("pfl, one process", "run_pfl.py", needs=_PFL),
    "pfl-torchrun": Contender(
        "pfl, a process a core",
        "run_pfl.py",
        needs=_PFL,
        launcher=("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "CORES"),
    ),
    "nvflare": Contender("NVFlare, a process a client", "run_nvflare.py", needs=_NVFLARE, client_bytes=500_000_000),
}
"""By the names that the command takes."""


def bench_peers(
    peers: Sequence[str],
    workloads: Mapping[str, Workload],
    clients: int,
    rounds: int,
    turns: int,
    envs: Path,
    *,
    install: bool = True,
    tick: Tick = ignore,
) -> dict[str, Any]:
    """Each peer between two runs of fedaction, `turns` times over.

    Args:
        peers: names of `PEERS`.
        workloads: by name, of `WORKLOADS`.
        clients: all train in every round.
        rounds: at least two; the first is start-up's.
        turns: how often.
        envs: the folder of environments.
        install: whether frameworks that are not there are installed.
        tick: told of what is done next.

    Returns:
        `skipped`: why peers are left out, by name. `workloads`: of each the contenders, fedaction first, with the
        medians of what a `Measurement` has, `runs` (all), and `against`: how fedaction compares with it, medians
        over turns, in each against the mean of the two runs around it. `faster`: the peer's steady round over
        fedaction's, `faster_processor` the same of processors' seconds; `start_up` and `memory`: fedaction's over
        the peer's. `apart` says how far its weights are from fedaction's after the first and the last round, as a
        share of what was learned; `same`, whether that is rounding.
    """
    skipped, found = dict[str, str](), dict[str, tuple[Contender, Path]]()
    for name in peers:
        try:
            found[name] = (PEERS[name], _find_python(PEERS[name], envs, clients, install, tick))
        except NotToBeHad as error:
            skipped[name] = str(error)
    own = (OWN, Path(sys.executable))
    if found:
        _warm(*own)
    results: dict[str, Any] = {}
    for workload, about in workloads.items():
        rivals = {**({"fedaction-named": (NAMED, own[1])} if workload == "stgcn" else {}), **found}
        with tempfile.TemporaryDirectory(prefix="fedaction-") as place:
            base = Path(place) / "base"
            write_work(base, workload, about, clients, rounds)
            contest = _Contest(base, lambda words, name=workload: tick(f"{name}: {words}"))
            contest.run("fedaction", *own)
            for _ in range(turns):
                for name, rival in list(rivals.items()):
                    try:
                        contest.run(name, *rival)
                    except NotToBeHad as error:
                        if not rival[0].needs:
                            raise
                        skipped[f"{workload}: {name}"] = str(error)
                        del rivals[name]
                    else:
                        contest.run("fedaction", *own)
            results[workload] = contest.compare()
    return {
        "clients": clients,
        "rounds": rounds,
        "turns": turns,
        "cores": cores(),
        "date": datetime.now(UTC).date().isoformat(),
        "environment": environment(torch.device("cpu")),
        "skipped": skipped,
        "workloads": results,
    }


def _find_python(contender: Contender, envs: Path, clients: int, install: bool, tick: Tick) -> Path:
    free = _free_memory()
    if free is not None and contender.client_bytes * clients > free:
        wanted = contender.client_bytes * clients / 1e9
        raise NotToBeHad(f"{clients} clients take some {wanted:.0f} GB, and {free / 1e9:.0f} GB are free")
    python = make_environment(envs / contender.place, contender.needs, tick, install=install)
    _warm(contender, python)
    return python


def _warm(contender: Contender, python: Path) -> None:
    """Loads what a contender loads, so that files are in memory and compiled for all alike."""
    command = [str(python), "-c", f"import {Path(contender.program).stem}"]
    done = subprocess.run(
        command, env=_clean_environment(contender, PROGRAMS), cwd=PROGRAMS, capture_output=True, check=False
    )
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise NotToBeHad(f"it cannot be loaded: {said[-1] if said else 'it says nothing'}")


def _free_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii", errors="replace").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None


class _Contest:
    """What was measured with one workload."""

    def __init__(self, base: Path, tick: Tick) -> None:
        self._base, self._tick = base, tick
        self._start = read_plain(base / "weights.npz")
        self._titles, self._versions = dict[str, str](), dict[str, str]()
        self._runs: list[tuple[str, Measurement]] = []
        self._weights: dict[str, dict[str, Arrays]] = {}

    def run(self, name: str, contender: Contender, python: Path) -> None:
        """Runs a contender once."""
        self._tick(contender.title)
        folder = self._base.parent / "run"
        shutil.copytree(self._base, folder)
        try:
            self._runs.append((name, _measure(contender, python, folder)))
            self._weights.setdefault(name, {end: read_plain(folder / f"{end}.npz") for end in ("first", "last")})
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._titles[name] = contender.title
        self._versions[name] = find_version(python, contender.place) if contender.needs else ""

    def compare(self) -> list[dict[str, Any]]:
        """A line for each contender that has run."""
        lines: list[dict[str, Any]] = []
        for name, title in self._titles.items():
            runs = [asdict(run) for who, run in self._runs if who == name]
            line: dict[str, Any] = {"name": name, "title": title, "version": self._versions[name]}
            line |= {key: _median([run[key] for run in runs]) for key in _MEDIANS}
            if name != "fedaction":
                line["against"] = self._compare(name)
                line["apart"] = {end: self._distance(name, end) for end in ("first", "last")}
                line["same"] = line["apart"]["first"] < SAME
            lines.append({**line, "runs": runs})
        return lines

    def _compare(self, name: str) -> dict[str, float | None]:
        """Medians over turns."""
        turns = [
            compare_runs(run, self._runs[place - 1][1], self._runs[place + 1][1])
            for place, (who, run) in enumerate(self._runs)
            if who == name
        ]
        return {key: _median([turn[key] for turn in turns]) for key in turns[0]}

    def _distance(self, name: str, end: str) -> float:
        own, other = self._weights["fedaction"][end], self._weights[name][end]
        if own.keys() != other.keys():
            return math.inf
        apart = sum(float(np.square(own[n] - other[n], dtype=np.float64).sum()) for n in own)
        moved = sum(float(np.square(own[n] - self._start[n], dtype=np.float64).sum()) for n in own)
        return math.sqrt(apart / moved)


@dataclass(frozen=True)
class Measurement:
    """What one run took."""

    round: float
    """Seconds of a round: the median without the first."""
    processor: float | None
    """Processors' seconds of a round: the mean without the first; None, here and below: the system does not say."""
    start_up: float
    """Seconds from the start of its first process to its first training step."""
    memory: int | None
    """Bytes that its processes held together at most."""
    whole: float
    """Seconds until it ended."""
    others: float
    """Processors that everybody else used on this machine meanwhile."""
    rounds: tuple[float, ...]
    """Seconds of each round but the first."""


_MEDIANS = ("round", "processor", "start_up", "memory", "whole", "others")


def compare_runs(run: Measurement, before: Measurement, after: Measurement) -> dict[str, float | None]:
    """How fedaction compares with another, by its runs before and after that: see `bench_peers`."""

    def mean(key: str) -> float | None:
        both = [getattr(before, key), getattr(after, key)]
        return None if None in both else fmean(both)

    pairs = {
        "faster": (run.round, mean("round")),
        "faster_processor": (run.processor, mean("processor")),
        "start_up": (mean("start_up"), run.start_up),
        "memory": (mean("memory"), run.memory),
    }
    return {key: None if a is None or not b else a / b for key, (a, b) in pairs.items()}


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _measure(contender: Contender, python: Path, folder: Path) -> Measurement:
    """Runs a contender on the work in a folder."""
    count = str(cores())
    launcher = [count if word == "CORES" else word for word in contender.launcher]
    command = [str(python), *launcher, str(PROGRAMS / contender.program), str(folder), *contender.arguments]
    log = folder / "log"
    watched = watch(command, _clean_environment(contender, folder), log, _LIMIT)
    try:
        first = float((folder / "first_step").read_text(encoding="ascii"))
        ends = [float(line) for line in (folder / "rounds").read_text(encoding="ascii").split()]
        done = watched.status == 0 and (folder / "last.npz").exists() and len(ends) > 1
    except (OSError, ValueError):
        done, first, ends = False, 0.0, list[float]()
    if not done:
        raise NotToBeHad(_explain(contender, watched, log))
    seconds = [b - a for a, b in pairwise(ends)]
    work = [watched.work_by(when) for when in (ends[0], ends[-1])]
    used = None if work[0] is None or work[1] is None else (work[1] - work[0]) / len(seconds)
    return Measurement(
        round=median(seconds),
        processor=used,
        start_up=first - watched.start,
        memory=watched.memory,
        whole=watched.seconds,
        others=watched.others,
        rounds=tuple(seconds),
    )


def _clean_environment(contender: Contender, folder: Path) -> dict[str, str]:
    """The variables that a contender sees."""
    away = {"PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"} | ({"PYTHONPATH"} if contender.needs else set())
    values = {name: value for name, value in os.environ.items() if name not in away}
    values |= {
        "OMP_NUM_THREADS": "1",  # threads that wait for each other take many times as long where a machine is busy
        "FLWR_HOME": str(folder / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": str(folder.parent),
    }
    return values


def _explain(contender: Contender, watched: Watched, log: Path) -> str:
    """Why a run came to nothing."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    how = f"was not done after {_LIMIT:g} s" if watched.status is None else f"ended with status {watched.status}"
    return f"{contender.title} {how}: {'; '.join(lines[-3:]) or 'it said nothing'}"
