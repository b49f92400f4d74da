"""The runs behind an item: which there are, and where each lies.

A run's directory is named by its method, configuration and seed: items that need the same run share it, and a run
that is done is never run again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from fedaction.data.sources import SOURCES
from fedaction.evaluation.controls import SIMPLE, Simple
from fedaction.federation.files import read_sealed_json, write_sealed_json
from fedaction.federation.progress import Quiet
from fedaction.federation.settings import RecipeError, Settings, hash_values, nearest
from fedaction.methods import METHODS
from fedaction.papers.item import Column, Item, ItemRow
from fedaction.papers.setting import S
from fedaction.papers.work import RowRun
from fedaction.runs.controls import ControlResult, has_controls, sum_up_controls, write_controls
from fedaction.runs.recipe import Recipe, RunSettings, parse_recipe
from fedaction.runs.study import load_clients, split_seed

if TYPE_CHECKING:
    from fedaction.papers.paper import Paper

Say = Callable[[str], None]
"""Callback for messages about analyses that take a while."""

_NOT_HERE = {
    "method": "the item's rows name their methods",
    "baselines": "the item's rows name their methods",
    "seeds": "use --seeds",
    "data": "use --data",
    "name": "runs are named by their configuration",
}


@dataclass(frozen=True)
class ClientSize:
    """How much a client holds: samples of either split, and classes."""

    id: str
    train: int
    test: int
    classes: int


@dataclass(frozen=True)
class ItemCell:
    """One value of an item, under a row: a client's, or a mean over clients."""

    row: ItemRow
    """The item's row."""
    column: Column
    """Its column."""
    client: str
    """The client or group of clients that stands in; "" where the data have none, or for all clients."""
    paper: float | None
    """The printed value."""
    spread: float | None
    """The printed standard deviation."""
    runs: tuple[RowRun, ...] = ()
    """One per seed; none where there is no client."""

    @property
    def configuration(self) -> str:
        """The hash that its runs share."""
        return self.runs[0].configuration if self.runs else ""


@dataclass(frozen=True)
class Draft(Generic[S]):
    """An item that is being made."""

    item: Item
    """The item."""
    bench: Workbench[S]
    """Where it is made."""
    cells: Sequence[ItemCell]
    """Its values, with their clients and runs."""
    say: Say = lambda _: None
    """Callback for messages."""


class Workbench(Generic[S]):
    """Where items are made: a paper's setting, seeds and overrides, over a folder that keeps the runs."""

    def __init__(
        self,
        paper: Paper[S],
        data: str,
        scale: str,
        out: Path,
        seeds: Sequence[int] = (0,),
        overrides: Mapping[str, Any] | None = None,
    ) -> None:
        """`overrides` are recipe keys for all rows whose method and data know them. Raises RecipeError."""
        overrides = overrides or {}
        for key in overrides:
            if key in _NOT_HERE:
                raise RecipeError(f"--set {key}: {_NOT_HERE[key]}")
        self.paper, self.out, self.seeds = paper, out, tuple(seeds)
        self.setting, self.overrides = paper.setting(data, scale).take_overrides(overrides)
        self._fingerprints: dict[str, dict[str, str]] = {}

    def recipe(self, row: ItemRow, among: Sequence[int] = (), **keys: Any) -> Recipe:
        """What a row runs: base, overrides, then what makes the row. Raises RecipeError."""
        known = self.known(row.method)
        given = {key: value for key, value in self.overrides.items() if key in known}
        given |= self.setting.derived_keys(row, self.overrides)
        values = {
            "client_models": "none",
            **self.setting.keys(among),
            **(self.setting.row_keys(row) or {}),
            **given,
            **keys,
            **row.overrides,
        }
        for key, factor in row.times.items():
            values[key] = factor * values.get(key, RunSettings.model_fields[key].default)
        values |= {"method": row.method, "name": f"paper-{row.method}", "seeds": self.seeds}
        return parse_recipe(values, f"row {' '.join(row.label)}")

    def check(self, item: Item) -> None:
        """Raises RecipeError where an override, or the setting, can mean nothing for an item."""
        if item.paper != self.paper.name:
            raise RecipeError(f"{item.name}: the setting is one for the items of {self.paper.name}")
        known = self.paper.keys(item, self)
        for key in self.overrides:
            if key in self.paper.refused and key not in known:
                raise RecipeError(f"--set {key}: {self.paper.refused[key].format(item.name)}")
            if key not in known:
                raise RecipeError(f"{item.name}: there is no key {key!r}{nearest(key, known)}")
            if all(key in row.overrides for row in item.federated or item.rows):
                raise RecipeError(f"--set {key}: {item.name} varies it itself, in every row")
        self.paper.check(item, self)

    def clients(self, recipe: Recipe) -> tuple[ClientSize, ...]:
        """The clients of a recipe's data, in the data's order. Kept in a file: real data take long to load."""
        about, path = self._data_of(recipe)
        about["word"] = word = hash_values(self.fingerprint(recipe))
        if not path.exists() or _read_word(path) != word:
            sizes = [
                ClientSize(name, len(client.train), len(client.test), len(client.info.classes))
                for name, client in load_clients(recipe).items()
            ]
            write_sealed_json(path, {**about, "clients": [asdict(size) for size in sizes]})
        return tuple(ClientSize(**size) for size in read_sealed_json(path)["clients"])

    def controls(self, recipe: Recipe) -> dict[Simple, ControlResult]:
        """What needs no network, on a recipe's own split: the commonest class and a ridge classifier; kept."""
        home, word = self._data_of(recipe)[1].with_suffix(""), hash_values(self.fingerprint(recipe))
        if not has_controls(home, word):
            home.mkdir(parents=True, exist_ok=True)
            settings = recipe.run.model_copy(update={"controls": tuple(SIMPLE)})
            write_controls(replace(recipe, run=settings), load_clients(recipe), home, Quiet(), word)
        return sum_up_controls([home], recipe.run.unseen)

    def fingerprint(self, recipe: Recipe) -> dict[str, str]:
        """What a recipe's data are (`Source.fingerprint`); looked up once for all runs that have the same."""
        key = self._data_of(recipe)[1].name
        if key not in self._fingerprints:
            self._fingerprints[key] = recipe.source.fingerprint(split_seed(recipe))
        return self._fingerprints[key]

    def _data_of(self, recipe: Recipe) -> tuple[dict[str, Any], Path]:
        """What decides a recipe's data, and the file that keeps what is known of them."""
        run = recipe.run
        about = {"data": run.data, "data_seed": run.data_seed, **recipe.source.model_dump()}
        about |= {"train_share": run.train_share, "validation": run.validation}
        key = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=6).hexdigest()
        return about, self.out / "data" / f"{key}.json"

    def runs(self, label: str, recipe: Recipe) -> tuple[RowRun, ...]:
        """A recipe's runs, one per seed."""
        method, configuration = recipe.run.method, recipe.configuration()
        home, data = self.out / "runs" / f"{method}-{configuration}", self.fingerprint(recipe)
        return tuple(
            RowRun(label, configuration, seed, home / f"seed-{seed}", recipe.only(method, seed), data)
            for seed in self.seeds
        )

    def cells(self, item: Item, **keys: Any) -> list[ItemCell]:
        """Every value of an item's federated rows, and the runs it comes from; `keys` are recipe keys for all."""
        self.check(item)
        for row in item.federated:
            self.recipe(row, **keys)  # whatever is wrong with any, before data are loaded
        return [replace(cell, **self._runs_of(item, cell, keys)) for cell in empty_cells(item)]

    def _runs_of(self, item: Item, cell: ItemCell, keys: Mapping[str, Any]) -> dict[str, Any]:
        """A cell's client and runs; nothing where the data have none for it."""
        row, column, positions = cell.row, cell.column, self.setting.positions
        among, name = self.setting.federation(column)
        if self.setting.row_keys(row) is None or not {column.client, *among} <= {*positions}:
            return {}
        recipe = self.recipe(row, among, **keys)
        client = ""
        if column.of == "client":
            client = self.clients(recipe)[(among or positions).index(column.client)].id
        elif column.of == "group":
            client = self.setting.group(column.client)
        if column.unseen:
            recipe = self.recipe(row, among, **keys, unseen=client)
        label = f"{item.run_label(row)}{name and f' ({name})'}"
        return {"client": client, "runs": self.runs(label, recipe)}

    def known(self, method: str) -> set[str]:
        """Keys that a row of a method knows."""
        kinds: list[type[Settings]] = [RunSettings, SOURCES[self.setting.source["data"]]]
        if method in METHODS:  # else the recipe's own check says so
            kinds.append(METHODS[method].settings_type)
        return {key for kind in kinds for key in kind.model_fields}


def _read_word(path: Path) -> str:
    """Of which data a list of clients is; "": it does not say, or is not as it was written."""
    try:
        return str(read_sealed_json(path)["word"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def empty_cells(item: Item) -> list[ItemCell]:
    """The cells of an item's federated rows, row by row, with the printed values alone."""
    none = (None,) * len(item.columns)
    return [
        ItemCell(row, column, "", paper, spread)
        for row in item.federated
        for column, paper, spread in zip(item.columns, row.paper or none, row.spread or none, strict=True)
    ]
