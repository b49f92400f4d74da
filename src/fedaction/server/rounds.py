"""Synchronous rounds: choose clients, train, combine; again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fedaction.engines.base import Engine
from fedaction.server.federation import Federation, Ledger
from fedaction.server.schedule import Participation
from fedaction.server.state import FederationState, Row


@dataclass(frozen=True)
class Rounds:
    """Advances a federation by a round in which the server waits for those it has asked."""

    federation: Federation
    """whose."""
    participation: Participation
    """Who is asked."""
    quorum: float = 0.5
    """The least share (of those asked) whose accepted updates make a round count, 0 to 1."""
    joins: Mapping[str, int] = field(default_factory=dict[str, int])
    """Clients that join later than in round 1, with the round in which they do."""

    def advance(self, state: FederationState, engine: Engine, round: int) -> tuple[FederationState, list[Row]]:
        """One round: the state after it, and its rows.

        If too few sound updates came, the round leaves the model and the clients' own tensors as they were.
        """
        present = [member for member in self.federation.members if round >= self.joins.get(member.id, 1)]
        cast = self.participation.choose(round, present, state.time, state.visits)
        ledger = Ledger(self.federation, state)
        jobs = {client: self.federation.job(state.server, client, round) for client in cast.chosen}
        for client, job in jobs.items():
            ledger.send(job)
            if client in cast.spans:
                ledger.work(client, cast.spans[client])
        updates = engine.train(jobs[client] for client in cast.working)
        for client, update in zip(cast.working, updates, strict=True):
            ledger.receive(update, jobs[client], state.server, round)
        server, accepted = state.server, len(ledger.accepted)
        enough = accepted > 0 and accepted >= self.quorum * len(cast.chosen)  # no update at all never is
        if enough:
            server = ledger.combine(state.server)
            engine.commit(ledger.accepted)
        else:
            self.federation.warn(
                f"round {round}: {accepted} sound updates from {len(cast.chosen)} clients asked are fewer than the "
                f"quorum ({self.quorum:.0%}); the model stays as it was"
            )
        engine.drop(cast.working)  # whoever was not committed
        counts = {"dropped": len(cast.dropped), "late": len(cast.late), "combined": int(enough)}
        rows = ledger.rows(round, cast.end, counts)
        after = replace(state, round=round, server=server, visits=ledger.visits, time=cast.end, busy=ledger.busy)
        return after, rows
