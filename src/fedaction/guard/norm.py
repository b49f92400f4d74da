"""Norm bounding: an update that goes far from what its client was sent is pulled back (Sun et al., 2019).

Lengths are Euclidean, over floating-point tensors, and taken apart by block: GLOBAL or GROUP, parameters or buffers.
Normalisation statistics live on another scale than weights, and a far-off running mean must not pass because the
weights beside it are modest. Counters (integers) have no length and stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedaction.federation.scope import Scope
from fedaction.federation.state import Job, Report, Update
from fedaction.federation.tree import Tree
from fedaction.methods.base import Method

Block = tuple[Scope, str]
"""A scope, and "parameter" or "buffer"."""


def blocks_of(method: Method, client: str, tree: Tree) -> dict[Block, list[str]]:
    """The names of a client's floating-point tensors, by block, in an order of their own."""
    plan = method.plan(method.clients[client])
    blocks: dict[Block, list[str]] = {}
    for name in sorted(tree):
        if tree[name].is_floating_point():
            blocks.setdefault((plan.scopes[name], plan.leaves[name].kind), []).append(name)
    return blocks


def measure_lengths(update: Update, job: Job, blocks: Mapping[Block, list[str]]) -> dict[Block, float]:
    """How far an update goes from what its job carried, by block; over the entries that the client has."""
    lengths: dict[Block, float] = {}
    for block, names in blocks.items():
        squares = [(update.tree[n].double() - job.payload[n].double()).square().sum() for n in names]
        lengths[block] = math.sqrt(float(torch.stack(squares).sum()))
    return lengths


def pull_back(update: Update, job: Job, blocks: Mapping[Block, list[str]], bounds: Mapping[Block, float]) -> Update:
    """The update with the difference of every block scaled down to the block's bound; itself where all are within."""
    lengths = measure_lengths(update, job, blocks)
    changed: dict[str, Tensor] = {}
    for block, names in blocks.items():
        if lengths[block] > bounds[block]:
            factor = bounds[block] / lengths[block]
            for name in names:
                sent = job.payload[name].double()
                changed[name] = (sent + factor * (update.tree[name].double() - sent)).to(update.tree[name].dtype)
    return replace(update, tree={**update.tree, **changed}) if changed else update


@dataclass(frozen=True)
class NormBound:
    """A `Guard` with one bound for every block of every update. It needs no other update, so updates stream."""

    method: Method
    """Whose scopes say what is shared."""
    bound: float
    """The largest length."""

    def __call__(self, update: Update, job: Job, report: Report) -> Update:
        """See `Guard`."""
        blocks = blocks_of(self.method, job.client, update.tree)
        return pull_back(update, job, blocks, dict.fromkeys(blocks, self.bound))
