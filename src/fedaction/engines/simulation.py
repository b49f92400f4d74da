"""All sites in one process: what the sequential and the vectorised engine have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn

from fedaction.data.client import ClientData, Split
from fedaction.data.samples import in_batches
from fedaction.engines.base import Applied, Training, place
from fedaction.engines.store import LocalStore
from fedaction.evaluation.neighbours import nearest_labels, unseen_labels
from fedaction.evaluation.site import Answers, Evaluation, Question, evaluate_answers, evaluate_votes
from fedaction.federation.profile import NOTHING, Profile
from fedaction.federation.scope import Scope
from fedaction.federation.seeds import generator
from fedaction.federation.state import Job, Update
from fedaction.federation.tree import tensors_of
from fedaction.methods.base import Batch, Method, Task
from fedaction.methods.start import first_tensors, fresh, start_key

_BATCH = 32  # recordings at once


class Simulation(ABC):
    """An engine that holds every site's samples and, in `store`, what each keeps."""

    def __init__(
        self, method: Method, data: Mapping[str, ClientData], training: Training, device: torch.device
    ) -> None:
        """Prepares for some clients, whose samples move to the device here, once, where they fit."""
        self._method, self._training, self._device = method, training, device
        self._data = place(data, device)
        self._first: dict[object, dict[str, Tensor]] = {}
        self._networks: dict[tuple[object, ...], nn.Module] = {}
        self.profile: Profile = NOTHING
        self.store = LocalStore(lambda client: self._of_scope(client, Scope.LOCAL))

    @abstractmethod
    def train(self, jobs: Iterable[Job]) -> Iterator[Update]:
        """See `Engine.train`."""

    @abstractmethod
    def _answer(self, jobs: Iterable[Job], split: Split = "test") -> Iterator[Answers]:
        """Every job's test set or other split under its payload and the client's own tensors, in the jobs' order."""

    def evaluate(self, jobs: Iterable[Job], question: Question = Question()) -> Iterator[Evaluation]:  # noqa: B008
        """See `Engine.evaluate`."""
        if question.neighbours is not None:
            seed, device, how = self._training.seed, self._device, question.neighbours
            for job in jobs:
                client = self._data[job.client]
                votes = unseen_labels(self._method, job.payload, client, seed, device, how)
                yield evaluate_votes(Answers(client, votes, job.payload, likelihood=False), question)
            return
        answer = self._answer if self._method.task is None else self._retrieve
        for answers in answer(jobs, question.split):
            yield evaluate_answers(answers, question)

    def commit(self, clients: Iterable[str]) -> None:
        """See `Engine.commit`."""
        self.store.commit(clients)

    def drop(self, clients: Iterable[str]) -> None:
        """See `Engine.drop`."""
        self.store.drop(clients)

    def close(self) -> None:
        """See `Engine.close`."""
        self._networks.clear()

    def tensors(self, job: Job) -> dict[str, Tensor]:
        """All of a client's tensors: those it is sent, its own and the frozen ones."""
        frozen = self._of_scope(job.client, Scope.FROZEN)
        return {**job.payload, **self.store.current(job.client), **frozen}

    def _of_scope(self, client: str, scope: Scope) -> dict[str, Tensor]:
        """A client's tensors of a scope before it has ever trained; one copy for each architecture."""
        info = self._method.clients[client]
        scopes = self._method.plan(info).scopes
        if scope not in scopes.values():
            return {}
        key = (start_key(self._method, info), scope)
        if key not in self._first:
            first = first_tensors(self._method, info, self._training.seed, self._device)
            self._first[key] = {name: tensor for name, tensor in first.items() if scopes[name] is scope}
        return self._first[key]

    def _retrieve(self, jobs: Iterable[Job], split: Split = "test") -> Iterator[Answers]:
        """Tests of networks that learned without labels."""
        task = self._method.task
        assert task is not None
        for job in jobs:
            info, client = self._method.clients[job.client], self._data[job.client].tested_on(split)
            if info.architecture not in self._networks:
                network = fresh(self._method, info, self._training.seed).to(self._device).eval()
                self._networks[info.architecture] = network
            network, tensors = self._networks[info.architecture], self.tensors(job)
            with torch.no_grad():
                for name, own in tensors_of(network).items():
                    own.copy_(tensors[name])
            again = self._training.reestimate
            votes = nearest_labels(network, task, client, self._device, reestimate=again)
            yield Answers(client, votes, tensors, likelihood=False, played=self._play(network, task, client))

    @torch.no_grad()
    def _play(self, network: nn.Module, task: Task, client: ClientData) -> dict[str, float]:
        """How well a network, in evaluation mode, plays its task on test recordings: means over them, by name."""
        random = generator(self._training.seed, "task", client.info.id)  # the same clips in every test
        drawn = task.draw(len(client.test), client.test.shape, random)
        net, first, sums = Applied(network, tensors_of(network)), 0, dict[str, float]()
        for x in in_batches(client.test, _BATCH):
            rows = slice(first, first + len(x))
            own = {name: tensor[rows].to(self._device) for name, tensor in drawn.items()}
            loss, metrics = self._method.loss(net, net, Batch(*task.apply(x.to(self._device), own)))
            for name, value in {"loss": loss, **metrics}.items():
                sums[f"task_{name}"] = sums.get(f"task_{name}", 0.0) + float(value) * len(x) / len(client.test)
            first += len(x)
        return sums
