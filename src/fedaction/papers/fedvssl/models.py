"""What FedVSSL's networks are evaluated by: which networks an item has, and which evaluations it needs.

A run's evaluations lie in its folder, `evaluations/MODEL-DATA-<hash of the model and of the keys>`, as `fedaction
evaluate --out` writes them: items share them, and none is carried out twice. A network that has learnt from labels
lies in `models/supervised-<hash of its keys>/seed-N`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedaction.engines.base import choose_device
from fedaction.federation.files import hash_file, read_sealed_json
from fedaction.federation.progress import Progress
from fedaction.federation.settings import hash_values
from fedaction.papers.cells import Draft, Workbench
from fedaction.papers.fedvssl.items import CENTRAL, DOWNSTREAM, EIGHT, LEVELS, SUPERVISED
from fedaction.papers.fedvssl.setting import FedvsslSetting
from fedaction.papers.fedvssl.supervised import Supervised, supervise
from fedaction.papers.item import ItemRow
from fedaction.papers.work import Environment, RowRun, Work
from fedaction.runs.recipe import Recipe
from fedaction.training.evaluate import RANDOM, run_evaluate
from fedaction.training.evaluate_recipe import PROTOCOLS, EvaluateRecipe, parse_evaluate_recipe
from fedaction.training.folders import RECORD, read_part
from fedaction.training.protocols import precision_on

PERTURB = "perturb"
"""Besides the evaluation's own protocols: retrieval under noise on the weights."""
_Bench = Workbench[FedvsslSetting]
_Draft = Draft[FedvsslSetting]


@dataclass(frozen=True)
class Assessment(Work):
    """Some protocols of a network on one dataset; see `Work`."""

    row: str
    """The label of the row that the network is of."""
    model: str
    """The network's file, or "random"."""
    round: int
    """After which it was kept; 0: the last."""
    dataset: str
    """On what, by the paper's name."""
    recipe: EvaluateRecipe
    """The evaluation."""
    protocols: tuple[str, ...]
    """What is measured."""

    @property
    def done(self) -> bool:
        """See `Work`; the result is what is written last, but it may be of other protocols."""
        if not self._result_file.exists() or not all(self._file(protocol).exists() for protocol in self.protocols):
            return False
        source = self.recipe.source.fingerprint(self.recipe.settings.data_seed)
        return read_sealed_json(self.folder / RECORD).get("source") in (None, {}, source)

    @property
    def environment(self) -> Environment:
        """See `Work`."""
        return Environment.read(self._result_file, "environment")

    def execute(self, progress: Progress, one_core: bool = False) -> float:
        """See `Work`; the first of its scores."""
        run_evaluate(self.model, self.recipe, None, progress, folder=self.folder)
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
        return read_sealed_json(self._result_file)["data"]

    def _read(self, protocol: str) -> Any:
        return read_part(self._file(protocol)).value

    @property
    def _result_file(self) -> Path:
        return self.folder / "result.json"

    def _file(self, protocol: str) -> Path:
        return self.folder / f"seed-{self.seed}" / f"{protocol}.json"


def check_evaluations(bench: _Bench) -> None:
    """Raises RecipeError where an evaluation's keys cannot be used."""
    for dataset in bench.setting.downstream:
        _recipe(bench, dataset, RANDOM, 0, ())


def evaluations(draft: _Draft) -> Iterator[Sequence[Work]]:
    """What an item needs once its runs are done: the supervised network, then evaluations."""
    yield [work for row in draft.item.rows if row.method == SUPERVISED for work in supervised(draft.bench)]
    yield assessments(draft)


def assessments(draft: _Draft) -> list[Assessment]:
    """All evaluations that an item shows, row by row."""
    if draft.item.shows not in ("downstream", "perturbation", "traffic"):
        return []
    return [work for row in draft.item.rows for work in assess(draft, row)]


def assess(draft: _Draft, row: ItemRow) -> Iterator[Assessment]:
    """The evaluations of a row's networks, one of each dataset that there is.

    There is a network for each seed; where the item goes over rounds, those kept on the way are before each.
    """
    bench, label = draft.bench, draft.item.run_label(row)
    protocols = _protocols(draft)
    if row.method == RANDOM:
        homes = [(seed, bench.out / "models" / RANDOM / f"seed-{seed}") for seed in bench.seeds]
        networks = [("", seed, home, 0, RANDOM) for seed, home in homes]
    else:
        works: list[tuple[Work, int, Path]] = []
        if row.method == SUPERVISED:
            works = [(work, 0, work.model) for work in supervised(bench)]
        for run in runs_of(draft, row):
            if draft.item.shows == "traffic" and row.method != CENTRAL:
                works += [(run, round, path) for round, path in kept_models(run).items()]
            works.append((run, 0, run.folder / "model.safetensors"))
        networks = [
            (work.configuration, work.seed, work.folder / "evaluations", round, str(path))
            for work, round, path in works
        ]
    for configuration, seed, home, round, model in networks:
        digest = RANDOM if model == RANDOM else hash_file(Path(model))
        after = f" after round {round}" if round else ""
        for dataset, wanted in protocols.items():
            recipe = _recipe(bench, dataset, model, seed, wanted)
            # A network on a GPU is fine-tuned in another precision, hence in another folder.
            precision = precision_on(recipe.settings, choose_device(recipe.settings.device))
            data = [recipe.settings.data, recipe.settings.data_seed, recipe.source.deciding()]
            decides = {"network": digest, "data": data, "keys": recipe.deciding(precision)}
            folder = home / f"{Path(model).stem}-{dataset.lower()}-{hash_values(decides)}"
            name = f"{label}{after} on {dataset}"
            yield Assessment(name, configuration, seed, folder, label, model, round, dataset, recipe, wanted)


def _protocols(draft: _Draft) -> dict[str, tuple[str, ...]]:
    """What measures an item's columns, by dataset that there is."""
    protocols: dict[str, dict[str, None]] = {}
    for column in draft.item.columns:
        noisy = draft.item.shows == "perturbation"
        protocol = next((name for name in PROTOCOLS if column.metric.startswith(name)), "retrieval")
        for dataset in DOWNSTREAM if noisy else (DOWNSTREAM[column.client],):
            if dataset in draft.bench.setting.downstream:
                protocols.setdefault(dataset, {})[PERTURB if noisy else protocol] = None
    return {dataset: tuple(names) for dataset, names in protocols.items()}


def runs_of(draft: _Draft, row: ItemRow) -> tuple[RowRun, ...]:
    """A row's runs, one per seed; none where the data do not have it."""
    return next((cell.runs for cell in draft.cells if cell.row.label == row.label and cell.runs), ())


def kept_models(run: RowRun) -> dict[int, Path]:
    """The models that a run kept on its way, by round; the last one is its model file."""
    paths = sorted((run.folder / "models").glob("round-*.safetensors"))
    models = {int(path.stem.removeprefix("round-")): path for path in paths}
    return {round: path for round, path in models.items() if round < run.recipe.run.rounds}


def row_configuration(draft: _Draft, row: ItemRow) -> str:
    """The hash that a row's values are listed with; "" where there is none."""
    works = supervised(draft.bench) if row.method == SUPERVISED else runs_of(draft, row)
    return next((work.configuration for work in works), "")


def _pretraining(bench: _Bench) -> Recipe:
    """The federated recipe whose network and recordings all rows share."""
    return bench.recipe(ItemRow(("FedVSSL",), "fedvssl", data=EIGHT))


def supervised(bench: _Bench) -> list[Supervised]:
    """The networks that have learnt from labels, one per seed."""
    keys = _keys(bench, next(iter(bench.setting.downstream)), RANDOM)
    tuning = parse_evaluate_recipe(keys, "the supervised network").settings
    return [supervise(_pretraining(bench), tuning, bench.out / "models", seed) for seed in bench.seeds]


def _recipe(bench: _Bench, dataset: str, model: str, seed: int, protocols: Sequence[str]) -> EvaluateRecipe:
    """An evaluation. Raises RecipeError."""
    plain = tuple(protocol for protocol in protocols if protocol != PERTURB) or ("retrieval",)
    own = {"protocols": plain, "perturb": PERTURB in protocols, "seeds": (seed,)}
    return parse_evaluate_recipe({**_keys(bench, dataset, model), **own}, f"the evaluation on {dataset}")


def _keys(bench: _Bench, dataset: str, model: str) -> dict[str, Any]:
    """Recipe keys of an evaluation on a dataset. What a run has as well is the run's, but for the device."""
    user_keys = (bench.setting.evaluation_keys() - bench.known("fedvssl")) | {"device", "tf32"}
    keys = {**bench.setting.evaluation, **bench.setting.downstream[dataset], "perturb_levels": LEVELS}
    network = _pretraining(bench).flat()
    keys |= {"clip_frames": network["clip_frames"], "crop": network["clip_size"]}
    if model == RANDOM:
        keys |= {"depth": network["model_depth"], "width": network["model_width"] or 64}
        if keys.get("strides") == "own":
            keys["strides"] = "ctp"  # most rows are CtP's, and random weights have no training to keep to
    return {**keys, **{key: value for key, value in bench.overrides.items() if key in user_keys}}
