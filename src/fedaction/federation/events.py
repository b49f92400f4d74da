"""The asynchronous schedule: jobs in flight on a virtual clock. The server takes answers as they come."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from fedaction.federation.clock import Clock, Span
from fedaction.federation.seeds import numpy_generator
from fedaction.federation.state import Member, Update
from fedaction.federation.tree import Tree


@dataclass(frozen=True)
class Flight:
    """A job under way.

    Attributes:
        client: who does it.
        number: of the job, counted from 1 in the order in which jobs are given out. It decides between answers of the
            same instant, and the client's random numbers are derived from it.
        version: the server's version that it starts from.
        span: when.
        payload: what the client was sent; let go once it has been trained.
        update: its result, once that has been computed; the server sees it at `span.finish`.
    """

    client: str
    number: int
    version: int
    span: Span
    payload: Tree = field(repr=False)
    update: Update | None = None

    @property
    def place(self) -> tuple[float, int]:
        """Flights arrive in this order."""
        return self.span.finish, self.number


@dataclass(frozen=True)
class Events:
    """Who is asked when: a client that has answered is asked again at once.

    Attributes:
        seed: the run's seed.
        clock: how long jobs take.
        at_once: how many clients work at a time; None: all. Otherwise an idle one, drawn at random, takes the place
            of the one that has answered.
    """

    seed: int
    clock: Clock
    at_once: int | None = None

    def first(self, members: Sequence[Member]) -> list[str]:
        """Who is asked at the start."""
        names = sorted(member.id for member in members)
        if self.at_once is None or self.at_once >= len(names):
            return names
        order: list[int] = numpy_generator(self.seed, "first").permutation(len(names)).tolist()
        return sorted(names[i] for i in order[: self.at_once])

    def successor(self, client: str, number: int, members: Sequence[Member], working: Collection[str]) -> str:
        """Who is asked when a client has answered, as job `number`; `working` are those in flight."""
        if self.at_once is None or self.at_once >= len(members):
            return client
        idle = sorted({member.id for member in members} - set(working))
        return idle[int(numpy_generator(self.seed, "next", number).integers(len(idle)))]

    def span(self, client: str, number: int, now: float) -> Span:
        """When a client's job begins and ends."""
        return self.clock.span(client, number, now)


def earliest(flights: Sequence[Flight]) -> Flight:
    """The flight that arrives next; a RuntimeError where none ever will."""
    found = min(flights, key=lambda flight: flight.place, default=None)
    if found is None or math.isinf(found.span.finish):
        raise RuntimeError("no client is left that will ever answer: all devices have vanished")
    return found
