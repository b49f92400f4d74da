"""Runs of several studies side by side, each in a process of its own; their studies then find them done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import as_completed
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

from fedaction.federation.files import write_atomically
from fedaction.federation.processes import worker_pool
from fedaction.federation.progress import Progress, Quiet
from fedaction.federation.settings import to_toml
from fedaction.runs.ready import check_ready
from fedaction.runs.recipe import Recipe
from fedaction.runs.single import SingleRun
from fedaction.runs.standing import check_begun
from fedaction.runs.study import is_done, list_runs, load_clients, split_seed

_Task = TypeVar("_Task")


class PlacedStudy(NamedTuple):
    """What `run_study` is asked to do."""

    recipe: Recipe
    """What to run."""
    folder: Path
    """Where."""

    def parts(self) -> list[PlacedStudy]:
        """Its runs, of one method and one seed each."""
        return [PlacedStudy(self.recipe.only(m, seed), home) for m, seed, home in list_runs(self.recipe, self.folder)]


def carry_out_beside(
    work: Callable[[_Task], float | None], tasks: Sequence[_Task], jobs: int, progress: Progress, metric: str = ""
) -> None:
    """Carries out tasks, at least one, `jobs` of them at a time, each in a process of its own.

    What each comes to, if anything, is told as `metric`.
    """
    progress.start("runs", 0, len(tasks), unit="run", metric=metric)
    with worker_pool(min(jobs, len(tasks))) as pool:
        for number, future in enumerate(as_completed([pool.submit(work, task) for task in tasks]), 1):
            progress.advance("runs", number, future.result())


def train_beside(studies: Iterable[PlacedStudy], jobs: int, progress: Progress) -> None:
    """Carries out all runs of some studies, or what is left of them; `run_study` then adds what a study has besides.

    Killed and called again, it resumes.

    Args:
        studies: no two in one folder.
        jobs: runs side by side; with one nothing is done here, for a study does the same and shows more of it.
        progress: callback.
    """
    if jobs == 1:
        return
    parts = [part for study in studies for part in study.parts()]
    for part in parts:
        check_begun(part.recipe, part.folder)
    left = [part for part in parts if not is_done(part.recipe, part.folder)]
    if left:
        carry_out_beside(_train, left, jobs, progress)


def _train(part: PlacedStudy) -> None:
    """One run, on one core."""
    torch.set_num_threads(1)
    recipe = replace(part.recipe, run=part.recipe.run.model_copy(update={"workers": 1}))
    try:
        clients = load_clients(recipe)
        check_ready(recipe, clients)
        data = recipe.source.fingerprint(split_seed(recipe))
        check_begun(recipe, part.folder, data)
        # First of all, so that a run killed from here on can be resumed.
        write_atomically(part.folder / "recipe.toml", to_toml(recipe.flat()).encode())
        SingleRun(recipe, clients, part.folder, Quiet(), (), data).execute()
    except Exception as error:
        error.add_note(f"This was {recipe.run.method}, seed {recipe.run.seeds[0]}, in {part.folder}.")
        raise
