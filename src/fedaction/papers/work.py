"""What is carried out for an item, run by run, and on what it ran."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fedaction.federation.files import read_sealed_json
from fedaction.federation.outside import refuse_damage
from fedaction.federation.progress import Progress, Quiet
from fedaction.report import run_and_report
from fedaction.runs.beside import carry_out_beside
from fedaction.runs.recipe import Recipe
from fedaction.runs.result import read_result
from fedaction.runs.seal import SealError
from fedaction.runs.standing import check_begun, check_run
from fedaction.runs.study import RunResult


@dataclass(frozen=True)
class Environment:
    """What values were computed on: the same configuration gives other ones on another processor."""

    device: str
    """The processor's model with the instructions used, or a GPU's name."""
    torch: str
    """Its version."""

    @classmethod
    def read(cls, path: Path, *keys: str) -> Environment:
        """From an `environment.json`, or from what a result has of the same kind under some keys."""
        with refuse_damage(path, "a record of what something ran on"):
            written = read_sealed_json(path)
            for key in keys:
                written = written[key]
            return cls.parse(written)

    @classmethod
    def parse(cls, written: Mapping[str, Any]) -> Environment:
        """From its value."""
        return cls(str(written["device_name"]), str(written["packages"]["torch"]))


@dataclass(frozen=True)
class Work(ABC):
    """Something to be carried out into a folder: a run, a distillation, an evaluation."""

    label: str
    """What people call it; of a run the row that asked for it first."""
    configuration: str
    """The hash that its values are listed with; "" where there is none."""
    seed: int
    """Its seed."""
    folder: Path
    """Where it is written, and resumed."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether there is nothing left to do."""

    def check(self) -> None:
        """Refuses what was begun with something else, before the others take their time."""
        return

    @property
    def environment(self) -> Environment:
        """On what it ran, once it is done."""
        return Environment.read(self.folder / "environment.json")

    @abstractmethod
    def execute(self, progress: Progress, one_core: bool = False) -> float:
        """Does it, or what is left of it, on one core if asked to; its accuracy, or another score, 0 to 1."""


@dataclass(frozen=True)
class RowRun(Work):
    """One federated run; `recipe` has one method and one seed."""

    recipe: Recipe
    data: Mapping[str, str]
    """What its data are; see `Source.fingerprint`."""

    @property
    def done(self) -> bool:
        """See `Work`; the report is what a run writes last. What does not fit together is made again, or refused."""
        if not (self.folder / "result.json").exists() or not (self.folder / "report.html").exists():
            return False
        try:
            standing = check_run(self.folder)
            result = self.result
        except SealError:
            return False
        if standing is not None and standing.seal.data and standing.seal.data != self.data:
            return False  # and then refused
        return result["complete"] and result["configuration"] == self.configuration

    def check(self) -> None:
        """See `Work`."""
        check_begun(self.recipe, self.folder, self.data)

    @property
    def result(self) -> RunResult:
        """What its result.json holds."""
        return read_result(self.folder)  # pyright: ignore[reportReturnType]

    def execute(self, progress: Progress, one_core: bool = False) -> float:
        """See `Work`."""
        # An item's rows are its methods and controls; each run stands for itself.
        settings = self.recipe.run.model_copy(update={"controls": ()} | ({"workers": 1} if one_core else {}))
        return run_and_report(replace(self.recipe, run=settings), self.folder, progress)["mean"]


def carry_out(works: Iterable[Work], progress: Progress, jobs: int = 1) -> int:
    """Carries out what is not done, each once; killed and called again, it resumes. Returns how many it executed.

    With several `jobs`, that many run side by side, each in a process of its own: on a large GPU, which one small
    run leaves mostly idle, or on many cores.
    """
    left = [work for work in {work.folder: work for work in works}.values() if not work.done]
    for work in left:
        work.check()
    if jobs == 1 or len(left) < 2:
        for number, work in enumerate(left, 1):
            work.execute(_NumberedProgress(progress, f"{number}/{len(left)} {work.label}"))
        return len(left)
    carry_out_beside(_execute_in_worker, left, jobs, progress, "result")
    return len(left)


def _execute_in_worker(work: Work) -> float:
    torch.set_num_threads(1)
    try:
        return work.execute(Quiet(), one_core=True)
    except Exception as error:
        error.add_note(f"This was {work.label}, seed {work.seed}.")
        raise


class _NumberedProgress:
    """A `Progress` that says which of many it is."""

    def __init__(self, progress: Progress, prefix: str) -> None:
        self._progress, self._prefix = progress, prefix

    def start(self, label: str, done: int, total: int, *, unit: str = "", metric: str = "") -> None:
        """See `Progress`."""
        self._progress.start(f"{self._prefix}: {label}", done, total, unit=unit, metric=metric)

    def advance(self, label: str, done: int, value: float | None = None) -> None:
        """See `Progress`."""
        self._progress.advance(f"{self._prefix}: {label}", done, value)

    def tell(self, message: str) -> None:
        """See `Progress`: not for each of many."""

    def warn(self, message: str) -> None:
        """See `Progress`."""
        self._progress.warn(message)
