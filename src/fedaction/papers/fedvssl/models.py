"""What FedVSSL's networks are evaluated by: which networks an item has, and which evaluations it needs.

A run's evaluations lie in its folder, `evaluations/MODEL-DATA-<hash of the model and of the keys>`, as `fedaction
evaluate --out` writes them: items share them, and none is carried out twice. A network that has learnt from labels
lies in `models/supervised-<hash of its keys>/seed-N`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedaction.engines.base import choose_device
from fedaction.federation.files import read_json
from fedaction.federation.progress import Progress
from fedaction.federation.settings import hash_values
from fedaction.papers.cells import ItemCell, Workbench
from fedaction.papers.fedvssl.items import CENTRAL, DOWNSTREAM, EIGHT, LEVELS, SUPERVISED
from fedaction.papers.fedvssl.setting import FedvsslSetting
from fedaction.papers.fedvssl.supervised import Supervised
from fedaction.papers.item import Column, Item, ItemRow
from fedaction.papers.work import Environment, Run, Work
from fedaction.runs.recipe import Recipe
from fedaction.training.evaluate import RANDOM, run_evaluate
from fedaction.training.evaluate_recipe import PROTOCOLS, EvaluateRecipe, parse_evaluate_recipe
from fedaction.training.protocols import precision_on
from fedaction.training.teacher import file_digest

PERTURB = "perturb"
"""Besides the evaluation's own protocols: retrieval under noise on the weights."""


@dataclass(frozen=True)
class Network:
    """A network to be evaluated.

    Attributes:
        label: the row that it is of.
        model: its file, or "random".
        home: the folder of its evaluations.
        configuration: the hash that its values are listed with.
        seed: of whatever is drawn; also its own.
        round: after which it was kept; 0: the last.
    """

    label: str
    model: str
    home: Path
    configuration: str
    seed: int
    round: int = 0

    @cached_property
    def digest(self) -> str:
        """The file's SHA-256."""
        return RANDOM if self.model == RANDOM else file_digest(Path(self.model))


@dataclass(frozen=True)
class Assessment:
    """Some protocols of a network on one dataset; see `work.Work`.

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
    def configuration(self) -> str:
        """See `Work`: its network's."""
        return self.network.configuration

    @property
    def seed(self) -> int:
        """See `Work`."""
        return self.network.seed

    @property
    def folder(self) -> Path:
        """See `Work`. A network on a GPU is fine-tuned in another precision, hence in another folder."""
        recipe = self.recipe
        precision = precision_on(recipe.settings, choose_device(recipe.settings.device))
        decides = {
            "network": self.network.digest,
            "data": [recipe.settings.data, recipe.settings.data_seed, recipe.source.deciding()],
            "keys": recipe.deciding(precision),
        }
        stem = RANDOM if self.network.model == RANDOM else Path(self.network.model).stem
        return self.network.home / f"{stem}-{self.dataset.lower()}-{hash_values(decides)}"

    @property
    def done(self) -> bool:
        """See `Work`; the result is what is written last, but it may be of other protocols."""
        return self._result_file.exists() and all(self._file(protocol).exists() for protocol in self.protocols)

    @property
    def environment(self) -> Environment:
        """See `Work`."""
        return Environment.parse(read_json(self._result_file)["environment"])

    def execute(self, progress: Progress, one_core: bool = False) -> float:
        """See `Work`; the first of its scores."""
        run_evaluate(self.network.model, self.recipe, None, progress, folder=self.folder)
        return next(iter(self.scores.values()), 0.0)

    @property
    def scores(self) -> dict[str, float]:
        """What was measured, as shares; of one that is done."""
        plain = [self._read(protocol) for protocol in self.protocols if protocol != PERTURB]
        return {key: value for scores in plain for key, value in scores.items()}

    @property
    def noisy(self) -> dict[tuple[str, float], float]:
        """R@1 under noise, by its kind and level, as shares: means over draws."""
        draws: dict[tuple[str, float], list[float]] = {}
        for kind, level, r1, _ in self._read(PERTURB):
            draws.setdefault((kind, level), []).append(r1)
        return {key: statistics.fmean(values) for key, values in draws.items()}

    @property
    def data(self) -> dict[str, Any]:
        """What it was evaluated on."""
        return read_json(self._result_file)["data"]

    @cached_property
    def recipe(self) -> EvaluateRecipe:
        """The evaluation. Raises RecipeError."""
        plain = tuple(protocol for protocol in self.protocols if protocol != PERTURB)
        own = {"protocols": plain or ("retrieval",), "perturb": PERTURB in self.protocols, "seeds": (self.seed,)}
        return parse_evaluate_recipe({**self.keys, **own}, f"the evaluation on {self.dataset}")

    def _read(self, protocol: str) -> Any:
        return read_json(self._file(protocol))["found"]

    @property
    def _result_file(self) -> Path:
        return self.folder / "result.json"

    def _file(self, protocol: str) -> Path:
        return self.folder / f"seed-{self.seed}" / f"{protocol}.json"


def check_evaluations(bench: Workbench[FedvsslSetting]) -> None:
    """Raises RecipeError where an evaluation's keys cannot be used."""
    nothing = Network("", RANDOM, bench.out, "", 0)
    for dataset in bench.setting.downstream:
        _ = Assessment(nothing, dataset, _keys(bench, dataset, RANDOM), ()).recipe


def evaluations(item: Item, bench: Workbench[FedvsslSetting], cells: Sequence[ItemCell]) -> Iterator[Sequence[Work]]:
    """What an item needs once its runs are done: the supervised network, then evaluations."""
    yield [work for row in item.rows if row.method == SUPERVISED for work in supervised(bench)]
    yield assessments(item, bench, cells)


def assessments(item: Item, bench: Workbench[FedvsslSetting], cells: Sequence[ItemCell]) -> list[Assessment]:
    """All evaluations that an item shows, row by row."""
    if item.shows not in ("downstream", "perturbation", "traffic"):
        return []
    return [
        work
        for row in item.rows
        for network in networks(item, bench, cells, row)
        for work in assess(item, bench, network)
    ]


def networks(item: Item, bench: Workbench[FedvsslSetting], cells: Sequence[ItemCell], row: ItemRow) -> list[Network]:
    """A row's networks, one per seed; where the item goes over rounds, those kept on the way before each."""
    label = item.run_label(row)
    if row.method == RANDOM:
        home = bench.out / "models" / RANDOM
        return [Network(label, RANDOM, home / f"seed-{seed}", "", seed) for seed in bench.seeds]
    over_rounds = item.shows == "traffic" and row.method != CENTRAL
    models: list[tuple[Work, int, Path]] = []
    if row.method == SUPERVISED:
        models = [(work, 0, work.model) for work in supervised(bench)]
    for run in runs_of(cells, row):
        models += [(run, round, path) for round, path in kept_models(run).items() if over_rounds]
        models.append((run, 0, run.folder / "model.safetensors"))
    return [
        Network(label, str(path), work.folder / "evaluations", work.configuration, work.seed, round)
        for work, round, path in models
    ]


def assess(item: Item, bench: Workbench[FedvsslSetting], network: Network) -> list[Assessment]:
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


def runs_of(cells: Sequence[ItemCell], row: ItemRow) -> tuple[Run, ...]:
    """A row's runs, one per seed; none where the data do not have it."""
    return next((cell.runs for cell in cells if cell.row.label == row.label and cell.runs), ())


def kept_models(run: Run) -> dict[int, Path]:
    """The models that a run kept on its way, by round; the last one is its model file."""
    paths = sorted((run.folder / "models").glob("round-*.safetensors"))
    models = {int(path.stem.removeprefix("round-")): path for path in paths}
    return {round: path for round, path in models.items() if round < run.recipe.run.rounds}


def row_configuration(bench: Workbench[FedvsslSetting], cells: Sequence[ItemCell], row: ItemRow) -> str:
    """The hash that a row's values are listed with; "" where there is none."""
    if row.method == SUPERVISED:
        return supervised(bench)[0].configuration
    return next((run.configuration for run in runs_of(cells, row)), "")


def _pretraining(bench: Workbench[FedvsslSetting]) -> Recipe:
    """The federated recipe whose network and recordings all rows share."""
    return bench.recipe(ItemRow(("FedVSSL",), "fedvssl", data=EIGHT))


def supervised(bench: Workbench[FedvsslSetting]) -> list[Supervised]:
    """The networks that have learnt from labels, one per seed."""
    recipe, home = _pretraining(bench), bench.out / "models"
    keys = _keys(bench, next(iter(bench.setting.downstream)), RANDOM)
    tuning = parse_evaluate_recipe(keys, "the supervised network").settings
    return [Supervised(recipe, tuning, home, seed) for seed in bench.seeds]


def _keys(bench: Workbench[FedvsslSetting], dataset: str, model: str) -> dict[str, Any]:
    """Recipe keys of an evaluation on a dataset. What a run has as well is the run's, but for the device."""
    user_keys = (bench.setting.evaluation_keys() - bench.known("fedvssl")) | {"device", "tf32"}
    keys = {**bench.setting.evaluation, **bench.setting.downstream[dataset], "perturb_levels": LEVELS}
    network = _pretraining(bench).flat()
    keys |= {"clip_frames": network["clip_frames"], "crop": network["clip_size"]}
    if model == RANDOM:
        keys |= {"depth": network["model_depth"], "width": network["model_width"] or 64}
    return {**keys, **{key: value for key, value in bench.overrides.items() if key in user_keys}}
