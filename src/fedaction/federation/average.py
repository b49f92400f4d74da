"""Scoped weighted averages that stream: one running mean per tensor, whatever the number of clients."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedaction.federation.scope import Scope
from fedaction.federation.state import Job, Part, ServerState, Update, Weight
from fedaction.federation.tree import Tree

Parts = Mapping[str, Part]
Amounts = Mapping[str, Tensor | float]
"""A number for each tensor; for each of its entries where clients hold parts of it."""


class RunningMean:
    """The weighted mean of trees seen so far, per name over the trees that hold it, per entry where parts are held.

    Trees are folded in one at a time, so that only the mean itself is ever in memory. The form
    `mean += w / W * (x - mean)` gives back equal inputs exactly; a tensor that comes again and again, as what many
    clients were sent, costs nothing.
    """

    def __init__(self) -> None:
        self.weights: dict[str, Tensor | float] = {}
        """The sum of weights, by name."""
        self.counts: dict[str, Tensor | float] = {}
        """How many trees were folded in, by name."""
        self._means: dict[str, Tensor] = {}
        self._borrowed: dict[str, Tensor] = {}  # the only tensor seen so far under a name, which is somebody else's

    def add(self, tree: Tree, weight: float, parts: Parts | None = None) -> None:
        """Folds a tree in with a positive weight."""
        if not weight > 0:
            raise ValueError(f"an update's weight must be positive, got {weight}")
        by_share: dict[float, list[str]] = {}
        for name, tensor in tree.items():
            total = self.weights.get(name)
            if name in (parts or {}) or isinstance(total, Tensor):
                # Where others hold a part, one that is whole is the part that covers everything.
                everything = Part(tuple(tensor.shape), (None,) * tensor.dim())
                self._add_part(name, tensor, weight, (parts or {}).get(name, everything))
                continue
            self.weights[name] = (total or 0.0) + weight
            self.counts[name] = self.counts.get(name, 0.0) + 1
            if total is None:
                self._borrowed[name] = tensor
            elif self._borrowed.get(name) is not tensor:
                self._own(name)
                by_share.setdefault(weight / (total + weight), []).append(name)
        for share, names in by_share.items():  # mostly one share for all tensors: a launch or two, not one for each
            tensors = [_accumulator(tree[name]) for name in names]
            torch._foreach_lerp_([self._means[name] for name in names], tensors, share)

    def _own(self, name: str) -> None:
        """Makes the mean of a name one that may be changed."""
        if name in self._borrowed:
            tensor = self._borrowed.pop(name)
            self._means[name] = _accumulator(tensor).clone()

    def _add_part(self, name: str, tensor: Tensor, weight: float, part: Part) -> None:
        values = _accumulator(tensor)
        self._own(name)
        if name not in self._means:
            self._means[name] = values.new_zeros(part.shape)
        mean = self._means[name]
        for amounts in (self.weights, self.counts):
            so_far = amounts.get(name, 0.0)
            if not isinstance(so_far, Tensor):  # whole so far
                amounts[name] = torch.full_like(mean, so_far)
        grid = part.grid(values.device)
        weights, counts = self.weights[name], self.counts[name]
        assert isinstance(weights, Tensor) and isinstance(counts, Tensor)
        total = weights[grid] + weight
        weights[grid] = total
        counts[grid] += 1
        mean[grid] = torch.lerp(mean[grid], values, weight / total)

    def tree(self, copy: bool = True) -> dict[str, Tensor]:
        """The means; entries of partly held tensors that nobody held are 0. Without `copy` some may be the inputs."""
        only = {name: _accumulator(tensor) for name, tensor in self._borrowed.items()}
        return {**self._means, **{name: tensor.clone() if copy else tensor for name, tensor in only.items()}}

    def over(self, previous: Tree) -> dict[str, Tensor]:
        """The previous tree with every entry that was seen replaced by its mean; the rest as it was."""
        return Mean(self.tree(), {}, self.weights, self.counts).over(previous)


@dataclass(frozen=True)
class Mean:
    """Weighted means over the clients that hold each entry.

    Attributes:
        after: of what came back.
        sent: of what they had been sent, with the same weights.
        weights: the sum of weights; 1 where the mean is a mix of several.
        counts: how many clients.
    """

    after: Tree
    sent: Tree
    weights: Amounts
    counts: Amounts

    def over(self, previous: Tree) -> dict[str, Tensor]:
        """The previous tree with every entry that somebody sent replaced by its mean; the rest as it was."""
        return self.apply(previous, lambda old, mean, _: mean)

    def apply(self, previous: Tree, change: Callable[[Tensor, Tensor, str], Tensor]) -> dict[str, Tensor]:
        """The previous tree with `change(old, mean, name)` wherever somebody sent an entry.

        Counters (integers) are averaged as numbers and rounded back, whatever the change.
        """
        unknown = self.after.keys() - previous.keys()
        if unknown:
            raise KeyError(f"means of tensors that the server does not hold: {sorted(unknown)}")
        result = dict(previous)
        for name, mean in self.after.items():
            old, weight = previous[name], self.weights[name]
            if not old.is_floating_point():
                result[name] = mean.round().to(old.dtype)
                continue
            new = change(old, mean, name)
            result[name] = torch.where(weight > 0, new, old) if isinstance(weight, Tensor) else new
        return result


NOTHING = Mean({}, {}, {}, {})


@dataclass(frozen=True)
class Averages:
    """What came back in a round, as means: all that a server's step may depend on.

    Attributes:
        shared: of GLOBAL tensors, over all clients.
        groups: of GROUP tensors, over each group's clients.
    """

    shared: Mean = NOTHING
    groups: Mapping[str, Mean] = field(default_factory=dict[str, Mean])

    def step(self, server: ServerState, change: Callable[[Mean, Tree], Tree]) -> ServerState:
        """The next state: `change(mean, tensors)` for the shared tensors and for each group's."""
        groups = {name: change(mean, server.groups.get(name, {})) for name, mean in self.groups.items()}
        shared = change(self.shared, server.shared)
        return replace(server, version=server.version + 1, shared=shared, groups={**server.groups, **groups})


class Averager:
    """Folds updates into `Averages`, one at a time; single updates are let go."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, str | None], tuple[float, RunningMean, RunningMean]] = {}

    def add(self, update: Update, job: Job, weight: Weight, scopes: Mapping[str, Scope], parts: Parts) -> None:
        """Folds an update in.

        Args:
            update: what came back.
            job: what the client had been given.
            weight: how much it counts; see `Weight`.
            scopes: of the client's tensors.
            parts: which of them are parts of larger ones.
        """
        pairs = weight if isinstance(weight, tuple) else ((1.0, weight),)
        own = [name for name in update.tree if scopes[name] is Scope.GROUP]
        common = [name for name in update.tree if scopes[name] is not Scope.GROUP]
        for group, names in ((None, common), (update.group, own)):
            if not names:
                continue
            cut = {name: parts[name] for name in names if name in parts}
            after, sent = {n: update.tree[n] for n in names}, {n: job.payload[n] for n in names}
            for place, (share, amount) in enumerate(pairs):
                if share:
                    _, back, before = self._sums.setdefault((place, group), (share, RunningMean(), RunningMean()))
                    back.add(after, amount, cut)
                    before.add(sent, amount, cut)

    def averages(self) -> Averages:
        """The means of all that was folded in."""
        kinds: dict[str | None, list[tuple[float, RunningMean, RunningMean]]] = {}
        for (_, group), sums in self._sums.items():
            kinds.setdefault(group, []).append(sums)
        means = {group: _mix(several) for group, several in kinds.items()}
        return Averages(means.pop(None, NOTHING), {group: mean for group, mean in means.items() if group is not None})


def _mix(several: list[tuple[float, RunningMean, RunningMean]]) -> Mean:
    """One mean of several, by their shares."""
    (total, back, before), *others = several
    after, sent, weights = back.tree(), before.tree(copy=False), dict(back.weights)
    for share, other, other_before in others:
        total += share
        for tree, more in ((after, other.tree(copy=False)), (sent, other_before.tree(copy=False))):
            tree.update({name: torch.lerp(tensor, more[name], share / total) for name, tensor in tree.items()})
        # Each of the mixed means has a sum of weights of its own; together their shares sum to 1.
        weights = {n: (w > 0).to(w.dtype) if isinstance(w, Tensor) else 1.0 for n, w in weights.items()}
    return Mean(after, sent, weights, back.counts)


def mix(mean: Mean, previous: Tree) -> dict[str, Tensor]:
    """W + total weight x (mean - w), for weights that sum to 1 at most: what is left is the model as it was."""

    def between(old: Tensor, new: Tensor, name: str) -> Tensor:
        weight = mean.weights[name]
        return torch.lerp(old, new, weight if isinstance(weight, Tensor) else torch.as_tensor(weight).to(old))

    return mean.apply(previous, between)


def _accumulator(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_floating_point() else tensor.double()
