"""Distillation through assistants: a teacher, then each assistant, then the student, every one taught by the last.

The directory itself is the chain of the first seed; other seeds lie in `seeds/<seed>/`. Each network has a directory
(`stage-1-resnet34`, ...; `scratch-resnet18` for the student without a teacher) with `model.safetensors`,
`metrics.jsonl`, `clock.jsonl` and, last of all, `stage.json`: where there is one, the stage is finished.
"""

from __future__ import annotations

import shutil
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedaction.data.client import ClientData
from fedaction.data.clips.clips import check_clips, digest_of
from fedaction.data.clips.window import window_of
from fedaction.engines.base import check_precision, choose_device, set_precision
from fedaction.evaluation.accuracy import accuracy_of, wilson
from fedaction.federation.files import (
    hash_file,
    make_folder,
    read_json,
    read_sealed_json,
    write_atomically,
    write_sealed_json,
)
from fedaction.federation.progress import DATA, Progress, Quiet, tell_of
from fedaction.federation.settings import to_toml
from fedaction.models.files import Card, clip_card, load_resnet, read_card, save_model
from fedaction.models.resnet3d import ResNet3D
from fedaction.runs.environment import environment
from fedaction.runs.metrics import MetricsFile, read_rows, write_seconds
from fedaction.training.distil_recipe import DistilRecipe, load_distil_recipe
from fedaction.training.folders import check_folder, check_unchanged, open_folder
from fedaction.training.teacher import keep_logits
from fedaction.training.trainer import CLOCK, Pretraining, Splits, accuracy_rows, seconds_of

DATA_FILE = "data.json"
"""In its directory: which clips it was begun with, and what they were made of (`Source.fingerprint`)."""


class StageResult(TypedDict):
    """One network of a chain: accuracies are shares, 0 to 1, of the test clips and of their recordings.

    `interval` is the 95 % interval of `clip_accuracy`, as if its `clips` were independent; `recall` is that of clips,
    by class, None where the test has none of it.
    """

    stage: str
    role: str
    depth: int
    parameters: int
    epochs: int
    teacher: str | None
    clip_accuracy: float
    balanced_accuracy: float
    macro_f1: float
    recall: dict[str, float | None]
    interval: list[float]
    clips: int
    video_accuracy: float
    loss: float
    seconds: float
    configuration: str
    sha256: str


class DistilResult(TypedDict):
    """What `result.json` holds. Over several seeds, `clip_accuracy` and `video_accuracy` are the student's means.

    `std` is the standard deviation of the seeds' per-clip accuracies; `scratch` is of the student without a teacher.
    """

    run: str
    name: str
    chain: list[int]
    width: int
    clip_accuracy: float
    video_accuracy: float
    std: float | None
    seconds: float
    device: str
    stages: dict[str, list[StageResult]]
    scratch: NotRequired[dict[str, float]]


class Stage(NamedTuple):
    """One network to be trained."""

    name: str  # its directory
    role: str  # "teacher", "assistant", "student" or "scratch"
    depth: int
    epochs: int  # 0: its model file was given
    teacher: str | None  # the directory of who teaches it


def stages_of(recipe: DistilRecipe) -> list[Stage]:
    """The networks of a chain, in the order in which they are trained."""
    settings = recipe.settings
    epochs = settings.epochs * (len(settings.chain) if len(settings.epochs) == 1 else 1)
    stages: list[Stage] = []
    for number, (depth, passes) in enumerate(zip(settings.chain, epochs, strict=True), 1):
        role = "student" if number == len(settings.chain) else "assistant" if stages else "teacher"
        given = number == 1 and settings.teacher
        teacher = stages[-1].name if stages else None
        stages.append(Stage(f"stage-{number}-resnet{depth}", role, depth, 0 if given else passes, teacher))
    if settings.scratch:
        stages.append(Stage(f"scratch-resnet{settings.chain[-1]}", "scratch", settings.chain[-1], epochs[-1], None))
    return stages


def run_distil(
    recipe: DistilRecipe, folder: Path, progress: Progress | None = None, data: ClientData | None = None
) -> DistilResult:
    """Trains a recipe's chain for each of its seeds, or what is left of that; the result is also `result.json`.

    The folder is a new or empty directory, or that of the same recipe when it is resumed. `data`, a client with all
    clips, takes the place of what the recipe names.
    """
    progress = progress or Quiet()
    settings = recipe.settings
    device = choose_device(settings.device)
    check_precision(settings.precision, device)
    begun = _check_keys(recipe, folder)
    source = dict[str, str]()  # of clips that are given, nothing is known
    if data is None:
        data = recipe.source.pool(settings.data_seed, tell_of(progress, DATA))
        source = recipe.source.fingerprint(settings.data_seed)
    check_clips(data, f"data = {settings.data!r}")
    window = window_of(data, settings.crop, settings.augment_pad, settings.augment_flip)
    given = _given_teacher(recipe, data)
    with open_folder(folder, "recipe.toml", "distillation", begun):
        digest, record = digest_of(data), folder / DATA_FILE
        if record.exists() and _read_digest(record) != digest:
            raise ValueError(
                f"{folder} was begun with other clips than the recipe now gives; bring them back, or distil into "
                "another directory"
            )
        # First of all, so that a run killed from here on can be resumed.
        write_atomically(folder / "recipe.toml", to_toml(recipe.flat()).encode())
        write_sealed_json(folder / "environment.json", environment(device))
        set_precision(settings.tf32)
        splits = Splits(data.train.on(device), data.test.on(device), window, device)
        counts = {"train": len(splits.train), "test": len(splits.test)}
        write_sealed_json(record, {"clips": digest, "source": source, **counts})
        results: dict[str, list[StageResult]] = {}
        for position, seed in enumerate(settings.seeds):
            home = folder if position == 0 else folder / "seeds" / str(seed)
            configuration = recipe.configuration(seed, digest, given)
            chain = Chain(recipe, seed, home, splits, data.info.classes, digest, configuration, progress)
            results[str(seed)] = [chain.stage(stage) for stage in stages_of(recipe)]
        result = _result(recipe, folder, results, device)
        write_sealed_json(folder / "result.json", result)
    return result


@dataclass(frozen=True)
class Chain:
    """The chain of one seed; `data` is the hash of the clips."""

    recipe: DistilRecipe
    seed: int
    folder: Path
    splits: Splits
    classes: tuple[str, ...]
    data: str
    configuration: str
    progress: Progress

    def stage(self, stage: Stage) -> StageResult:
        """Trains one network, unless that was done before."""
        home = self.folder / stage.name
        make_folder(home)
        if (result := self._finished(home)) is None:
            if stage.epochs:
                self._train(stage, home)
            else:
                self._copy_given(home)
            result = self._sum_up(stage, home)
            metrics = hash_file(home / "metrics.jsonl")
            write_sealed_json(home / "stage.json", {"result": result, "metrics": metrics})
        shutil.rmtree(home / "checkpoints", ignore_errors=True)  # the model file has what they held
        return result

    def _finished(self, home: Path) -> StageResult | None:
        path, again = home / "stage.json", "and what was taught by it, and it is trained anew"
        if not path.exists():
            return None
        try:
            record = _read_sealed(path, "result")
            result: StageResult = record.get("result", record)
            if not StageResult.__annotations__.keys() <= result.keys():
                raise ValueError
        except ValueError:
            raise ValueError(f"{path} is not what a distillation wrote; remove it {again}") from None
        if result["configuration"] != self.configuration:
            raise ValueError(
                f"{home} was made with configuration {result['configuration']}, but its recipe and data now give "
                f"{self.configuration}; put them back as they were, or distil into another directory"
            )
        sealed = {"model.safetensors": result["sha256"], "metrics.jsonl": record.get("metrics", "")}
        for name, digest in sealed.items():
            if digest and not ((home / name).is_file() and hash_file(home / name) == digest):
                raise ValueError(f"{home / name} is not as it was written; remove {path} {again}")
        return result

    def _train(self, stage: Stage, home: Path) -> None:
        settings = self.recipe.settings
        network = ResNet3D(stage.depth, len(self.classes), settings.width)
        teacher = None if stage.teacher is None else self._teacher(stage.teacher, home)
        training = Pretraining(network, stage.depth, stage.epochs, self.seed, settings, self.splits, teacher)
        label = f"ResNet-{stage.depth} ({stage.role})" + (f", seed {self.seed}" if self.seed else "")
        training.execute(home, self.configuration, label, self.progress)
        save_model(home / "model.safetensors", network, self._card(stage))

    def _teacher(self, name: str, home: Path) -> ResNet3D | Tensor:
        """Who teaches a stage: the network itself where clips are other ones each time, else its logits of them."""
        settings, splits = self.recipe.settings, self.splits
        path = self.folder / name / "model.safetensors"
        network = load_resnet(path)[0].to(splits.device)
        if settings.channels_last:
            network.to(memory_format=torch.channels_last_3d)  # pyright: ignore[reportCallIssue, reportUnknownMemberType]
        if settings.augment or splits.train.fresh:
            return network.requires_grad_(False)

        def compute() -> NDArray[np.float32]:
            clock = time.perf_counter()
            logits = splits.logits(network, splits.train, settings).cpu().numpy()
            write_seconds(home / CLOCK, 0, time.perf_counter() - clock, time.perf_counter() - clock)
            return logits

        about = {
            "teacher": hash_file(path),
            "clips": self.data,
            "window": list(splits.window.size),
            "precision": settings.precision,
            "batch_size": settings.batch_size,
        }
        logits = keep_logits(path.with_name("logits.npy"), about, (len(splits.train), len(self.classes)), compute)
        return torch.tensor(np.asarray(logits), device=splits.device)

    def _copy_given(self, home: Path) -> None:
        """A teacher that was given: tested, and copied into the run."""
        network, card = load_resnet(self.recipe.settings.teacher)
        save_model(home / "model.safetensors", network, card)
        logits = self.splits.logits(network.to(self.splits.device), self.splits.test, self.recipe.settings)
        metrics = MetricsFile(home / "metrics.jsonl")
        metrics.append(accuracy_rows(0, accuracy_of(logits, self.splits.test)))
        metrics.close()

    def _card(self, stage: Stage) -> Card:
        settings, splits = self.recipe.settings, self.splits
        provenance: dict[str, Any] = {
            "chain": list(settings.chain) if stage.role != "scratch" else [stage.depth],
            "role": stage.role,
            "seed": self.seed,
            "epochs": stage.epochs,
            "configuration": self.configuration,
            "clips": self.data,
        }
        return clip_card(
            classes=self.classes,
            frames=splits.train.shape[0],
            stride=self.recipe.source.clip[0],
            resize=min(splits.window.frame),
            crop=splits.window.size[0],
            provenance=provenance,
        )

    def _sum_up(self, stage: Stage, home: Path) -> StageResult:
        tests = [row for row in read_rows(home / "metrics.jsonl") if row.split == "test"]
        last = {row.name: row.value for row in tests if row.round == tests[-1].round}
        network = load_resnet(home / "model.safetensors")[0]
        return {
            "stage": stage.name,
            "role": stage.role,
            "depth": stage.depth,
            "parameters": sum(weight.numel() for weight in network.parameters()),
            "epochs": stage.epochs,
            "teacher": stage.teacher,
            "clip_accuracy": last["accuracy"] or 0.0,
            "balanced_accuracy": last["balanced_accuracy"] or 0.0,
            "macro_f1": last["macro_f1"] or 0.0,
            "recall": {name: last[f"recall_{number}"] for number, name in enumerate(self.classes)},
            "interval": list(wilson(last["accuracy"] or 0.0, len(self.splits.test))),
            "clips": len(self.splits.test),
            "video_accuracy": last["video_accuracy"] or 0.0,
            "loss": last["loss"] or 0.0,
            "seconds": seconds_of(home),
            "configuration": self.configuration,
            "sha256": hash_file(home / "model.safetensors"),
        }


def _given_teacher(recipe: DistilRecipe, data: ClientData) -> str:
    """The hash of a given teacher's file, once it is seen to fit; "" where none is given."""
    settings = recipe.settings
    if not settings.teacher:
        return ""
    card, arguments = read_card(settings.teacher)
    if arguments is None:
        raise ValueError(f"teacher: {settings.teacher} is a network for {card.input.kind}, not a 3D ResNet")
    if arguments["depth"] != settings.chain[0]:
        raise ValueError(
            f"teacher: {settings.teacher} is a ResNet-{arguments['depth']}, but the chain begins with "
            f"{settings.chain[0]}"
        )
    classes = data.info.classes
    if card.classes != classes:
        raise ValueError(
            f"teacher: {settings.teacher} knows {len(card.classes)} classes, {', '.join(card.classes[:3])}, ...; the "
            f"clips have {len(classes)}, {', '.join(classes[:3])}, ...: they must be the same"
        )
    return hash_file(Path(settings.teacher))


def _read_digest(path: Path) -> str:
    """Of which clips a distillation says that it is."""
    record = _read_sealed(path, "clips")
    return str(record.get("clips", record.get("sha256", "")))


def read_source(folder: Path) -> dict[str, str] | None:
    """What the clips of a distillation were made of; None: of an older version, or it has not begun."""
    path = folder / DATA_FILE
    return _read_sealed(path, "clips").get("source") or None if path.exists() else None


def _read_sealed(path: Path, key: str) -> dict[str, Any]:
    """A sealed JSON object that has a key; older versions had another one, which was not sealed."""
    value: Any = read_json(path)
    older = isinstance(value, dict) and key not in value
    return cast("dict[str, Any]", value) if older else read_sealed_json(path)


def _check_keys(recipe: DistilRecipe, folder: Path) -> bool:
    """Refuses a directory that is something else, or was begun with keys that make another result.

    Says whether it is there.
    """
    begun = check_folder(folder, "recipe.toml", "distillation")
    if (folder / "recipe.toml").exists():
        before, now = load_distil_recipe(folder / "recipe.toml").flat(), recipe.flat()
        keys = filter(recipe.settings.decides, type(recipe.settings).model_fields)
        check_unchanged(folder, ((key, before.get(key), now.get(key)) for key in keys))
    return begun


def _result(
    recipe: DistilRecipe, folder: Path, results: dict[str, list[StageResult]], device: torch.device
) -> DistilResult:
    settings = recipe.settings
    by_role = {
        role: [stage for stages in results.values() for stage in stages if stage["role"] == role]
        for role in ("student", "scratch")
    }
    means = {
        role: {key: statistics.fmean(stage[key] for stage in stages) for key in ("clip_accuracy", "video_accuracy")}
        for role, stages in by_role.items()
        if stages
    }
    clip = [student["clip_accuracy"] for student in by_role["student"]]
    result: DistilResult = {
        "run": str(folder),
        "name": settings.name,
        "chain": list(settings.chain),
        "width": settings.width,
        "clip_accuracy": means["student"]["clip_accuracy"],
        "video_accuracy": means["student"]["video_accuracy"],
        "std": statistics.stdev(clip) if len(clip) > 1 else None,
        "seconds": round(sum(stage["seconds"] for stages in results.values() for stage in stages), 3),
        "device": device.type,
        "stages": results,
    }
    if "scratch" in means:
        result["scratch"] = means["scratch"]
    return result
