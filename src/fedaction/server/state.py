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
    """One number of a run.

    Attributes:
        round: rounds done when it was taken; 0 is before training.
        client: whose; "" for the whole federation.
        group: the client's group; "" for the whole federation.
        split: "train", "test", "server", or "clock" (the virtual one, in seconds).
        name: what it is.
        value: the number; None where it was not finite.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    round: int
    client: str
    group: str
    split: Literal["train", "test", "server", "clock"]
    name: str
    value: float | int | None


@dataclass(frozen=True)
class FederationState:
    """All that a server needs to resume: random numbers are derived, so none are here.

    Attributes:
        round: rounds done.
        server: what it has learned.
        visits: how often each client has been sent something.
        time: seconds on the virtual clock.
        busy: seconds that each client's device has worked.
        launched: asynchronous: jobs given out so far.
        flights: asynchronous: jobs that the server has not seen the answers of yet.
    """

    round: int
    server: ServerState
    visits: Mapping[str, int] = field(default_factory=dict[str, int])
    time: float = 0.0
    busy: Mapping[str, float] = field(default_factory=dict[str, float])
    launched: int = 0
    flights: tuple[Flight, ...] = ()

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
