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
        grid: list[Tensor] = []
        for axis, (size, index) in enumerate(zip(self.shape, self.index, strict=True)):
            places = torch.arange(size, device=device) if index is None else index.to(device)
            grid.append(places.view([-1 if a == axis else 1 for a in range(axes)]))
        return tuple(grid)


@dataclass(frozen=True)
class ServerState:
    """All that a server has learned.

    Attributes:
        version: how many times it has combined updates.
        shared: GLOBAL tensors.
        groups: GROUP tensors of each group.
        ahead: what clients are sent in place of `shared`, where that differs (a momentum's look-ahead); else empty.
        memory: what a method carries from round to round besides.
    """

    version: int
    shared: Tree
    groups: Mapping[str, Tree] = field(default_factory=dict[str, Tree])
    ahead: Tree = field(default_factory=dict[str, Tensor])
    memory: Tree = field(default_factory=dict[str, Tensor])


@dataclass(frozen=True)
class Job:
    """Work for one client. Everything random or scheduled in it derives from what it was given out with.

    Attributes:
        client: who does it.
        group: its group.
        version: the server's version that the payload was taken from.
        round: in which it was given out.
        payload: the GLOBAL and GROUP tensors sent to it.
        number: which job of the run it is, where a client may have several in a round; else 0.
    """

    client: str
    group: str
    version: int
    round: int
    payload: Tree = field(repr=False)
    number: int = 0

    @property
    def occasion(self) -> int:
        """What the client's random numbers are derived from, besides its name."""
        return self.number or self.round


@dataclass(frozen=True)
class Update:
    """What comes back: tensors after training, never differences.

    Attributes:
        client: who sends it.
        group: its group.
        version: the server's version it started from.
        tree: its GLOBAL and GROUP tensors after training.
        samples: training samples behind it.
        metrics: means over its local steps.
        fault: what the client itself found wrong with its tensors, those that it keeps included; "": nothing.
    """

    client: str
    group: str
    version: int
    tree: Tree = field(repr=False)
    samples: float
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    fault: str = ""


@dataclass(frozen=True)
class Report:
    """What a server knows of an update besides its tensors: all that a weight may depend on.

    Attributes:
        client: who sent it.
        group: its group.
        samples: training samples behind it.
        staleness: how often the server has combined updates since the client was sent its model.
        metrics: means over its local steps.
    """

    client: str
    group: str
    samples: float
    staleness: int
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])


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
