"""LOCAL tensors of the sites that an engine holds: they never leave a site, and count only once a round counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch

from fedaction.federation.tree import Tree


@dataclass(frozen=True)
class LocalState:
    """The LOCAL tensors of many sites as a value, for the checkpoint of a simulation."""

    committed: Mapping[str, Tree] = field(default_factory=dict[str, Tree])
    """By client, of those that have trained in a round that counted."""
    pending: Mapping[str, Tree] = field(default_factory=dict[str, Tree])
    """By client, after training that the server has not judged yet."""
    changed: frozenset[str] = frozenset()
    """Whose committed tensors are others than when all was saved, or loaded, the last time."""


class LocalStore:
    """What sites keep between rounds. Training leaves tensors pending; the server commits or drops them."""

    def __init__(self, first: Callable[[str], Tree]) -> None:
        """`first` gives a client's LOCAL tensors before it has ever trained."""
        self._first = first
        self._committed: dict[str, Tree] = {}
        self._pending: dict[str, Tree] = {}
        self._changed: set[str] = set()

    def current(self, client: str) -> Tree:
        """What a client starts from: its last committed tensors, or its first ones."""
        return self._committed[client] if client in self._committed else self._first(client)

    def put(self, client: str, tree: Tree) -> None:
        """A client has trained; whatever was pending of it before is dropped."""
        self._pending[client] = tree

    def pending(self, client: str) -> Tree:
        """What a client has trained and the server has not judged yet; empty where there is nothing."""
        return self._pending.get(client, {})

    def commit(self, clients: Iterable[str]) -> None:
        """The round of these clients was combined: what was pending is theirs."""
        for client in clients:
            tree = self._pending.pop(client, None)
            if tree:
                self._committed[client] = tree
                self._changed.add(client)

    def drop(self, clients: Iterable[str]) -> None:
        """The updates of these clients were not used: they are as they were."""
        for client in clients:
            self._pending.pop(client, None)

    def save(self) -> LocalState:
        """All of it as a value."""
        changed, self._changed = frozenset(self._changed), set()
        pending = {client: tree for client, tree in self._pending.items() if tree}
        return LocalState(dict(self._committed), pending, changed)

    def load(self, state: LocalState, device: torch.device) -> None:
        """Puts back what `save` gave, on a device."""

        def move(trees: Mapping[str, Tree]) -> dict[str, Tree]:
            return {client: {n: tensor.to(device) for n, tensor in tree.items()} for client, tree in trees.items()}

        self._committed, self._pending, self._changed = move(state.committed), move(state.pending), set()
