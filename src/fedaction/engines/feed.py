"""Stacked batches: what the vectorised engine trains on, one step of many clients at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from fedaction.data.client import ClientData
from fedaction.data.samples import Examples, Samples, take_each
from fedaction.engines.base import Preparation, Training, augmentation_generator, plan_batches, starts_generator
from fedaction.federation.state import Job
from fedaction.methods.base import Task


class Feed:
    """The stacked batches of a chunk, step by step.

    Samples in memory are put into one tensor, which is indexed once per step; others are read client by client.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        data: Mapping[str, ClientData],
        training: Training,
        task: Task | None,
        device: torch.device,
    ) -> None:
        """`jobs` come with most steps first."""
        self._sets = [data[job.client].train for job in jobs]
        self._plans = [plan_batches(training, job, len(s)) for job, s in zip(jobs, self._sets, strict=True)]
        self._prepare = Preparation(task, training.augment)
        longest = len(self._plans[0])
        columns: dict[str, list[Tensor]] = {}
        for job, plan, own in zip(jobs, self._plans, self._sets, strict=True):
            drawn = self._prepare.draw(plan, own.shape, augmentation_generator(training, job), job.round)
            for name, tensor in {"y": own.labels[plan], **drawn}.items():
                columns.setdefault(name, []).append(pad(tensor, longest, 0))
        self._drawn = {name: torch.stack(tensors, 1).to(device) for name, tensors in columns.items()}
        held = [s for s in self._sets if isinstance(s, Examples)]
        self._samples = self._index(held, device) if len(held) == len(jobs) else self._read(jobs, training, device)

    def batch(self, step: int, active: int) -> tuple[Tensor, Tensor]:
        """(active, batch, *shape) samples and (active, batch) labels of one step, or what is made of them.

        Steps come in their order, from 0.
        """
        drawn = {name: tensor[step, :active] for name, tensor in self._drawn.items()}
        return self._prepare.apply(next(self._samples), drawn.pop("y"), drawn)

    def _active(self) -> Iterator[tuple[int, int]]:
        """Every step, and how many clients have so many."""
        for step in range(len(self._plans[0])):
            yield step, sum(len(plan) > step for plan in self._plans)

    def _index(self, sets: Sequence[Examples], device: torch.device) -> Iterator[Tensor]:
        x = torch.cat([s.x for s in sets])
        starts = [0]
        for s in sets:
            starts.append(starts[-1] + len(s))
        pairs = zip(self._plans, starts, strict=False)
        rows = torch.stack([pad(plan + start, len(self._plans[0]), 0) for plan, start in pairs], 1)
        rows = rows.to(device)  # steps, clients, batch
        for step, active in self._active():
            yield x[rows[step, :active]]

    def _read(self, jobs: Sequence[Job], training: Training, device: torch.device) -> Iterator[Tensor]:
        def stream(samples: Samples, plan: Tensor, job: Job) -> Iterator[Tensor]:
            return take_each(samples, plan, samples.draw(plan, starts_generator(training, job)))

        streams = [stream(*each) for each in zip(self._sets, self._plans, jobs, strict=True)]
        for _, active in self._active():
            yield torch.stack([next(own).to(device) for own in streams[:active]])


def pad(tensor: Tensor, rows: int, value: float) -> Tensor:
    """A tensor with its first axis filled up to `rows`."""
    missing = rows - tensor.shape[0]
    return tensor if missing == 0 else torch.cat([tensor, tensor.new_full((missing, *tensor.shape[1:]), value)])
