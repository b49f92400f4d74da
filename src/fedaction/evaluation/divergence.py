"""How far clients' models go from the model that they were sent, module by module (FedVSSL, Fig. 5)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedaction.engines.store import LocalStore
from fedaction.federation.scope import Scope
from fedaction.federation.state import Job, Update
from fedaction.federation.tree import Tree
from fedaction.methods.base import Method

SENT = "distance/"
"""Before a module's name: from what the client was sent to what it sent back."""
OWN = "own_distance/"
"""Before a module's name: of parameters that stay with the client, from its own before the training."""


def distances(before: Tree, after: Tree, names: Iterable[str]) -> dict[str, float]:
    """The L2 distance between two trees over some of their tensors, by module: a name up to its first dot.

    Tensors that one of them has not, or has in another shape, do not count: a site may send anything, and its own
    tensors are not here.
    """
    squares: dict[str, list[Tensor]] = {}
    for name in names:
        if name not in before or name not in after or before[name].shape != after[name].shape:
            continue
        moved = after[name].double() - before[name].to(after[name].device).double()
        squares.setdefault(name.split(".")[0], []).append(moved.square().sum())
    if not squares:
        return {}
    sums: list[float] = torch.stack([torch.stack(own).sum() for own in squares.values()]).tolist()
    return {module: math.sqrt(total) for module, total in zip(squares, sums, strict=True)}


@dataclass(frozen=True)
class Distances:
    """An observer of updates (`engines.observed`) that adds how far their parameters went, by module.

    Buffers and FROZEN tensors do not count.
    """

    method: Method  # whose scopes say what is shared

    def __call__(self, job: Job, update: Update, store: LocalStore) -> Update:
        """The update with its distances among its metrics."""
        plan = self.method.plan(self.method.clients[job.client])
        trained = [n for n, leaf in plan.leaves.items() if leaf.kind == "parameter"]
        shared = [n for n in trained if n in plan.shared]
        own = [n for n in trained if plan.scopes[n] is Scope.LOCAL]
        moved = {SENT + module: value for module, value in distances(job.payload, update.tree, shared).items()}
        before, after = store.current(job.client), store.pending(job.client)
        moved |= {OWN + module: value for module, value in distances(before, after, own).items()}
        return replace(update, metrics={**update.metrics, **moved})


def deviations(by_round: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """The standard deviation (n - 1) over the clients of each round that has two or more."""
    return {r: statistics.stdev(values) for r, values in sorted(by_round.items()) if len(values) > 1}


@dataclass(frozen=True)
class Consistency:
    """A curve of deviations in numbers, in the unit of the weights."""

    mean: float  # over rounds
    variation: float  # the standard deviation (n - 1) over rounds; 0 for a single one
    first: float  # mean over the first tenth of the rounds, at least one
    last: float  # mean over the last tenth, at least one


def consistency(deviations: Mapping[int, float]) -> Consistency:
    """The numbers of a curve, given by round; at least one round."""
    values = [deviations[r] for r in sorted(deviations)]
    if not values:
        raise ValueError("a curve needs at least one round")
    tenth = max(1, round(len(values) / 10))
    return Consistency(
        mean=statistics.fmean(values),
        variation=statistics.stdev(values) if len(values) > 1 else 0.0,
        first=statistics.fmean(values[:tenth]),
        last=statistics.fmean(values[-tenth:]),
    )
