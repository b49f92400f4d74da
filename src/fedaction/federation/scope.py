"""The scope of a tensor: who shares it. One short table per method decides everything that depends on it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from fedaction.federation.tree import Leaf


class Scope(enum.Enum):
    """Where a tensor lives and with whom it is averaged."""

    GLOBAL = "global"
    """Averaged over all clients that hold it."""
    GROUP = "group"
    """Averaged inside the client's group."""
    LOCAL = "local"
    """Never leaves the client; kept for it between rounds."""
    FROZEN = "frozen"
    """Part of what a client is installed with; sent once, never trained."""


GLOBAL, GROUP, LOCAL, FROZEN = Scope.GLOBAL, Scope.GROUP, Scope.LOCAL, Scope.FROZEN


@lru_cache(maxsize=65536)
def matches(pattern: str, name: str) -> bool:
    """Whether a pattern covers a name, component by component.

    A pattern names a module or a tensor, and covers all that lies below it: `head` covers `head.weight` but not
    `head2.weight`. `*` stands for exactly one component, `**` for any number of them.
    """

    def covers(parts: tuple[str, ...], rest: tuple[str, ...]) -> bool:
        if not parts:
            return True  # the pattern is used up: what is left of the name lies below it
        if parts[0] == "**":
            return any(covers(parts[1:], rest[i:]) for i in range(len(rest) + 1))
        return bool(rest) and parts[0] in ("*", rest[0]) and covers(parts[1:], rest[1:])

    return covers(tuple(pattern.split(".")), tuple(name.split(".")))


@dataclass(frozen=True)
class Rule:
    """One row of a scope table."""

    pattern: str
    """Which names, as in `matches`."""
    scope: Scope
    """Their scope."""
    kind: Literal["parameter", "buffer"] | None = None
    """Only parameters, or only buffers, if given."""
    module: str | None = None
    """Only tensors of modules whose class name contains this, if given ("BatchNorm")."""
    decay: bool = True
    """Whether weight decay pulls them to zero."""
    epochs: slice | None = None
    """Which of a job's local epochs train them, as a slice of them; None: all. A job with a single local epoch trains
    everything."""

    def trains_in(self, epoch: int, epochs: int) -> bool:
        """Whether local epoch `epoch` of `epochs`, counted from 0, trains what this row speaks of."""
        return self.epochs is None or epochs == 1 or epoch in range(epochs)[self.epochs]

    def covers(self, name: str, leaf: Leaf) -> bool:
        """Whether this row speaks of the tensor."""
        return (
            (self.kind is None or self.kind == leaf.kind)
            and (self.module is None or self.module in leaf.module)
            and matches(self.pattern, name)
        )


class ScopeError(ValueError):
    """A tensor that no row of the scope table covers."""


@dataclass(frozen=True)
class ScopeTable:
    """Rules read from top to bottom; the first that covers a tensor decides."""

    rules: tuple[Rule, ...]

    def resolve(self, leaves: Mapping[str, Leaf]) -> dict[str, Scope]:
        """The scope of every tensor. A tensor that no row covers is an error that names it."""
        return {name: rule.scope for name, rule in self.decide(leaves).items()}

    def decide(self, leaves: Mapping[str, Leaf]) -> dict[str, Rule]:
        """The row that decides for every tensor. A tensor that no row covers is an error that names it."""
        decided: dict[str, Rule] = {}
        for name, leaf in leaves.items():
            row = next((rule for rule in self.rules if rule.covers(name, leaf)), None)
            if row is None:
                rows = "; ".join(f"{r.pattern} = {r.scope.value}" for r in self.rules)
                raise ScopeError(f"no row of the scope table covers {leaf.kind} {name!r} of a {leaf.module} ({rows})")
            decided[name] = row
        return decided
