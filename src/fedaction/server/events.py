"""The asynchronous schedule: jobs in flight on a virtual clock. The server takes answers as they come."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

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


class InFlight:
    """The jobs under way, by when their answers come. Changed in place; `values` gives them as a value."""

    def __init__(self, flights: Iterable[Flight] = ()) -> None:
        self._flights: dict[int, Flight] = {}
        self._arriving: list[tuple[float, int]] = []  # heaps of `Flight.place`
        self._unknown: list[tuple[float, int]] = []
        self.clients: set[str] = set()
        for flight in flights:
            self.add(flight)

    def add(self, flight: Flight) -> None:
        """A client has been asked."""
        self._flights[flight.number] = flight
        self.clients.add(flight.client)
        heapq.heappush(self._arriving, flight.place)
        if flight.update is None and not flight.span.lost:
            heapq.heappush(self._unknown, flight.place)

    def next(self) -> Flight:
        """What arrives next; a RuntimeError where nothing ever will."""
        if not self._arriving or math.isinf(self._arriving[0][0]):
            raise RuntimeError("no client is left that will ever answer: all devices have vanished")
        return self._flights[self._arriving[0][1]]

    def land(self) -> Flight:
        """What arrives next, which is then no longer in flight."""
        flight = self.next()
        heapq.heappop(self._arriving)
        del self._flights[flight.number]
        self.clients.discard(flight.client)
        return flight

    def unknown(self, count: int) -> list[Flight]:
        """The next few whose answers have not been computed; `answer` must be told of each."""
        return [self._flights[heapq.heappop(self._unknown)[1]] for _ in range(min(count, len(self._unknown)))]

    def answer(self, flight: Flight, update: Update) -> None:
        """A flight's answer has been computed; what the client was sent is let go."""
        self._flights[flight.number] = replace(flight, update=update, payload={})

    def values(self) -> tuple[Flight, ...]:
        """All of them, in the order in which the clients were asked."""
        return tuple(self._flights[number] for number in sorted(self._flights))
