"""What a video network has learnt, by three protocols: retrieval, a linear probe, and fine-tuning of the whole of it.

Retrieval and the probe leave the network as it is, in evaluation mode. A network with random weights is the lower
end of the scale; one trained with labels is the upper end.
"""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor

from fedaction.data.client import ClientData
from fedaction.data.clips.augment import Augmentation
from fedaction.data.clips.clips import Clips, check_clips, digest_of, recordings_of
from fedaction.data.clips.recordings import Recordings
from fedaction.data.clips.window import Window, window_of
from fedaction.engines.base import check_precision, choose_device, set_precision
from fedaction.evaluation.accuracy import recordings_in
from fedaction.federation.files import hash_file, write_sealed_json
from fedaction.federation.progress import DATA, Progress, Quiet, tell_of
from fedaction.federation.seeds import generator
from fedaction.methods.pretext.ctp import STRIDES
from fedaction.models.files import Card
from fedaction.models.layers import initialise
from fedaction.models.resnet3d import ResNet3D
from fedaction.runs.environment import environment
from fedaction.runs.networks import network_file, read_network
from fedaction.training.evaluate_recipe import EvaluateRecipe, EvaluateSettings, Perturbation
from fedaction.training.folders import RECORD, Parts, check_folder, keep_parts
from fedaction.training.protocols import Features, Protocols, precision_on
from fedaction.training.trainer import Splits

RANDOM = "random"
"""The model that is no file."""

_STRIDES: dict[str, dict[str, Any]] = {
    "standard": {"frame_strides": (1, 2, 2, 2), "image_strides": (1, 2, 2, 2)},
    "ctp": {"frame_strides": (1, 2, 2, 2), "image_strides": STRIDES},
}
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
    """What is measured. Scores are shares, 0 to 1, of recordings or, where their names end with `_clip`, of clips.

    `seeds` has each seed's scores, `mean` and `std` are over seeds (`std` is None for one alone). `recall` is that of
    clips, by protocol and class, the mean over seeds, without classes that the test does not have. `model` and
    `data` say by SHA-256 what was evaluated on what, `recipe` how.
    """

    name: str
    model: dict[str, Any]
    data: dict[str, Any]
    seeds: dict[str, dict[str, float]]
    mean: dict[str, float]
    std: dict[str, float] | None
    recall: dict[str, dict[str, float]]
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
    folder: Path | None = None,
) -> EvaluateResult:
    """Evaluates a network: a model file's, a run's or a checkpoint's, or one with random weights.

    Args:
        model: a model file, a run's directory or one of its `checkpoints/*.safetensors`; or "random".
        recipe: what to measure on what.
        result_file: where the result is written; it must not be there yet.
        progress: called with what is done.
        data: a client with all recordings, in place of what the recipe names.
        folder: a directory that keeps what is measured, and is resumed when it is given again; the result is its
            `result.json`.
    """
    progress = progress or Quiet()
    settings = recipe.settings
    device = choose_device(settings.device)
    check_precision(settings.precision, device)
    if result_file is not None:
        if result_file.exists():
            raise ValueError(f"{result_file} exists; choose another file for the result")
        result_file.parent.mkdir(parents=True, exist_ok=True)  # rather than fail when all is done
    begun = folder is not None and check_folder(folder, RECORD, "evaluation")
    backbones = Backbones(model, settings, progress)
    source = dict[str, str]()  # of recordings that are given, nothing is known
    if data is None:
        data = recipe.source.pool(settings.data_seed, tell_of(progress, DATA), whole=True)
        source = recipe.source.fingerprint(settings.data_seed)
    check_clips(data, f"data = {settings.data!r}")
    window, digest = window_of(data, settings.crop), digest_of(data)
    set_precision(settings.tf32)
    looked_at, tuned_on = splits_of(settings, data, window, device)
    backbones.compare(looked_at, progress)
    protocols = Protocols(settings, looked_at, tuned_on, len(data.info.classes), progress)
    about = {"model": backbones.about["sha256"] or RANDOM, "recordings": digest}
    keys = recipe.deciding(precision_on(settings, device))
    with keep_parts(folder, about, keys, begun, source) as parts:
        seeds, recalls, perturbed = _measure(protocols, backbones, parts)
        each = list(seeds.values())
        result: EvaluateResult = {
            "name": settings.name,
            "model": backbones.about,
            "data": {
                "data": settings.data,
                "sha256": digest,
                "classes": list(data.info.classes),
                "clips": [len(looked_at.train), len(looked_at.test)],
                "frames": looked_at.train.shape[0],
                "recordings": [len(recordings_in(split)[1]) for split in (looked_at.train, looked_at.test)],
            },
            "seeds": seeds,
            "mean": {key: statistics.fmean(own[key] for own in each) for key in each[0]},
            "std": {key: statistics.stdev(own[key] for own in each) for key in each[0]} if len(each) > 1 else None,
            "recall": _mean_recall(recalls, data.info.classes),
            "perturb": _sum_up(perturbed),
            "seconds": round(parts.seconds, 3),
            "recipe": recipe.flat(),
            "environment": environment(device),
        }
        for path in (result_file, None if folder is None else folder / "result.json"):
            if path is not None:
                write_sealed_json(path, result)
    return result


_Noisy = tuple[Perturbation, float, float, float]
_Recalls = dict[str, list[list[float | None]]]  # by protocol: by seed and class


def _measure(
    protocols: Protocols, backbones: Backbones, parts: Parts
) -> tuple[dict[str, dict[str, float]], _Recalls, list[_Noisy]]:
    """What each seed's protocols measure, and retrieval under noise; what was measured before is read."""
    settings = protocols.settings
    seeds: dict[str, dict[str, float]] = {}
    recalls: _Recalls = {}
    perturbed: list[_Noisy] = []
    features: Features | None = None
    for seed in settings.seeds:
        suffix = f", seed {seed}" if len(settings.seeds) > 1 else ""
        if features is None or backbones.card is None:
            features = Features(protocols, partial(backbones.of, seed), f"features{suffix}")
        measure = partial(_measure_one, protocols, features, seed, suffix, parts.configuration)
        scores = dict[str, float]()
        for protocol in settings.protocols:
            for name, value in parts.of(seed, protocol, partial(measure, protocol)).items():
                if name.endswith("_recall"):  # of every class
                    recalls.setdefault(name.removesuffix("_recall"), []).append(value)
                else:
                    scores[name] = value
        if settings.perturb:
            perturbed += map(tuple, parts.of(seed, "perturb", partial(measure, "perturb")))
        seeds[str(seed)] = scores
    return seeds, recalls, perturbed


def _mean_recall(recalls: _Recalls, classes: Sequence[str]) -> dict[str, dict[str, float]]:
    """Over seeds, by protocol and class; the test is the same for all."""
    return {
        protocol: {
            name: statistics.fmean(known)
            for name, own in zip(classes, zip(*by_seed, strict=True), strict=True)
            if (known := [share for share in own if share is not None])
        }
        for protocol, by_seed in recalls.items()
    }


def _measure_one(
    protocols: Protocols, features: Features, seed: int, suffix: str, configuration: str, name: str, folder: Path
) -> Any:
    """What one protocol measures with one seed."""
    match name:
        case "retrieval":
            return protocols.retrieval(features)
        case "probe":
            return protocols.probe(features, seed, folder, configuration, suffix)
        case "finetune":
            return protocols.finetune(features.backbone, seed, folder, configuration, suffix)
        case _:
            return list(protocols.perturb(features.backbone, seed, suffix))


def splits_of(
    settings: EvaluateSettings, data: ClientData, window: Window, device: torch.device
) -> tuple[Splits, Splits]:
    """Clips for retrieval and the probe, and clips for fine-tuning, of the same recordings."""
    train, test = (recordings_of(split).on(device) for split in (data.train, data.test))
    frames = min(settings.clip_frames, int(max(train.lengths.max(), test.lengths.max())))
    even = [Clips.spread(split, frames, settings.clip_stride, settings.clips) for split in (train, test)]
    tuned_on = tuning_splits(settings, train, test, frames, window, device)
    return Splits(even[0], even[1], window, device), tuned_on


def tuning_splits(
    settings: EvaluateSettings, train: Recordings, test: Recordings, frames: int, window: Window, device: torch.device
) -> Splits:
    """Clips for fine-tuning: of each recording one from another place each time, for test some evenly spread."""
    stride = settings.finetune_stride
    names = ("scales", "flip", "chance", "brightness", "contrast", "hue", "saturation")
    changes = (getattr(settings, f"augment_{name}") for name in names)
    return Splits(
        Clips.spread(train, frames, stride, 1, anew=True),
        Clips.spread(test, frames, stride, settings.clips),
        window,
        device,
        Augmentation(window.frame, window.size[0], *changes),
    )


class Backbones:
    """The network that is evaluated, without its classifier: the same for every seed, or random for each."""

    def __init__(self, model: str, settings: EvaluateSettings, progress: Progress | None = None) -> None:
        """Reads the file, if there is one."""
        self.card: Card | None = None
        self._weights: dict[str, Tensor] | None = None
        sha256: str | None = None
        arguments: dict[str, Any] = {"depth": settings.depth, "width": settings.width}
        if model == RANDOM:
            arguments |= _R3D if settings.stem == "r3d" else {}
        else:
            if given := sorted(settings.model_fields_set & {"depth", "width", "stem"}):
                raise ValueError(
                    f"{', '.join(given)}: only for {RANDOM!r} weights; a model file says itself what its network is"
                )
            if not Path(model).exists():
                raise ValueError(f"there is no model file {model}; name one, or say {RANDOM!r} for random weights")
            file = network_file(Path(model))
            network, self.card = read_network(file, progress or Quiet())
            arguments = dict(network.arguments)
            self._weights = {k: v for k, v in network.state_dict().items() if not k.startswith("classifier.")}
            sha256 = hash_file(file)
        self.arguments: dict[str, Any] = arguments | {"classes": 0, "frozen": 0} | _STRIDES.get(settings.strides, {})
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
        for name, module in network.named_modules():
            initialise(module, generator(seed, "init", self.arguments["depth"], name))
        if self._weights is not None:
            network.load_state_dict(self._weights)
        return network.eval()

    def compare(self, splits: Splits, progress: Progress) -> None:
        """Warns of clips unlike those that the network was trained on."""
        if self.card is None:
            return
        here = (splits.train.shape[0], splits.window.size[0])
        trained = (self.card.frames, self.card.crop)
        if here != trained:
            progress.warn(
                f"the clips have {here[0]} frames of {here[1]} x {here[1]} pixels; the network was trained on "
                f"{trained[0]} of {trained[1]} x {trained[1]}"
            )


def _sum_up(draws: Iterable[_Noisy]) -> list[PerturbResult]:
    groups: dict[tuple[Perturbation, float], list[tuple[float, float]]] = {}
    for kind, level, r1, lost in draws:
        groups.setdefault((kind, level), []).append((r1, lost))
    return [
        {
            "kind": kind,
            "level": level,
            "mean": statistics.fmean(r1 for r1, _ in pairs),
            "std": statistics.stdev(r1 for r1, _ in pairs) if len(pairs) > 1 else None,
            "lost": statistics.fmean(lost for _, lost in pairs),
            "draws": len(pairs),
        }
        for (kind, level), pairs in groups.items()
    ]
