"""Schedules decide who works when. `Rounds` is the synchronous one; `events` has the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedaction.federation.clock import Clock, Span
from fedaction.federation.seeds import numpy_generator
from fedaction.federation.state import Member


@dataclass(frozen=True)
class RoundPlan:
    """One round's cast. The first three are sorted by client id.

    Attributes:
        chosen: who is asked.
        dropped: of those, who fails before answering.
        late: of those, whose answer would come after the deadline.
        spans: when each of those asked works, where there is a clock.
        end: when the server has all the answers that it waits for.
    """

    chosen: tuple[str, ...]
    dropped: tuple[str, ...]
    late: tuple[str, ...]
    spans: Mapping[str, Span] = field(default_factory=dict[str, Span])
    end: float = 0.0

    @property
    def working(self) -> tuple[str, ...]:
        """Those whose answer arrives in time."""
        lost = {*self.dropped, *self.late}
        return tuple(client for client in self.chosen if client not in lost)


@dataclass(frozen=True)
class Rounds:
    """Choose clients, train, combine; again.

    Attributes:
        seed: the run's seed.
        per_round: how many clients are asked each round; None: all.
        quorum: the least share (of those asked) whose accepted updates make a round count, 0 to 1.
        drop_out: the chance that an asked client fails, each round anew.
        deadline: seconds after which answers are ignored; None: wait for all.
        clock: how long clients take; None: no time at all.
    """

    seed: int
    per_round: int | None = None
    quorum: float = 0.5
    drop_out: float = 0.0
    deadline: float | None = None
    clock: Clock | None = None

    def plan(self, round: int, members: Sequence[Member], start: float = 0.0) -> RoundPlan:
        """Who is asked in a round (counted from 1) that starts at a time, and who will not answer in time."""
        names = sorted(member.id for member in members)
        count = len(names) if self.per_round is None else min(self.per_round, len(names))
        order: list[int] = numpy_generator(self.seed, "select", round).permutation(len(names)).tolist()
        chosen = sorted(names[i] for i in order[:count])
        spans = {c: self.clock.span(c, round, start) for c in chosen} if self.clock else dict[str, Span]()
        limit = math.inf if self.deadline is None else self.deadline
        dropped = tuple(c for c in chosen if self._fails(c, round) or (c in spans and spans[c].lost))
        late = tuple(c for c in chosen if c in spans and c not in dropped and spans[c].finish - start > limit)
        # Up to the deadline the server waits for those who fail as well; for those who have vanished, it does not.
        ends = [min(span.finish, start + limit) for span in spans.values() if math.isfinite(span.finish)]
        return RoundPlan(tuple(chosen), dropped, late, spans, max(ends, default=start))

    def enough(self, plan: RoundPlan, accepted: int) -> bool:
        """Whether so many accepted updates make the round count. No update at all never does."""
        return accepted > 0 and accepted >= self.quorum * len(plan.chosen)

    def _fails(self, client: str, round: int) -> bool:
        return float(numpy_generator(self.seed, "drop-out", client, round).random()) < self.drop_out
