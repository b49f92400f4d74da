"""The edge paper's chains of networks: which an item needs, and reading those that are distilled.

A chain lies in `models/resnet-34-26-18-<hash of its keys>/seed-N` and is never distilled twice. One teacher serves
all chains that begin with it, and the student of one chain is where fine-tuning starts.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedaction.data.sources import CLIP_SOURCES
from fedaction.federation.files import read_json
from fedaction.federation.progress import Progress
from fedaction.federation.settings import hash_values
from fedaction.papers.cells import Workbench
from fedaction.papers.edge.items import DISTIL, HOURS, INCREASE, PER_CLIP, SECONDS, STUDENT, chains_of
from fedaction.papers.edge.setting import EdgeSetting
from fedaction.papers.item import Item, ItemRow
from fedaction.papers.outcome import Value
from fedaction.papers.work import Environment
from fedaction.runs.metrics import read_rows
from fedaction.training.distil import DistilResult, StageResult, run_distil, stages_of
from fedaction.training.distil_recipe import DistilRecipe, DistilSettings, parse_distil_recipe

STUDENT_SEED = 0
"""All fine-tuning starts from one student, whatever its own seeds."""


@dataclass(frozen=True)
class Distillation:
    """A chain of one seed; see `Work`.

    Attributes:
        label: what people call it.
        recipe: its chain and one seed.
        home: the folder of its seeds.
    """

    label: str
    recipe: DistilRecipe
    home: Path

    @property
    def configuration(self) -> str:
        """See `Work`: of all but the seed that decides it; of the clips the keys: they need not be there yet."""
        settings = self.recipe.settings
        data: dict[str, Any] = {"data": settings.data, "data_seed": settings.data_seed}
        return hash_values(data | settings.deciding() | self.recipe.source.deciding())

    @property
    def seed(self) -> int:
        """See `Work`."""
        return self.recipe.settings.seeds[0]

    @property
    def folder(self) -> Path:
        """See `Work`."""
        chain = "-".join(map(str, self.recipe.settings.chain))
        return self.home / f"resnet-{chain}-{self.configuration}" / f"seed-{self.seed}"

    @property
    def done(self) -> bool:
        """See `Work`; the result is what is written last."""
        return (self.folder / "result.json").exists() and self.student.exists()

    @property
    def environment(self) -> Environment:
        """See `Work`."""
        return Environment.parse(read_json(self.folder / "environment.json"))

    @property
    def last_stage(self) -> Path:
        """The directory of the last network."""
        return self.folder / stages_of(self.recipe)[-1].name

    @property
    def student(self) -> Path:
        """The last network's model file."""
        return self.last_stage / "model.safetensors"

    @property
    def stages(self) -> list[StageResult]:
        """What each network came to, of a chain that is done."""
        result: DistilResult = read_json(self.folder / "result.json")
        return result["stages"][str(self.seed)]

    @property
    def seconds(self) -> float:
        """Wall seconds of the networks after the teacher; of a single one, its own."""
        return sum(stage["seconds"] for stage in (self.stages[1:] or self.stages))

    def execute(self, progress: Progress, one_core: bool = False) -> float:
        """See `Work`; the student's per-clip accuracy."""
        return run_distil(self.recipe, self.folder, progress)["clip_accuracy"]


def distil_keys(bench: Workbench[EdgeSetting]) -> set[str]:
    """Keys of a distillation."""
    return {*DistilSettings.model_fields, *CLIP_SOURCES[bench.setting.distillation["data"]].model_fields}


def chain_of(item: Item, bench: Workbench[EdgeSetting], chain: Sequence[int], seed: int) -> Distillation:
    """A chain as an item needs it. Raises RecipeError."""
    known = distil_keys(bench)
    if not chains_of(item):  # keys that both kinds of training have are the rows', which fine-tune
        known -= set[str]().union(*(bench.known(row.method) for row in item.federated)) - {"device"}
    keys = {key: value for key, value in bench.overrides.items() if key in known}
    teacher = str(chain_of(item, bench, chain[:1], seed).student) if len(chain) > 1 else ""
    name = "-".join(map(str, chain))
    own = {"name": f"paper-{name}", "chain": tuple(chain), "seeds": (seed,), "teacher": teacher}
    recipe = parse_distil_recipe({**bench.setting.distillation, **keys, **own}, f"ResNet {name}")
    return Distillation(f"ResNet {name}", recipe, bench.out / "models")


def student_of(item: Item, bench: Workbench[EdgeSetting]) -> Distillation | None:
    """Where an item's fine-tuning starts; None where it has none, or starts from a file of the user's."""
    if not item.federated or bench.overrides.get("pretrained"):
        return None
    return chain_of(item, bench, bench.overrides.get("chain", STUDENT), STUDENT_SEED)


def distillations(item: Item, bench: Workbench[EdgeSetting]) -> Iterator[list[Distillation]]:
    """The networks that an item needs: teachers of those that are not there first."""
    needed = [chain_of(item, bench, chain, seed) for chain in chains_of(item) for seed in bench.seeds]
    if student := student_of(item, bench):
        needed.append(student)
    taught = [work.recipe.settings for work in needed if not work.done and work.recipe.settings.teacher]
    yield [chain_of(item, bench, settings.chain[:1], settings.seeds[0]) for settings in taught]
    yield needed


def row_chains(item: Item, bench: Workbench[EdgeSetting]) -> list[tuple[ItemRow, list[Distillation]]]:
    """The chain behind each row that shows one, seed by seed."""
    rows = [row for row in item.rows if row.method == DISTIL]
    return [(row, [chain_of(item, bench, row.overrides["chain"], seed) for seed in bench.seeds]) for row in rows]


def read_chains(item: Item, bench: Workbench[EdgeSetting]) -> list[Value]:
    """Every chain that an item shows: the student's accuracy, and how long it took after the teacher."""
    table: list[Value] = []
    base: list[float] = []  # of the chain without an assistant, by seed
    for row, works in row_chains(item, bench):
        seconds = [work.seconds for work in works]
        base = base or (seconds if len(row.overrides["chain"]) == 2 else [])
        values = {
            PER_CLIP: [100 * work.stages[-1]["clip_accuracy"] for work in works],
            SECONDS: seconds,
            HOURS: [one / 3600 for one in seconds],
            INCREASE: [100 * (one / other - 1) for one, other in zip(seconds, base, strict=False) if other],
        }
        for column, paper in zip(item.columns, row.paper, strict=True):
            if column in values:
                table.append(Value(row.label, column.label, tuple(values[column]), paper, "", works[0].configuration))
    return table


def read_chain_curves(item: Item, bench: Workbench[EdgeSetting]) -> list[Value]:
    """The students' per-clip accuracies over epochs, in per cent, where an item shows curves."""
    points: list[Value] = []
    if item.shows != "curves":
        return points
    for row, works in row_chains(item, bench):
        epochs: dict[int, list[float]] = {}
        for work in works:
            for line in read_rows(work.last_stage / "metrics.jsonl"):
                if (line.split, line.name) == ("test", "accuracy") and line.value is not None:
                    epochs.setdefault(line.round, []).append(100 * line.value)
        label, configuration = item.columns[0].label, works[0].configuration
        for epoch, values in sorted(epochs.items()):
            points.append(Value(row.label, label, tuple(values), None, "", configuration, {"round": epoch}))
    return points


def note_networks(item: Item, bench: Workbench[EdgeSetting]) -> list[str]:
    """Notes on an item's networks."""
    if chains_of(item):
        works = [chain_of(item, bench, chain, seed) for chain in chains_of(item) for seed in bench.seeds if chain[1:]]
        teachers = {work.seed: 100 * work.stages[0]["clip_accuracy"] for work in works}
        return [f"The teacher's per-clip accuracy: {statistics.fmean(teachers.values()):.1f} %."] if teachers else []
    student = student_of(item, bench)
    if student is None:
        return []
    accuracy = 100 * student.stages[-1]["clip_accuracy"]
    start = f"Fine-tuning starts from the student of {student.label}"
    seeds = "; it is one for all seeds" if len(bench.seeds) > 1 else ""
    return [f"{start}, per-clip accuracy {accuracy:.1f} % where it learnt{seeds}."]
