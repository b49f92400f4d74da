"""Samples whose labels are wrong on purpose, for experiments with hostile clients."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedaction.data.samples import Examples, Samples


def flip_labels(samples: Samples, classes: int) -> Samples:
    """The same samples with the labels read backwards: class c becomes classes - 1 - c."""
    if isinstance(samples, Examples):
        return replace(samples, y=classes - 1 - samples.y)
    return _Flipped(samples, classes)


@dataclass(frozen=True)
class _Flipped:
    """Is a `Samples`: another's, but for the labels."""

    samples: Samples
    classes: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.samples.shape

    @property
    def labels(self) -> Tensor:
        return self.classes - 1 - self.samples.labels

    @property
    def subjects(self) -> tuple[str, ...]:
        return self.samples.subjects

    @property
    def recording(self) -> Tensor | None:
        return self.samples.recording

    @property
    def fresh(self) -> bool:
        return self.samples.fresh

    @property
    def resident(self) -> bool:
        return self.samples.resident

    def __len__(self) -> int:
        return len(self.samples)

    def draw(self, rows: Tensor, random: torch.Generator) -> Tensor | None:
        return self.samples.draw(rows, random)

    def take(self, rows: Tensor, starts: Tensor | None = None) -> Tensor:
        return self.samples.take(rows, starts)

    def pick(self, rows: Tensor) -> Samples:
        return _Flipped(self.samples.pick(rows), self.classes)

    def on(self, device: torch.device) -> Samples:
        return _Flipped(self.samples.on(device), self.classes)
