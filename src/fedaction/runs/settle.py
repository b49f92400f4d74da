"""How a run's engine works: as the recipe says, as it did before, or as a trial on the run's first jobs finds."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedaction.engines.base import SimulatedEngine
from fedaction.federation.files import read_sealed_json
from fedaction.federation.profile import NOTHING
from fedaction.federation.progress import Progress
from fedaction.runs.assembly import Assembly
from fedaction.runs.checkpoint import RunState
from fedaction.runs.stop import is_over
from fedaction.runs.way import GROUPED, EngineWay, choose_way, count_trial_jobs, has_video, read_way
from fedaction.server.federation import Federation


def settle(assembly: Assembly, federation: Federation, state: RunState, folder: Path, progress: Progress) -> Assembly:
    """The assembly with the way that its engine works.

    A run that goes on keeps its way, which `environment.json` has, so that it is one engine's from the first round to
    the last; where this machine cannot work like that, it says so and chooses anew.
    """
    run, ways = assembly.recipe.run, assembly.ways
    before = _read(folder / "environment.json") if state.round else {}
    engine, way = before.get("engine"), read_way(before)
    if way is not None and run.engine == "auto" and any(way.same(own) for own in ways):
        return replace(assembly, chosen=way)
    if is_over(run, state.round, state.best, state.federation.time):
        return assembly  # nothing is left to train
    if run.engine == "vectorised" and has_video(assembly.method):
        progress.warn(f"engine = 'vectorised' on video: {GROUPED}; engine = 'auto' takes the other")
    settled, names = assembly, {own.engine for own in ways}
    if run.engine == "auto":
        settled = replace(assembly, chosen=_try_ways(assembly, federation, state))
        progress.tell(f"engine: {settled.way}: {settled.way.why}")
    if isinstance(engine, str) and engine not in (settled.engine_name, "flower"):
        cannot = "" if engine in names else " That engine cannot be used here."
        progress.warn(
            f"{folder}: rounds up to {state.round} are by the engine {engine}, those from here on by "
            f"{settled.engine_name}: last bits may differ from those of a run of one engine.{cannot}"
        )
    return settled


def _try_ways(assembly: Assembly, federation: Federation, state: RunState) -> EngineWay:
    """The way that is fastest on jobs of the next round; what they give is thrown away."""
    run, round, server = assembly.recipe.run, state.round + 1, state.server
    names = [member.id for member in federation.members if member.id not in run.late]
    asked = min(run.clients_per_round or len(names), len(names))
    names = names[: count_trial_jobs(run, assembly.device, len(names))]
    left = (run.rounds - state.round) * asked / max(len(names), 1)
    jobs = [federation.job(server, name, round) for name in names]

    def make(way: EngineWay) -> SimulatedEngine:
        gc.collect()  # of the engine that was tried before
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        engine = replace(assembly, chosen=way, profile=NOTHING).engine()
        engine.store.load(state.locals, assembly.device)
        return engine

    return choose_way(assembly.ways, make, jobs, left)


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_sealed_json(path)
    except (OSError, ValueError, TypeError):
        return {}
