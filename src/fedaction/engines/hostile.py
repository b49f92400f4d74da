"""Clients that mean harm, for experiments: they train as asked, and then send something else.

What they do to labels happens before training (`data/flipped.py`); the rest is done to their updates, here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedaction.engines.store import LocalStore
from fedaction.federation.seeds import generator, numpy_generator
from fedaction.federation.state import Job, Update
from fedaction.methods.base import Method

_SIZES = {"scale": 1000.0, "sign": 1.0, "noise": 10.0}


def choose_attackers(attackers: int | Collection[str], clients: Iterable[str], seed: int) -> frozenset[str]:
    """Who is hostile: those named, or so many drawn by a seed. Of one more, the others stay the same.

    A ValueError where there are not so many, or a name is nobody's.
    """
    names = sorted(clients)
    if not isinstance(attackers, int):
        unknown = sorted({*attackers} - {*names})
        if unknown:
            raise ValueError(f"attackers: there is no client {unknown[0]!r}; there are {', '.join(names[:20])}")
        return frozenset(attackers)
    if not 0 <= attackers <= len(names):
        raise ValueError(f"attackers = {attackers}, but there are {len(names)} clients")
    order: list[int] = numpy_generator(seed, "attackers").permutation(len(names)).tolist()
    return frozenset(names[i] for i in order[:attackers])


@dataclass(frozen=True)
class Attack:
    """An observer of updates (`engines.observed`) that changes those of hostile clients.

    Only parameters change: far-off normalisation statistics, such as variances below zero, would be refused at sight.
    """

    method: Method
    """Whose plan says what a parameter is."""
    kind: str
    """"scale", "sign", "noise" or "nan"."""
    clients: Collection[str]
    """Who does it."""
    seed: int
    """The run's; noise is derived from it, the client and the occasion."""
    size: float = 0.0
    """See the key `attack_size`; 0: the kind's own."""

    def __call__(self, job: Job, update: Update, store: LocalStore) -> Update:
        """The update as the client sends it."""
        if job.client not in self.clients:
            return update
        leaves = self.method.plan(self.method.clients[job.client]).leaves
        names = [name for name in update.tree if leaves[name].kind == "parameter"]
        random = generator(self.seed, "attack", job.client, job.occasion)
        changed = {name: self._change(job.payload[name], update.tree[name], random) for name in names}
        return replace(update, tree={**update.tree, **changed})

    def _change(self, sent: Tensor, after: Tensor, random: torch.Generator) -> Tensor:
        size, moved = self.size or _SIZES.get(self.kind, 0.0), after - sent
        if self.kind == "nan":
            return torch.full_like(after, math.nan)
        if self.kind == "noise":
            spread = size * float(moved.square().mean().sqrt()) if moved.numel() else 0.0
            return after + spread * torch.randn(after.shape, generator=random).to(after)
        return sent + (size if self.kind == "scale" else -size) * moved
