"""Scoped weighted averages that stream: one running mean per tensor, whatever the number of clients."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from fedaction.federation.scope import Scope
from fedaction.federation.state import Part, ServerState, Update
from fedaction.federation.tree import Tree

Parts = Mapping[str, Part]


class RunningMean:
    """The weighted mean of trees seen so far, per name over the trees that hold it, per entry where parts are held.

    Updates are folded in one at a time, so that only the mean itself is ever in memory. The form
    `mean += w / W * (x - mean)` gives back equal inputs exactly.
    """

    def __init__(self) -> None:
        self._means: dict[str, Tensor] = {}
        self._weights: dict[str, Tensor | float] = {}
        self._common: float | None = 0.0  # the weight of every name, as long as all trees had the same ones whole

    def add(self, tree: Tree, weight: float, parts: Parts | None = None) -> None:
        """Folds a tree in with a positive weight."""
        if not weight > 0:
            raise ValueError(f"an update's weight must be positive, got {weight}")
        if self._common is not None and not parts and (not self._means or tree.keys() == self._means.keys()):
            self._common += weight
            if not self._means:
                self._means = {name: _accumulator(tensor).clone() for name, tensor in tree.items()}
            else:  # one share for all tensors: a launch or two, not one for each
                tensors = [_accumulator(tree[name]) for name in self._means]
                torch._foreach_lerp_(list(self._means.values()), tensors, weight / self._common)
            return
        if self._common is not None:
            self._weights = dict.fromkeys(self._means, self._common)
            self._common = None
        for name, tensor in tree.items():
            held = self._weights.get(name)
            if name in (parts or {}) or isinstance(held, Tensor):
                # Where others hold a part, one that is whole is the part that covers everything.
                everything = Part(tuple(tensor.shape), (None,) * tensor.dim())
                self._add_part(name, tensor, weight, (parts or {}).get(name, everything))
            elif held is None:
                self._means[name] = _accumulator(tensor).clone()
                self._weights[name] = weight
            else:
                self._weights[name] = held + weight
                self._means[name].lerp_(_accumulator(tensor), weight / (held + weight))

    def _add_part(self, name: str, tensor: Tensor, weight: float, part: Part) -> None:
        values = _accumulator(tensor)
        if name not in self._means:
            self._means[name] = values.new_zeros(part.shape)
            self._weights[name] = values.new_zeros(part.shape)
        mean, held = self._means[name], self._weights[name]
        if not isinstance(held, Tensor):  # whole so far
            held = self._weights[name] = torch.full_like(mean, held)
        grid = part.grid(values.device)
        total = held[grid] + weight
        held[grid] = total
        mean[grid] = torch.lerp(mean[grid], values, weight / total)

    def over(self, previous: Tree) -> dict[str, Tensor]:
        """The previous tree with every entry that was seen replaced by its mean; the rest as it was."""
        unknown = self._means.keys() - previous.keys()
        if unknown:
            raise KeyError(f"means of tensors that the server does not hold: {sorted(unknown)}")
        result = dict(previous)
        for name, mean in self._means.items():
            old, held = previous[name], self._weights.get(name)
            new = torch.where(held > 0, mean, old.to(mean.dtype)) if isinstance(held, Tensor) else mean
            # Counters (integers) are averaged as numbers and rounded back.
            result[name] = new if old.is_floating_point() else new.round().to(old.dtype)
        return result


def _accumulator(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_floating_point() else tensor.double()


def scoped_average(
    server: ServerState,
    updates: Iterable[Update],
    scopes_of: Callable[[str], Mapping[str, Scope]],
    parts_of: Callable[[str], Parts],
) -> ServerState:
    """The plain rule: GLOBAL tensors averaged over all updates, GROUP tensors inside each group.

    Args:
        server: the state the updates are combined into.
        updates: consumed one by one.
        scopes_of: the scopes of a client's tensors.
        parts_of: which of a client's tensors are parts of larger ones.

    Returns:
        The next state; tensors that nobody sent stay as they were.
    """
    shared, groups = RunningMean(), dict[str, RunningMean]()
    for update in updates:
        scopes, parts = scopes_of(update.client), parts_of(update.client)
        own = {name: tensor for name, tensor in update.tree.items() if scopes[name] is Scope.GROUP}
        common = {n: t for n, t in update.tree.items() if n not in own} if own else update.tree
        shared.add(common, update.weight, {n: part for n, part in parts.items() if n in common})
        if own:
            mean = groups.setdefault(update.group, RunningMean())
            mean.add(own, update.weight, {n: part for n, part in parts.items() if n in own})
    return ServerState(
        version=server.version + 1,
        shared=shared.over(server.shared),
        groups={**server.groups, **{g: mean.over(server.groups.get(g, {})) for g, mean in groups.items()}},
        memory=server.memory,
    )


def mixed(server: ServerState, proposal: ServerState, share: float) -> ServerState:
    """The state on the way from one to another: (1 - share) w + share w', per tensor; w' has the newer version.

    Where the two are equal the result is exactly that, whatever the share. Counters (integers) are rounded.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"a share must lie between 0 and 1, got {share}")

    def mix(old: Tree, new: Tree) -> dict[str, Tensor]:
        return {
            name: old[name] if old[name] is tensor else between(old[name], tensor) for name, tensor in new.items()
        }

    def between(old: Tensor, new: Tensor) -> Tensor:
        value = torch.lerp(_accumulator(old), _accumulator(new), share)
        return value if old.is_floating_point() else value.round().to(old.dtype)

    groups = {name: mix(server.groups.get(name, tree), tree) for name, tree in proposal.groups.items()}
    return ServerState(proposal.version, mix(server.shared, proposal.shared), groups, proposal.memory)
