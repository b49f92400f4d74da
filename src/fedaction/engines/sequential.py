"""The reference engine: one resident network per architecture, clients loaded into it one after another.

With several workers, each is a thread with its own resident networks and one torch thread: a client's arithmetic is
the same whoever runs it, so the results do not depend on the number of workers to the last bit.
"""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fedaction.data.client import ClientData
from fedaction.engines.base import (
    Applied,
    Evaluation,
    Preparation,
    Training,
    augmentation_of,
    covered,
    dropout_buffers,
    dropout_key,
    evaluation,
    placed,
    plan_of,
    trainable,
)
from fedaction.federation.scope import Scope
from fedaction.federation.state import Job, Update
from fedaction.federation.tree import Tree, tensors_of
from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.start import fresh

_Result = TypeVar("_Result")
_EVALUATION_BATCH = 256


class _Resident:
    """A network that clients are loaded into. Is a `Net`: its tensors are the module's own."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.tensors: Tree = tensors_of(module)
        self.dropouts = {name: module.get_buffer(name) for name in dropout_buffers(module)}

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.module(*args, **kwargs)

    def replaced(self, tensors: Tree) -> Net:
        """See `Net.replaced`."""
        return Applied(self.module, {**self.tensors, **tensors})

    def set(self, tensors: Tree) -> None:
        """Copies values in."""
        with torch.no_grad():
            for name, tensor in tensors.items():
                self.tensors[name].copy_(tensor)

    def load(self, names: Mapping[str, Scope], payload: Tree, local: Tree) -> None:
        """Copies a client's tensors in. FROZEN ones are there since the network was built."""
        self.set({n: (local if s is Scope.LOCAL else payload)[n] for n, s in names.items() if s is not Scope.FROZEN})


def _named(work: Callable[[Job], _Result], job: Job) -> _Result:
    """Does a job; an error says whose it was."""
    try:
        return work(job)
    except Exception as error:
        error.add_note(f"This was client {job.client!r} in round {job.round}.")
        raise


def _add(sums: dict[str, Tensor], metrics: Metrics) -> None:
    for name, value in metrics.items():
        value = value.detach()
        sums[name] = sums[name] + value if name in sums else value.clone()


class SequentialEngine:
    """Trains clients one after another, or a few side by side on as many cores."""

    def __init__(
        self,
        method: Method,
        data: Mapping[str, ClientData],
        training: Training,
        device: torch.device,
        workers: int = 1,
    ) -> None:
        """Workers count only on the CPU; a GPU is fed by one."""
        self._method, self._training, self._device = method, training, device
        self._data = placed(data, device)
        self._workers = workers if device.type == "cpu" else 1
        self._own = threading.local()
        self._pool = ThreadPoolExecutor(self._workers, initializer=torch.set_num_threads, initargs=(1,))

    def train(self, jobs: Iterable[Job]) -> Iterator[Update]:
        """See `Engine.train`. At most one job more than workers is under way, so memory stays flat."""
        return self._in_order(self._train, jobs)

    def evaluate(self, jobs: Iterable[Job]) -> Iterator[Evaluation]:
        """See `Engine.evaluate`."""
        return self._in_order(self._evaluate, jobs)

    def close(self) -> None:
        """See `Engine.close`."""
        self._pool.shutdown(cancel_futures=True)

    def _in_order(self, work: Callable[[Job], _Result], jobs: Iterable[Job]) -> Iterator[_Result]:
        pending: deque[Future[_Result]] = deque()
        try:
            for job in jobs:
                pending.append(self._pool.submit(_named, work, job))
                if len(pending) > self._workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()

    def _resident(self, client: str, role: str) -> _Resident:
        """This worker's network for a client's architecture: one to train, one for the anchor."""
        info = self._method.clients[client]
        cache: dict[tuple[object, str], _Resident] = self._own.__dict__.setdefault("cache", {})
        key = (info.architecture, role)
        if key not in cache:
            cache[key] = _Resident(fresh(self._method, info, self._training.seed).to(self._device))
        return cache[key]

    def _train(self, job: Job) -> Update:
        method, training, client = self._method, self._training, job.client
        train, scopes = self._data[client].train, method.scopes_of(client)
        net = self._resident(client, "train")
        net.load(scopes, job.payload, job.local)
        net.module.train()
        changes = method.begin(net.tensors)
        net.set(changes)
        anchor = net
        if method.needs_anchor:
            anchor = self._resident(client, "anchor")
            anchor.load(scopes, job.payload, job.local)
            anchor.set(changes)
            anchor.module.eval()
        for name, key in net.dropouts.items():
            key.fill_(dropout_key(training, job, name))
        optimiser = self._optimiser(client, net.module, training.lr_at(job.round))
        plan = plan_of(training, job, len(train))
        random, prepare = augmentation_of(training, job), Preparation(method.task, training.augment)
        sums: dict[str, Tensor] = {}
        resting: list[nn.Parameter] = []
        for step, rows in enumerate(plan.to(self._device)):
            drawn = prepare.draw(len(rows), tuple(train.x.shape[1:]), random)
            batch = Batch(*prepare.apply(train.x[rows], train.y[rows], drawn))
            if method.overrides("step"):
                changes, metrics = method.step(net, anchor, batch, training.lr_at(job.round))
                net.set(changes)
                _add(sums, metrics)
                continue
            if step * training.local_epochs % len(plan) == 0:  # a new epoch
                patterns = method.resting(step * training.local_epochs // len(plan), training.local_epochs)
                resting = [net.module.get_parameter(n) for n in covered(net.tensors, patterns)]
            loss, metrics = method.loss(net, anchor, batch)
            loss.backward()
            for parameter in resting:
                parameter.grad = None  # which the optimiser passes over
            if training.clip_norm:
                nn.utils.clip_grad_norm_((p for g in optimiser.param_groups for p in g["params"]), training.clip_norm)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            _add(sums, {"loss": loss, **metrics})
        net.set(method.finish(anchor.tensors, net.tensors))
        means = {name: float(total) / len(plan) for name, total in sums.items()}
        sent = {n: net.tensors[n].detach().clone() for n, s in scopes.items() if s in (Scope.GLOBAL, Scope.GROUP)}
        kept = {n: net.tensors[n].detach().clone() for n, s in scopes.items() if s is Scope.LOCAL}
        return Update(client, job.group, job.version, sent, kept, float(len(train)), means)

    def _optimiser(self, client: str, module: nn.Module, lr: float) -> torch.optim.SGD:
        parameters = trainable(self._method, client, module)
        plain = covered(parameters, self._method.undecayed())
        groups = [
            {
                "params": [p for n, p in parameters.items() if n not in plain],
                "weight_decay": self._training.weight_decay,
            },
            {"params": [p for n, p in parameters.items() if n in plain], "weight_decay": 0.0},
        ]
        return torch.optim.SGD(
            [g for g in groups if g["params"]],
            lr=lr,
            momentum=self._training.momentum,
            nesterov=self._training.nesterov,
            fused=True,
        )

    def _evaluate(self, job: Job) -> Evaluation:
        test = self._data[job.client].test
        net = self._resident(job.client, "train")
        net.load(self._method.scopes_of(job.client), job.payload, job.local)
        net.module.eval()
        with torch.no_grad():
            train = self._data[job.client].train
            net.set(self._method.adapt(net, Batch(train.x, train.y)))
            logits = [self._method.predict(net, x) for x in test.x.split(_EVALUATION_BATCH)]
        return evaluation(job.client, torch.cat(logits), test)
