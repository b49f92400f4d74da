"""What a server carries from round to round, and the numbers that a round leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from pydantic import ConfigDict
from torch import Tensor

from fedaction.federation.state import ServerState
from fedaction.federation.tree import Tree
from fedaction.server.flights import Flight


@dataclass(frozen=True)
class Row:
    """One number of a run."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    round: int
    """Rounds done when it was taken; 0 is before training."""
    client: str
    """Whose; "" for the whole federation."""
    group: str
    """The client's group; "" for the whole federation."""
    split: Literal["train", "validation", "test", "server", "clock"]
    """"train", "validation", "test", "server", or "clock" (the virtual one, or a live run's, in seconds)."""
    name: str
    """What it is."""
    value: float | int | None
    """The number; None where it was not finite."""


@dataclass(frozen=True)
class FederationState:
    """All that a server needs to resume: random numbers are derived, so none are here."""

    round: int
    """Rounds done."""
    server: ServerState
    """What it has learned."""
    visits: Mapping[str, int] = field(default_factory=dict[str, int])
    """How often each client has been sent something."""
    time: float = 0.0
    """Seconds on the virtual clock; between real sites, asynchronous: real seconds in which a server ran."""
    busy: Mapping[str, float] = field(default_factory=dict[str, float])
    """Seconds that each client's device has worked; between real sites, from question to answer."""
    launched: int = 0
    """Asynchronous: jobs given out so far."""
    flights: tuple[Flight, ...] = ()
    """Asynchronous: jobs that the server has not seen the answers of yet."""

    def to(self, device: torch.device) -> FederationState:
        """The state with all its tensors on a device."""

        def move(tree: Tree) -> dict[str, Tensor]:
            return {name: tensor.to(device) for name, tensor in tree.items()}

        server = replace(
            self.server,
            shared=move(self.server.shared),
            groups={group: move(tree) for group, tree in self.server.groups.items()},
            ahead=move(self.server.ahead),
            memory=move(self.server.memory),
        )
        flights: list[Flight] = []
        for flight in self.flights:
            update = flight.update and replace(flight.update, tree=move(flight.update.tree))
            job = replace(flight.job, payload=move(flight.job.payload))
            flights.append(replace(flight, job=job, update=update))
        return replace(self, server=server, flights=tuple(flights))
