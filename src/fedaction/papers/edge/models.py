"""The edge paper's chains of networks: which an item needs, and reading those that are distilled.

A chain lies in `models/resnet-34-26-18-<hash of its keys>/seed-N` and is never distilled twice. One teacher serves
all chains that begin with it, and the student of one chain is where fine-tuning starts.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedaction.data.sources import CLIP_SOURCES
from fedaction.federation.files import read_sealed_json
from fedaction.federation.progress import Progress
from fedaction.federation.settings import hash_values
from fedaction.papers.cells import Draft, Workbench
from fedaction.papers.edge.items import DISTIL, HOURS, INCREASE, PER_CLIP, SECONDS, STUDENT, chains_of
from fedaction.papers.edge.setting import EdgeSetting
from fedaction.papers.item import Item
from fedaction.papers.measure import by_round, points_of
from fedaction.papers.outcome import Value
from fedaction.papers.work import Work
from fedaction.training.distil import DistilResult, StageResult, read_source, run_distil, stages_of
from fedaction.training.distil_recipe import DistilRecipe, DistilSettings, parse_distil_recipe

STUDENT_SEED = 0
"""All fine-tuning starts from one student, whatever its own seeds."""


@dataclass(frozen=True)
class Distillation(Work):
    """A chain of networks; `recipe` has one seed."""

    recipe: DistilRecipe

    @property
    def done(self) -> bool:
        """See `Work`; the result is what is written last."""
        if not (self.folder / "result.json").exists() or not self.student.exists():
            return False
        source = self.recipe.source.fingerprint(self.recipe.settings.data_seed)
        return read_source(self.folder) in (None, source)

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
        result: DistilResult = read_sealed_json(self.folder / "result.json")  # pyright: ignore[reportAssignmentType]
        return result["stages"][str(self.seed)]

    @property
    def accuracy(self) -> float:
        """The student's, per clip, in per cent; of a chain that is done."""
        return 100 * self.stages[-1]["clip_accuracy"]

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
    """A chain as an item needs it. Raises RecipeError.

    Its hash is of all that decides it but the seed; of the clips it has the keys, for they need not be there yet.
    """
    known = distil_keys(bench)
    if not chains_of(item):  # keys that both kinds of training have are the rows', which fine-tune
        known -= set[str]().union(*(bench.known(row.method) for row in item.federated)) - {"device"}
    keys = {key: value for key, value in bench.overrides.items() if key in known}
    teacher = str(chain_of(item, bench, chain[:1], seed).student) if len(chain) > 1 else ""
    name = "-".join(map(str, chain))
    own = {"name": f"paper-{name}", "chain": tuple(chain), "seeds": (seed,), "teacher": teacher}
    recipe = parse_distil_recipe({**bench.setting.distillation, **keys, **own}, f"ResNet {name}")
    data = {"data": recipe.settings.data, "data_seed": recipe.settings.data_seed}
    configuration = hash_values(data | recipe.settings.deciding() | recipe.source.deciding())
    folder = bench.out / "models" / f"resnet-{name}-{configuration}" / f"seed-{seed}"
    return Distillation(f"ResNet {name}", configuration, seed, folder, recipe)


def shown_chains(item: Item, bench: Workbench[EdgeSetting]) -> list[Distillation]:
    """The chains that an item shows, each with every seed."""
    return [chain_of(item, bench, chain, seed) for chain in chains_of(item) for seed in bench.seeds]


def student_of(item: Item, bench: Workbench[EdgeSetting]) -> Distillation | None:
    """Where an item's fine-tuning starts; None where it has none, or starts from a file of the user's."""
    if not item.federated or bench.overrides.get("pretrained"):
        return None
    return chain_of(item, bench, bench.overrides.get("chain", STUDENT), STUDENT_SEED)


def distillations(item: Item, bench: Workbench[EdgeSetting]) -> Iterator[list[Distillation]]:
    """The networks that an item needs: teachers of those that are not there first."""
    needed = shown_chains(item, bench)
    if student := student_of(item, bench):
        needed.append(student)
    taught = [work.recipe.settings for work in needed if not work.done and work.recipe.settings.teacher]
    yield [chain_of(item, bench, settings.chain[:1], settings.seeds[0]) for settings in taught]
    yield needed


def read_chains(draft: Draft[EdgeSetting]) -> Iterator[Value]:
    """The student's accuracy of every chain that an item shows, also over epochs, and how long it took."""
    item, base = draft.item, list[float]()  # seconds of the chain without an assistant, by seed
    for row in item.rows:
        if row.method != DISTIL:
            continue
        works = [chain_of(item, draft.bench, row.overrides["chain"], seed) for seed in draft.bench.seeds]
        seconds, configuration = [work.seconds for work in works], works[0].configuration
        base = base or (seconds if len(row.overrides["chain"]) == 2 else [])
        values = {
            PER_CLIP: [work.accuracy for work in works],
            SECONDS: seconds,
            HOURS: [one / 3600 for one in seconds],
            INCREASE: [100 * (one / other - 1) for one, other in zip(seconds, base, strict=False) if other],
        }
        for column, paper in zip(item.columns, row.paper, strict=True):
            if column in values:
                yield Value(row.label, column.label, tuple(values[column]), paper, "", configuration)
        if item.shows == "curves":
            test = [by_round(w.last_stage, lambda r: (r.split, r.name) == ("test", "accuracy")) for w in works]
            curves = [{epoch: 100 * accuracy for epoch, (accuracy,) in curve.items()} for curve in test]
            yield from points_of(curves, row.label, PER_CLIP.label, configuration)


def note_networks(item: Item, bench: Workbench[EdgeSetting]) -> list[str]:
    """Notes on an item's networks."""
    if chains_of(item):
        chains = [work for work in shown_chains(item, bench) if work.recipe.settings.teacher]
        teachers = {work.seed: 100 * work.stages[0]["clip_accuracy"] for work in chains}
        return [f"The teacher's per-clip accuracy: {statistics.fmean(teachers.values()):.1f} %."] if teachers else []
    student = student_of(item, bench)
    if student is None:
        return []
    start = f"Fine-tuning starts from the student of {student.label}"
    seeds = "; it is one for all seeds" if len(bench.seeds) > 1 else ""
    return [f"{start}, per-clip accuracy {student.accuracy:.1f} % where it learnt{seeds}."]
