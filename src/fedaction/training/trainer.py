"""One network trained on clips, alone or with a teacher: the loop over epochs, with checkpoints.

Where clips fit on the device, they stay there, and nothing inside an epoch waits for it. On a CPU a stage that was
interrupted ends with the same bits as one that was not. On a GPU, cuDNN chooses its fastest kernels
(`cudnn.benchmark`), whose sums may differ in their last bits from run to run.
"""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaction.data.clips.augment import Augmentation
from fedaction.data.clips.window import Cut, Window
from fedaction.data.samples import Samples, take_each
from fedaction.engines.base import autocast, batch_plan
from fedaction.engines.optimisers import make_optimiser, memory_of
from fedaction.evaluation.accuracy import Accuracy, accuracy_of, scores_of
from fedaction.federation.files import make_folder
from fedaction.federation.progress import Progress
from fedaction.federation.seeds import derive, generator
from fedaction.federation.state import ServerState
from fedaction.federation.tree import tensors_of
from fedaction.methods.distillation import distillation
from fedaction.models.layers import Dropout, initialise
from fedaction.runs.checkpoint import RunState, latest_checkpoint, prune, save_checkpoint
from fedaction.runs.metrics import MetricsFile, Row, read_seconds, write_seconds
from fedaction.runs.seal import Seal
from fedaction.server.state import FederationState
from fedaction.training.distil_recipe import DistilSettings

CLOCK = "clock.jsonl"
"""In a stage's directory: wall seconds by epoch; of epoch 0 the teacher's work, before training."""
_KEPT = 2  # checkpoints: the last, and one to go back to


@dataclass(frozen=True)
class Splits:
    """What all stages share: the clips, and what the network sees of a frame.

    `augmentation` says how training clips are changed, if in more ways than by random windows.
    """

    train: Samples
    test: Samples
    window: Window
    device: torch.device
    augmentation: Augmentation | None = None

    def logits(self, network: Callable[[Tensor], Tensor], clips: Samples, settings: DistilSettings) -> Tensor:
        """(N, classes) float32 logits of the middles of clips, by a network in evaluation mode."""
        with autocast(self.device, settings.precision):
            return scores_of(network, clips, self.window, settings.batch_size)


@contextmanager
def fast_kernels(device: torch.device) -> Generator[None]:
    """On a GPU: lets cuDNN try its kernels on the first batch and keep the fastest."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = device.type == "cuda"
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def accuracy_rows(epoch: int, accuracy: Accuracy) -> list[Row]:
    """How a test went, as metrics."""
    values = {
        "accuracy": accuracy.clip,
        "balanced_accuracy": accuracy.balanced,
        "macro_f1": accuracy.macro_f1,
        "video_accuracy": accuracy.video,
        "loss": accuracy.loss,
        **{f"recall_{number}": share for number, share in enumerate(accuracy.recall)},  # by class
    }
    return [Row(epoch, "", "", "test", name, value) for name, value in values.items()]


def seconds_of(folder: Path) -> float:
    """Wall seconds that a stage took."""
    return round(sum(read_seconds(folder / CLOCK, "total").values()), 3)


class Pretraining:
    """A stage being trained: a network of one depth, with one seed, in one directory."""

    def __init__(
        self,
        network: nn.Module,
        depth: int,
        epochs: int,
        seed: int,
        settings: DistilSettings,
        splits: Splits,
        teacher: nn.Module | Tensor | None = None,
    ) -> None:
        """The teacher: a frozen network in evaluation mode, its (N, classes) logits of the training clips, or none.

        All random numbers are derived from seed, depth and epoch, so that the same student starts from the same
        weights and sees the same batches whoever teaches it.
        """
        self.depth, self.epochs, self.seed, self.settings, self.splits = depth, epochs, seed, settings, splits
        for name, module in network.cpu().named_modules():  # numbers are drawn there, whatever the device
            initialise(module, generator(seed, "init", depth, name))
        self.teacher, self.network = teacher, network.to(splits.device)
        self.tested: Tensor | None = None  # (N, classes) logits of the test clips, by the last test
        if settings.channels_last:
            network.to(memory_format=torch.channels_last_3d)  # pyright: ignore[reportCallIssue]
        self.apply = torch.compile(network) if settings.compile else network
        weights = dict(network.named_parameters())
        self.optimiser = make_optimiser(
            settings.optimiser,
            [{"params": list(weights.values()), "weight_decay": settings.weight_decay}],
            settings.lr,
            momentum=settings.momentum,
            fused=splits.device.type == "cuda",
        )
        self.memory = memory_of(self.optimiser, weights)
        # The fused step wants gradients that lie in memory exactly as the weights do, hence they are kept and zeroed.
        for weight in weights.values():
            weight.grad = torch.zeros_like(weight)

    def execute(self, folder: Path, configuration: str, label: str, progress: Progress) -> None:
        """Trains to the last epoch, from the last checkpoint on; metrics and checkpoints are in the folder."""
        state, metrics = self._open(folder, configuration)
        progress.start(label, state.round, self.epochs, unit="epoch", metric="accuracy")
        try:
            with fast_kernels(self.splits.device):
                for epoch in range(state.round + 1, self.epochs + 1):
                    clock = time.perf_counter()
                    rows = [Row(epoch, "", "", "train", name, value) for name, value in self._train(epoch).items()]
                    trained, accuracy = time.perf_counter(), None
                    if epoch % self.settings.evaluate_every == 0 or epoch == self.epochs:
                        accuracy, tested = self._test(epoch)
                        rows += tested
                    length = metrics.append(rows)
                    write_seconds(folder / CLOCK, epoch, trained - clock, time.perf_counter() - clock)
                    if epoch % self.settings.checkpoint_every == 0 or epoch == self.epochs:
                        server = ServerState(epoch, tensors_of(self.network), memory=self.memory)
                        now = RunState(FederationState(epoch, server), metrics_length=length)
                        now = replace(now, metrics_sha256=metrics.sha256, seal=Seal(configuration))
                        save_checkpoint(folder / "checkpoints", now, _KEPT)
                    progress.advance(label, epoch, accuracy)
        finally:
            metrics.close()

    def _open(self, folder: Path, configuration: str) -> tuple[RunState, MetricsFile]:
        table, checkpoints = folder / "metrics.jsonl", folder / "checkpoints"
        make_folder(checkpoints)
        state = latest_checkpoint(checkpoints, table)
        if state is None:
            state = RunState(FederationState(0, ServerState(0, {})), seal=Seal(configuration))
        elif state.seal.configuration != configuration:
            raise ValueError(
                f"{folder} was begun with configuration {state.seal.configuration}, but its recipe and data now give "
                f"{configuration}; put them back as they were, or choose another directory"
            )
        else:
            self.network.load_state_dict(dict(state.server.shared))
            for name, tensor in self.memory.items():
                tensor.copy_(state.server.memory[name])
        prune(checkpoints, state.round, _KEPT)
        return state, MetricsFile(table, state.metrics_length)

    def _train(self, epoch: int) -> dict[str, float]:
        """One pass over the training clips; means over its steps."""
        settings, train, device = self.settings, self.splits.train, self.splits.device
        order = batch_plan(len(train), settings.batch_size, 1, generator(self.seed, "batches", self.depth, epoch))
        starts = train.draw(order, generator(self.seed, "windows", self.depth, epoch))
        change = self._changes(order, generator(self.seed, "augment", self.depth, epoch))
        for name, module in self.network.named_modules():
            if isinstance(module, Dropout):  # set anew, so that a resumed stage needs no memory of it
                module.key.fill_(derive(self.seed, "dropout", self.depth, epoch, name) >> 32)
        sums = torch.zeros(4, device=device)
        places, labels = order.to(device), train.labels[order].to(device)
        self.network.train()
        for step, clips in enumerate(take_each(train, places if train.resident else order, starts)):
            sums += self._step(change(step, clips), labels[step], places[step], epoch - 1 + step / len(order))
        loss, cls, kd, right = (sums / len(order)).tolist()  # the epoch's only wait for the device
        if not math.isfinite(loss):
            raise ValueError(
                f"ResNet-{self.depth} diverged in epoch {epoch}: its loss is not finite; run it into another "
                "directory with a lower lr, with clip_norm, with warm-up or, if it has a teacher, with "
                'kd_reduction = "mean"'
            )
        means = {"loss": loss, "accuracy": right, "lr": self._lr(epoch - 1)}
        return means if self.teacher is None else means | {"cls": cls, "kd": kd}

    def _changes(self, order: Tensor, random: torch.Generator) -> Callable[[int, Tensor], Tensor]:
        """How the clips of a step are cut and changed: drawn for a whole epoch, and moved to the device at once."""
        splits, window, more = self.splits, self.splits.window, self.splits.augmentation
        if not self.settings.augment:
            return lambda _, clips: window.centre(clips)

        def deal(drawn: Tensor) -> Tensor:
            return drawn.reshape(*order.shape, *drawn.shape[1:]).to(splits.device)

        if more is None:
            cuts = Cut(*map(deal, window.draw(order.numel(), random)))
            return lambda step, clips: window.cut(clips, Cut(*(values[step] for values in cuts)))
        drawn = {name: deal(values) for name, values in more.draw(order.numel(), random).items()}
        return lambda step, clips: more.apply(clips, {name: values[step] for name, values in drawn.items()})

    def _step(self, clips: Tensor, labels: Tensor, places: Tensor, done: float) -> Tensor:
        """One step; (4,) loss, L_cls, L_KD and share of right answers, still on the device."""
        settings = self.settings
        with autocast(self.splits.device, settings.precision):
            logits = self.apply(clips).float()
            taught = self._teach(clips, places)
        if taught is None:
            loss = F.cross_entropy(logits, labels)
            cls = kd = loss
        else:
            keys = ("alpha", "kd_loss", "kd_reduction", "temperature", "cls_target")
            loss, cls, kd = distillation(logits, taught, labels, **{key: getattr(settings, key) for key in keys})
        self.optimiser.zero_grad(set_to_none=False)
        loss.backward()
        if settings.clip_norm:
            nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip_norm)
        self.optimiser.param_groups[0]["lr"] = self._lr(done)
        self.optimiser.step()
        right = (logits.detach().argmax(-1) == labels).float().mean()
        return torch.stack([loss.detach(), cls.detach(), kd.detach(), right])

    def _teach(self, clips: Tensor, places: Tensor) -> Tensor | None:
        """The teacher's (N, classes) logits: looked up where they are kept, else of the clips the student sees."""
        if self.teacher is None or isinstance(self.teacher, Tensor):
            return None if self.teacher is None else self.teacher[places]
        with torch.no_grad():
            return self.teacher(clips).float()

    def _lr(self, done: float) -> float:
        """The learning rate when `done` epochs are over."""
        settings = self.settings
        if done < settings.warmup_epochs:
            return settings.lr * (done + 1) / (settings.warmup_epochs + 1)
        if settings.lr_schedule == "cosine":
            return settings.lr * 0.5 * (1 + math.cos(math.pi * done / self.epochs))
        passed = sum(int(done) >= round(share * self.epochs) for share in settings.lr_milestones)
        return settings.lr * settings.lr_factor**passed

    def _test(self, epoch: int) -> tuple[float, list[Row]]:
        self.network.eval()
        self.tested = self.splits.logits(self.apply, self.splits.test, self.settings)
        accuracy = accuracy_of(self.tested, self.splits.test)
        return accuracy.clip, accuracy_rows(epoch, accuracy)
