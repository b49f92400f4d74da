"""Updates are checked before they are combined; a bad one is refused, with a reason."""

# pyright: reportPrivateImportUsage=false, reportPrivateUsage=false, reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch

from fedaction.federation.state import Job, Update


@dataclass(frozen=True)
class Refusal:
    """Why an update was not used."""

    client: str
    reason: str


def problem(update: Update, job: Job) -> str | None:
    """What is wrong with an update, or None. It must mirror the payload that its job was given."""
    who = f"client {update.client!r}"
    missing = [name for name in job.payload if name not in update.tree]
    if missing:
        return f"{who} did not send {missing[0]!r} (shape {tuple(job.payload[missing[0]].shape)})"
    unknown = [name for name in update.tree if name not in job.payload]
    if unknown:
        return f"{who} sent {unknown[0]!r} (shape {tuple(update.tree[unknown[0]].shape)}), which nobody asked for"
    for name, sent in update.tree.items():
        expected = job.payload[name]
        if sent.shape != expected.shape:
            return f"{who} sent {name!r} with shape {tuple(sent.shape)}; expected {tuple(expected.shape)}"
        if sent.dtype != expected.dtype:
            return f"{who} sent {name!r} as {sent.dtype}; expected {expected.dtype} (shape {tuple(sent.shape)})"
    # What the client keeps is checked too: it would come back with it next time.
    held = {**update.tree, **update.local}
    floats = {name: tensor for name, tensor in held.items() if tensor.is_floating_point()}
    # The largest magnitude is finite only if every value is; all of them are fetched from the device at once.
    norms = torch._foreach_norm(list(floats.values()), math.inf) if floats else ()
    largest: list[float] = torch.stack([norm.double() for norm in norms]).tolist() if norms else []
    for (name, tensor), value in zip(floats.items(), largest, strict=True):
        if not math.isfinite(value):
            bad = int((~torch.isfinite(tensor)).sum())
            verb = "sent" if name in update.tree else "would keep"
            return (
                f"{who} {verb} {name!r} with {bad} of {tensor.numel()} values NaN or infinite; "
                f"expected finite values of shape {tuple(tensor.shape)}"
            )
    if not (math.isfinite(update.weight) and update.weight > 0):
        return f"{who} sent weight {update.weight}; expected a positive number"
    return None


def validated(
    updates: Iterable[Update], job_of: Callable[[str], Job], refuse: Callable[[Refusal], None]
) -> Iterator[Update]:
    """Hands on the updates that are sound, one by one, and reports the others."""
    for update in updates:
        reason = problem(update, job_of(update.client))
        if reason is None:
            yield update
        else:
            refuse(Refusal(update.client, reason))
