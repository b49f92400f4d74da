"""Updates are checked before they are combined; a bad one is refused, with a reason."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from fedaction.evaluation.site import EVIDENCE, Evaluation
from fedaction.federation.state import Job, Report, Update
from fedaction.federation.tree import largest_values
from fedaction.guard.base import Refused

MOST_METRICS = 1000
"""Numbers in a site's report."""
LONGEST_NAME = 200
"""Characters in the name of one of them."""
LONGEST_TEXT = 1000
"""Characters that are kept of what a site says in words."""
MOST_EVIDENCE = 4_000_000
"""Numbers and texts in the evidence of a site, and characters in its texts."""


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


def quote(text: str) -> str:
    """What a site says, fit to be shown: no control characters, and not too long."""
    shown = text[:LONGEST_TEXT]
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in shown)
    return plain if len(text) <= LONGEST_TEXT else f"{plain}... ({len(text)} characters)"


def check_metrics(metrics: Mapping[str, float], who: str) -> None:
    """Refuses a report with more numbers, or longer names, than any method has."""
    if len(metrics) > MOST_METRICS:
        raise Refused(f"{who} reports {len(metrics)} numbers; {MOST_METRICS} are the most")
    for name in metrics:
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise Refused(
                f"{who} reports a number with a name of {len(name)} characters; expected up to {LONGEST_NAME}, all "
                "of which can be printed"
            )


def bound_evaluation(report: Evaluation, client: str) -> Evaluation:
    """What a site reports of its test: within bounds, or `Refused`.

    Kinds of evidence that nobody knows, or that are too large, are left out; the numbers stand without them.
    """
    who = f"client {client!r}"
    if report.client != client:
        raise Refused(f"{who} was asked for its test, but {report.client!r} answered")
    check_metrics(report.metrics, who)
    accuracy = report.metrics.get("accuracy", 0.0)
    if report.n < 0 or not 0 <= accuracy <= 1:
        raise Refused(f"{who} says that it tested {report.n} samples, with accuracy {accuracy}; expected 0 to 1")
    kept = {kind: value for kind, value in report.evidence.items() if kind in EVIDENCE and fits(value)}
    return report if len(kept) == len(report.evidence) else replace(report, evidence=kept)


def fits(value: Any, most: int = MOST_EVIDENCE) -> bool:
    """Whether a JSON value is no larger than evidence may be."""
    size, left = 0, [value]
    while left and size <= most:
        item = left.pop()
        size += 1
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, Mapping):
            entries = cast("Mapping[str, Any]", item)
            left += [*entries, *entries.values()]
        elif isinstance(item, list | tuple):
            left += cast("list[Any]", item)
    return size <= most
