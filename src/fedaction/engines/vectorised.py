"""Many clients' networks stacked and trained at once, through `torch.func.vmap`.

Each tensor of a network gets a leading client axis. A client's loss depends on its own slice alone, so the gradient
of the sum over clients is every client's own gradient: one backward pass trains them all. Clients are sorted by their
number of local steps; those that are done drop off the end of the stack, so nothing is computed for them. Clients
stack when their networks are equal but for the number of classes (classifier rows are padded) and their batches have
one size.
"""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportPrivateUsage=false, reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import vmap

from fedaction.data.client import ClientData, Split
from fedaction.data.samples import in_memory
from fedaction.engines.base import (
    Applied,
    Precision,
    Training,
    dropout_buffers,
    dropout_key,
    find_fault,
    reestimate,
    set_network_precision,
    split_jobs,
    trainable,
    undecayed_names,
    untrained_names,
)
from fedaction.engines.feed import Feed, pad
from fedaction.engines.optimisers import StackedOptimiser
from fedaction.engines.simulation import Simulation
from fedaction.evaluation.site import Answers
from fedaction.federation.scope import Scope
from fedaction.federation.state import Job, Update
from fedaction.federation.tree import Tree
from fedaction.methods.base import Batch, Method, Metrics
from fedaction.methods.memory import kept_name
from fedaction.methods.start import fresh
from fedaction.models.heads import ABSENT, Classifier
from fedaction.models.layers import use_stacked_form
from fedaction.models.statistics import share_by_batch

_WINDOW = 256  # jobs whose updates may be held at once, to give them back in order
_EVALUATION_BATCH = 256
_CPU_CHUNK = 8
_GPU_SHARE = 0.5  # of the card's memory that a chunk's activations may take


@dataclass(frozen=True)
class _Template:
    """The network that a stack of tensors is applied through, in training and in evaluation mode."""

    training: nn.Module
    """With values of its own only for FROZEN tensors."""
    evaluation: nn.Module
    """The same in evaluation mode."""
    parameters: tuple[str, ...]
    """Names that are trained."""
    rows: frozenset[str]
    """Names whose first axis is the classes."""
    absent: tuple[str, ...]
    """Names of the buffers that mark padded classes."""
    dropouts: tuple[str, ...]
    """Names of the dropout layers' keys."""
    classes: int
    """The largest number of classes in the stack."""
    losses: Callable[[Tree, Tree, Tree, Tensor, Tensor], dict[str, Tensor]]
    """Every client's loss and metrics, from parameters, other tensors, anchor, samples and labels, each with a
    leading client axis."""


def _add(sums: dict[str, Tensor], values: Tree, active: int, count: int) -> None:
    for name, value in values.items():
        total = sums.setdefault(name, torch.zeros(count, device=value.device))
        total[:active] += value.detach()


class VectorisedEngine(Simulation):
    """Trains as many clients at once as fit into memory."""

    def __init__(
        self,
        method: Method,
        data: Mapping[str, ClientData],
        training: Training,
        device: torch.device,
        clients_per_step: int = 0,
        compiled: bool = False,
        precision: Precision = "fp32",
    ) -> None:
        """Prepares for some clients.

        Args:
            method: what to minimise.
            data: the clients' samples, by id.
            training: how.
            device: where.
            clients_per_step: clients per stack; 0: on a GPU as many as half its memory holds, found by a trial step,
                on a CPU eight.
            compiled: whether `torch.compile` fuses the stacked loss: minutes at the start, faster steps on a GPU.
            precision: what networks compute in.
        """
        super().__init__(method, data, training, device)
        self._compiled, self._precision = compiled, precision
        self._chunk = clients_per_step
        self._templates: dict[tuple[object, ...], _Template] = {}
        self._sizes: dict[tuple[object, ...], int] = {}

    def train(self, jobs: Iterable[Job]) -> Iterator[Update]:
        """See `Engine.train`. Jobs are taken a window at a time, so that memory does not grow with clients."""
        for window in split_jobs(jobs, _WINDOW):
            done: dict[str, Update] = {}
            waiting = [job.client for job in window]
            for stack in self._stacks(window):
                for chunk in split_jobs(stack, self._chunk_size(stack)):
                    try:
                        done.update(self._train(chunk))
                    except Exception as error:
                        names = ", ".join(job.client for job in chunk)
                        error.add_note(f"This was a stack of the clients {names}, in round {chunk[0].round}.")
                        raise
                    while waiting and waiting[0] in done:  # in the order asked for, and kept no longer than that
                        yield done.pop(waiting.pop(0))

    def _answer(self, jobs: Iterable[Job], split: Split = "test") -> Iterator[Answers]:
        ordered = list(jobs)
        done: dict[str, Answers] = {}
        for stack in self._stacks(ordered):
            for chunk in split_jobs(stack, self._chunk or _CPU_CHUNK * 4):
                done.update(self._test(chunk, split))
        for job in ordered:
            yield done[job.client]

    def close(self) -> None:
        """See `Engine.close`."""
        super().close()
        self._templates.clear()

    # Stacks

    def _kind(self, job: Job) -> tuple[object, ...]:
        """Jobs of one kind stack: same network but for the classes, same batch size and learning rate.

        Networks whose classifiers are none of ours cannot be padded, so that they must have as many classes.
        """
        info = self._method.clients[job.client]
        batch = min(self._training.batch_size, len(self._data[job.client].train))
        # Where an epoch ends matters where not every epoch trains everything.
        turns = any(rule.epochs is not None for rule in self._method.plan(info).rules.values())
        steps = (self._steps(job), job.epochs) if turns else ()
        leaves = self._method.plan(info).leaves.values()
        classes = 0 if any(leaf.module == Classifier.__name__ for leaf in leaves) else len(info.classes)
        return (info.group, info.shape, info.layout, classes, batch, steps, self._training.lr_at(job.round))

    def _stacks(self, jobs: Sequence[Job]) -> Iterator[list[Job]]:
        kinds: dict[tuple[object, ...], list[Job]] = {}
        for job in jobs:
            kinds.setdefault(self._kind(job), []).append(job)
        for stack in kinds.values():
            # Most steps first: those that finish early drop off the end. The sort is stable.
            yield sorted(stack, key=lambda job: -self._steps(job))

    def _steps(self, job: Job) -> int:
        samples = len(self._data[job.client].train)
        size = max(1, min(self._training.batch_size, samples))
        return -(-samples // size) * (job.epochs or self._training.local_epochs)

    def _template(self, jobs: Sequence[Job]) -> _Template:
        widest = max((self._method.clients[job.client] for job in jobs), key=lambda info: len(info.classes))
        key = widest.architecture
        if key not in self._templates:
            pair: list[nn.Module] = []
            twins: list[nn.Module] = []
            for training in (True, False):
                module = fresh(self._method, widest, self._training.seed).to(self._device).train(training)
                module = use_stacked_form(module)
                twins.append(set_network_precision(share_by_batch(module), self._device, self._precision))
                pair.append(set_network_precision(module, self._device, self._precision))
            heads = {name for name, layer in pair[0].named_modules() if isinstance(layer, Classifier)}
            rows = {f"{head}.{tensor}" for head in heads for tensor in ("weight", "bias")}
            parameters = tuple(trainable(self._method, widest.id, pair[0]))
            self._templates[key] = _Template(
                pair[0],
                pair[1],
                parameters,
                frozenset(rows | {kept_name(name) for name in rows}),  # those and copies that a client keeps of them
                tuple(f"{h}.absent" for h in sorted(heads)),
                tuple(dropout_buffers(pair[0])),
                len(widest.classes),
                self._losses(pair, twins),
            )
        return self._templates[key]

    def _losses(
        self, pair: Sequence[nn.Module], twins: Sequence[nn.Module]
    ) -> Callable[[Tree, Tree, Tree, Tensor, Tensor], dict[str, Tensor]]:
        def loss(parameters: Tree, others: Tree, received: Tree, x: Tensor, y: Tensor) -> dict[str, Tensor]:
            net = Applied(pair[0], {**parameters, **others}, twins[0])
            anchor = Applied(pair[1], received, twins[1])
            loss, metrics = self._method.loss(net, anchor, Batch(x, y))
            return {**metrics, "loss": loss}

        stacked = vmap(loss, randomness="error")
        return torch.compile(stacked) if self._compiled else stacked

    def _stack(self, jobs: Sequence[Job], template: _Template) -> dict[str, Tensor]:
        """The clients' tensors with a leading client axis, classifier rows padded; and the marks of padded rows."""
        stack: dict[str, Tensor] = {}
        local = [self.store.current(job.client) for job in jobs]
        for name, scope in self._method.scopes_of(jobs[0].client).items():
            if scope is not Scope.FROZEN:
                trees = local if scope is Scope.LOCAL else [job.payload for job in jobs]
                tensors = [tree[name] for tree in trees]
                if name not in template.rows and all(tensor is tensors[0] for tensor in tensors):
                    tensor = tensors[0].to(self._device)  # all were sent the same: one copy, not many
                    stack[name] = tensor.expand(len(jobs), *tensor.shape).clone()
                    continue
                if name in template.rows:
                    tensors = [pad(tensor, template.classes, 0.0) for tensor in tensors]
                stack[name] = torch.stack([tensor.to(self._device) for tensor in tensors])
        counts = [len(self._method.clients[job.client].classes) for job in jobs]
        marks = torch.stack([pad(torch.zeros(n), template.classes, ABSENT) for n in counts]).to(self._device)
        return {**stack, **{name: marks for name in template.absent}}

    def _chunk_size(self, stack: Sequence[Job]) -> int:
        if self._chunk:
            return self._chunk
        if self._device.type != "cuda":
            return _CPU_CHUNK
        kind = self._kind(stack[0])
        if kind not in self._sizes:
            self._sizes[kind] = self._count_fitting(stack[0])
        return self._sizes[kind]

    def _count_fitting(self, job: Job) -> int:
        """How many clients' steps fit, from one trial step's peak.

        A share of the whole card counts, not of what is free just now: the size of a stack can change the last bits
        of a result, and those must not depend on who else uses the card.
        """
        torch.cuda.synchronize(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_allocated(self._device)
        self._train([job], limit=1)
        peak = torch.cuda.max_memory_allocated(self._device) - before
        return max(1, int(_GPU_SHARE * torch.cuda.get_device_properties(self._device).total_memory / max(peak, 1)))

    # Training

    def _train(self, jobs: Sequence[Job], limit: int | None = None) -> dict[str, Update]:
        method, training = self._method, self._training
        template = self._template(jobs)
        state = self._stack(jobs, template)
        if method.overrides("begin"):
            # Copies: what is begun with may be another tensor's own values, and both are then changed in place.
            state |= {name: tensor.clone() for name, tensor in vmap(method.begin)(state).items()}
        anchor = {n: t.clone() for n, t in state.items()} if method.needs_anchor else {}
        for name in template.dropouts:
            state[name] = torch.tensor([dropout_key(training, job, name) for job in jobs], device=self._device)
        rules = method.plan(method.clients[jobs[0].client])
        learned = {} if method.overrides("step") else {n: state[n] for n in template.parameters}
        optimiser = StackedOptimiser(learned, undecayed_names(rules), training)
        feed = Feed(jobs, self._data, training, self._method.task, self._device)
        sums: dict[str, Tensor] = {}
        steps = [self._steps(job) for job in jobs]

        for step in range(min(steps[0], limit or steps[0])):
            active = sum(1 for count in steps if count > step)
            live = dict(state) if active == len(jobs) else {n: t[:active] for n, t in state.items()}
            parameters = {n: live.pop(n).detach().requires_grad_() for n in template.parameters}
            x, y = feed.batch(step, active)
            received = {n: t[:active] for n, t in anchor.items()}
            if method.overrides("step"):
                changes, values = self._own_step(template, {**live, **parameters}, received, x, y, jobs[0].round)
                for name, tensor in changes.items():
                    state[name][:active] = tensor
                _add(sums, values, active, len(jobs))
                continue
            values = template.losses(parameters, live, received, x, y)
            # A parameter that the loss does not use has no gradient and is left alone, as torch.optim would.
            slopes = torch.autograd.grad(values["loss"].sum(), list(parameters.values()), allow_unused=True)
            pairs = zip(parameters, slopes, strict=True)
            gradients = {n: g for n, g in pairs if g is not None}  # pyright: ignore[reportUnnecessaryComparison]
            epochs = jobs[0].epochs or training.local_epochs
            for name in untrained_names(rules, step, steps[0], epochs) & gradients.keys():
                del gradients[name]
            with torch.no_grad():
                optimiser.step(parameters, gradients, training.lr_at(jobs[0].round))
                _add(sums, values, active, len(jobs))
        if method.overrides("finish") and limit is None:
            state |= vmap(method.finish)(anchor, state)
        trees, locals_ = self._slices(jobs, state, template)
        # Last, because fetching numbers from a GPU waits for it.
        sound = self._sound(state, method.scopes_of(jobs[0].client), len(jobs))
        means = {name: (total.cpu() / torch.tensor(steps)).tolist() for name, total in sums.items()}
        updates: dict[str, Update] = {}
        for i, job in enumerate(jobs):
            metrics = {name: values[i] for name, values in means.items()}
            samples = float(len(self._data[job.client].train))
            if limit is None:
                self.store.put(job.client, locals_[i])
            fault = "" if sound[i] else find_fault(job.client, locals_[i])
            updates[job.client] = Update(
                job.client, job.group, job.version, trees[i], samples, metrics, fault, job.occasion
            )
        return updates

    def _sound(self, state: Tree, scopes: Mapping[str, Scope], count: int) -> list[bool]:
        """Of each client, whether all that it keeps is finite."""
        own = [state[name] for name, scope in scopes.items() if scope is Scope.LOCAL]
        finite = [tensor.isfinite().reshape(count, -1).all(1) for tensor in own if tensor.is_floating_point()]
        return torch.stack(finite).all(0).tolist() if finite else [True] * count

    def _own_step(
        self, template: _Template, tensors: Tree, received: Tree, x: Tensor, y: Tensor, round: int
    ) -> tuple[Tree, Tree]:
        """A method's own step, for all clients of a stack."""
        lr = self._training.lr_at(round)

        def step(tensors: Tree, received: Tree, x: Tensor, y: Tensor) -> tuple[Tree, Metrics]:
            net, anchor = Applied(template.training, tensors), Applied(template.evaluation, received)
            return self._method.step(net, anchor, Batch(x, y), lr)

        detached = {name: tensor.detach() for name, tensor in tensors.items()}
        return vmap(step, randomness="error")(detached, received, x, y)

    def _slices(
        self, jobs: Sequence[Job], state: Mapping[str, Tensor], template: _Template
    ) -> tuple[list[dict[str, Tensor]], list[dict[str, Tensor]]]:
        """What each client sends, and what it keeps, out of the stack.

        What is sent is a view, let go once it is combined. What stays with a client is a copy: a view would keep the
        whole stack alive for as long as one of its clients does not train again.
        """
        trees: list[dict[str, Tensor]] = [{} for _ in jobs]
        locals_: list[dict[str, Tensor]] = [{} for _ in jobs]
        classes = [len(self._method.clients[job.client].classes) for job in jobs]
        for name, scope in self._method.scopes_of(jobs[0].client).items():
            if scope is Scope.FROZEN:
                continue
            tensors = state[name].detach().unbind()
            if name in template.rows:  # padding is cut off
                tensors = [tensor[:count] for tensor, count in zip(tensors, classes, strict=True)]
            if scope is Scope.LOCAL:
                for kept, tensor in zip(locals_, tensors, strict=True):
                    kept[name] = tensor.clone()
            else:
                for tree, tensor in zip(trees, tensors, strict=True):
                    tree[name] = tensor
        return trees, locals_

    # Evaluation

    def _adapt(self, jobs: Sequence[Job], state: Mapping[str, Tensor], template: _Template) -> None:
        """Clients adapt one after another: their training sets have unlike sizes."""
        for i, job in enumerate(jobs):
            client = self._data[job.client]
            net = Applied(template.evaluation, {name: tensor[i] for name, tensor in state.items()})
            reestimate(self._method, client, self._training, net.module, net)
            if not self._method.overrides("adapt"):
                continue
            train = in_memory(client.train)
            for name, tensor in self._method.adapt(net, Batch(train.x, train.y.to(train.x.device))).items():
                state[name][i] = tensor

    def _test(self, jobs: Sequence[Job], split: Split) -> dict[str, Answers]:
        template = self._template(jobs)
        state = self._stack(jobs, template)
        clients = [self._data[job.client].tested_on(split) for job in jobs]
        tests = [client.test for client in clients]
        longest = max(len(test) for test in tests)
        # Shorter test sets are filled with their own samples, whose answers are cut off again.
        rows = [torch.arange(longest) % len(test) for test in tests]

        def apply(tensors: dict[str, Tensor], x: Tensor) -> Tensor:
            return Applied(template.evaluation, tensors)(x)

        outputs: list[Tensor] = []
        with torch.no_grad():
            if self._method.overrides("adapt") or self._training.reestimate:
                self._adapt(jobs, state, template)
            for start in range(0, longest, _EVALUATION_BATCH):
                stop = start + _EVALUATION_BATCH
                x = torch.stack([test.take(r[start:stop]) for test, r in zip(tests, rows, strict=True)])
                outputs.append(vmap(apply, randomness="error")(state, x))
        logits = torch.cat(outputs, 1).float().cpu()
        answers: dict[str, Answers] = {}
        for i, (job, client) in enumerate(zip(jobs, clients, strict=True)):
            own = logits[i, : len(client.test), : len(client.info.classes)]
            answers[job.client] = Answers(client, own, self.tensors(job))
        return answers
