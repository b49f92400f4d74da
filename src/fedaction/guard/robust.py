"""Robust averages: combining that a few hostile updates cannot lead where they like.

Everything is done within each scope and group: GLOBAL tensors over all updates, GROUP tensors over those of their
group. LOCAL tensors never come here. Where clients hold parts of a tensor, an entry is judged among those that have
it.

All updates that are combined at a time are held until they are, unlike in a plain mean: memory grows with their
number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median

import torch
from torch import Tensor

from fedaction.federation.average import Averager, Averages, Mean, Parts
from fedaction.federation.scope import Scope
from fedaction.federation.state import Job, Update, Weight
from fedaction.federation.tree import Tree
from fedaction.guard.norm import Block, blocks_of, measure_lengths, pull_back
from fedaction.guard.settings import GuardSettings
from fedaction.methods.base import Method

Place = tuple[Scope, str | None]
"""GLOBAL and None, or GROUP and the group: whose updates are judged together."""


@dataclass(frozen=True)
class _Held:
    """An update that waits for the others."""

    update: Update
    job: Job
    weight: Weight
    scopes: Mapping[str, Scope]
    parts: Parts

    def names(self, place: Place) -> list[str]:
        """Its tensors of a place."""
        scope, group = place
        return [n for n in self.update.tree if self.scopes[n] is scope] if group in (None, self.update.group) else []


class RobustAverager:
    """An `Averager` that looks at all updates together before it makes `Averages` of them."""

    def __init__(self, method: Method, settings: GuardSettings) -> None:
        self._method, self._settings = method, settings
        self._held: list[_Held] = []
        self._marks: dict[str, list[str]] = {}

    @property
    def marks(self) -> Mapping[str, list[str]]:
        """Clients by what was done to their updates, once for each: "bounded", "outweighed" or "outvoted"."""
        return self._marks

    def add(self, update: Update, job: Job, weight: Weight, scopes: Mapping[str, Scope], parts: Parts) -> None:
        """See `Averager.add`."""
        self._held.append(_Held(update, job, weight, scopes, parts))

    def averages(self) -> Averages:
        """The robust averages of all that was added."""
        # In an order of their own, so that no sum and no tie depends on who came first.
        held = sorted(self._held, key=lambda one: (one.job.client, one.job.occasion))
        held = self._bound_weights(held)
        guard = self._settings.guard
        if guard == "norm" and self._settings.guard_norm_unit == "median":
            held = self._bound_norms(held)
        if guard == "krum":
            held = self._select(held)
        mean = Averager()
        for one in held:
            mean.add(one.update, one.job, one.weight, one.scopes, one.parts)
        averages = mean.averages()
        return self._by_entry(held, averages) if guard in ("median", "trimmed") else averages

    def _mark(self, what: str, client: str) -> None:
        self._marks.setdefault(what, []).append(client)

    def _bound_weights(self, held: list[_Held]) -> list[_Held]:
        """Weights cut to a multiple of their median; of pairs, each kind of number to its own."""
        times = self._settings.weight_bound
        if not times or not held:
            return held
        rows = [one.weight if isinstance(one.weight, tuple) else ((1.0, one.weight),) for one in held]
        bounds = [times * median(amount for _, amount in column) for column in zip(*rows, strict=True)]
        bounded: list[_Held] = []
        for one, row in zip(held, rows, strict=True):
            cut = tuple(
                (s, min(amount, most) if s else amount) for (s, amount), most in zip(row, bounds, strict=True)
            )
            if any(after < before for (_, after), (_, before) in zip(cut, row, strict=True)):
                self._mark("outweighed", one.job.client)
            bounded.append(replace(one, weight=cut if isinstance(one.weight, tuple) else cut[0][1]))
        return bounded

    def _bound_norms(self, held: list[_Held]) -> list[_Held]:
        """Differences scaled down to a multiple of the median length, by block and group."""
        blocks = [blocks_of(self._method, one.job.client, one.update.tree) for one in held]
        seen: dict[tuple[Block, str | None], list[float]] = {}
        for one, own in zip(held, blocks, strict=True):
            for block, length in measure_lengths(one.update, one.job, own).items():
                seen.setdefault((block, _group(block, one)), []).append(length)
        bounds = {key: self._settings.guard_norm * median(lengths) for key, lengths in seen.items()}
        bounded: list[_Held] = []
        for one, own in zip(held, blocks, strict=True):
            update = pull_back(one.update, one.job, own, {b: bounds[b, _group(b, one)] for b in own})
            if update is not one.update:
                self._mark("bounded", one.job.client)
            bounded.append(replace(one, update=update))
        return bounded

    def _select(self, held: list[_Held]) -> list[_Held]:
        """Of every place only the updates that Krum chooses; an update may count in one place and not in another."""
        kept: dict[int, set[str]] = {number: set() for number in range(len(held))}
        lost = set[int]()
        for place in _places(held):
            numbers = [number for number, one in enumerate(held) if one.names(place)]
            chosen = set(self._krum([held[number] for number in numbers], place))
            for index, number in enumerate(numbers):
                if index in chosen:
                    kept[number] |= {*held[number].names(place)}
                else:
                    lost.add(number)
        for number in sorted(lost):
            self._mark("outvoted", held[number].job.client)
        return [
            replace(one, update=replace(one.update, tree={n: t for n, t in one.update.tree.items() if n in kept[k]}))
            for k, one in enumerate(held)
            if kept[k]
        ]

    def _krum(self, held: list[_Held], place: Place) -> list[int]:
        """Which of some updates are chosen: those with the nearest neighbours (Blanchard et al., 2017)."""
        count = len(held)
        expected = min(self._settings.guard_krum, (count - 3) // 2)
        if expected < 1:
            return list(range(count))  # too few to tell one from the others
        keep = min(self._settings.guard_keep or count - expected, count)
        distances = _distances(self._method, held, place)
        near = count - expected - 2
        scores: list[float] = []
        for row in distances:
            others = [value for value in sorted(row.tolist())[:near] if math.isfinite(value)]
            scores.append(math.fsum(others) / len(others) if others else math.inf)
        return sorted(range(count), key=lambda index: (scores[index], index))[:keep]

    def _by_entry(self, held: list[_Held], averages: Averages) -> Averages:
        """The averages with the median or the trimmed mean of each entry in place of the mean."""
        groups = {
            group: replace(mean, after=self._robust_tree(held, (Scope.GROUP, group), mean))
            for group, mean in averages.groups.items()
        }
        shared = replace(averages.shared, after=self._robust_tree(held, (Scope.GLOBAL, None), averages.shared))
        return Averages(shared, groups)

    def _robust_tree(self, held: list[_Held], place: Place, mean: Mean) -> Tree:
        tree: dict[str, Tensor] = {}
        own = [(one, {*one.names(place)}) for one in held]
        for name in mean.after:  # one tensor at a time: only its copies are sorted side by side
            holders = [one for one, names in own if name in names]
            tree[name] = trim_entries(*_stack(holders, name, mean.sent[name]), self._cut)
        return tree

    def _cut(self, count: Tensor) -> Tensor:
        """How many values are left out at either end of so many."""
        middle = (count - 1).clamp(min=0) // 2  # leaves one or two
        if self._settings.guard == "median":
            return middle
        return torch.minimum(torch.ceil(count * self._settings.guard_trim - 1e-9).long(), middle)


def trim_entries(stack: Tensor, there: Tensor | None, cut: Callable[[Tensor], Tensor]) -> Tensor:
    """The mean of each entry's middle values; 0 where nobody has the entry.

    Args:
        stack: (updates, *shape) values.
        there: like `stack`: whether the update has the entry; None: every update has all.
        cut: from the number of values of an entry to how many are left out at either end.
    """
    if there is None:
        ends = int(cut(torch.tensor(len(stack))))
        return stack.sort(0).values[ends : len(stack) - ends].mean(0)
    values = torch.where(there, stack, math.inf).sort(0).values
    counts = there.sum(0, keepdim=True)
    out = cut(counts)
    rank = torch.arange(len(stack), device=stack.device).view(-1, *[1] * (stack.dim() - 1))
    inside = (rank >= out) & (rank < counts - out)
    total = torch.where(inside, values, 0.0).sum(0)
    return total / (counts - 2 * out).squeeze(0).clamp(min=1)


def _stack(held: list[_Held], name: str, mean_sent: Tensor) -> tuple[Tensor, Tensor | None]:
    """A tensor of several updates side by side, in the server's shape, and which entries each has; None: all.

    Differences are taken from what each job carried, and put on the mean of what was sent: where all were sent the
    same, as in a round that waits, these are the tensors themselves to the last bit.
    """
    payloads = [one.job.payload[name] for one in held]
    same = all(sent is payloads[0] for sent in payloads)
    stack = mean_sent.new_zeros(len(held), *mean_sent.shape)
    there = torch.zeros_like(stack, dtype=torch.bool) if any(name in one.parts for one in held) else None
    for number, (row, one, sent) in enumerate(zip(stack, held, payloads, strict=True)):
        part, values = one.parts.get(name), one.update.tree[name].double()
        grid = ... if part is None else part.grid(mean_sent.device)
        placed = values if same else values - sent.double() + mean_sent[grid].double()
        row[grid] = placed.to(row.dtype)
        if there is not None:
            there[number][grid] = True
    return stack, there


def _distances(method: Method, held: list[_Held], place: Place) -> Tensor:
    """(n, n) float64: the mean squared difference of what two updates changed, over parameters' entries both have.

    Infinite on the diagonal and between updates that have no entry in common.
    """
    count = len(held)
    squares, common = torch.zeros(count, count).double(), torch.zeros(count, count).double()
    names = dict.fromkeys(name for one in held for name in sorted(one.names(place)))
    for name in names:
        holders = [number for number, one in enumerate(held) if name in one.update.tree]
        first = held[holders[0]]
        if method.plan(method.clients[first.job.client]).leaves[name].kind != "parameter":
            continue
        part = first.parts.get(name)
        shape = first.update.tree[name].shape if part is None else part.shape
        moved = torch.zeros(len(holders), *shape, dtype=torch.float64)
        there = torch.zeros_like(moved) if any(name in held[number].parts for number in holders) else None
        for row, number in enumerate(holders):
            one = held[number]
            part = one.parts.get(name)
            grid = ... if part is None else part.grid()
            moved[row][grid] = one.update.tree[name].double().cpu() - one.job.payload[name].double().cpu()
            if there is not None:
                there[row][grid] = 1.0
        moved = moved.flatten(1)
        # |a - b|^2 = |a|^2 + |b|^2 - 2 ab over common entries, without a tensor for each pair.
        index = torch.tensor(holders)
        block = (index[:, None], index[None, :])
        if there is None:
            own, both = moved.square().sum(1, keepdim=True).expand(-1, len(moved)), float(moved.shape[1])
        else:
            there = there.flatten(1)
            own, both = moved.square() @ there.T, there @ there.T
        squares[block] += (own + own.T - 2 * moved @ moved.T).clamp(min=0)
        common[block] += both
    means = torch.where(common > 0, squares / common.clamp(min=1), math.inf)
    return means.nan_to_num(nan=math.inf, posinf=math.inf).fill_diagonal_(math.inf)  # beyond floating point: far off


def _group(block: Block, one: _Held) -> str | None:
    return one.update.group if block[0] is Scope.GROUP else None


def _places(held: list[_Held]) -> list[Place]:
    groups = sorted({one.update.group for one in held})
    return [(Scope.GLOBAL, None), *((Scope.GROUP, group) for group in groups)]
