"""Stacked batches: what the vectorised engine trains on, one step of many clients at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedaction.data.client import ClientData
from fedaction.engines.base import Preparation, Training, augmentation_of, plan_of
from fedaction.federation.state import Job
from fedaction.methods.base import Task


class Feed:
    """The stacked batches of a chunk: all clients' samples in one tensor, indexed once per step."""

    def __init__(
        self,
        jobs: Sequence[Job],
        data: Mapping[str, ClientData],
        training: Training,
        task: Task | None,
        device: torch.device,
    ) -> None:
        sets = [data[job.client].train for job in jobs]
        self._x = torch.cat([s.x for s in sets])
        self._y = torch.cat([s.y for s in sets])
        plans = [plan_of(training, job, len(s)) for job, s in zip(jobs, sets, strict=True)]
        starts = [0]
        for s in sets:
            starts.append(starts[-1] + len(s))
        longest = len(plans[0])  # jobs come with most steps first
        rows = [padded(plan + start, longest, 0) for plan, start in zip(plans, starts, strict=False)]
        self._rows = torch.stack(rows, 1).to(device)  # steps, clients, batch
        self._prepare = Preparation(task, training.augment)
        shape = tuple(self._x.shape[1:])
        found: dict[str, list[Tensor]] = {}
        for job, plan in zip(jobs, plans, strict=True):
            for name, tensor in self._prepare.draw(plan, shape, augmentation_of(training, job)).items():
                found.setdefault(name, []).append(padded(tensor, longest, 0))
        self._drawn = {name: torch.stack(tensors, 1).to(device) for name, tensors in found.items()}

    def batch(self, step: int, active: int) -> tuple[Tensor, Tensor]:
        """(active, batch, *shape) samples and (active, batch) labels of one step, or what is made of them."""
        rows = self._rows[step, :active]
        drawn = {name: tensor[step, :active] for name, tensor in self._drawn.items()}
        return self._prepare.apply(self._x[rows], self._y[rows], drawn)


def padded(tensor: Tensor, rows: int, value: float) -> Tensor:
    """A tensor with its first axis filled up to `rows`."""
    missing = rows - tensor.shape[0]
    return tensor if missing == 0 else torch.cat([tensor, tensor.new_full((missing, *tensor.shape[1:]), value)])
