"""Snapshots of learned graphs: a skeleton network's topology after local training, in a few of a run's rounds."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from fedaction.engines.store import LocalStore
from fedaction.federation.files import write_atomically
from fedaction.federation.scope import matches
from fedaction.federation.state import Job, Update

PATTERN = "topology"
"""Names of the tensors that are kept."""


def snapshot_rounds(rounds: int) -> set[int]:
    """When snapshots are taken: the first round, the quarters, the last."""
    return {1, *(-(-rounds * quarter // 4) for quarter in (1, 2, 3, 4))}


class Snapshots:
    """An observer of updates (`engines.observed`) that keeps some of their tensors, which only a simulation sees."""

    def __init__(self, folder: Path, rounds: int) -> None:
        """`folder`: of the files, one for each round; `rounds`: of the run."""
        self._folder, self._when = folder, snapshot_rounds(rounds)
        self._kept: dict[str, Tensor] = {}

    def __call__(self, job: Job, update: Update, store: LocalStore) -> Update:
        """The update as it is."""
        if job.round in self._when:
            tensors = {**update.tree, **store.pending(job.client)}
            names = [name for name in tensors if matches(PATTERN, name)]
            self._kept |= {f"{job.client}|{name}": tensors[name].cpu().contiguous() for name in names}
        return update

    def write(self, round: int) -> None:
        """Writes what a round has left, if anything: tensors by "client|name"."""
        if self._kept:
            write_atomically(self._folder / f"round-{round:06d}.safetensors", save(self._kept))
            self._kept = {}
