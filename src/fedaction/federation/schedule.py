"""Schedules decide who works when. `Rounds` is the synchronous one; the server never waits for one client."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedaction.federation.seeds import numpy_generator
from fedaction.federation.state import Member


@dataclass(frozen=True)
class RoundPlan:
    """One round's cast. All three are sorted by client id.

    Attributes:
        chosen: who is asked.
        dropped: of those, who fails before answering.
        late: of those, whose answer would come after the deadline.
    """

    chosen: tuple[str, ...]
    dropped: tuple[str, ...]
    late: tuple[str, ...]

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
        seconds_per_sample: how long an ordinary client takes for one training sample.
        spread: how unequal clients are: the standard deviation of the logarithm of their speed.
    """

    seed: int
    per_round: int | None = None
    quorum: float = 0.5
    drop_out: float = 0.0
    deadline: float | None = None
    seconds_per_sample: float = 0.01
    spread: float = 0.5

    def plan(self, round: int, members: Sequence[Member]) -> RoundPlan:
        """Who is asked in a round (counted from 1), and who of them will not answer in time."""
        by_id = {member.id: member for member in members}
        names = sorted(by_id)
        count = len(names) if self.per_round is None else min(self.per_round, len(names))
        order: list[int] = numpy_generator(self.seed, "select", round).permutation(len(names)).tolist()
        chosen = sorted(names[i] for i in order[:count])
        dropped = tuple(c for c in chosen if self.drop_out and self._chance("drop-out", c, round) < self.drop_out)
        late = tuple(
            c
            for c in chosen
            if self.deadline is not None and c not in dropped and self.duration(by_id[c], round) > self.deadline
        )
        return RoundPlan(tuple(chosen), dropped, late)

    def duration(self, member: Member, round: int) -> float:
        """Simulated seconds from asking a client to its answer: its own speed, with a little jitter each round."""
        speed = numpy_generator(self.seed, "speed", member.id).normal() * self.spread
        jitter = numpy_generator(self.seed, "jitter", member.id, round).normal() * 0.1
        return member.samples * self.seconds_per_sample * math.exp(speed + jitter)

    def enough(self, plan: RoundPlan, accepted: int) -> bool:
        """Whether so many accepted updates make the round count. No update at all never does."""
        return accepted > 0 and accepted >= self.quorum * len(plan.chosen)

    def _chance(self, purpose: str, client: str, round: int) -> float:
        return float(numpy_generator(self.seed, purpose, client, round).random())
