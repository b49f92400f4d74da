"""What FedVSSL's networks are evaluated by: which evaluations an item needs, carrying out those that are not there.

A run's evaluations lie in its folder, `evaluations/MODEL-DATA-<hash of the model and of the keys>`, as `fedaction
evaluate --out` writes them: items share them, and none is carried out twice. A network that has learnt from labels
lies in `models/supervised-<hash of its keys>/seed-N`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedaction.engines.base import choose_device
from fedaction.federation.files import read_json
from fedaction.federation.progress import Progress, Quiet
from fedaction.federation.settings import hash_values
from fedaction.papers.cells import Cell, Run, Workbench, carry_out
from fedaction.papers.fedvssl.items import DOWNSTREAM, EIGHT, LEVELS
from fedaction.papers.fedvssl.setting import evaluation_keys
from fedaction.papers.fedvssl.supervised import Supervised
from fedaction.papers.item import SUPERVISED, Column, Item, Row
from fedaction.runs.recipe import Recipe
from fedaction.training.evaluate import RANDOM, run_evaluate
from fedaction.training.evaluate_recipe import PROTOCOLS, EvaluateRecipe, parse_evaluate_recipe
from fedaction.training.protocols import precision_on
from fedaction.training.teacher import file_digest

PERTURB = "perturb"
"""Besides the evaluation's own protocols: retrieval under noise on the weights."""

"""Keys of recordings that say where they lie, not what they are."""


@dataclass(frozen=True)
class Network:
    """A network to be evaluated.

    Attributes:
        label: the row that it is of.
        model: its file, or "random".
        home: the folder of its evaluations.
        seed: of whatever is drawn; also its own.
        round: after which it was kept; 0: the last.
    """

    label: str
    model: str
    home: Path
    seed: int
    round: int = 0

    @cached_property
    def digest(self) -> str:
        """The file's SHA-256."""
        return RANDOM if self.model == RANDOM else file_digest(Path(self.model))


@dataclass(frozen=True)
class Assessment:
    """Some protocols of a network on one dataset; see `cells.Work`.

    Attributes:
        network: what is evaluated.
        dataset: on what, by the paper's name.
        keys: recipe keys of the evaluation, but for protocols and seeds.
        protocols: what is measured.
    """

    network: Network
    dataset: str
    keys: Mapping[str, Any]
    protocols: tuple[str, ...]

    @property
    def label(self) -> str:
        """See `Work`."""
        after = f" after round {self.network.round}" if self.network.round else ""
        return f"{self.network.label}{after} on {self.dataset}"

    @property
    def seed(self) -> int:
        """See `Work`."""
        return self.network.seed

    @property
    def folder(self) -> Path:
        """See `Work`. A network on a GPU is fine-tuned in another precision, hence in another folder."""
        recipe = self.recipe
        precision = precision_on(recipe.settings, choose_device(recipe.settings.device))
        left = {
            "network": self.network.digest,
            "data": [recipe.settings.data, recipe.settings.data_seed, recipe.source.deciding()],
            "keys": recipe.deciding(precision),
        }
        stem = RANDOM if self.network.model == RANDOM else Path(self.network.model).stem
        return self.network.home / f"{stem}-{self.dataset.lower()}-{hash_values(left)}"

    @property
    def done(self) -> bool:
        """See `Work`."""
        return all(self._file(protocol).exists() for protocol in self.protocols)

    def execute(self, progress: Progress) -> None:
        """See `Work`."""
        run_evaluate(self.network.model, self.recipe, None, progress, folder=self.folder)

    def alone(self) -> float:
        """See `Work`; the first of its scores."""
        self.execute(Quiet())
        return next(iter(self.scores.values()), 0.0)

    @property
    def scores(self) -> dict[str, float]:
        """What was found, as shares; of one that is done."""
        found = [self._read(protocol) for protocol in self.protocols if protocol != PERTURB]
        return {key: value for scores in found for key, value in scores.items()}

    @property
    def noisy(self) -> dict[tuple[str, float], float]:
        """R@1 under noise, by its kind and level, as shares: means over draws."""
        found: dict[tuple[str, float], list[float]] = {}
        for kind, level, r1, _ in self._read(PERTURB):
            found.setdefault((kind, level), []).append(r1)
        return {key: statistics.fmean(values) for key, values in found.items()}

    @property
    def data(self) -> dict[str, Any]:
        """What it was evaluated on."""
        return read_json(self.folder / "result.json")["data"]

    @cached_property
    def recipe(self) -> EvaluateRecipe:
        """The evaluation. Raises RecipeError."""
        plain = tuple(protocol for protocol in self.protocols if protocol != PERTURB)
        own = {"protocols": plain or ("retrieval",), "perturb": PERTURB in self.protocols, "seeds": (self.seed,)}
        return parse_evaluate_recipe({**self.keys, **own}, f"the evaluation on {self.dataset}")

    def _read(self, protocol: str) -> Any:
        return read_json(self._file(protocol))["found"]

    def _file(self, protocol: str) -> Path:
        return self.folder / f"seed-{self.seed}" / f"{protocol}.json"


def check(bench: Workbench) -> None:
    """Raises RecipeError where an evaluation's keys cannot be used."""
    if bench.setting.paper == "fedvssl":
        for dataset in bench.setting.downstream:
            _ = Assessment(Network("", RANDOM, bench.out, 0), dataset, _keys(bench, dataset, RANDOM), ()).recipe


def evaluate(item: Item, bench: Workbench, cells: Sequence[Cell], progress: Progress, jobs: int = 1) -> None:
    """Trains and evaluates what an item needs and is not there; its runs are done."""
    if bench.setting.paper != "fedvssl":
        return
    carry_out((work for row in item.rows if row.method == SUPERVISED for work in _supervised(bench)), progress, jobs)
    carry_out(assessments(item, bench, cells), progress, jobs)


def assessments(item: Item, bench: Workbench, cells: Sequence[Cell]) -> list[Assessment]:
    """All evaluations that an item shows, row by row."""
    found: list[Assessment] = []
    if item.shows in ("downstream", "perturbation", "traffic"):
        for row in item.rows:
            for network in networks(item, bench, cells, row):
                found += of_network(item, bench, network)
    return found


def networks(item: Item, bench: Workbench, cells: Sequence[Cell], row: Row) -> list[Network]:
    """A row's networks, one per seed; where the item goes over rounds, those kept on the way before each."""
    label = item.run_label(row)
    if row.method == RANDOM:
        home = bench.out / "models" / RANDOM
        return [Network(label, RANDOM, home / f"seed-{seed}", seed) for seed in bench.seeds]
    if row.method == SUPERVISED:
        works = _supervised(bench)
        return [Network(label, str(work.model), work.folder / "evaluations", work.seed) for work in works]
    found: list[Network] = []
    for run in runs_of(cells, row):
        kept = kept_models(run) if item.shows == "traffic" and row.method != "centralvssl" else {}
        for round, path in {**kept, 0: run.folder / "model.safetensors"}.items():
            found.append(Network(label, str(path), run.folder / "evaluations", run.seed, round))
    return found


def of_network(item: Item, bench: Workbench, network: Network) -> list[Assessment]:
    """What an item wants to know of a network: an evaluation for each dataset that there is."""
    wanted: dict[str, dict[str, None]] = {}
    for column in item.columns:
        for dataset in DOWNSTREAM if item.shows == "perturbation" else (DOWNSTREAM[column.client],):
            if dataset in bench.setting.downstream:
                wanted.setdefault(dataset, {})[protocol_of(item, column)] = None
    return [
        Assessment(network, dataset, _keys(bench, dataset, network.model), tuple(protocols))
        for dataset, protocols in wanted.items()
    ]


def protocol_of(item: Item, column: Column) -> str:
    """What measures a column."""
    if item.shows == "perturbation":
        return PERTURB
    return next((name for name in PROTOCOLS if column.metric.startswith(name)), "retrieval")


def runs_of(cells: Sequence[Cell], row: Row) -> tuple[Run, ...]:
    """A row's runs, one per seed; none where the data do not have it."""
    return next((cell.runs for cell in cells if cell.row.label == row.label and cell.runs), ())


def kept_models(run: Run) -> dict[int, Path]:
    """The models that a run kept on its way, by round; the last one is its model file."""
    paths = sorted((run.folder / "models").glob("round-*.safetensors"))
    found = {int(path.stem.removeprefix("round-")): path for path in paths}
    return {round: path for round, path in found.items() if round < run.recipe.run.rounds}


def named(item: Item, bench: Workbench) -> list[tuple[str, str, str]]:
    """Label, method and configuration of an item's rows that are no runs."""
    if bench.setting.paper != "fedvssl":
        return []
    ends = [row for row in item.rows if row.method in (RANDOM, SUPERVISED)]
    hashes = {RANDOM: "", SUPERVISED: _supervised(bench)[0].configuration}
    return [(item.describe(row.label), row.method, hashes[row.method]) for row in ends if row.label]


def _pretraining(bench: Workbench) -> Recipe:
    """The federated recipe whose network and recordings all rows share."""
    return bench.recipe(Row(("FedVSSL",), "fedvssl", data=EIGHT))


def _supervised(bench: Workbench) -> list[Supervised]:
    recipe, home = _pretraining(bench), bench.out / "models"
    keys = _keys(bench, next(iter(bench.setting.downstream)), RANDOM)
    tuning = parse_evaluate_recipe(keys, "the supervised network").settings
    return [Supervised(recipe, tuning, home, seed) for seed in bench.seeds]


def _keys(bench: Workbench, dataset: str, model: str) -> dict[str, Any]:
    """Recipe keys of an evaluation on a dataset. What a run has as well is the run's, but for the device."""
    mine = (evaluation_keys(bench.setting) - bench.known("fedvssl")) | {"device", "tf32"}
    keys = {**bench.setting.models, **bench.setting.downstream[dataset], "perturb_levels": LEVELS}
    network = _pretraining(bench).flat()
    keys |= {"clip_frames": network["clip_frames"], "crop": network["clip_size"]}
    if model == RANDOM:
        keys |= {"depth": network["model_depth"], "width": network["model_width"] or 64}
    return {**keys, **{key: value for key, value in bench.overrides.items() if key in mine}}
