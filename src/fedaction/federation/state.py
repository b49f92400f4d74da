"""What passes between server and clients. All of it is values: nothing here is changed in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from fedaction.federation.tree import Tree


class Member(Protocol):
    """What the federation needs to know of a client."""

    @property
    def id(self) -> str:
        """Stable name, unique in the federation."""
        ...

    @property
    def group(self) -> str:
        """Its group, e.g. its modality."""
        ...

    @property
    def samples(self) -> int:
        """Number of training samples: its weight."""
        ...


@dataclass(frozen=True)
class Part:
    """Where a client's tensor sits inside the server's, when the server's is larger.

    A client with 15 joints holds a (3, 15, 15) block of a (3, 25, 25) matrix over the whole body. Only its own
    entries travel, and each entry is averaged over the clients that hold it.

    Attributes:
        shape: the shape of the server's tensor.
        index: for each axis, the positions the client holds (int64), or None for the whole axis.
    """

    shape: tuple[int, ...]
    index: tuple[Tensor | None, ...]

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.index):
            raise ValueError(
                f"a part of a {self.shape} tensor needs {len(self.shape)} indices, got {len(self.index)}"
            )

    @property
    def held(self) -> tuple[int, ...]:
        """The shape of the client's tensor."""
        return tuple(n if i is None else len(i) for n, i in zip(self.shape, self.index, strict=True))

    def grid(self, device: torch.device | None = None) -> tuple[Tensor, ...]:
        """Index arrays that select the client's block: `server[part.grid()]` has shape `held`."""
        axes = len(self.shape)
        found: list[Tensor] = []
        for axis, (size, index) in enumerate(zip(self.shape, self.index, strict=True)):
            places = torch.arange(size, device=device) if index is None else index.to(device)
            found.append(places.view([-1 if a == axis else 1 for a in range(axes)]))
        return tuple(found)


@dataclass(frozen=True)
class ServerState:
    """All that a server knows.

    Attributes:
        version: how many times it has combined updates.
        shared: GLOBAL tensors.
        groups: GROUP tensors of each group.
        memory: what a method carries from round to round (momentum and the like).
    """

    version: int
    shared: Tree
    groups: Mapping[str, Tree] = field(default_factory=dict[str, Tree])
    memory: Tree = field(default_factory=dict[str, Tensor])


@dataclass(frozen=True)
class Job:
    """Work for one client.

    Attributes:
        client: who does it.
        group: its group.
        version: the server's version that the payload was taken from.
        round: when it was given out.
        payload: the GLOBAL and GROUP tensors sent to it.
        local: its own LOCAL tensors.
        number: which job of the run it is, where a client may have several in a round; else 0.
    """

    client: str
    group: str
    version: int
    round: int
    payload: Tree
    local: Tree
    number: int = 0

    @property
    def occasion(self) -> int:
        """What the client's random numbers are derived from, besides its name."""
        return self.number or self.round


@dataclass(frozen=True)
class Update:
    """What comes back.

    Attributes:
        client: who sends it.
        group: its group.
        version: the server's version it started from; staleness is the server's version now less this.
        tree: its GLOBAL and GROUP tensors after training.
        local: its LOCAL tensors after training; they stay with the client and are not part of what is sent.
        weight: its weight in averages (training samples).
        metrics: means over its local steps.
    """

    client: str
    group: str
    version: int
    tree: Tree
    local: Tree
    weight: float
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
