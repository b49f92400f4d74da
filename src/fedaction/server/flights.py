"""Jobs under way, by when their answers come."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fedaction.federation.clock import Span
from fedaction.federation.state import Job, Update


@dataclass(frozen=True)
class Flight:
    """A job under way."""

    job: Job
    """As it was given out. Its number, counted from 1, decides between answers of the same instant."""
    span: Span
    """when."""
    update: Update | None = None
    """Its result, once that has been computed; the server sees it at `span.finish`."""

    @property
    def number(self) -> int:
        """The job's number."""
        return self.job.number

    @property
    def place(self) -> tuple[float, int]:
        """Flights arrive in this order."""
        return self.span.finish, self.number


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
        self.clients.add(flight.job.client)
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
        self.clients.discard(flight.job.client)
        return flight

    def take(self, number: int) -> Flight | None:
        """The flight of a job, which is then no longer in flight, whenever it was due; None where there is none."""
        flight = self._flights.pop(number, None)
        if flight is not None:
            self._arriving = [place for place in self._arriving if place != flight.place]
            self._unknown = [place for place in self._unknown if place != flight.place]
            heapq.heapify(self._arriving)
            heapq.heapify(self._unknown)
            self.clients.discard(flight.job.client)
        return flight

    def unknown(self, count: int) -> list[Flight]:
        """The next few whose answers have not been computed; `answer` must be told of each."""
        return [self._flights[heapq.heappop(self._unknown)[1]] for _ in range(min(count, len(self._unknown)))]

    def answer(self, flight: Flight, update: Update) -> None:
        """A flight's answer has been computed."""
        self._flights[flight.number] = replace(flight, update=update)

    def values(self) -> tuple[Flight, ...]:
        """All of them, in the order in which the clients were asked."""
        return tuple(self._flights[number] for number in sorted(self._flights))
