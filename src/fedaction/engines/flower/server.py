"""The engine whose sites are on machines of their own: jobs go out as messages, updates come back, nothing else."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import torch

from fedaction.engines.flower.envelope import Envelope, Kind
from fedaction.engines.flower.exchange import Exchange, Failure, Request
from fedaction.engines.live import Answer
from fedaction.engines.messages import MessageError, pack, unpack
from fedaction.engines.observed import Observer
from fedaction.engines.store import LocalState, LocalStore
from fedaction.evaluation.site import EVIDENCE, Evaluation, Question
from fedaction.federation.state import Job, Update
from fedaction.federation.tree import Tree, tree_bytes

_SLACK = 1 << 20  # bytes of an update besides the values of its tensors
_MOST_REPORT = 8 << 20  # bytes of an evaluation
_MOST_NUMBERS = 100
_MOST_WORD = 100  # characters of a number's name
_JOB = "job"


class QuorumError(RuntimeError):
    """Too few sites did their work for a round to count, who did not, and why."""


class Receipts(LocalStore):
    """What the server knows of LOCAL tensors at sites: after which job each client's were left, no tensor itself.

    It is committed, dropped, saved in checkpoints and put back as a simulation's LOCAL tensors are, so that a run
    resumed from any checkpoint tells each site which of its tensors count.
    """

    def __init__(self, history: int) -> None:
        """`history`: how many saved states a run may be set back to; 0: any."""
        super().__init__(lambda _: {})
        self._saved: deque[LocalState] = deque(maxlen=history or None)
        self._all = history == 0

    def note(self, client: str, job: int) -> None:
        """A client has done a job."""
        self.put(client, {_JOB: torch.tensor(job)})

    def basis(self, client: str) -> int:
        """The last job of a client that was combined; 0: none."""
        return _number(self.current(client))

    def oldest(self, client: str) -> int:
        """The earliest job of a client whose tensors a checkpoint still means."""
        if self._all:
            return 0
        full = len(self._saved) == self._saved.maxlen
        saved = [_number(state.committed.get(client, {})) for state in self._saved] if full else [0]
        return min([self.basis(client), *saved])

    def save(self) -> LocalState:
        """See `LocalStore.save`."""
        state = super().save()
        self._saved.append(state)
        return state

    def load(self, state: LocalState, device: torch.device) -> None:
        """See `LocalStore.load`."""
        super().load(state, torch.device("cpu"))
        self._saved.append(state)


class FlowerEngine:
    """An `Engine` over sites elsewhere. A client that fails has an update with a fault, which the guards refuse.

    Is a `LiveEngine` as well: jobs may also be sent one by one, and a test of all sites be begun and not waited for.
    """

    def __init__(
        self,
        exchange: Exchange,
        history: int = 4,
        quorum: float | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        """Prepares an engine.

        Args:
            exchange: with the sites.
            history: see `Receipts`.
            quorum: the share of the sites asked that must answer; with fewer, training is a QuorumError: sites that
                are away come back, and a run need not spend its rounds waiting for them. None: any number.
            observers: see every sound update.
        """
        self._exchange, self._quorum, self._observers = exchange, quorum, observers
        self.store = Receipts(history)
        self._asked: dict[tuple[str, Kind], Job] = {}  # what `send` and `begin_test` put under way
        self._came: deque[tuple[Job, Envelope | Failure]] = deque()
        self._tests: list[tuple[Job, Evaluation]] = []

    def train(self, jobs: Iterable[Job]) -> Iterator[Update]:
        """See `Engine.train`. All jobs are sent at once."""
        asked = list(jobs)
        requests = (self._request(job, "train", (), tree_bytes(job.payload) + _SLACK) for job in asked)
        answers = deque(self._exchange.ask(requests))
        self._count(asked, answers)
        for job in asked:
            yield self._read_update(job, answers.popleft())

    def evaluate(self, jobs: Iterable[Job], question: Question = Question()) -> Iterator[Evaluation]:  # noqa: B008
        """See `Engine.evaluate`. Of a client that fails there is an evaluation without a number."""
        asked, more = list(jobs), (pack(question),)
        answers = self._exchange.ask(self._request(job, "evaluate", more, _MOST_REPORT) for job in asked)
        for job, answer in zip(asked, answers, strict=True):
            yield self._read_report(job, question, answer)

    def send(self, job: Job) -> None:
        """See `LiveEngine.send`."""
        self._asked[job.client, "train"] = job
        self._exchange.send(self._request(job, "train", (), tree_bytes(job.payload) + _SLACK))

    def next(self) -> Answer | None:
        """See `LiveEngine.next`."""
        if not self._came:
            self._collect()
        if not self._came:
            self._exchange.sleep(self._exchange.patience.poll)
            return None
        job, answer = self._came.popleft()
        if isinstance(answer, Failure):
            return Answer(job.number, None, answer.text)
        return Answer(job.number, self._read_update(job, answer))

    def is_there(self, client: str) -> bool:
        """See `LiveEngine.is_there`."""
        return client in self._exchange.present

    def begin_test(self, jobs: Iterable[Job]) -> None:
        """Tests each job's payload, as `evaluate` does, when its client has time; nobody waits."""
        for job in jobs:
            self._asked[job.client, "evaluate"] = job
            self._exchange.send(self._request(job, "evaluate", (pack(Question()),), _MOST_REPORT))

    @property
    def is_testing(self) -> bool:
        """Whether a test that was begun is under way at some client."""
        return any(kind == "evaluate" for _, kind in self._asked)

    def end_test(self) -> list[tuple[Job, Evaluation]]:
        """What clients reported in the last test that was begun, once all have; nothing before, and not twice."""
        self._collect()
        if self.is_testing:
            return []
        tests, self._tests = self._tests, []
        return tests

    def commit(self, clients: Iterable[str]) -> None:
        """See `Engine.commit`. Sites hear of it in their next message."""
        self.store.commit(clients)

    def drop(self, clients: Iterable[str]) -> None:
        """See `Engine.drop`."""
        self.store.drop(clients)

    def end(self, jobs: Iterable[Job]) -> None:
        """Tells the sites that are there that the run is over, and with which tensors; they keep their networks."""
        last = [job for job in jobs if job.client in self._exchange.present]
        answers = self._exchange.ask(self._request(job, "end", (), _SLACK) for job in last)
        for job, answer in zip(last, answers, strict=True):
            if isinstance(answer, Failure):
                self._exchange.warn(f"{job.client} has no network of its own: {answer.text}")

    def close(self) -> None:
        """See `Engine.close`."""

    def _count(self, jobs: Sequence[Job], answers: Iterable[Envelope | Failure]) -> None:
        """Ends training where too few have answered; nothing of such a round is kept."""
        failed = [answer.text for answer in answers if isinstance(answer, Failure)]
        if self._quorum is None or not failed:
            return
        came = len(jobs) - len(failed)
        if not came or came < self._quorum * len(jobs):
            raise QuorumError(
                f"round {jobs[0].round}: {came} of {len(jobs)} sites answered, fewer than the quorum "
                f"({self._quorum:.0%}): {'; '.join(failed)}. See to them, then resume: nothing is lost"
            )

    def _request(self, job: Job, kind: Kind, more: tuple[bytes, ...], limit: int) -> Request:
        basis, oldest = self.store.basis(job.client), self.store.oldest(job.client)
        return Request(job.client, kind, (pack(job), *more), basis, oldest, limit)

    def _collect(self) -> None:
        """Takes what has come: answers to jobs in their order, and reports of a test."""
        for request, answer in self._exchange.take():
            job = self._asked.pop((request.client, request.kind))
            if request.kind == "evaluate":
                self._tests.append((job, self._read_report(job, Question(), answer)))
            else:
                self._came.append((job, answer))

    def _read_report(self, job: Job, question: Question, answer: Envelope | Failure) -> Evaluation:
        try:
            return _read_evaluation(job, question, answer)
        except ValueError as error:
            self._exchange.warn(f"round {job.round}: {error}; its test is missing")
            return Evaluation(job.client, {})

    def _read_update(self, job: Job, answer: Envelope | Failure) -> Update:
        try:
            update = unpack(Update, _only_part(job, answer))
            _check_numbers(job, update.metrics)
        except ValueError as error:
            fault = str(error)
            return Update(job.client, job.group, job.version, {}, 0.0, {}, fault)
        self.store.note(job.client, job.occasion)
        for observe in self._observers:
            update = observe(job, update, self.store)
        return update


def _read_evaluation(job: Job, question: Question, answer: Envelope | Failure) -> Evaluation:
    """What a site reports, if it is what was asked for and no more."""
    report = unpack(Evaluation, _only_part(job, answer))
    _check_numbers(job, report.metrics)
    if report.client != job.client or not 0 <= report.n < 1 << 53:
        raise MessageError(f"client {job.client!r} reported as {report.client[:100]!r} on {report.n} samples")
    asked = [kind for kind in EVIDENCE if kind in question.evidence and (kind != "samples" or question.samples)]
    odd = [kind for kind in report.evidence if kind not in asked]
    if odd:
        raise MessageError(f"client {job.client!r} reported {odd[0][:100]!r}, which nobody asked for")
    return report


def _only_part(job: Job, answer: Envelope | Failure) -> bytes:
    if isinstance(answer, Failure):
        raise MessageError(answer.text)
    if len(answer.parts) != 1:
        raise MessageError(f"client {job.client!r} answered in {len(answer.parts)} parts; expected one")
    return answer.parts[0]


def _check_numbers(job: Job, metrics: object) -> None:
    """Numbers that a site reports are few and have short names."""
    assert isinstance(metrics, dict)
    names: list[str] = list(metrics)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if len(names) > _MOST_NUMBERS or max(map(len, names), default=0) > _MOST_WORD:
        raise MessageError(
            f"client {job.client!r} reported {len(names)} numbers; {_MOST_NUMBERS} with names of up to {_MOST_WORD} "
            "characters are the most"
        )


def _number(tree: Tree) -> int:
    """A receipt's number; of nothing, 0."""
    value = float(tree[_JOB]) if _JOB in tree else 0.0
    return int(value) if math.isfinite(value) else 0
