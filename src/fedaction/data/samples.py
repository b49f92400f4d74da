"""What engines read a client's samples from. Where they lie is their own business: in memory, on a GPU, in files."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from fedaction.federation.processes import in_order_by

_AHEAD = 2  # batches that are read while one is used


class Samples(Protocol):
    """Labelled samples of one split of a client."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample."""
        ...

    @property
    def labels(self) -> Tensor:
        """(N,) int64, indices into the client's classes; on the CPU."""
        ...

    @property
    def subjects(self) -> tuple[str, ...]:
        """Who performed each sample; empty where that is not known."""
        ...

    @property
    def recording(self) -> Tensor | None:
        """(N,) int64, which recording each sample is a clip of; None: each sample is a recording of its own."""
        ...

    @property
    def fresh(self) -> bool:
        """Whether samples are drawn anew each time that they are trained on; see `draw`."""
        ...

    @property
    def resident(self) -> bool:
        """Whether samples are in memory, so that taking some is a matter of indexing."""
        ...

    def __len__(self) -> int: ...

    def draw(self, rows: Tensor, random: torch.Generator) -> Tensor | None:
        """Where in its recording each of some rows begins this time, like `rows`; None: it is always the same."""
        ...

    def take(self, rows: Tensor, starts: Tensor | None = None) -> Tensor:
        """(n, *shape) samples, on the device that they are for; `rows` (n,) int64 and what `draw` gave for them."""
        ...

    def pick(self, rows: Tensor) -> Samples:
        """Some of them, (n,) int64."""
        ...

    def on(self, device: torch.device) -> Samples:
        """The same samples for work on a device; what fits there is moved there once."""
        ...


@dataclass(frozen=True)
class Examples:
    """Samples in memory. Is a `Samples`."""

    x: Tensor
    """(N, *shape) float32; clips of video are uint8."""
    y: Tensor
    """(N,) int64, indices into the client's classes; on the CPU, wherever the samples are."""
    subjects: tuple[str, ...] = field(default=(), repr=False)
    """Who performed each sample, where known."""
    recording: Tensor | None = field(default=None, repr=False)
    """(N,) int64, which recording each sample is a clip of, where recordings have several; else None."""
    fresh = False
    resident = True

    def __len__(self) -> int:
        return int(self.y.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """See `Samples.shape`."""
        return tuple(self.x.shape[1:])

    @property
    def labels(self) -> Tensor:
        """See `Samples.labels`."""
        return self.y

    def draw(self, rows: Tensor, random: torch.Generator) -> Tensor | None:
        """See `Samples.draw`: a sample in memory is always the same."""
        return None

    def take(self, rows: Tensor, starts: Tensor | None = None) -> Tensor:
        """See `Samples.take`. Rows of any shape: (..., *shape)."""
        return self.x[rows.to(self.x.device)]

    def pick(self, rows: Tensor) -> Examples:
        """See `Samples.pick`."""
        subjects = tuple(self.subjects[row] for row in rows.tolist()) if self.subjects else ()
        return Examples(
            self.take(rows), self.y[rows], subjects, None if self.recording is None else self.recording[rows]
        )

    def on(self, device: torch.device) -> Examples:
        """See `Samples.on`: the same object where it is there already."""
        return self if self.x.device == device else replace(self, x=self.x.to(device))


def in_memory(samples: Samples) -> Examples:
    """All samples at once, for sets that are known to be small: skeletons and features, not video."""
    if isinstance(samples, Examples):
        return samples
    x = samples.take(torch.arange(len(samples)))
    return Examples(x, samples.labels, samples.subjects, samples.recording)


def take_each(samples: Samples, rows: Tensor, starts: Tensor | None = None) -> Generator[Tensor]:
    """The samples of each of (steps, batch) rows; where they are read from files, a few batches ahead."""

    def one(step: int) -> Tensor:
        return samples.take(rows[step], None if starts is None else starts[step])

    if samples.resident:
        for step in range(len(rows)):
            yield one(step)
        return
    with ThreadPoolExecutor(_AHEAD, thread_name_prefix="samples") as pool:
        yield from in_order_by(pool, (partial(one, step) for step in range(len(rows))), _AHEAD)


def in_batches(samples: Samples, size: int) -> Iterator[Tensor]:
    """All samples in their order, at most `size` at a time."""
    places = torch.arange(len(samples)).split(size)
    whole = [part for part in places if len(part) == size]
    if whole:
        with closing(take_each(samples, torch.stack(whole))) as batches:
            yield from batches
    if places and 0 < len(places[-1]) < size:
        yield samples.take(places[-1])
