"""`engine = "auto"`: which engine a run has, and how it works; found out on its own first jobs where that pays."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import Any, Literal

import torch
from pydantic import TypeAdapter, ValidationError

from fedaction.engines.base import SimulatedEngine
from fedaction.engines.stackable import find_unstackable
from fedaction.federation.processes import cores
from fedaction.federation.state import Job
from fedaction.methods.base import Method
from fedaction.runs.recipe import RunSettings

SHARE = 0.05
"""Of the rest of a run, the most that a trial may take."""
COMPILING = 180.0
"""Seconds that compiling a stacked step takes, about."""
GROUPED = "a stacked 3D convolution is a grouped one, many times slower"
"""What is to be said of stacked video networks."""
_PASSES = 3  # over the jobs of a trial: two that warm up (the first compiles, the second records), one that is timed
_MARGIN = 0.9  # of the time of the way that needs no trial: what takes more is not worth a change
_MOST_JOBS = 256
_WARM_JOBS = 4  # enough for clients that are trained one after another
_WORKERS_JOBS = 4  # of each worker, on a CPU


@dataclass(frozen=True)
class EngineWay:
    """An engine, and how it works."""

    engine: Literal["sequential", "vectorised"]
    workers: int = 1
    """Sequential, on a CPU: clients trained side by side."""
    recorded: bool = False
    """Whether a GPU repeats recorded steps."""
    compiled: bool = False
    """Whether torch.compile makes the network or the stacked step."""
    why: str = ""
    """Why it was chosen, where the recipe left that open."""

    def __str__(self) -> str:
        steps = [word for word, is_so in (("recorded", self.recorded), ("compiled", self.compiled)) if is_so]
        side = [f"{self.workers} workers"] if self.engine == "sequential" and self.workers > 1 else []
        return ", ".join([self.engine, *side, *(f"{word} steps" for word in steps)])

    def record(self) -> dict[str, Any]:
        """For `environment.json`."""
        return asdict(self)

    def same(self, other: EngineWay) -> bool:
        """Whether two ways differ in nothing but the reason."""
        return replace(self, why="") == replace(other, why="")


def read_way(environment: Mapping[str, Any]) -> EngineWay | None:
    """The way that a run's `environment.json` has; None where there is none, or none that can be understood."""
    try:
        return TypeAdapter(EngineWay).validate_python(environment.get("way"))
    except ValidationError:
        return None


def has_video(method: Method) -> bool:
    """Whether clients learn from pixels."""
    return any(info.layout is None and len(info.shape) >= 4 for info in method.clients.values())


def list_ways(run: RunSettings, method: Method, device: torch.device, seed: int) -> list[EngineWay]:
    """The ways that a run may take, first the one it takes without a trial.

    On a CPU only the number of workers is left open: results do not depend on it, to the last bit.
    """
    every = run.workers or cores()
    if run.engine == "vectorised":
        return [EngineWay("vectorised", 1, run.record_step, run.compile_step)]
    if run.engine == "sequential":
        return [EngineWay("sequential", every, run.record_step, run.compile_step)]
    if device.type != "cuda":
        first = EngineWay(
            "sequential", every, False, run.compile_step, "a CPU trains clients side by side on its cores"
        )
        fewer = [] if run.workers or every == 1 else [replace(first, workers=1)]
        return [first, *fewer]
    sequential = EngineWay("sequential", 1, True, run.compile_step)
    if has_video(method):
        return [replace(sequential, why=f"of video: {GROUPED}")]
    if run.channels_last:
        return [replace(sequential, why="channels_last is of this engine alone")]
    if fault := find_unstackable(method, seed, device):
        return [replace(sequential, why=fault)]
    stacked = EngineWay("vectorised", 1, not run.compile_step, run.compile_step, "a GPU trains many clients at once")
    compiled = EngineWay("vectorised", 1, False, True)
    can_compile = not run.compile_step and not method.overrides("step") and find_spec("triton") is not None
    return [stacked, sequential, *([compiled] if can_compile else [])]


def count_trial_jobs(run: RunSettings, device: torch.device, members: int) -> int:
    """How many jobs of a round a trial is of: on a CPU a few for each worker, on a GPU the round's."""
    asked = min(run.clients_per_round or members, members)
    return min(asked, _MOST_JOBS if device.type == "cuda" else _WORKERS_JOBS * cores())


def choose_way(
    ways: Sequence[EngineWay],
    make: Callable[[EngineWay], SimulatedEngine],
    jobs: Sequence[Job],
    rounds: float,
    now: Callable[[], float] = time.perf_counter,
) -> EngineWay:
    """The fastest of some ways on the same jobs, whose results are thrown away; the first where trials do not pay.

    Args:
        ways: the first is taken unless another is clearly faster.
        make: makes an engine; it is closed here.
        jobs: of the run's next round.
        rounds: what is left of the run, in times of these jobs.
        now: the clock.
    """
    first = ways[0]
    if len(ways) < 2 or not jobs or SHARE * rounds < _PASSES:
        return replace(first, why=f"{first.why}; too short a run to try others" if len(ways) > 1 else first.why)
    best, least = first, _time_jobs(first, make, jobs, math.inf, now)
    said = [f"{first} {_say(least)}"]
    allowed, limit = SHARE * rounds * least, _MARGIN * least
    for way in ways[1:]:
        cost = COMPILING + _PASSES * limit if way.compiled else 2 * limit
        if cost > allowed:
            said.append(f"{way} not tried, the run is too short for that")
            continue
        try:
            seconds = _time_jobs(way, make, jobs, limit, now)
        except Exception as error:  # it is not needed: torch has many kinds of errors
            said.append(f"{way} failed ({str(error).splitlines()[0] if str(error) else type(error).__name__})")
            continue
        said.append(f"{way} {_say(seconds) if math.isfinite(seconds) else 'slower'}")
        if seconds < limit:
            best, limit = way, seconds
    return replace(best, why=f"tried on {len(jobs)} jobs: {'; '.join(said)}")


def _time_jobs(
    way: EngineWay,
    make: Callable[[EngineWay], SimulatedEngine],
    jobs: Sequence[Job],
    limit: float,
    now: Callable[[], float],
) -> float:
    """Seconds that an engine takes for jobs once it is warm; infinite where it is not done within a limit."""
    stacked = way.engine == "vectorised"
    engine = make(way)
    try:
        for _ in range(_PASSES - 1):
            _do(engine, jobs if stacked else jobs[: max(way.workers, _WARM_JOBS)], math.inf, now)
        return _do(engine, jobs, limit, now)
    finally:
        engine.close()


def _do(engine: SimulatedEngine, jobs: Sequence[Job], limit: float, now: Callable[[], float]) -> float:
    _wait()
    start, took = now(), 0.0
    for _ in engine.train(jobs):
        took = now() - start
        if took > limit:
            took = math.inf
            break
    _wait()
    engine.drop([job.client for job in jobs])
    return took if math.isinf(took) else now() - start


def _wait() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _say(seconds: float) -> str:
    return f"{seconds:.3g} s"
