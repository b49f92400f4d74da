"""Updates are checked before they are combined; a bad one is refused, with a reason."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from fedaction.federation.state import Job, Report, Update
from fedaction.federation.tree import largest_values
from fedaction.guard.base import Refused
from fedaction.guard.reports import check_metrics


def validate(update: Update, job: Job, report: Report) -> Update:
    """A `Guard`: the update must mirror the payload that its job was given, and be finite."""
    who = f"client {job.client!r}"
    answered, asked = ((each.client, each.group, each.version) for each in (update, job))
    if answered != asked:
        raise Refused(f"{who} answered as (client, group, version) {answered}, but was asked as {asked}")
    if update.fault:
        raise Refused(update.fault)
    if update.occasion != job.occasion:
        raise Refused(f"{who} answered its job {update.occasion}, but was asked for {job.occasion}: an old answer")
    check_metrics(update.metrics, who)
    missing = [name for name in job.payload if name not in update.tree]
    if missing:
        raise Refused(f"{who} did not send {missing[0]!r} (shape {tuple(job.payload[missing[0]].shape)})")
    unknown = [name for name in update.tree if name not in job.payload]
    if unknown:
        shape = tuple(update.tree[unknown[0]].shape)
        raise Refused(f"{who} sent {unknown[0]!r} (shape {shape}), which nobody asked for")
    for name, sent in update.tree.items():
        expected = job.payload[name]
        if sent.shape != expected.shape:
            raise Refused(f"{who} sent {name!r} with shape {tuple(sent.shape)}; expected {tuple(expected.shape)}")
        if sent.dtype != expected.dtype:
            shape = tuple(sent.shape)
            raise Refused(f"{who} sent {name!r} as {sent.dtype}; expected {expected.dtype} (shape {shape})")
    floats = {name: tensor for name, tensor in update.tree.items() if tensor.is_floating_point()}
    for (name, tensor), largest in zip(floats.items(), largest_values(floats), strict=True):
        if not math.isfinite(largest):
            bad = int((~torch.isfinite(tensor)).sum())
            raise Refused(
                f"{who} sent {name!r} with {bad} of {tensor.numel()} values NaN or infinite; "
                f"expected finite values of shape {tuple(tensor.shape)}"
            )
        if name.endswith("running_var") and bool((tensor < 0).any()):
            raise Refused(f"{who} sent {name!r} with a variance below zero")
    if not (math.isfinite(update.samples) and update.samples > 0):
        raise Refused(f"{who} says that {update.samples} samples are behind its update; expected a positive number")
    return update


@dataclass(frozen=True)
class NotTooOld:
    """A `Guard` that refuses updates of models that the server has long left behind."""

    most: int
    """Server updates that may lie between a client's download and its upload."""

    def __call__(self, update: Update, job: Job, report: Report) -> Update:
        """See `Guard`."""
        if report.staleness > self.most:
            raise Refused(
                f"client {update.client!r} sent an update {report.staleness} server updates old; {self.most} is the "
                "most"
            )
        return update
