"""What the server knows of a federation, and what it counts in a round: bytes, visits, refusals, time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from fedaction.data.client import ClientInfo
from fedaction.engines.base import Engine
from fedaction.evaluation.site import Evaluation, Question
from fedaction.federation.average import Averager
from fedaction.federation.clock import Span
from fedaction.federation.state import Job, Report, ServerState, Update, Weight, report_on
from fedaction.federation.tree import Tree, tree_bytes
from fedaction.federation.words import quote
from fedaction.guard.base import Gatherer, Guard, Refused
from fedaction.guard.reports import bound_evaluation
from fedaction.methods.base import Method
from fedaction.server.state import FederationState, Row

Warn = Callable[[str], object]


@dataclass(frozen=True)
class Federation:
    """A method and its clients, as a server sees them: descriptions and tensors, no samples and no LOCAL tensors."""

    method: Method
    """What is trained."""
    members: Sequence[ClientInfo]
    """The clients that train."""
    guards: Sequence[Guard]
    """What every update passes before it is combined, in this order."""
    warn: Warn = lambda _: None
    """Callback for what the user should know."""
    timed: bool = False
    """Whether rounds leave the clock, virtual or real, in their rows."""
    epochs: Mapping[str, int] = field(default_factory=dict[str, int])
    """Local epochs of clients that are asked for other than the run says for all."""
    gather: Callable[[], Gatherer] = Averager
    """Makes what updates that are combined at a time become averages in."""
    refused: Callable[[str, str], object] = lambda _client, _text: None
    """Callback for a client whose update is not used, and why."""

    def job(self, server: ServerState, client: str, round: int, number: int = 0) -> Job:
        """Work for a client: to train from what it is sent now."""
        info = self.method.clients[client]
        payload, epochs = self.method.payload(server, info), self.epochs.get(client, 0)
        return Job(client, info.group, server.version, round, payload, number, epochs)

    def evaluate(
        self,
        state: FederationState,
        engine: Engine,
        clients: Iterable[str],
        question: Question = Question(),  # noqa: B008
    ) -> list[Evaluation]:
        """What sites report of their tests under the server's model and their own tensors."""
        names = list(clients)
        reports = engine.evaluate(self.tests(state, names), question)
        return self.check((state.round, name, report) for name, report in zip(names, reports, strict=True))

    def tests(self, state: FederationState, clients: Iterable[str]) -> Iterator[Job]:
        """What clients are sent for a test: the server's model."""
        for client in clients:
            info = self.method.clients[client]
            payload = self.method.served(state.server, info)
            yield Job(client, info.group, state.server.version, state.round, payload)

    def check(self, reports: Iterable[tuple[int, str, Evaluation]]) -> list[Evaluation]:
        """The reports that can be used, of those that came: with the round that was tested, and who was asked."""
        checked: list[Evaluation] = []
        for round, client, report in reports:
            try:
                checked.append(bound_evaluation(report, client))
            except Refused as error:
                self.warn(f"round {round}: {quote(str(error))}; the report is not used")
        return checked

    def group(self, client: str) -> str:
        """A client's group."""
        return self.method.clients[client].group


def combine(method: Method, server: ServerState, updates: Iterable[Update]) -> ServerState:
    """The server's step from updates of clients that were sent the server's present model, without any guard."""
    mean = Averager()
    for update in updates:
        info = method.clients[update.client]
        job = Job(update.client, info.group, server.version, 0, method.payload(server, info))
        weight = method.weigh(report_on(update, server.version))
        mean.add(update, job, weight, method.plan(info).scopes, method.parts(info))
    return method.advance(server, mean.averages())


class Ledger:
    """One round's books. Everything that goes to a client or comes from it passes here, in every kind of round."""

    def __init__(self, federation: Federation, state: FederationState) -> None:
        self._federation = federation
        self.visits, self.busy = dict(state.visits), dict(state.busy)
        self.accepted: list[str] = []
        self._refused: dict[str, int] = {}
        self._metrics: dict[str, list[Mapping[str, float]]] = {}
        self._answered: set[tuple[str, int, int]] = set()
        self._marks: dict[str, dict[str, int]] = {}
        self._mean = federation.gather()
        self._down = self._up = self._epochs = 0
        self._measured: tuple[Tree, int] = ({}, 0)  # the payload that was sent last, and its bytes
        self._worked: set[str] = set()

    def send(self, job: Job) -> None:
        """A client is sent its job: the payload, and FROZEN tensors the first time."""
        plan = self._federation.method.plan(self._federation.method.clients[job.client])
        visits = self.visits.get(job.client, 0)
        if self._measured[0] is not job.payload:  # many are sent the same
            self._measured = (job.payload, tree_bytes(job.payload))
        self._down += self._measured[1] + (0 if visits else plan.frozen_bytes)
        self.visits[job.client] = visits + 1

    def work(self, client: str, span: Span) -> None:
        """A client's device has worked."""
        self.busy[client] = self.busy.get(client, 0.0) + span.busy
        self._worked.add(client)

    def receive(self, update: Update, job: Job, server: ServerState, round: int) -> bool:
        """An update has come: it passes the guards and is folded into the mean, or is refused with a warning."""
        method = self._federation.method
        self._up += tree_bytes(update.tree)  # it has travelled, whether or not it is then refused
        self._epochs += job.epochs
        try:
            if (job.client, job.round, job.number) in self._answered:
                raise Refused(f"client {job.client!r} has answered its job of round {job.round} before")
            report, sent = report_on(update, server.version), update
            for guard in self._federation.guards:
                update = guard(update, job, report)
            weight = _weigh(method, report)
        except ValueError as error:  # `Refused` is one
            self._federation.warn(f"round {round}: {quote(str(error))}; the update is not used")
            self._refused[job.client] = self._refused.get(job.client, 0) + 1
            self._federation.refused(job.client, f"the update of round {round} is not used: {quote(str(error))}")
            return False
        if update is not sent:
            self._mark("bounded", job.client)
        self._answered.add((job.client, job.round, job.number))
        info = method.clients[job.client]
        self._mean.add(update, job, weight, method.plan(info).scopes, method.parts(info))
        self._metrics.setdefault(job.client, []).append({**update.metrics, "staleness": float(report.staleness)})
        self.accepted.append(job.client)
        return True

    def combine(self, server: ServerState) -> ServerState:
        """The server's step from what has been folded in since the last one."""
        gathered, self._mean = self._mean, self._federation.gather()
        mean = gathered.averages()
        for what, clients in gathered.marks.items():
            for client in clients:
                self._mark(what, client)
        return self._federation.method.advance(server, mean)

    def _mark(self, what: str, client: str) -> None:
        seen = self._marks.setdefault(what, {})
        seen[client] = seen.get(client, 0) + 1

    def rows(self, round: int, time: float, counts: Mapping[str, float], *, ages: bool = False) -> list[Row]:
        """The round's rows: clients' means over their updates, refusals, counts, and the clock.

        Args:
            round: its number.
            time: seconds on the clock.
            counts: the server's own numbers besides.
            ages: whether the ages of updates are worth recording.
        """
        group, rows = self._federation.group, list[Row]()
        for client, seen in self._metrics.items():
            names = dict.fromkeys(name for metrics in seen for name in metrics)
            values = {name: fmean(metrics[name] for metrics in seen if name in metrics) for name in names}
            age = values.pop("staleness")
            if ages:
                oldest = max(metrics["staleness"] for metrics in seen)
                values |= {"staleness": age, "staleness_max": oldest, "updates": len(seen)}
            rows += [Row(round, client, group(client), "train", name, value) for name, value in values.items()]
        rows += [Row(round, client, group(client), "server", "refused", 1) for client in sorted(self._refused)]
        for what, seen in sorted(self._marks.items()):
            rows += [Row(round, client, group(client), "server", what, seen[client]) for client in sorted(seen)]
        totals = {
            "participants": len(self.accepted),
            "refused": len(self._refused),
            **counts,
            "bytes_down": self._down,
            "bytes_up": self._up,
        }
        if self._federation.epochs:
            totals["epochs"] = self._epochs
        rows += [Row(round, "", "", "server", name, value) for name, value in totals.items()]
        if self._federation.timed:
            rows += [Row(round, c, group(c), "clock", "busy", self.busy[c]) for c in sorted(self._worked)]
            rows.append(Row(round, "", "", "clock", "time", time))
        return rows


def _weigh(method: Method, report: Report) -> Weight:
    """A weight that can be used, or `Refused`: it may depend on what a client says."""
    said = ", ".join(f"{name} {value:g}" for name, value in report.metrics.items()) or "nothing"
    who = f"client {report.client!r} reported {report.samples:g} samples and {said}"
    try:
        weight = method.weigh(report)
    except (KeyError, ArithmeticError) as error:
        raise Refused(f"{who}, from which no weight follows: {type(error).__name__} {error}") from None
    amounts = [amount for share, amount in weight if share] if isinstance(weight, tuple) else [weight]
    if not all(math.isfinite(amount) and amount > 0 for amount in amounts):
        raise Refused(f"{who}: its weight in the mean would be {amounts}, which must be positive and finite")
    return weight
