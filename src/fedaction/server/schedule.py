"""Who works when: functions of the run's seed and the round, which need neither a model nor a site."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from fedaction.federation.clock import Clock, Span
from fedaction.federation.seeds import numpy_generator
from fedaction.federation.state import Member


@dataclass(frozen=True)
class Cast:
    """Who is in a round. The first three are sorted by client id."""

    chosen: tuple[str, ...]
    """Who is asked."""
    dropped: tuple[str, ...]
    """Of those, who fails before answering."""
    late: tuple[str, ...]
    """Of those, whose answer would come after the deadline."""
    spans: Mapping[str, Span] = field(default_factory=dict[str, Span])
    """When each of those asked works, where there is a clock."""
    end: float = 0.0
    """When the server has all the answers that it waits for."""

    @property
    def working(self) -> tuple[str, ...]:
        """Those whose answer arrives in time."""
        lost = {*self.dropped, *self.late}
        return tuple(client for client in self.chosen if client not in lost)


@dataclass(frozen=True)
class Participation:
    """Who is asked in a round, and who will not answer."""

    seed: int
    """The run's seed."""
    per_round: int | None = None
    """How many clients are asked each round; None: all."""
    failure_rate: float = 0.0
    """The chance that an asked client fails, each round anew."""
    deadline: float | None = None
    """Seconds after which answers are ignored; None: wait for all."""
    clock: Clock | None = None
    """How long clients take; None: no time at all."""

    def choose(
        self, round: int, members: Sequence[Member], start: float = 0.0, visited: Collection[str] = ()
    ) -> Cast:
        """Who is asked in a round (counted from 1) that starts at a time, and who will not answer in time.

        `visited` are those who have been asked before.
        """
        names = sorted(member.id for member in members)
        count = len(names) if self.per_round is None else min(self.per_round, len(names))
        order: list[int] = numpy_generator(self.seed, "select", round).permutation(len(names)).tolist()
        chosen = sorted(names[i] for i in order[:count])
        clock, spans = self.clock, dict[str, Span]()
        if clock is not None:
            spans = {c: clock.span(c, round, start, first=c not in visited) for c in chosen}
        limit = math.inf if self.deadline is None else self.deadline
        dropped = tuple(c for c in chosen if self._fails(c, round) or (c in spans and spans[c].lost))
        late = tuple(c for c in chosen if c in spans and c not in dropped and spans[c].finish - start > limit)
        # Up to the deadline the server waits for those who fail as well; for those who have vanished, it does not.
        ends = [min(span.finish, start + limit) for span in spans.values() if math.isfinite(span.finish)]
        return Cast(tuple(chosen), dropped, late, spans, max(ends, default=start))

    def _fails(self, client: str, round: int) -> bool:
        return float(numpy_generator(self.seed, "drop-out", client, round).random()) < self.failure_rate


@dataclass(frozen=True)
class Turns:
    """Who is asked when, where the server does not wait: whoever has answered, or an idle one, drawn at random."""

    seed: int
    """The run's seed."""
    at_once: int | None = None
    """How many clients work at a time; None: all, and whoever has answered is asked again."""

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
        return self.draw({member.id for member in members} - set(working), number)

    def draw(self, idle: Collection[str], number: int) -> str:
        """Which of those who are idle is asked, as job `number`."""
        return sorted(idle)[int(numpy_generator(self.seed, "next", number).integers(len(idle)))]
