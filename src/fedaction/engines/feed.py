"""Stacked batches: what the vectorised engine trains on, one step of many clients at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedaction.data.augment import Drawn
from fedaction.data.client import ClientData
from fedaction.engines.base import Training, augmentation_of, plan_of
from fedaction.federation.state import Job


class Feed:
    """The stacked batches of a chunk: all clients' samples in one tensor, indexed once per step."""

    def __init__(
        self, jobs: Sequence[Job], data: Mapping[str, ClientData], training: Training, device: torch.device
    ) -> None:
        sets = [data[job.client].train for job in jobs]
        self._x = torch.cat([s.x for s in sets])
        self._y = torch.cat([s.y for s in sets])
        self._augment = training.augment
        plans = [plan_of(training, job, len(s)) for job, s in zip(jobs, sets, strict=True)]
        starts = [0]
        for s in sets:
            starts.append(starts[-1] + len(s))
        longest = len(plans[0])  # jobs come with most steps first
        rows = [padded(plan + start, longest, 0) for plan, start in zip(plans, starts, strict=False)]
        self._rows = torch.stack(rows, 1).to(device)  # steps, clients, batch
        if self._augment is not None:
            shears: list[Tensor] = []
            offsets: list[Tensor] = []
            for job, plan in zip(jobs, plans, strict=True):
                random = augmentation_of(training, job)
                drawn = [self._augment.draw(plan.shape[1], random) for _ in range(len(plan))]
                shears.append(padded(torch.stack([d.shear for d in drawn]), longest, 0.0))
                offsets.append(padded(torch.stack([d.start for d in drawn]), longest, 0.0))
            self._shear = torch.stack(shears, 1).to(device)
            self._start = torch.stack(offsets, 1).to(device)

    def batch(self, step: int, active: int) -> tuple[Tensor, Tensor]:
        """(active, batch, *shape) samples and (active, batch) labels of one step."""
        rows = self._rows[step, :active]
        x = self._x[rows]
        if self._augment is not None:
            x = self._augment.apply(x, Drawn(self._shear[step, :active], self._start[step, :active]))
        return x, self._y[rows]


def padded(tensor: Tensor, rows: int, value: float) -> Tensor:
    """A tensor with its first axis filled up to `rows`."""
    missing = rows - tensor.shape[0]
    return tensor if missing == 0 else torch.cat([tensor, tensor.new_full((missing, *tensor.shape[1:]), value)])
