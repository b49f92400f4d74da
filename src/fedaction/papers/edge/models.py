"""The edge paper's chains of networks: which an item needs, training those that are not there, reading them.

A chain lies in `models/resnet-34-26-18-<hash of its keys>/seed-N` and is never distilled twice. One teacher serves
all chains that begin with it, and the student of one chain is where fine-tuning starts.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedaction.federation.files import read_json
from fedaction.federation.progress import Progress
from fedaction.federation.settings import hash_values
from fedaction.papers.cells import Workbench, carry_out
from fedaction.papers.edge.items import HOURS, INCREASE, PER_CLIP, SECONDS, STUDENT
from fedaction.papers.item import DISTIL, Item, Row
from fedaction.papers.outcome import Value
from fedaction.runs.metrics import read_rows
from fedaction.training.distil import DistilResult, StageResult, run_distil, stages_of
from fedaction.training.distil_recipe import DistilRecipe, parse_distil_recipe

STUDENT_SEED = 0
"""All fine-tuning starts from one student, whatever its own seeds."""

"""Keys of clips that say where they lie, not what they are."""


@dataclass(frozen=True)
class Distillation:
    """A chain of one seed: what and where.

    Attributes:
        label: what people call it.
        recipe: its chain and one seed.
        folder: its directory.
    """

    label: str
    recipe: DistilRecipe
    folder: Path

    @property
    def done(self) -> bool:
        """Whether it has come to its end: the result is what is written last."""
        return (self.folder / "result.json").exists() and self.student.exists()

    @property
    def seed(self) -> int:
        """Its seed."""
        return self.recipe.settings.seeds[0]

    @property
    def home(self) -> Path:
        """The directory of the last network."""
        return self.folder / stages_of(self.recipe)[-1].name

    @property
    def student(self) -> Path:
        """The last network's model file."""
        return self.home / "model.safetensors"

    @property
    def stages(self) -> list[StageResult]:
        """What each network came to, of a chain that is done."""
        result: DistilResult = read_json(self.folder / "result.json")
        return result["stages"][str(self.seed)]

    @property
    def seconds(self) -> float:
        """Wall seconds of the networks after the teacher; of one alone, its own."""
        return sum(stage["seconds"] for stage in (self.stages[1:] or self.stages))

    def execute(self, progress: Progress) -> None:
        """Trains it, or what is left of it."""
        run_distil(self.recipe, self.folder, progress)

    def alone(self) -> float:
        """The same in a process of its own; the student's per-clip accuracy."""
        return run_distil(self.recipe, self.folder)["clip_accuracy"]


def chain_of(item: Item, bench: Workbench, chain: Sequence[int], seed: int) -> Distillation:
    """A chain as an item needs it. Raises RecipeError."""
    known = bench.known(DISTIL)
    if not item.chains:  # keys that both kinds of training have are the rows', which fine-tune
        known -= set[str]().union(*(bench.known(row.method) for row in item.tuned)) - {"device"}
    keys = {key: value for key, value in bench.overrides.items() if key in known}
    teacher = str(chain_of(item, bench, chain[:1], seed).student) if len(chain) > 1 else ""
    name = "-".join(map(str, chain))
    own = {"name": f"paper-{name}", "chain": tuple(chain), "seeds": (seed,), "teacher": teacher}
    recipe = parse_distil_recipe({**bench.setting.models, **keys, **own}, f"ResNet {name}")
    return Distillation(
        f"ResNet {name}", recipe, bench.out / "models" / f"resnet-{name}-{_hash(recipe)}" / f"seed-{seed}"
    )


def student_of(item: Item, bench: Workbench) -> Distillation:
    """Where an item's fine-tuning starts."""
    return chain_of(item, bench, bench.overrides.get("chain", STUDENT), STUDENT_SEED)


def pretrained_by(item: Item, bench: Workbench) -> dict[str, Any]:
    """Recipe keys of an item's runs: the model file that they start from."""
    if bench.setting.paper != "edge" or not item.tuned:
        return {}
    return {"pretrained": bench.overrides.get("pretrained") or str(student_of(item, bench).student)}


def distil(item: Item, bench: Workbench, progress: Progress, jobs: int = 1) -> None:
    """Trains the networks that an item needs and that are not there: teachers first."""
    if bench.setting.paper != "edge":
        return
    needed = [chain_of(item, bench, chain, seed) for chain in item.chains for seed in bench.seeds]
    if item.tuned and not bench.overrides.get("pretrained"):
        needed.append(student_of(item, bench))
    chains = [work.recipe.settings for work in needed if not work.done and work.recipe.settings.teacher]
    carry_out((chain_of(item, bench, one.chain[:1], one.seeds[0]) for one in chains), progress, jobs)
    carry_out(needed, progress, jobs)


def epochs_of(item: Item, bench: Workbench) -> int:
    """How long the networks of an item's chains train; 0 where it shows none."""
    return max((max(chain_of(item, bench, chain, 0).recipe.settings.epochs) for chain in item.chains), default=0)


def named(item: Item, bench: Workbench) -> list[tuple[str, str, str]]:
    """Label, method and configuration of an item's chains."""
    rows = [row for row in item.rows if row.method == DISTIL]
    return [(item.describe(row.label), DISTIL, _row_hash(item, bench, row)) for row in rows]


def chain_values(item: Item, bench: Workbench) -> list[Value]:
    """Every chain that an item shows: the student's accuracy, and how long it took after the teacher."""
    found: list[Value] = []
    base: list[float] = []  # of the chain without an assistant, by seed
    for row in item.rows:
        if row.method != DISTIL:
            continue
        works = _works(item, bench, row)
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
                configuration = _row_hash(item, bench, row)
                found.append(Value(row.label, column.label, tuple(values[column]), paper, "", configuration))
    return found


def chain_curves(item: Item, bench: Workbench) -> list[Value]:
    """The students' per-clip accuracies over epochs, in per cent."""
    found: list[Value] = []
    for row in item.rows:
        epochs: dict[int, list[float]] = {}
        for work in _works(item, bench, row):
            for line in read_rows(work.home / "metrics.jsonl"):
                if (line.split, line.name) == ("test", "accuracy") and line.value is not None:
                    epochs.setdefault(line.round, []).append(100 * line.value)
        label, configuration = item.columns[0].label, _row_hash(item, bench, row)
        for epoch, values in sorted(epochs.items()):
            found.append(Value(row.label, label, tuple(values), None, "", configuration, {"round": epoch}))
    return found


def about_chains(item: Item, bench: Workbench) -> tuple[str, ...]:
    """Notes on an item's networks."""
    if item.chains:
        works = [chain_of(item, bench, chain, seed) for chain in item.chains for seed in bench.seeds if chain[1:]]
        found = {work.seed: 100 * work.stages[0]["clip_accuracy"] for work in works}
        return (f"The teacher's per-clip accuracy: {statistics.fmean(found.values()):.1f} %.",) if found else ()
    if not item.tuned or bench.overrides.get("pretrained"):
        return ()
    work = student_of(item, bench)
    accuracy = 100 * work.stages[-1]["clip_accuracy"]
    words = f"Fine-tuning starts from the student of {work.label}, per-clip accuracy {accuracy:.1f} % where it learnt"
    return (f"{words}; it is one for all seeds." if len(bench.seeds) > 1 else f"{words}.",)


def _works(item: Item, bench: Workbench, row: Row) -> list[Distillation]:
    return [chain_of(item, bench, row.overrides["chain"], seed) for seed in bench.seeds]


def _row_hash(item: Item, bench: Workbench, row: Row) -> str:
    return _hash(chain_of(item, bench, row.overrides["chain"], bench.seeds[0]).recipe)


def _hash(recipe: DistilRecipe) -> str:
    """A hash of what decides a chain, but for its seed; of the clips the keys, since they need not be there yet."""
    settings = recipe.settings
    left: dict[str, Any] = {"data": settings.data, "data_seed": settings.data_seed}
    return hash_values(left | settings.deciding() | recipe.source.deciding())
