"""Updates are checked before they are combined; a bad one is refused, with a reason."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from fedaction.federation.state import Job, Report, Update
from fedaction.federation.tree import FlatTree, largest_values, shapes_of
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
    _check_shapes(update, job, who)
    if not (isinstance(update.tree, FlatTree) and update.tree.sound):
        _check_values(update, who)
    if not (math.isfinite(update.samples) and update.samples > 0):
        raise Refused(f"{who} says that {update.samples} samples are behind its update; expected a positive number")
    return update


def _check_shapes(update: Update, job: Job, who: str) -> None:
    """Names, shapes and dtypes must be those of the payload."""
    places = update.tree.places if isinstance(update.tree, FlatTree) else None
    if places is not None and places.fits is job.payload:
        return
    sent, expected = shapes_of(update.tree), shapes_of(job.payload)
    if sent == expected:
        if places is not None:
            places.fits = job.payload
        return
    missing = [name for name in expected if name not in sent]
    if missing:
        raise Refused(f"{who} did not send {missing[0]!r} (shape {expected[missing[0]][0]})")
    for name, (shape, dtype) in sent.items():
        if name not in expected:
            raise Refused(f"{who} sent {name!r} (shape {shape}), which nobody asked for")
        if shape != expected[name][0]:
            raise Refused(f"{who} sent {name!r} with shape {shape}; expected {expected[name][0]}")
        if dtype != expected[name][1]:
            raise Refused(f"{who} sent {name!r} as {dtype}; expected {expected[name][1]} (shape {shape})")


def _check_values(update: Update, who: str) -> None:
    """Values must be finite, and variances not below zero."""
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
