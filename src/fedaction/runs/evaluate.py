"""What a video network has learnt, by three protocols: retrieval, a linear probe, and fine-tuning of the whole of it.

Retrieval and the probe leave the network as it is, in evaluation mode. A network with random weights is the lower
end of the scale; one trained with labels is the upper end.
"""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor

from fedaction.data.client import ClientData
from fedaction.engines.base import set_precision
from fedaction.evaluation.retrieval import Pooling
from fedaction.federation.seeds import generator
from fedaction.models.files import Card, load_model
from fedaction.models.layers import initialise
from fedaction.models.resnet3d import ResNet3D
from fedaction.runs.clips import Clips, Window, check_clips, digest_of, fits
from fedaction.runs.environment import environment
from fedaction.runs.evaluate_protocols import Evaluation
from fedaction.runs.evaluate_recipe import EvaluateRecipe, EvaluateSettings, Perturbation
from fedaction.runs.files import write_json
from fedaction.runs.pretrain import Splits
from fedaction.runs.single import Progress, choose_device
from fedaction.runs.study import Quiet
from fedaction.runs.teacher import file_digest

RANDOM = "random"
"""The model that is no file."""

_STANDARD: dict[str, Any] = {"frame_strides": (1, 2, 2, 2), "image_strides": (1, 2, 2, 2)}
_R3D: dict[str, Any] = {"stem_frames": 3, "pool": False, "eps": 1e-3}


class PerturbResult(TypedDict):
    """Retrieval with w + level * noise for the weights, over all draws and seeds.

    `mean` and `std` are of R@1, 0 to 1; `lost` is the share of recordings whose features were not finite any more.
    They count as all alike.
    """

    kind: Perturbation
    level: float
    mean: float
    std: float | None
    lost: float
    draws: int


class EvaluateResult(TypedDict):
    """What is found. Scores are shares, 0 to 1, of recordings or, where their names end with `_clip`, of clips.

    `seeds` has each seed's scores, `mean` and `std` are over seeds (`std` is None for one alone). `model` and `data`
    say by SHA-256 what was evaluated on what, `recipe` how.
    """

    name: str
    model: dict[str, Any]
    data: dict[str, Any]
    seeds: dict[str, dict[str, float]]
    mean: dict[str, float]
    std: dict[str, float] | None
    perturb: list[PerturbResult]
    seconds: float
    recipe: dict[str, Any]
    environment: dict[str, Any]


def run_evaluate(
    model: str,
    recipe: EvaluateRecipe,
    result_file: Path | None = None,
    progress: Progress | None = None,
    data: ClientData | None = None,
) -> EvaluateResult:
    """Evaluates a model file, or a network with random weights.

    Args:
        model: the file, or "random".
        recipe: what to measure on what.
        result_file: where the result is written; it must not be there yet.
        progress: hears how it goes.
        data: clips to use instead of those that the recipe names.
    """
    progress = progress or Quiet()
    settings, clock = recipe.settings, time.perf_counter()
    device = choose_device(settings.device)
    if settings.precision == "bf16" and device.type == "cpu":  # slower there, and on some processors it crashes
        raise ValueError('precision = "bf16" needs a GPU; say --set precision=fp32')
    if result_file is not None:
        if result_file.exists():
            raise ValueError(f"{result_file} exists; choose another file for the result")
        result_file.parent.mkdir(parents=True, exist_ok=True)  # rather than fail when all is done
    backbones = Backbones(model, settings)
    data = recipe.source.load(settings.data_seed) if data is None else data
    check_clips(data, f"data = {settings.data!r}")
    window, digest = _window(settings, data), digest_of(data)
    backbones.compare(data, window, progress)
    set_precision(settings.tf32)
    resident = fits(data, device)
    if not resident:
        progress.warned("the clips take more than half of the device's memory; each batch is copied there")
    splits = Splits(Clips(data.train, device, resident), Clips(data.test, device, resident), window, device)
    evaluation = Evaluation(settings, splits, len(data.info.classes), progress)
    seeds: dict[str, dict[str, float]] = {}
    perturbed: list[tuple[Perturbation, float, float, float]] = []
    backbone: ResNet3D | None = None
    features: dict[Pooling, list[Tensor]] = {}
    for seed in settings.seeds:
        suffix = f", seed {seed}" if len(settings.seeds) > 1 else ""
        if backbone is None or model == RANDOM:
            backbone = backbones.of(seed).to(device)
            backbone.to(memory_format=torch.channels_last_3d)  # pyright: ignore[reportCallIssue]
            features = evaluation.features(backbone, suffix)
        seeds[str(seed)] = evaluation.scores(backbone, features, seed, suffix)
        if settings.perturb:
            perturbed += evaluation.perturbed(backbone, seed, suffix)
    result: EvaluateResult = {
        "name": settings.name,
        "model": backbones.about,
        "data": {
            "data": settings.data,
            "sha256": digest,
            "classes": list(data.info.classes),
            "clips": [len(data.train), len(data.test)],
            "recordings": [splits.train.recordings, splits.test.recordings],
        },
        "seeds": seeds,
        "mean": {key: statistics.fmean(found[key] for found in seeds.values()) for key in next(iter(seeds.values()))},
        "std": None,
        "perturb": _summed_up(perturbed),
        "seconds": round(time.perf_counter() - clock, 3),
        "recipe": recipe.flat(),
        "environment": environment(device),
    }
    if len(seeds) > 1:
        result["std"] = {key: statistics.stdev(found[key] for found in seeds.values()) for key in result["mean"]}
    if result_file is not None:
        write_json(result_file, result)
    return result


class Backbones:
    """The network that is evaluated, without its classifier: the same for every seed, or random for each."""

    def __init__(self, model: str, settings: EvaluateSettings) -> None:
        """Reads the file, if there is one."""
        self.card: Card | None = None
        self._weights: dict[str, Tensor] | None = None
        sha256: str | None = None
        if model == RANDOM:
            arguments: dict[str, Any] = {"depth": settings.depth, "width": settings.width}
            if settings.stem == "r3d":
                arguments |= _R3D
        else:
            if given := sorted(settings.model_fields_set & {"depth", "width", "stem"}):
                raise ValueError(
                    f"{', '.join(given)}: only for {RANDOM!r} weights; a model file says itself what its network is"
                )
            if not Path(model).is_file():
                raise ValueError(f"there is no model file {model}; name one, or say {RANDOM!r} for random weights")
            network, self.card = load_model(model)
            arguments = dict(network.arguments)
            self._weights = {k: v for k, v in network.state_dict().items() if not k.startswith("classifier.")}
            sha256 = file_digest(Path(model))
        self.arguments: dict[str, Any] = arguments | {"classes": 0, "frozen": 0}
        if settings.strides == "standard":
            self.arguments |= _STANDARD
        fresh = ResNet3D(**self.arguments)
        self.about: dict[str, Any] = {
            "model": model,
            "sha256": sha256,
            "parameters": sum(weight.numel() for weight in fresh.parameters()),
            "arguments": fresh.arguments,
            "provenance": self.card.provenance if self.card is not None else {},
        }

    def of(self, seed: int) -> ResNet3D:
        """The network of a seed, on the CPU, in evaluation mode."""
        network = ResNet3D(**self.arguments)
        for name, part in network.named_modules():
            initialise(part, generator(seed, "init", self.arguments["depth"], name))
        if self._weights is not None:
            network.load_state_dict(self._weights)
        return network.eval()

    def compare(self, data: ClientData, window: Window, progress: Progress) -> None:
        """Warns of clips unlike those that the network was trained on."""
        if self.card is None:
            return
        here = (int(data.train.x.shape[1]), window.size[0])
        trained = (self.card.frames, self.card.crop)
        if here != trained:
            progress.warned(
                f"the clips have {here[0]} frames of {here[1]} x {here[1]} pixels; the network was trained on "
                f"{trained[0]} of {trained[1]} x {trained[1]}"
            )


def _summed_up(found: Iterable[tuple[Perturbation, float, float, float]]) -> list[PerturbResult]:
    groups: dict[tuple[Perturbation, float], list[tuple[float, float]]] = {}
    for kind, level, r1, lost in found:
        groups.setdefault((kind, level), []).append((r1, lost))
    return [
        {
            "kind": kind,
            "level": level,
            "mean": statistics.fmean(r1 for r1, _ in draws),
            "std": statistics.stdev(r1 for r1, _ in draws) if len(draws) > 1 else None,
            "lost": statistics.fmean(lost for _, lost in draws),
            "draws": len(draws),
        }
        for (kind, level), draws in groups.items()
    ]


def _window(settings: EvaluateSettings, data: ClientData) -> Window:
    height, width = (int(side) for side in data.train.x.shape[2:4])
    side = settings.crop or min(height, width)
    if side > min(height, width):
        raise ValueError(f"crop = {side}, but frames are {height} x {width} pixels; make it smaller, or 0")
    return Window((side, side), (height, width), settings.augment_pad, settings.augment_flip)
