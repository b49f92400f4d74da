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
    """

    shape: tuple[int, ...]
    """The shape of the server's tensor."""
    index: tuple[Tensor | None, ...]
    """For each axis, the positions the client holds (int64), or None for the whole axis."""

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
        grid: list[Tensor] = []
        for axis, (size, index) in enumerate(zip(self.shape, self.index, strict=True)):
            places = torch.arange(size, device=device) if index is None else index.to(device)
            grid.append(places.view([-1 if a == axis else 1 for a in range(axes)]))
        return tuple(grid)


@dataclass(frozen=True)
class ServerState:
    """All that a server has learned."""

    version: int
    """How many times it has combined updates."""
    shared: Tree
    """GLOBAL tensors."""
    groups: Mapping[str, Tree] = field(default_factory=dict[str, Tree])
    """GROUP tensors of each group."""
    ahead: Tree = field(default_factory=dict[str, Tensor])
    """What clients are sent in place of `shared`, where that differs (a momentum's look-ahead); else empty."""
    memory: Tree = field(default_factory=dict[str, Tensor])
    """What a method carries from round to round besides."""


@dataclass(frozen=True)
class Job:
    """Work for one client. Everything random or scheduled in it derives from what it was given out with."""

    client: str
    """Who does it."""
    group: str
    """Its group."""
    version: int
    """The server's version that the payload was taken from."""
    round: int
    """In which it was given out."""
    payload: Tree = field(repr=False)
    """The GLOBAL and GROUP tensors sent to it."""
    number: int = 0
    """Which job of the run it is, where a client may have several in a round; else 0."""
    epochs: int = 0
    """Local epochs that the server asks for; 0: as many as the run says for all."""

    @property
    def occasion(self) -> int:
        """What the client's random numbers are derived from, besides its name."""
        return self.number or self.round


@dataclass(frozen=True)
class Update:
    """What comes back: tensors after training, never differences."""

    client: str
    """Who sends it."""
    group: str
    """Its group."""
    version: int
    """The server's version it started from."""
    tree: Tree = field(repr=False)
    """Its GLOBAL and GROUP tensors after training."""
    samples: float
    """Training samples behind it."""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """Means over its local steps."""
    fault: str = ""
    """What the client itself found wrong with its tensors, those that it keeps included; "": nothing."""
    occasion: int = 0
    """The `Job.occasion` of the job that it answers."""


@dataclass(frozen=True)
class Report:
    """What a server knows of an update besides its tensors: all that a weight may depend on."""

    client: str
    """Who sent it."""
    group: str
    """Its group."""
    samples: float
    """Training samples behind it."""
    staleness: int
    """How often the server has combined updates since the client was sent its model."""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """Means over its local steps."""


Weight = float | tuple[tuple[float, float], ...]
"""How much an update counts: a number; or pairs of a share and a number, where the mean is a mix of several.

With shares s_k that sum to 1 and numbers w_ki, client i counts sum_k s_k w_ki / sum_j w_kj.
"""


def report_on(update: Update, version: int) -> Report:
    """The scalars of an update that arrives when the server is at a version.

    An update from a version that the server has not reached yet (it was set back, say) is a ValueError.
    """
    if update.version > version:
        raise ValueError(
            f"client {update.client!r} sent an update of version {update.version}, but the server is at {version}; "
            "it must fetch the model anew"
        )
    return Report(update.client, update.group, update.samples, version - update.version, update.metrics)
