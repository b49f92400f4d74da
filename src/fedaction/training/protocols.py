"""Retrieval, linear probe and fine-tuning of a video network, and retrieval under noise on its weights."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaction.data.samples import Samples, in_batches
from fedaction.engines.base import batch_plan
from fedaction.evaluation.accuracy import Accuracy, accuracy_of, by_recording, recordings_in
from fedaction.evaluation.landscape import filter_direction
from fedaction.evaluation.retrieval import Pooling, pool_map, retrieval
from fedaction.federation.progress import Progress
from fedaction.federation.seeds import derive, generator
from fedaction.federation.tree import Tree
from fedaction.models.heads import Classifier
from fedaction.models.layers import Dropout, initialise
from fedaction.models.resnet3d import ResNet3D
from fedaction.training.evaluate_recipe import EvaluateSettings, Perturbation
from fedaction.training.trainer import Pretraining, Splits


class Tuned(nn.Module):
    """A network with a new classifier."""

    def __init__(self, backbone: ResNet3D, classes: int, dropout: float) -> None:
        super().__init__()
        self.backbone, self.dropout = backbone, Dropout(dropout)
        self.classifier = Classifier(backbone.features, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, H, W, 3) clips to (N, classes) logits."""
        return self.classifier(self.dropout(self.backbone(x, output="pooled")))


class Probed(nn.Module):
    """A new classifier on a network that stays as it is, statistics included: its tensors are not this module's."""

    def __init__(self, backbone: ResNet3D, classes: int, dropout: float) -> None:
        super().__init__()
        self.features = backbone.eval().forward
        self.dropout, self.classifier = Dropout(dropout), Classifier(backbone.features, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, H, W, 3) clips to (N, classes) logits."""
        with torch.no_grad():
            pooled = self.features(x, output="pooled")
        return self.classifier(self.dropout(pooled))


def score(logits: Tensor, clips: Samples, rule: str) -> Accuracy:
    """Scores (N, classes) logits per clip, and per recording by the mean of its clips' logits or probabilities."""
    accuracy = accuracy_of(logits, clips)
    if rule == "probabilities":
        return accuracy
    return accuracy._replace(
        video=by_recording(logits.detach().double().cpu(), clips.labels, recordings_in(clips)[0])
    )


def name_scores(protocol: str, accuracy: Accuracy) -> dict[str, Any]:
    """What a protocol reports, by name: shares, and the recall of clips by class."""
    return {
        f"{protocol}_clip": accuracy.clip,
        f"{protocol}_video": accuracy.video,
        f"{protocol}_balanced": accuracy.balanced,
        f"{protocol}_macro_f1": accuracy.macro_f1,
        f"{protocol}_recall": accuracy.recall,
    }


@dataclass(frozen=True)
class Protocols:
    """What is measured on which clips."""

    settings: EvaluateSettings  # the recipe's keys
    looked_at: Splits  # clips for retrieval, whose gallery is those for training, and for the probe
    tuned_on: Splits  # clips for fine-tuning
    classes: int  # how many
    progress: Progress  # called with what is done

    def retrieval(self, features: Features) -> dict[str, float]:
        """R@k by k."""
        return {f"R@{k}": value for k, value in self._retrieval(features.recordings).items()}

    def perturb(
        self, backbone: ResNet3D, seed: int, suffix: str = ""
    ) -> Iterator[tuple[Perturbation, float, float, float]]:
        """Kind, level, R@1 and share of recordings lost, for each kind, draw and level of noise on the weights."""
        settings, network = self.settings, copy.deepcopy(backbone)
        label, done = f"perturbation{suffix}", 0
        self.progress.start(label, 0, len(settings.perturb_kinds) * settings.perturb_draws)
        clean: tuple[float, float] | None = None
        weights, trained = backbone.state_dict(), {name for name, _ in backbone.named_parameters()}
        for kind in settings.perturb_kinds:
            for draw in range(settings.perturb_draws):
                noise = noise_on(weights, trained, kind, seed, draw)
                for level in settings.perturb_levels:
                    if level == 0 and clean is not None:  # no noise: the same for every kind and draw
                        yield kind, level, *clean
                        continue
                    moved = {n: w.add(noise[n], alpha=level) if n in noise else w for n, w in weights.items()}
                    network.load_state_dict(moved)
                    measured = self._retrieval_1(Features(self, lambda: network))
                    clean = measured if level == 0 else clean
                    yield kind, level, *measured
                done += 1
                self.progress.advance(label, done, None)

    def _retrieval(self, recordings: list[Tensor], ks: tuple[int, ...] = ()) -> dict[int, float]:
        labels = [recordings_in(split)[1] for split in (self.looked_at.train, self.looked_at.test)]
        ks = ks or self.settings.retrieval_ks
        return retrieval(recordings[0], labels[0], recordings[1], labels[1], ks, self.settings.retrieval_rule)

    def _retrieval_1(self, features: Features) -> tuple[float, float]:
        """R@1, and the share of recordings that have features which are not finite; those become zeros."""
        lost = torch.cat([own.isnan().all(1) for own in features.recordings]).double().mean()
        return self._retrieval([own.nan_to_num() for own in features.recordings], (1,))[1], float(lost)

    def probe(
        self, features: Features, seed: int, folder: Path, configuration: str, suffix: str = ""
    ) -> dict[str, Any]:
        """Trains a linear classifier on features of fixed clips, on clips drawn anew ("probe_drawn"), or on each."""
        kind, scores = self.settings.probe_clips, dict[str, Any]()
        if kind != "drawn":
            scores |= name_scores("probe", self._probe_features(features, seed, suffix))
        if kind != "fixed":
            network, label = Probed(features.backbone, self.classes, self.settings.dropout), f"probe, drawn{suffix}"
            accuracy = self._tune(network, features.backbone, seed, folder, configuration, label)
            scores |= name_scores("probe_drawn", accuracy)
        return scores

    def _probe_features(self, features: Features, seed: int, suffix: str) -> Accuracy:
        """Trains a linear classifier on features of clips, which are all it sees; nothing is augmented."""
        settings, train, label = self.settings, self.looked_at.train, f"probe{suffix}"
        labels = train.labels.to(self.looked_at.device)
        learn, test = (own.float() for own in features.clips)
        if not bool(learn.isfinite().all() and test.isfinite().all()):
            raise ValueError("probe: features are not finite: the network that made them has diverged")
        if settings.probe_standardise:
            mean, deviation = learn.mean(0), learn.std(0, correction=0)
            deviation = deviation.where(deviation > 1e-6 * mean.abs(), 1.0)  # a constant feature says nothing
            learn, test = (learn - mean) / deviation, (test - mean) / deviation
        classifier, dropout = Classifier(learn.shape[1], self.classes), Dropout(settings.dropout)
        initialise(classifier, generator(seed, "probe", "init"))
        dropout.key.fill_(derive(seed, "dropout", "probe") >> 32)  # as the engines have it
        head = nn.Sequential(dropout, classifier).to(learn.device)
        optimiser = torch.optim.SGD(
            head.parameters(), settings.probe_lr, settings.momentum, weight_decay=settings.weight_decay
        )
        self.progress.start(label, 0, settings.probe_epochs)
        head.train()
        for epoch in range(1, settings.probe_epochs + 1):
            passed = sum(epoch > round(share * settings.probe_epochs) for share in settings.probe_milestones)
            optimiser.param_groups[0]["lr"] = settings.probe_lr * 0.1**passed
            order = batch_plan(len(train), settings.batch_size, 1, generator(seed, "probe", "batches", epoch))
            for index in order.to(learn.device):
                optimiser.zero_grad()
                F.cross_entropy(head(learn[index]), labels[index]).backward()
                optimiser.step()
            self.progress.advance(label, epoch, None)
        head.eval()
        with torch.no_grad():
            logits = head(test)
        if not bool(logits.isfinite().all()):
            raise ValueError("probe: the classifier diverged; lower probe_lr, or say probe_standardise = true")
        return score(logits, self.looked_at.test, settings.video_rule)

    def finetune(
        self, backbone: ResNet3D, seed: int, folder: Path, configuration: str, suffix: str = ""
    ) -> dict[str, Any]:
        """Trains a copy of the network with a new classifier, from the folder's last checkpoint on if it has one.

        The configuration is a hash that checkpoints have; "": nobody will resume from them.
        """
        network = Tuned(copy.deepcopy(backbone), self.classes, self.settings.dropout)
        accuracy = self._tune(network, backbone, seed, folder, configuration, f"fine-tuning{suffix}")
        return name_scores("finetune", accuracy)

    def _tune(
        self, network: Tuned | Probed, backbone: ResNet3D, seed: int, folder: Path, configuration: str, label: str
    ) -> Accuracy:
        """Trains a network on clips drawn anew in every epoch, from the folder's last checkpoint on; how it tests."""
        settings, splits, whole = self.settings, self.tuned_on, isinstance(network, Tuned)
        keys = settings.finetuning(precision_on(settings, splits.device), whole=whole)
        epochs = keys.epochs[0]
        if not configuration:
            keys = keys.model_copy(update={"checkpoint_every": epochs})
        training = Pretraining(network, int(backbone.arguments["depth"]), epochs, seed, keys, splits)
        if isinstance(network, Tuned):
            network.backbone.load_state_dict(backbone.state_dict())  # which the line above drew anew
        try:
            training.execute(folder, configuration, label, self.progress)
        except ValueError as error:
            own = "finetune_lr and finetune_clip_norm" if whole else "probe_lr and finetune_clip_norm"
            raise ValueError(
                f"{error}; here these keys are {own}" if "diverged" in str(error) else str(error)
            ) from None
        network.eval()
        logits = splits.logits(network, splits.test, keys) if training.tested is None else training.tested
        return score(logits, splits.test, settings.video_rule)


class Features:
    """What retrieval and the probe look at: a network's features, computed once, when they are first asked for."""

    def __init__(self, protocols: Protocols, make: Callable[[], ResNet3D], label: str = "") -> None:
        """`make` gives the network, when it is first needed; with a label, progress is reported under it."""
        self._protocols, self._make, self._label = protocols, make, label

    @cached_property
    def backbone(self) -> ResNet3D:
        """The network, on the device."""
        backbone = self._make().to(self._protocols.looked_at.device)
        backbone.to(memory_format=torch.channels_last_3d)  # pyright: ignore[reportCallIssue]
        return backbone

    @cached_property
    def clips(self) -> list[Tensor]:
        """(N, F) float32 features of training and of test clips: means over the last map."""
        return [torch.cat(list(batches)) for batches in self._batches("mean")]

    @cached_property
    def recordings(self) -> list[Tensor]:
        """(R, F) float64 means over clips, by the recipe's pooling; a recording that lost a clip is not a number."""
        settings, splits = self._protocols.settings, self._protocols.looked_at
        if settings.pooling == "mean" and "probe" in settings.protocols:
            batches = [iter(features.split(settings.feature_batch)) for features in self.clips]
        else:
            batches = self._batches(settings.pooling)
        return [_means(own, clips) for own, clips in zip(batches, (splits.train, splits.test), strict=True)]

    def _batches(self, pooling: Pooling) -> Iterator[Iterator[Tensor]]:
        """(n, F) features of the middles of clips, batch by batch: of those for training, then of those for test."""
        splits, size = self._protocols.looked_at, self._protocols.settings.feature_batch
        both = splits.train, splits.test
        progress, done = self._protocols.progress, 0
        if self._label:
            progress.start(self._label, 0, sum(-(-len(clips) // size) for clips in both))

        def batches(clips: Samples) -> Iterator[Tensor]:
            nonlocal done
            for batch in in_batches(clips, size):
                with torch.no_grad():
                    features = pool_map(self.backbone(splits.window.centre(batch), leave=5), pooling)
                done += 1
                if self._label:
                    progress.advance(self._label, done, None)
                yield features.float()

        for clips in both:
            yield batches(clips)


def _means(features: Iterator[Tensor], clips: Samples) -> Tensor:
    """(R, F) float64 means of clips' features over their recordings; NaN where a clip's are not all finite."""
    which, labels = recordings_in(clips)
    sums, first = torch.zeros(1), 0
    for batch in features:
        if not first:
            sums = batch.new_zeros(len(labels), batch.shape[1], dtype=torch.float64)
        where = which[first : first + len(batch)].to(batch.device)
        # A clip's features are lost as a whole: cosine would turn one infinite entry into a direction.
        sums.index_add_(0, where, batch.double().where(batch.isfinite().all(1, keepdim=True), torch.nan))
        first += len(batch)
    return sums / torch.bincount(which, minlength=len(labels)).to(sums.device)[:, None]


def precision_on(settings: EvaluateSettings, device: torch.device) -> Literal["fp32", "bf16"]:
    """What fine-tuning is computed in on a device."""
    if settings.precision == "auto":
        return "bf16" if device.type == "cuda" else "fp32"
    return settings.precision


def noise_on(weights: Tree, trained: set[str], kind: Perturbation, seed: int, draw: int) -> dict[str, Tensor]:
    """A direction in which weights are moved, by name of those it moves; `draw` says which of several.

    "absolute": N(0, 1) on every trained parameter (FedVSSL, Fig. 3). "filter": on convolutions alone, each filter's
    noise rescaled to the filter's norm, so that a level means the same whatever the weights' scale. Buffers are not
    moved, since a variance must not fall below 0.
    """
    if kind == "filter":
        return filter_direction(weights, {name: 0 for name in trained if weights[name].dim() > 1}, seed, draw)
    noise: dict[str, Tensor] = {}
    for name in sorted(trained):
        drawn = torch.randn(weights[name].shape, generator=generator(seed, "perturbation", draw, name))
        noise[name] = drawn.to(weights[name])
    return noise
