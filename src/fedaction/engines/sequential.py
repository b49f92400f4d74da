"""The reference engine: one resident network per architecture, clients loaded into it one after another.

With several workers, each is a thread with its own resident networks and one torch thread: a client's arithmetic is
the same whoever runs it, so the results do not depend on the number of workers to the last bit.
"""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fedaction.data.client import ClientData, Split
from fedaction.data.samples import in_batches, in_memory, take_each
from fedaction.engines.base import (
    Applied,
    Precision,
    Preparation,
    Training,
    align_gradients,
    augmentation_generator,
    dropout_buffers,
    dropout_key,
    find_fault,
    plan_batches,
    reestimate,
    set_network_precision,
    starts_generator,
    to_device,
    trainable,
    undecayed_names,
    untrained_names,
    use_channels_last,
)
from fedaction.engines.optimisers import FusedOptimiser
from fedaction.engines.recorded import RecordedStep
from fedaction.engines.simulation import Simulation
from fedaction.evaluation.site import Answers
from fedaction.federation.processes import in_order_by, share_heap
from fedaction.federation.profile import STEPS
from fedaction.federation.scope import Scope
from fedaction.federation.seeds import derive
from fedaction.federation.state import Job, Update
from fedaction.federation.tree import Tree, tensors_of
from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.start import draws_by_itself, fresh
from fedaction.models.statistics import share_by_batch

_Result = TypeVar("_Result")
_Forward = Callable[..., Tensor]
_EVALUATION_BATCH = 256
_DRAWING = threading.Lock()
"""Held by whoever uses torch's global generator."""


class _Resident:
    """A network that clients are loaded into. Is a `Net`: its tensors are the module's own.

    Compiled, its forward is so in training alone: test sets have batches of many sizes.
    """

    def __init__(
        self, module: nn.Module, compile: Callable[[nn.Module], Callable[..., Tensor]] | None = None
    ) -> None:
        self.module, self.compile = module, compile
        self.compiled = None if compile is None else compile(module)
        self.dropouts = {name: module.get_buffer(name) for name in dropout_buffers(module)}
        self.tensors: Tree = {**tensors_of(module), **self.dropouts}
        self.names = {parameter: name for name, parameter in module.named_parameters()}
        self.optimisers: dict[object, FusedOptimiser] = {}
        self.recorded: dict[object, RecordedStep] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        if self.compiled is not None and self.module.training:
            return self.compiled(*args, **kwargs)
        return self.module(*args, **kwargs)

    def with_tensors(self, tensors: Tree) -> Net:
        """See `Net.with_tensors`."""
        return Applied(self.module, {**self.tensors, **tensors})

    @cached_property
    def _twin(self) -> _Resident:
        return _Resident(share_by_batch(self.module), self.compile)

    def by_batch(self) -> Net:
        """See `Net.by_batch`."""
        return self._twin

    def set(self, tensors: Tree) -> None:
        """Copies values in."""
        with torch.no_grad():
            for name, tensor in tensors.items():
                self.tensors[name].copy_(tensor)

    def load(self, names: Mapping[str, Scope], payload: Tree, local: Tree) -> None:
        """Copies a client's tensors in. FROZEN ones are there since the network was built."""
        self.set({n: (local if s is Scope.LOCAL else payload)[n] for n, s in names.items() if s is not Scope.FROZEN})


def _name_errors(work: Callable[[Job], _Result], job: Job) -> _Result:
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


class SequentialEngine(Simulation):
    """Trains clients one after another, or a few side by side on as many cores."""

    def __init__(
        self,
        method: Method,
        data: Mapping[str, ClientData],
        training: Training,
        device: torch.device,
        workers: int = 1,
        *,
        precision: Precision = "fp32",
        channels_last: bool = False,
        compiled: bool = False,
        recorded: bool = False,
    ) -> None:
        """Prepares for some clients.

        Args:
            method: what to minimise.
            data: the clients' samples, by id.
            training: how.
            device: where.
            workers: clients trained side by side; they count only on the CPU, a GPU is fed by one.
            precision: what networks compute in.
            channels_last: whether weights of 3D convolutions lie in memory as features-last activations do.
            compiled: whether `torch.compile` makes the training forward and its gradient: once for each architecture
                and, where some clients have fewer samples than a batch, once more for batches of any size. A
                method's own step is not compiled.
            recorded: whether a GPU repeats local steps by itself, see `RecordedStep`; a method's own step is not.
        """
        super().__init__(method, data, training, device)
        self._precision, self._channels_last = precision, channels_last
        self._compiled = compiled and not method.overrides("step")
        self._recorded = recorded and device.type == "cuda" and not method.overrides("step")
        self._prepare = Preparation(method.task, training.augment)
        sizes = {min(len(client.train), training.batch_size) for client in data.values()} - {0}
        self._dynamic = False if len(sizes) == 1 else None  # None: torch finds out which sizes vary
        self._workers = workers if device.type == "cpu" else 1
        self._draws = draws_by_itself(method)
        self._own = threading.local()
        if self._workers > 1:
            share_heap()
        self._pool = ThreadPoolExecutor(self._workers, initializer=torch.set_num_threads, initargs=(1,))

    def train(self, jobs: Iterable[Job]) -> Iterator[Update]:
        """See `Engine.train`. At most one job more than workers is under way, so memory stays flat."""
        trained = iter(self._in_order(self._train, jobs))
        while True:
            with self.profile.waiting():  # for the threads that train
                finish = next(trained, None)
            if finish is None:
                return
            with self.profile.section("copy"):
                update = finish()
            yield update

    def _answer(self, jobs: Iterable[Job], split: Split = "test") -> Iterator[Answers]:
        return self._in_order(partial(self._test, split), jobs)

    def close(self) -> None:
        """See `Engine.close`."""
        super().close()
        self._pool.shutdown(cancel_futures=True)

    def _in_order(self, work: Callable[[Job], _Result], jobs: Iterable[Job]) -> Iterator[_Result]:
        return in_order_by(self._pool, (partial(_name_errors, work, job) for job in jobs), self._workers)

    def _resident(self, client: str, role: str) -> _Resident:
        """This worker's network for a client's architecture: one to train, one for the anchor."""
        info = self._method.clients[client]
        cache: dict[tuple[object, str], _Resident] = self._own.__dict__.setdefault("cache", {})
        key = (info.architecture, role)
        if key not in cache:
            module = fresh(self._method, info, self._training.seed).to(self._device).train(role == "train")
            module = set_network_precision(module, self._device, self._precision)
            if self._channels_last:
                module = use_channels_last(module)
            compiled = self._compiled and role == "train"
            cache[key] = _Resident(module, partial(torch.compile, dynamic=self._dynamic) if compiled else None)
        return cache[key]

    def _train(self, job: Job) -> Callable[[], Update]:
        """See `_train_job`; a network that draws from the global generator has it to itself, seeded for the job."""
        if not self._draws:
            return self._train_job(job)
        devices = [self._device] if self._device.type == "cuda" else []
        with _DRAWING, torch.random.fork_rng(devices):
            torch.manual_seed(derive(self._training.seed, "draws", job.client, job.occasion))
            return self._train_job(job)

    def _train_job(self, job: Job) -> Callable[[], Update]:
        """Trains a client, or on a GPU sees to it that it will be; what it returns waits for the end of that.

        Nothing here waits for a GPU, so that it has the next client's work before it is done with this one's.
        """
        method, training, client = self._method, self._training, job.client
        scopes = method.scopes_of(client)
        with self.profile.section("load"):
            net, local = self._resident(client, "train"), self.store.current(client)
            net.load(scopes, job.payload, local)
            net.module.train()
            changes = method.begin(net.tensors)
            net.set(changes)
            anchor = net
            if method.needs_anchor:
                anchor = self._resident(client, "anchor")
                anchor.load(scopes, job.payload, local)
                anchor.set(changes)
            for name, key in net.dropouts.items():
                key.fill_(dropout_key(training, job, name))
        means = {name: mean.to("cpu", non_blocking=True) for name, mean in self._steps(job, net, anchor).items()}
        trees: dict[bool, dict[str, Tensor]] = {True: {}, False: {}}
        with self.profile.section("copy"):
            net.set(method.finish(anchor.tensors, net.tensors))
            for name, scope in scopes.items():
                if scope is not Scope.FROZEN:
                    copy = net.tensors[name].detach().clone(memory_format=torch.contiguous_format)
                    trees[scope is Scope.LOCAL][name] = copy
        samples = float(len(self._data[client].train))
        done = torch.cuda.Event() if self._device.type == "cuda" else None
        if done is not None:
            done.record()

        def finish() -> Update:
            if done is not None:
                done.synchronize()
            metrics = {name: float(mean) for name, mean in means.items()}
            self.store.put(client, trees[True])
            fault = find_fault(client, trees[True])
            return Update(client, job.group, job.version, trees[False], samples, metrics, fault, job.occasion)

        return finish

    def _steps(self, job: Job, net: _Resident, anchor: _Resident) -> dict[str, Tensor]:
        """A job's local steps; the means of their metrics, still on the device."""
        method, training, train = self._method, self._training, self._data[job.client].train
        lr, own = training.lr_at(job.round), method.overrides("step")
        rules, profile = method.plan(method.clients[job.client]), self.profile
        with profile.section("draw"):
            optimiser = self._optimiser(job.client, net, lr)
            plan = plan_batches(training, job, len(train))
            drawn = self._prepare.draw(plan, train.shape, augmentation_generator(training, job), job.round)
            drawn = {n: to_device(tensor, self._device) for n, tensor in {**drawn, "y": train.labels[plan]}.items()}
            starts = train.draw(plan, starts_generator(training, job))
            rows = to_device(plan, self._device) if train.resident else plan
        sums: dict[str, Tensor] = {}
        batches = take_each(train, rows, starts)
        for step in range(len(plan)):
            with profile.section("draw"):
                batch = {"x": next(batches), **{name: tensor[step] for name, tensor in drawn.items()}}
            with profile.section(STEPS):
                untrained = untrained_names(rules, step, len(plan), job.epochs or training.local_epochs)
                if own:
                    changes, metrics = method.step(net, anchor, self._prepare_batch(batch), lr)
                    net.set(changes)
                elif self._recorded:
                    metrics = self._repeat(net, anchor, optimiser, batch, untrained)
                else:
                    metrics = self._step(net, anchor, optimiser, batch, untrained)
                _add(sums, metrics)
        batches.close()
        return {name: total.double() / len(plan) for name, total in sums.items()}

    def _prepare_batch(self, batch: Tree) -> Batch:
        drawn = {name: tensor for name, tensor in batch.items() if name not in ("x", "y")}
        return Batch(*self._prepare.apply(batch["x"], batch["y"], drawn))

    def _step(
        self, net: _Resident, anchor: _Resident, optimiser: FusedOptimiser, batch: Tree, untrained: frozenset[str]
    ) -> Metrics:
        """One step; its metrics. `batch`: samples `x`, labels `y`, and what was drawn for them."""
        parameters = optimiser.parameters()
        loss, metrics = self._method.loss(net, anchor, self._prepare_batch(batch))
        loss.backward()
        for parameter, name in net.names.items():
            if name in untrained:
                parameter.grad = None  # which the optimiser passes over
        if self._training.clip_norm:
            groups: dict[str, list[nn.Parameter]] = {}
            for parameter in parameters:
                groups.setdefault(self._training.clip_group(net.names[parameter]), []).append(parameter)
            for group in groups.values():
                nn.utils.clip_grad_norm_(group, self._training.clip_norm)
        if self._channels_last:
            align_gradients(parameters)
        optimiser.step()
        optimiser.zero_grad()
        return {"loss": loss, **metrics}

    def _repeat(
        self, net: _Resident, anchor: _Resident, optimiser: FusedOptimiser, batch: Tree, untrained: frozenset[str]
    ) -> Metrics:
        """See `_step`; recorded when a batch of its shape comes for the first time."""
        shapes = tuple((name, tensor.shape, tensor.dtype) for name, tensor in batch.items())
        key = (id(optimiser), shapes, untrained)
        if key not in net.recorded:
            changed = [*net.module.parameters(), *net.module.buffers(), *optimiser.remembered()]
            net.recorded[key] = RecordedStep(
                lambda given: self._step(net, anchor, optimiser, given, untrained), batch, changed
            )
        return net.recorded[key](batch)

    def _optimiser(self, client: str, net: _Resident, lr: float) -> FusedOptimiser:
        """An optimiser that remembers nothing so far; where steps are recorded it is always the same one."""
        parameters = trainable(self._method, client, net.module)
        plain = undecayed_names(self._method.plan(self._method.clients[client]))
        groups = [
            {
                "params": [p for n, p in parameters.items() if n not in plain],
                "weight_decay": self._training.weight_decay,
            },
            {"params": [p for n, p in parameters.items() if n in plain], "weight_decay": 0.0},
        ]

        training = self._training
        make = partial(
            FusedOptimiser, training.optimiser, groups, momentum=training.momentum, nesterov=training.nesterov
        )
        if not self._recorded:
            return make(lr)
        key = tuple(parameters)
        if key not in net.optimisers:
            net.optimisers[key] = make(torch.zeros((), dtype=torch.float32, device=self._device))
        net.optimisers[key].reset(lr)
        return net.optimisers[key]

    def _test(self, split: Split, job: Job) -> Answers:
        client = self._data[job.client].tested_on(split)
        net = self._resident(job.client, "train")
        net.load(self._method.scopes_of(job.client), job.payload, self.store.current(job.client))
        net.module.eval()
        reestimate(self._method, client, self._training, net.module, net)
        with torch.no_grad():
            if self._method.overrides("adapt"):
                train = in_memory(client.train)
                net.set(self._method.adapt(net, Batch(train.x, train.y.to(train.x.device))))
            logits = torch.cat([net(x) for x in in_batches(client.test, _EVALUATION_BATCH)])
        return Answers(client, logits.float().cpu(), self.tensors(job))
