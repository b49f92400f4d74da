"""Retrieval, linear probe and fine-tuning of a video network, and retrieval under noise on its weights."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaction.engines.base import batch_plan, by_recording
from fedaction.evaluation.landscape import filter_direction
from fedaction.evaluation.retrieval import Pooling, pooled_map, recording_means, retrieval
from fedaction.federation.seeds import derive, generator
from fedaction.federation.tree import Tree
from fedaction.models.heads import Classifier
from fedaction.models.layers import Dropout, initialise
from fedaction.models.resnet3d import ResNet3D
from fedaction.runs.clips import Accuracy, Clips, accuracy_of, scores_of
from fedaction.runs.evaluate_recipe import EvaluateSettings, Perturbation
from fedaction.runs.pretrain import Pretraining, Splits
from fedaction.runs.single import Progress


class Tuned(nn.Module):
    """A network with a new classifier."""

    def __init__(self, backbone: ResNet3D, classes: int, dropout: float) -> None:
        super().__init__()
        self.backbone, self.dropout = backbone, Dropout(dropout)
        self.classifier = Classifier(backbone.features, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, H, W, 3) clips to (N, classes) logits."""
        return self.classifier(self.dropout(self.backbone(x, output="pooled")))


def score(logits: Tensor, clips: Clips, rule: str) -> Accuracy:
    """Scores (N, classes) logits per clip, and per recording by the mean of its clips' logits or probabilities."""
    found = accuracy_of(logits, clips)
    if rule == "probabilities":
        return found
    return found._replace(video=by_recording(logits.detach().double().cpu(), clips.y.cpu(), clips.recording))


def labels_of(clips: Clips) -> Tensor:
    """(recordings,) int64 labels, on the CPU."""
    labels = torch.zeros(clips.recordings, dtype=torch.int64)
    labels[clips.recording] = clips.y.cpu()
    return labels


@dataclass(frozen=True)
class Evaluation:
    """What is measured on which clips.

    Attributes:
        settings: the recipe's keys.
        splits: the clips; the gallery of retrieval is those for training.
        classes: how many.
        progress: hears how it goes.
    """

    settings: EvaluateSettings
    splits: Splits
    classes: int
    progress: Progress

    def features(self, backbone: ResNet3D, suffix: str = "") -> dict[Pooling, list[Tensor]]:
        """What retrieval and the probe look at: by pooling, (N, F) features of training and of test clips."""
        settings, found = self.settings, dict[Pooling, list[Tensor]]()
        if "retrieval" in settings.protocols:
            found[settings.pooling] = self._features(backbone, settings.pooling, f"features{suffix}")
        if "probe" in settings.protocols and "mean" not in found:
            found["mean"] = self._features(backbone, "mean", f"features of the probe{suffix}")
        return found

    def scores(
        self, backbone: ResNet3D, features: Mapping[Pooling, list[Tensor]], seed: int, suffix: str = ""
    ) -> dict[str, float]:
        """What the protocols say of a network, which stays as it is, and of its features."""
        settings, found = self.settings, dict[str, float]()
        if "retrieval" in settings.protocols:
            found |= {f"R@{k}": value for k, value in self._retrieval(features[settings.pooling]).items()}
        if "probe" in settings.protocols:
            accuracy = self._probe(features["mean"], seed, f"probe{suffix}")
            found |= {"probe_clip": accuracy.clip, "probe_video": accuracy.video}
        if "finetune" in settings.protocols:
            accuracy = self._finetune(backbone, seed, f"fine-tuning{suffix}")
            found |= {"finetune_clip": accuracy.clip, "finetune_video": accuracy.video}
        return found

    def perturbed(
        self, backbone: ResNet3D, seed: int, suffix: str = ""
    ) -> Iterator[tuple[Perturbation, float, float, float]]:
        """Kind, level, R@1 and share of recordings lost, for each kind, draw and level of noise on the weights."""
        settings, network = self.settings, copy.deepcopy(backbone)
        label, done = f"perturbation{suffix}", 0
        self.progress.started(label, 0, len(settings.perturb_kinds) * settings.perturb_draws)
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
                    found = self._retrieval_1(self._features(network, settings.pooling))
                    clean = found if level == 0 else clean
                    yield kind, level, *found
                done += 1
                self.progress.advanced(label, done, None)

    def _features(self, backbone: ResNet3D, pooling: Pooling, label: str = "") -> list[Tensor]:
        """(N, F) float32 features of the middles of the training and of the test clips. With a label: heard of."""
        steps = sum(-(-len(clips) // self.settings.feature_batch) for clips in (self.splits.train, self.splits.test))
        done = 0
        if label:
            self.progress.started(label, 0, steps)

        def apply(x: Tensor) -> Tensor:
            nonlocal done
            done += 1
            features = pooled_map(backbone(x, leave=5), pooling)
            if label:
                self.progress.advanced(label, done, None)
            return features

        both = (self.splits.train, self.splits.test)
        return [scores_of(apply, clips, self.splits.window, self.settings.feature_batch) for clips in both]

    def _recordings(self, features: list[Tensor]) -> list[Tensor]:
        both = zip(features, (self.splits.train, self.splits.test), strict=True)
        return [recording_means(part, clips.recording, clips.recordings) for part, clips in both]

    def _retrieval(self, features: list[Tensor], ks: tuple[int, ...] = ()) -> dict[int, float]:
        gallery, queries = self._recordings(features)
        labels = labels_of(self.splits.train), labels_of(self.splits.test)
        ks = ks or self.settings.retrieval_ks
        return retrieval(gallery, labels[0], queries, labels[1], ks, self.settings.retrieval_rule)

    def _retrieval_1(self, features: list[Tensor]) -> tuple[float, float]:
        """R@1, and the share of recordings that have features which are not finite; those become zeros."""
        lost = torch.cat([(~means.isfinite()).any(1) for means in self._recordings(features)]).double().mean()
        # A clip's features are lost as a whole: cosine would turn one infinite entry into a direction.
        sound = [part.where(part.isfinite().all(1, keepdim=True), 0.0) for part in features]
        return self._retrieval(sound, (1,))[1], float(lost)

    def _probe(self, features: list[Tensor], seed: int, label: str) -> Accuracy:
        """Trains a linear classifier on (N, F) features of clips, which are all it sees; nothing is augmented."""
        settings, train = self.settings, self.splits.train
        learn, test = (part.float() for part in features)
        if not bool(learn.isfinite().all() and test.isfinite().all()):
            raise ValueError("probe: features are not finite: the network that made them has diverged")
        if settings.probe_standardise:
            mean, deviation = learn.mean(0), learn.std(0, correction=0)
            deviation = deviation.where(deviation > 1e-6 * mean.abs(), 1.0)  # a constant feature says nothing
            learn, test = (learn - mean) / deviation, (test - mean) / deviation
        classifier, dropout = Classifier(learn.shape[1], self.classes), Dropout(settings.dropout)
        initialise(classifier, generator(seed, "probe", "init"))
        dropout.key.fill_(_dropout_key(seed, "probe"))
        head = nn.Sequential(dropout, classifier).to(learn.device)
        optimiser = torch.optim.SGD(
            head.parameters(), settings.probe_lr, settings.momentum, weight_decay=settings.weight_decay
        )
        self.progress.started(label, 0, settings.probe_epochs)
        head.train()
        for epoch in range(1, settings.probe_epochs + 1):
            passed = sum(epoch > round(share * settings.probe_epochs) for share in settings.probe_milestones)
            optimiser.param_groups[0]["lr"] = settings.probe_lr * 0.1**passed
            order = batch_plan(len(train), settings.batch_size, 1, generator(seed, "probe", "batches", epoch))
            for index in order.to(learn.device):
                optimiser.zero_grad()
                F.cross_entropy(head(learn[index]), train.y[index]).backward()
                optimiser.step()
            self.progress.advanced(label, epoch, None)
        head.eval()
        with torch.no_grad():
            logits = head(test)
        if not bool(logits.isfinite().all()):
            raise ValueError("probe: the classifier diverged; lower probe_lr, or say probe_standardise = true")
        return score(logits, self.splits.test, settings.video_rule)

    def _finetune(self, backbone: ResNet3D, seed: int, label: str) -> Accuracy:
        """Trains a copy of the network with a new classifier."""
        settings, splits = self.settings, self.splits
        precision = settings.precision
        if precision == "auto":
            precision = "bf16" if splits.device.type == "cuda" else "fp32"
        keys, depth = settings.finetuning(precision), int(backbone.arguments["depth"])
        tuned = Tuned(copy.deepcopy(backbone), self.classes, settings.dropout)
        training = Pretraining(tuned, depth, settings.finetune_epochs, seed, keys, splits)
        tuned.backbone.load_state_dict(backbone.state_dict())  # which the line above drew anew
        tuned.dropout.key.fill_(_dropout_key(seed, "finetune"))
        with tempfile.TemporaryDirectory(prefix="fedaction-") as folder:
            try:
                training.execute(Path(folder), "", label, self.progress)
            except ValueError as error:
                raise ValueError(f"{error}; here these keys are finetune_lr and finetune_clip_norm") from None
        tuned.eval()
        return score(splits.logits(tuned, splits.test, keys), splits.test, settings.video_rule)


def noise_on(weights: Tree, trained: set[str], kind: Perturbation, seed: int, draw: int) -> dict[str, Tensor]:
    """A direction in which weights are moved, by name of those it moves.

    Args:
        weights: parameters and buffers; buffers are not moved, since a variance must not fall below 0.
        trained: names of the parameters.
        kind: "absolute": N(0, 1) on every parameter (FedVSSL, Fig. 3). "filter": on convolutions alone, each filter's
            noise rescaled to the filter's norm, so that a level means the same whatever the weights' scale.
        seed: of the run.
        draw: which of several directions.
    """
    if kind == "filter":
        return filter_direction(weights, trained, seed, draw)
    noise: dict[str, Tensor] = {}
    for name in sorted(trained):
        drawn = torch.randn(weights[name].shape, generator=generator(seed, "perturbation", draw, name))
        noise[name] = drawn.to(weights[name])
    return noise


def _dropout_key(seed: int, purpose: str) -> int:
    return derive(seed, "dropout", purpose) >> 32  # as the engines have it
