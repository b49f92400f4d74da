"""The engine whose sites are on machines of their own: jobs go out as messages, updates come back, nothing else."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator

import torch

from fedaction.engines.flower.envelope import Envelope, Kind
from fedaction.engines.flower.exchange import Exchange, Failure, Request
from fedaction.engines.messages import MessageError, pack, unpack
from fedaction.engines.store import LocalState, LocalStore
from fedaction.evaluation.site import EVIDENCE, Evaluation, Question
from fedaction.federation.state import Job, Update
from fedaction.federation.tree import Tree, tree_bytes

_SLACK = 1 << 20  # bytes of an update besides the values of its tensors
_MOST_REPORT = 8 << 20  # bytes of an evaluation
_MOST_NUMBERS = 100
_MOST_WORD = 100  # characters of a number's name
_JOB = "job"


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
    """An `Engine` over sites elsewhere. A client that fails has an update with a fault, which the guards refuse."""

    def __init__(self, exchange: Exchange, history: int = 4) -> None:
        """`history`: see `Receipts`."""
        self._exchange = exchange
        self.store = Receipts(history)

    def train(self, jobs: Iterable[Job]) -> Iterator[Update]:
        """See `Engine.train`. All jobs are sent at once."""
        asked = list(jobs)
        requests = (self._request(job, "train", (), tree_bytes(job.payload) + _SLACK) for job in asked)
        answers = deque(self._exchange.ask(requests))
        for job in asked:
            yield self._read_update(job, answers.popleft())

    def evaluate(self, jobs: Iterable[Job], question: Question = Question()) -> Iterator[Evaluation]:  # noqa: B008
        """See `Engine.evaluate`. Of a client that fails there is an evaluation without a number."""
        asked, more = list(jobs), (pack(question),)
        answers = self._exchange.ask(self._request(job, "evaluate", more, _MOST_REPORT) for job in asked)
        for job, answer in zip(asked, answers, strict=True):
            try:
                yield _read_evaluation(job, question, answer)
            except ValueError as error:
                self._exchange.warn(f"round {job.round}: {error}; its test is missing")
                yield Evaluation(job.client, {})

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

    def _request(self, job: Job, kind: Kind, more: tuple[bytes, ...], limit: int) -> Request:
        basis, oldest = self.store.basis(job.client), self.store.oldest(job.client)
        return Request(job.client, kind, (pack(job), *more), basis, oldest, limit)

    def _read_update(self, job: Job, answer: Envelope | Failure) -> Update:
        try:
            update = unpack(Update, _only_part(job, answer))
            _check_numbers(job, update.metrics)
        except ValueError as error:
            fault = str(error)
            return Update(job.client, job.group, job.version, {}, 0.0, {}, fault)
        self.store.note(job.client, job.occasion)
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
