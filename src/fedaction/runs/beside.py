"""Runs of several studies side by side, each in a process of its own; their studies then find them done."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from pathlib import Path

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


@dataclass(frozen=True)
class Study:
    """What `run_study` would be asked to do."""

    recipe: Recipe
    """What to run."""
    folder: Path
    """Where."""

    def parts(self) -> list[Study]:
        """Its runs, of one method and one seed each."""
        return [Study(self.recipe.only(m, seed), home) for m, seed, home in list_runs(self.recipe, self.folder)]


def train_beside(studies: Iterable[Study], jobs: int, progress: Progress) -> None:
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
    if not left:
        return
    progress.start("runs", 0, len(left), unit="run")
    with worker_pool(min(jobs, len(left))) as pool:
        for number, future in enumerate(as_completed([pool.submit(_train, part) for part in left]), 1):
            future.result()
            progress.advance("runs", number)


def _train(part: Study) -> None:
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
