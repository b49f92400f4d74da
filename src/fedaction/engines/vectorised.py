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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.func import vmap

from fedaction.data.client import ClientData, Split
from fedaction.data.samples import in_memory
from fedaction.engines.base import (
    Applied,
    Precision,
    Training,
    dropout_key,
    find_fault,
    reestimate,
    split_jobs,
    undecayed_names,
    untrained_names,
)
from fedaction.engines.feed import Feed, pad
from fedaction.engines.simulation import Simulation
from fedaction.engines.stack import Stack, copy_rows
from fedaction.engines.template import Template, make_template
from fedaction.evaluation.site import Answers
from fedaction.federation.profile import STEPS
from fedaction.federation.scope import Scope
from fedaction.federation.state import Job, Update
from fedaction.federation.tree import FlatTree, Places, Tree
from fedaction.methods.base import Batch, Method, Metrics
from fedaction.models.heads import ABSENT, Classifier

_WINDOW = 256  # jobs whose updates may be held at once, to give them back in order
_STACKS = 8  # kept with their recorded steps
_EVALUATION_BATCH = 256
_CPU_CHUNK = 8
_GPU_SHARE = 0.5  # of the card's memory that a chunk's activations may take


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
        recorded: bool = False,
        kernels: bool = True,
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
            recorded: whether a GPU repeats steps by itself, see `RecordedStep`; a method's own step is not.
            kernels: whether layers that have Triton kernels use them on a GPU, where Triton is installed.
        """
        super().__init__(method, data, training, device)
        self._compiled = compiled
        self._precision: Precision = precision
        own = method.overrides("step") or method.overrides("adapt")  # these may differentiate inside of vmap
        able = device.type == "cuda" and find_spec("triton") is not None
        self._kernels = kernels and able and not compiled and not own
        self._chunk = clients_per_step
        self._templates: dict[tuple[object, ...], Template] = {}
        self._sizes: dict[tuple[object, ...], int] = {}
        self._stacked: dict[tuple[int, int], Stack] = {}
        self._places: dict[tuple[object, ...], Places] = {}
        self._traits: dict[tuple[object, ...], tuple[bool, bool]] = {}
        self._pool = torch.cuda.graph_pool_handle() if recorded and device.type == "cuda" and not compiled else None

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
        self._stacked.clear()

    # Stacks

    def _kind(self, job: Job) -> tuple[object, ...]:
        """Jobs of one kind stack: same network but for the classes, same batch size and learning rate.

        Networks whose classifiers are none of ours cannot be padded, so that they must have as many classes.
        """
        info = self._method.clients[job.client]
        batch = min(self._training.batch_size, len(self._data[job.client].train))
        if info.architecture not in self._traits:
            plan = self._method.plan(info)
            turns = any(rule.epochs is not None for rule in plan.rules.values())
            ours = any(leaf.module == Classifier.__name__ for leaf in plan.leaves.values())
            self._traits[info.architecture] = (turns, ours)
        turns, ours = self._traits[info.architecture]
        # Where an epoch ends matters where not every epoch trains everything.
        steps = (self._steps(job), job.epochs) if turns else ()
        classes = 0 if ours else len(info.classes)
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

    def _template(self, jobs: Sequence[Job]) -> Template:
        widest = max((self._method.clients[job.client] for job in jobs), key=lambda info: len(info.classes))
        key = widest.architecture
        if key not in self._templates:
            seed, device = self._training.seed, self._device
            self._templates[key] = make_template(
                self._method, widest, seed, device, self._precision, self._kernels, self._compiled
            )
        return self._templates[key]

    def _stack(self, jobs: Sequence[Job], template: Template) -> dict[str, Tensor]:
        """The clients' tensors with a leading client axis, classifier rows padded; and the marks of padded rows."""
        stack: dict[str, Tensor] = {}
        local = [self.store.current(job.client) for job in jobs]
        one = local[0]
        if isinstance(one, FlatTree) and all(isinstance(t, FlatTree) and t.places is one.places for t in local):
            rows = torch.stack([tree.flat for tree in local if isinstance(tree, FlatTree)])
            for name, (start, end, shape) in one.places.items():
                if name not in template.rows or shape[0] == template.classes:
                    stack[name] = rows[:, start:end].reshape(len(jobs), *shape).clone()  # each its own, to be changed
        payloads = [job.payload for job in jobs]
        same = all(payload is payloads[0] for payload in payloads)
        for name, scope in self._method.scopes_of(jobs[0].client).items():
            if scope is Scope.FROZEN or name in stack:
                continue
            trees, alike = (local, False) if scope is Scope.LOCAL else (payloads, same)
            if not alike and name not in template.rows:
                alike = all(tree[name] is trees[0][name] for tree in trees)
            tensors = [tree[name].to(self._device) for tree in (trees[:1] if alike else trees)]
            if name in template.rows:
                tensors = [pad(tensor, template.classes, 0.0) for tensor in tensors]
            # Where all were sent the same, one copy is made and not many.
            stack[name] = torch.stack(tensors).expand(len(jobs), *tensors[0].shape).clone()
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

    def _load(self, template: Template, jobs: Sequence[Job], state: Tree, anchor: Tree, keep: bool) -> Stack:
        """A stack of these tensors: a new one or, where its steps are recorded, one that such clients had before."""
        key = (id(template), len(jobs))
        if self._pool is not None and keep and key in self._stacked:
            stack = self._stacked.pop(key)
            stack.load(state, anchor)
        else:
            plan = self._method.plan(self._method.clients[jobs[0].client])
            learned = () if self._method.overrides("step") else template.parameters
            pool = self._pool if keep and learned else None
            stack = Stack(template.losses, learned, undecayed_names(plan), self._training, state, anchor, pool)
        if self._pool is not None and keep:
            self._stacked[key] = stack  # the last one used comes last
            while len(self._stacked) > _STACKS:
                del self._stacked[next(iter(self._stacked))]
        return stack

    def _train(self, jobs: Sequence[Job], limit: int | None = None) -> dict[str, Update]:
        method, training = self._method, self._training
        rules, section = method.plan(method.clients[jobs[0].client]), self.profile.section
        with section("stack"):
            template = self._template(jobs)
            state = self._stack(jobs, template)
            if method.overrides("begin"):
                # Copies: what is begun with may be another tensor's own values, and both are then changed in place.
                state |= {name: tensor.clone() for name, tensor in vmap(method.begin)(state).items()}
            anchor = {n: t.clone() for n, t in state.items()} if method.needs_anchor else {}
            for name in template.dropouts:
                state[name] = torch.tensor([dropout_key(training, job, name) for job in jobs], device=self._device)
            stack = self._load(template, jobs, state, anchor, keep=limit is None)
        with section("feed"):
            feed = Feed(jobs, self._data, training, self._method.task, self._device)
        sums: dict[str, Tensor] = {}
        steps = [self._steps(job) for job in jobs]
        state, lr, epochs = stack.state, training.lr_at(jobs[0].round), jobs[0].epochs or training.local_epochs
        for step in range(min(steps[0], limit or steps[0])):
            active = sum(1 for count in steps if count > step)
            with section("feed"):
                x, y = feed.batch(step, active)
            with section(STEPS):
                if method.overrides("step"):
                    live = {n: t[:active] for n, t in state.items()}
                    received = {n: t[:active] for n, t in anchor.items()}
                    changes, values = self._own_step(template, live, received, x, y, lr)
                    for name, tensor in changes.items():
                        state[name][:active] = tensor
                else:
                    values = stack.step({"x": x, "y": y}, untrained_names(rules, step, steps[0], epochs), lr)
                _add(sums, values, active, len(jobs))
        with section("split"):
            return self._updates(jobs, state, anchor, template, sums, steps, keep=limit is None)

    def _updates(
        self,
        jobs: Sequence[Job],
        state: Tree,
        anchor: Tree,
        template: Template,
        sums: Tree,
        steps: Sequence[int],
        keep: bool,
    ) -> dict[str, Update]:
        """What each client of a stack sends; what it keeps goes into the store, but after a trial."""
        if self._method.overrides("finish") and keep:
            state = {**state, **vmap(self._method.finish)(anchor, state)}  # the stack keeps its own
        updates: dict[str, Update] = {}
        for job, of in zip(jobs, self._split(jobs, state, template, sums, steps), strict=True):
            tree, own, sound, metrics = of
            if keep:
                self.store.put(job.client, own)
            samples, fault = float(len(self._data[job.client].train)), "" if sound else find_fault(job.client, own)
            updates[job.client] = Update(
                job.client, job.group, job.version, tree, samples, metrics, fault, job.occasion
            )
        return updates

    def _own_step(
        self, template: Template, tensors: Tree, received: Tree, x: Tensor, y: Tensor, lr: float
    ) -> tuple[Tree, Tree]:
        """A method's own step, for all clients of a stack."""

        def step(tensors: Tree, received: Tree, x: Tensor, y: Tensor) -> tuple[Tree, Metrics]:
            net, anchor = Applied(template.training, tensors), Applied(template.evaluation, received)
            return self._method.step(net, anchor, Batch(x, y), lr)

        detached = {name: tensor.detach() for name, tensor in tensors.items()}
        return vmap(step, randomness="error")(detached, received, x, y)

    def _split(
        self, jobs: Sequence[Job], state: Tree, template: Template, sums: Tree, steps: Sequence[int]
    ) -> Iterator[tuple[Tree, Tree, bool, dict[str, float]]]:
        """Of each client what it sends, what it keeps, whether that is sound, and the means of its metrics.

        What is sent is let go once it is combined. What a client keeps is a copy of its own: part of a larger one, it
        would keep that alive for as long as one of its clients does not train again.
        """
        scopes = self._method.scopes_of(jobs[0].client)
        sent = [n for n, scope in scopes.items() if scope not in (Scope.LOCAL, Scope.FROZEN)]
        kept = [n for n, scope in scopes.items() if scope is Scope.LOCAL]
        classes = [len(self._method.clients[job.client].classes) for job in jobs]
        cut = template.rows if min(classes) < template.classes else frozenset[str]()
        (trees, fit), (own, sound) = (
            copy_rows({name: state[name].detach() for name in names}, classes, cut, self._places)
            for names in (sent, kept)
        )
        # Last, because fetching numbers from a GPU waits for it.
        flags = fit.tolist(), sound.tolist()
        means = {name: (total.cpu() / torch.tensor(steps)).tolist() for name, total in sums.items()}
        for i, tree in enumerate(trees):
            if isinstance(tree, FlatTree):
                tree.sound = flags[0][i]
            copy = own[i]
            if isinstance(copy, FlatTree):
                copy = FlatTree(copy.flat.clone(), copy.places)
            elif copy:
                copy = {name: tensor.clone() for name, tensor in copy.items()}
            yield tree, copy, flags[1][i], {name: values[i] for name, values in means.items()}

    # Evaluation

    def _adapt(self, jobs: Sequence[Job], state: Mapping[str, Tensor], template: Template) -> None:
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
