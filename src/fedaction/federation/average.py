"""Scoped weighted averages that stream: one running mean per tensor, whatever the number of clients."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable, KeysView, Mapping
from dataclasses import dataclass, field, replace
from operator import is_

import torch
from torch import Tensor

from fedaction.federation.scope import Scope
from fedaction.federation.state import Job, Part, ServerState, Update, Weight
from fedaction.federation.tree import FlatTree, Places, Tree

Parts = Mapping[str, Part]
Amounts = Mapping[str, Tensor | float]
"""A number for each tensor; for each of its entries where clients hold parts of it."""


class RunningMean:
    """The weighted mean of trees seen so far, per name over the trees that hold it, per entry where parts are held.

    Trees are folded in one at a time, so that only the mean itself is ever in memory. The form
    `mean += w / W * (x - mean)` gives back equal inputs exactly. Two things make it fast: as long as all trees have
    the same whole tensors, their weights are one number; and a tree that comes again and again, as what many clients
    were sent, costs a look at it. Trees that are one vector each (`FlatTree`) are folded in as such.
    """

    def __init__(self) -> None:
        self._means: dict[str, Tensor] = {}
        self._flat: FlatTree | None = None  # the means as one vector, where all trees so far were
        self._only: Tree | None = None  # the one tree seen so far, however often; it is somebody else's
        self._common: tuple[float, float] | None = (0.0, 0.0)  # weight and count of every name, while they are one
        self._weights: dict[str, Tensor | float] = {}
        self._counts: dict[str, Tensor | float] = {}

    @property
    def weights(self) -> Amounts:
        """The sum of weights, by name."""
        return self._weights if self._common is None else dict.fromkeys(self._names, self._common[0])

    @property
    def counts(self) -> Amounts:
        """How many trees were folded in, by name."""
        return self._counts if self._common is None else dict.fromkeys(self._names, self._common[1])

    @property
    def _names(self) -> KeysView[str]:
        return (self._means if self._only is None else self._only).keys()

    def add(self, tree: Tree, weight: float, parts: Parts | None = None) -> None:
        """Folds a tree in with a positive weight."""
        if not weight > 0:
            raise ValueError(f"an update's weight must be positive, got {weight}")
        if self._common is not None and not parts and (not self._common[1] or self._has_names_of(tree)):
            total, count = self._common[0] + weight, self._common[1] + 1
            self._common = total, count
            if count == 1:
                self._only = tree
            elif self._only is None or not _same(tree, self._only):
                self._own()
                if self._flat is not None and isinstance(tree, FlatTree) and tree.places is self._flat.places:
                    self._flat.flat.lerp_(tree.flat, weight / total)
                    return
                tensors = [_accumulator(tree[name]) for name in self._means]
                torch._foreach_lerp_(list(self._means.values()), tensors, weight / total)
            return
        self._own()
        if self._common is not None:
            self._weights, self._counts = dict(self.weights), dict(self.counts)
            self._common = None
        for name, tensor in tree.items():
            part = (parts or {}).get(name)
            total = self._weights.get(name, 0.0)
            if part is not None or isinstance(total, Tensor):
                # Where others hold a part, one that is whole is the part that covers everything.
                everything = Part(tuple(tensor.shape), (None,) * tensor.dim())
                self._add_part(name, tensor, weight, part or everything)
                continue
            self._weights[name] = total + weight
            self._counts[name] = self._counts.get(name, 0.0) + 1
            if name in self._means:
                self._means[name].lerp_(_accumulator(tensor), weight / (total + weight))
            else:
                self._means[name] = _accumulator(tensor).clone()

    def _has_names_of(self, tree: Tree) -> bool:
        known = self._flat if self._only is None else self._only
        if isinstance(tree, FlatTree) and isinstance(known, FlatTree) and tree.places is known.places:
            return True
        return tree.keys() == self._names

    def _own(self) -> None:
        """Makes the means ones that may be changed."""
        if isinstance(self._only, FlatTree):
            self._flat = FlatTree(self._only.flat.clone(), self._only.places)
            self._means, self._only = dict(self._flat), None
        elif self._only is not None:
            self._means = {name: _accumulator(tensor).clone() for name, tensor in self._only.items()}
            self._only = None

    def _add_part(self, name: str, tensor: Tensor, weight: float, part: Part) -> None:
        values = _accumulator(tensor)
        if name not in self._means:
            self._means[name] = values.new_zeros(part.shape)
        mean, grid = self._means[name], part.grid(values.device)
        amounts: list[Tensor] = []
        for so_far in (self._weights, self._counts):
            amount = so_far.get(name, 0.0)
            if not isinstance(amount, Tensor):  # whole so far
                amount = so_far[name] = torch.full_like(mean, amount)
            amounts.append(amount)
        weights, counts = amounts
        total = weights[grid] + weight
        weights[grid] = total
        counts[grid] += 1
        mean[grid] = torch.lerp(mean[grid], values, weight / total)

    def tree(self, copy: bool = True) -> dict[str, Tensor]:
        """The means; entries of partly held tensors that nobody held are 0. Without `copy` they may be the inputs."""
        if copy:
            self._own()
        return dict(self._means) if self._only is None else {n: _accumulator(t) for n, t in self._only.items()}

    def over(self, previous: Tree) -> dict[str, Tensor]:
        """The previous tree with every entry that was seen replaced by its mean; the rest as it was."""
        return Mean(self.tree(), {}, self.weights, self.counts).over(previous)


@dataclass(frozen=True)
class Mean:
    """Weighted means over the clients that hold each entry."""

    after: Tree
    """Of what came back."""
    sent: Tree
    """Of what they had been sent, with the same weights."""
    weights: Amounts
    """The sum of weights; 1 where the mean is a mix of several."""
    counts: Amounts
    """How many clients."""

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
    """What came back in a round, as means: all that a server's step may depend on."""

    shared: Mean = NOTHING
    """Of GLOBAL tensors, over all clients."""
    groups: Mapping[str, Mean] = field(default_factory=dict[str, Mean])
    """Of GROUP tensors, over each group's clients."""

    def step(self, server: ServerState, change: Callable[[Mean, Tree], Tree]) -> ServerState:
        """The next state: `change(mean, tensors)` for the shared tensors and for each group's."""
        groups = {name: change(mean, server.groups.get(name, {})) for name, mean in self.groups.items()}
        shared = change(self.shared, server.shared)
        return replace(server, version=server.version + 1, shared=shared, groups={**server.groups, **groups})


class Averager:
    """Folds updates into `Averages`, one at a time; single updates are let go."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, str | None], tuple[float, RunningMean, RunningMean]] = {}
        self._last: tuple[Places | None, Mapping[str, Scope], tuple[list[str], list[str]]] | None = None

    @property
    def marks(self) -> Mapping[str, list[str]]:
        """Clients by what was done to their updates: a plain mean takes them as they are."""
        return {}

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
        common, own = self._split(update.tree, scopes)
        for group, names in ((None, common), (update.group, own)):
            if not names:
                continue
            cut = {name: parts[name] for name in names if name in parts} if parts else {}
            after, sent = update.tree, job.payload
            if not len(names) == len(after) == len(sent):
                after, sent = {n: after[n] for n in names}, {n: sent[n] for n in names}
            for place, (share, amount) in enumerate(pairs):
                if share:
                    _, back, before = self._sums.setdefault((place, group), (share, RunningMean(), RunningMean()))
                    back.add(after, amount, cut)
                    before.add(sent, amount, cut)

    def _split(self, tree: Tree, scopes: Mapping[str, Scope]) -> tuple[list[str], list[str]]:
        """Names that all clients share, and those of a group; found once for trees with the same places."""
        places = tree.places if isinstance(tree, FlatTree) else None
        if self._last is None or places is None or self._last[0] is not places or self._last[1] is not scopes:
            own = [name for name in tree if scopes[name] is Scope.GROUP]
            common = [name for name in tree if scopes[name] is not Scope.GROUP]
            self._last = (places, scopes, (common, own))
        return self._last[2]

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


def _same(tree: Tree, other: Tree) -> bool:
    """Whether two trees with the same names hold the very same tensors."""
    if isinstance(tree, FlatTree) or isinstance(other, FlatTree):
        return tree is other
    return tree is other or all(map(is_, tree.values(), map(other.__getitem__, tree)))


def _accumulator(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_floating_point() else tensor.double()
