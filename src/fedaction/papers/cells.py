"""The runs behind an item: which there are, where each lies, and carrying out those that are not done.

A run's directory is named by its method, configuration and seed: items that need the same run share it, and a run
that is done is never run again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import torch

from fedaction.data.sources import CLIP_SOURCES, SOURCES
from fedaction.federation.files import read_json, write_json
from fedaction.federation.processes import start_worker
from fedaction.federation.progress import Progress
from fedaction.federation.settings import RecipeError, Settings, nearest
from fedaction.methods import METHODS
from fedaction.papers.fedvssl.setting import NOT_EVALUATION, evaluation_keys, schedule
from fedaction.papers.item import DATASETS, DISTIL, Column, Item, Row
from fedaction.papers.setting import Setting
from fedaction.report import run_and_report
from fedaction.runs.recipe import Recipe, RunSettings, parse_recipe
from fedaction.runs.study import RunResult, load_clients
from fedaction.server.devices import fleet_of
from fedaction.training.distil_recipe import DistilSettings

_NOT_HERE = {
    "method": "the item's rows name their methods",
    "baselines": "the item's rows name their methods",
    "seeds": "use --seeds",
    "data": "use --data",
    "name": "runs are named by their configuration",
}


_NOT_EDGE = {
    "engine": "{} trains no clients",
    "chain": "the rows of {} name their chains",
    "teacher": "one teacher is trained for all chains",
    "scratch": "a row of edge/fig3 is trained from scratch",
}
_NOT_FOR: Mapping[str, Mapping[str, str]] = {"edge": _NOT_EDGE, "fedvssl": NOT_EVALUATION}


@dataclass(frozen=True)
class ClientSize:
    """How much a client holds: samples of either split, and classes."""

    id: str
    train: int
    test: int
    classes: int


class Work(Protocol):
    """Something to be carried out into a folder: a run, or a distillation."""

    @property
    def label(self) -> str:
        """What people call it."""
        ...

    @property
    def folder(self) -> Path:
        """Where it goes, and goes on."""
        ...

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do."""
        ...

    @property
    def seed(self) -> int:
        """Its seed."""
        ...

    def execute(self, progress: Progress) -> None:
        """Does it, or what is left of it."""
        ...

    def alone(self) -> float:
        """The same in a process of its own, on one core; its accuracy."""
        ...


@dataclass(frozen=True)
class Run:
    """One run: what and where.

    Attributes:
        label: the row that asked for it first.
        recipe: one method, one seed.
        folder: its run directory.
    """

    label: str
    recipe: Recipe
    folder: Path

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do for it; the report is what a run writes last."""
        if not (self.folder / "result.json").exists() or not (self.folder / "report.html").exists():
            return False
        return self.result["complete"] and self.result["configuration"] == self.recipe.configuration()

    @property
    def result(self) -> RunResult:
        """What its result.json holds."""
        return read_json(self.folder / "result.json")

    @property
    def seed(self) -> int:
        """See `Work`."""
        return self.recipe.run.seeds[0]

    def execute(self, progress: Progress) -> None:
        """See `Work`."""
        run_and_report(self.recipe, self.folder, progress)

    def alone(self) -> float:
        """See `Work`."""
        settings = self.recipe.run.model_copy(update={"workers": 1})
        return run_and_report(replace(self.recipe, run=settings), self.folder)["mean"]


@dataclass(frozen=True)
class Cell:
    """One value of an item, under a row: a client's, or a mean over clients.

    Attributes:
        row: the item's row.
        column: its column.
        client: the client or group of clients that stands in; "" where the data have none, or for all clients.
        paper: the printed value.
        runs: one per seed; none where there is no client.
        spread: the printed standard deviation.
    """

    row: Row
    column: Column
    client: str
    paper: float | None
    runs: tuple[Run, ...]
    spread: float | None = None

    @property
    def source(self) -> str:
        """Which of its row's runs it comes from, in words; "" where they are the same for all columns."""
        if self.column.unseen:
            return f"unseen: {self.column.label}"
        return " + ".join(DATASETS[client] for client in self.column.among)

    @property
    def configuration(self) -> str:
        """The hash that its runs share."""
        return self.runs[0].recipe.configuration() if self.runs else ""


class Workbench:
    """Where items are made: a setting, seeds and overrides, over a folder that keeps the runs."""

    def __init__(
        self, setting: Setting, out: Path, seeds: Sequence[int] = (0,), overrides: Mapping[str, Any] | None = None
    ) -> None:
        """`overrides` are recipe keys for all rows whose method and data know them."""
        overrides = overrides or {}
        for key in overrides:
            if key in _NOT_HERE:
                raise RecipeError(f"--set {key}: {_NOT_HERE[key]}")
        own = {key: value for key, value in overrides.items() if key in setting.parts}
        for key, value in own.items():
            if not isinstance(value, list | tuple) or not value:
                raise RecipeError(f"--set {key}: a list with a value per client is expected (got {value!r})")
        self.setting = replace(setting, parts={**setting.parts, **own})
        self.out, self.seeds = out, tuple(seeds)
        self.overrides = {key: value for key, value in overrides.items() if key not in own}

    def recipe(self, row: Row, among: Sequence[int] = (), **keys: Any) -> Recipe:
        """What a row runs: base, overrides, then what makes the row. Raises RecipeError."""
        known = self.known(row.method)
        mine = {key: value for key, value in self.overrides.items() if key in known}
        own = {**self.setting.network(row.overrides.get("backbone", "")), **self.setting.methods.get(row.method, {})}
        own |= self.setting.tasks.get(row.overrides.get("pretext", ""), {})
        data = self.setting.datasets.get(row.data, {})
        if row.method == "centralvssl":
            mine |= schedule(self.setting, row.data, self.overrides)
        values = {**self.setting.keys(among), **data, **own, **mine, **row.overrides, **keys}
        values |= {"method": row.method, "name": f"paper-{row.method}", "seeds": self.seeds}
        return parse_recipe(values, f"row {' '.join(row.label)}")

    def check(self, item: Item) -> None:
        """Raises RecipeError where an override, or the setting, can mean nothing for an item."""
        if item.paper != self.setting.paper:
            raise RecipeError(f"{item.name}: the setting is one for the items of {self.setting.paper}")
        known = self._known_to(item)
        for key in self.overrides:
            if key in (why := _NOT_FOR.get(item.paper, {})) and key not in known:
                raise RecipeError(f"--set {key}: {why[key].format(item.name)}")
            if key not in known:
                raise RecipeError(f"{item.name}: there is no key {key!r}{nearest(key, known)}")
            if item.rows and all(key in row.overrides for row in item.rows):
                raise RecipeError(f"--set {key}: {item.name} varies it itself, in every row")
        if item.paper == "edge" and "devices" in self.overrides:
            fleet_of(self.overrides["devices"])

    def clients(self, recipe: Recipe) -> tuple[ClientSize, ...]:
        """The clients of a recipe's data, in the data's order. Kept in a file: real data take long to load."""
        about = {"data": recipe.run.data, "data_seed": recipe.run.data_seed, **recipe.source.model_dump()}
        key = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=6).hexdigest()
        path = self.out / "data" / f"{key}.json"
        if not path.exists():
            found = [
                ClientSize(name, len(client.train), len(client.test), len(client.info.classes))
                for name, client in load_clients(recipe).items()
            ]
            write_json(path, {**about, "clients": [asdict(size) for size in found]})
        return tuple(ClientSize(**size) for size in read_json(path)["clients"])

    def runs(self, label: str, recipe: Recipe) -> tuple[Run, ...]:
        """A recipe's runs, one per seed."""
        method = recipe.run.method
        home = self.out / "runs" / f"{method}-{recipe.configuration()}"
        return tuple(Run(label, recipe.only(method, seed), home / f"seed-{seed}") for seed in self.seeds)

    def cells(self, item: Item, **keys: Any) -> list[Cell]:
        """Every value of an item, row by row, and the runs it comes from; `keys` are recipe keys for all of them."""
        self.check(item)
        for row in item.rows:
            self.recipe(row, **keys)  # whatever is wrong with any, before data are loaded
        cells: list[Cell] = []
        for row in item.rows:
            none = (None,) * len(item.columns)
            for column, paper, spread in zip(item.columns, row.paper or none, row.spread or none, strict=True):
                cells.append(replace(self._cell(item, row, column, paper, keys), spread=spread))
        return cells

    def _cell(self, item: Item, row: Row, column: Column, paper: float | None, keys: Mapping[str, Any]) -> Cell:
        there = self.setting.positions
        if row.data and row.data not in self.setting.datasets:
            return Cell(row, column, "", paper, ())
        if not {column.client, *column.among} <= {*there}:
            return Cell(row, column, "", paper, ())
        recipe = self.recipe(row, column.among, **keys)
        place = (column.among or there).index(column.client)
        if column.of == "client":
            client = self.clients(recipe)[place].id
        else:
            client = self.setting.modalities[place] if column.of == "group" else ""
        if column.unseen:
            recipe = self.recipe(row, column.among, **keys, unseen=client)
        cell = Cell(row, column, client, paper, ())
        label = f"{item.run_label(row)}{cell.source and f' ({cell.source})'}"
        return replace(cell, runs=self.runs(label, recipe))

    def _known_to(self, item: Item) -> set[str]:
        """Keys that mean something for one of an item's rows, or for the student that they start from."""
        if item.paper == "edge":
            known = {"devices", "device"} if item.shows in ("times", "profiles") else set[str]()
            if item.chains or item.tuned:
                known |= self.known(DISTIL) - {"teacher", "scratch", *(("chain",) if item.chains else ())}
            return known.union(*(self.known(row.method) for row in item.tuned))
        if item.paper == "fedvssl":
            methods = {row.method for row in item.tuned} or {"fedvssl"}  # whose data the supervised network has
            return evaluation_keys(self.setting).union(*map(self.known, methods))
        return set[str]().union(*(self.known(row.method or "fedavg") for row in item.rows))

    def known(self, method: str) -> set[str]:
        """Keys that a row of a method knows."""
        if method == DISTIL:
            return {*DistilSettings.model_fields, *CLIP_SOURCES[self.setting.models["data"]].model_fields}
        kinds: list[type[Settings]] = [RunSettings, SOURCES[self.setting.rest["data"]]]
        if method in METHODS:  # else the recipe's own check says so
            kinds.append(METHODS[method].settings_type)
        return {key for kind in kinds for key in kind.model_fields}


def carry_out(runs: Iterable[Work], progress: Progress, jobs: int = 1) -> int:
    """Carries out what is not done, each run once; killed and called again, it goes on. Returns how many it ran.

    With several `jobs`, that many runs go on side by side, each in a process of its own: on a large GPU, which one
    small run leaves mostly idle, or on many cores.
    """
    left = [run for run in {run.folder: run for run in runs}.values() if not run.done]
    if jobs == 1 or len(left) < 2:
        for number, run in enumerate(left, 1):
            run.execute(_Numbered(progress, f"{number}/{len(left)} {run.label}"))
        return len(left)
    progress.started("runs", 0, len(left))
    # Spawned, not forked: a forked process could not use the GPU.
    with ProcessPoolExecutor(min(jobs, len(left)), get_context("spawn"), initializer=start_worker) as pool:
        try:
            for number, future in enumerate(as_completed([pool.submit(_alone, run) for run in left]), 1):
                progress.advanced("runs", number, future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return len(left)


def _alone(run: Work) -> float:
    """A run in a process of its own, on one core; its mean accuracy."""
    torch.set_num_threads(1)
    try:
        return run.alone()
    except Exception as error:
        error.add_note(f"This was {run.label}, seed {run.seed}.")
        raise


class _Numbered:
    """A `Progress` that says which of many runs it is."""

    def __init__(self, progress: Progress, prefix: str) -> None:
        self._progress, self._prefix = progress, prefix

    def started(self, label: str, round: int, rounds: int) -> None:
        """See `Progress`."""
        self._progress.started(f"{self._prefix}: {label}", round, rounds)

    def advanced(self, label: str, round: int, accuracy: float | None) -> None:
        """See `Progress`."""
        self._progress.advanced(f"{self._prefix}: {label}", round, accuracy)

    def warned(self, message: str) -> None:
        """See `Progress`."""
        self._progress.warned(message)
