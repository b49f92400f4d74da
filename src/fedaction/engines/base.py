"""What every engine does, and the parts of a local loop that do not depend on how it is run."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MethodType
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedaction.data.augment import Augment, Drawn
from fedaction.data.client import ClientData
from fedaction.data.samples import take_each
from fedaction.engines.store import LocalStore
from fedaction.evaluation.site import Evaluation, Question
from fedaction.federation.scope import Scope
from fedaction.federation.seeds import derive, generator
from fedaction.federation.state import Job, Update
from fedaction.federation.tree import Tree, largest_values, tensors_of
from fedaction.methods.base import Method, Net, Plan, Task
from fedaction.models.layers import Dropout
from fedaction.models.statistics import estimate_statistics, norms_of, share_by_batch

Precision = Literal["fp32", "bf16"]
"""What a network computes in; weights, losses and averages are float32 whatever it is."""

OptimiserName = Literal["sgd", "adam", "adamw"]
"""How gradients become steps: the rules of torch.optim's classes of these names."""


ClipBy = Literal["network", "module"]
"""What a gradient's norm is taken over: all of a network, or each module (the first part of a tensor's name)."""


@dataclass(frozen=True)
class Training:
    """How clients train, whatever the method."""

    seed: int
    """The run's seed."""
    batch_size: int = 32
    """Samples per local step; a client with fewer takes all it has."""
    local_epochs: int = 1
    """Passes over the client's data per round."""
    optimiser: OptimiserName = "sgd"
    """Whatever it remembers starts at zero every round."""
    lr: float = 0.1
    """Learning rate in round 1."""
    lr_decay: float = 1.0
    """Factor on it each round."""
    momentum: float = 0.9
    """Of SGD."""
    nesterov: bool = False
    """Whether momentum looks ahead."""
    weight_decay: float = 1e-4
    """L2 penalty (adamw: decoupled from gradients), except where the method says otherwise."""
    clip_norm: float = 0.0
    """The largest gradient norm of a client; 0: no limit."""
    clip_by: ClipBy = "network"
    """Whether that norm is over a client's whole network, or over each of its modules."""
    augment: Augment | None = None
    """Random changes to training samples, or None."""
    reestimate: bool = False
    """Whether a client estimates its normalisation statistics anew before a test, on its training samples."""

    def lr_at(self, round: int) -> float:
        """The learning rate of a round (counted from 1)."""
        return self.lr * self.lr_decay ** (round - 1)

    def clip_group(self, name: str) -> str:
        """Tensors with the same clip group are clipped together."""
        return "" if self.clip_by == "network" else name.partition(".")[0]


@dataclass(frozen=True, eq=False)  # torch.compile hashes it half-built, which fields would not survive
class Applied:
    """A module applied with tensors other than its own. Is a `Net`."""

    module: nn.Module
    tensors: Tree
    twin: nn.Module | None = None
    """What `share_by_batch` made of the module, where it is at hand."""

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        """See `Net`."""
        return functional_call(self.module, dict(self.tensors), args, kwargs)

    def with_tensors(self, tensors: Tree) -> Net:
        """See `Net.with_tensors`."""
        return Applied(self.module, {**self.tensors, **tensors}, self.twin)

    def by_batch(self) -> Net:
        """See `Net.by_batch`."""
        return Applied(self.twin or share_by_batch(self.module), self.tensors)


class Engine(Protocol):
    """Turns jobs into updates and evaluations, wherever the sites are.

    Updates come back in the order of the jobs, so that sums do not depend on timing. What a client keeps (its LOCAL
    tensors) stays with its site: pending after training, until the server commits or drops it.
    """

    def train(self, jobs: Iterable[Job]) -> Iterator[Update]:
        """Trains each job's client from its payload and its own tensors."""
        ...

    def evaluate(self, jobs: Iterable[Job], question: Question = ...) -> Iterator[Evaluation]:
        """Tests each job's payload, with the client's own tensors, on the client's test set."""
        ...

    def commit(self, clients: Iterable[str]) -> None:
        """The last updates of these clients were combined: what they keep counts."""
        ...

    def drop(self, clients: Iterable[str]) -> None:
        """The last updates of these clients were not used: what they keep is as it was."""
        ...

    def close(self) -> None:
        """Lets go of threads and memory."""
        ...


class SimulatedEngine(Engine, Protocol):
    """An engine that holds every site, so that a checkpoint can hold what they keep."""

    @property
    def store(self) -> LocalStore:
        """What the sites keep."""
        ...


def set_precision(tf32: bool, *, fastest: bool = False) -> None:
    """Sets how a GPU computes, for both engines alike: the same twice, and as exactly as asked.

    With `tf32` it may round the inputs of float32 products to 10 bits of mantissa. With `fastest`, cuDNN tries its
    kernels on the first batch of each shape and keeps the fastest, and last bits may differ from run to run.
    """
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.deterministic = not fastest  # else a convolution's gradient differs from run to run
    torch.backends.cudnn.benchmark = fastest


def choose_device(name: str) -> torch.device:
    """The device a recipe's `device` key means here."""
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device = {name!r} is unknown; say auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device = 'cuda', but torch sees no CUDA device here; use --device cpu or auto")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and torch.cuda.is_available()) else "cpu")


def check_precision(precision: str, device: torch.device) -> None:
    """Refuses bf16 where there is no GPU: slower there, and on some processors it crashes."""
    if precision == "bf16" and device.type == "cpu":
        raise ValueError('precision = "bf16" needs a GPU; say --set precision=fp32')


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Convolutions and products in bfloat16, where the precision is "bf16"."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def set_network_precision(module: nn.Module, device: torch.device, precision: str) -> nn.Module:
    """A network whose forward runs in a precision; what it returns is float32 again, and so are losses on it.

    It is the same module, with its own tensors as they are: whoever applies it, with whatever tensors, gets the same.
    """
    if precision == "fp32":
        return module

    def rounded(self: nn.Module, *args: Any, **kwargs: Any) -> Tensor:
        with autocast(device, precision):
            return type(self).forward(self, *args, **kwargs).float()

    module.forward = MethodType(rounded, module)  # bound, so that a copy of the network has its own
    return module


def use_channels_last(module: nn.Module) -> nn.Module:
    """A network whose 3D convolutions have their weights in the order that features-last activations are in."""
    for parameter in module.parameters():
        if parameter.dim() == 5:
            parameter.data = parameter.data.to(memory_format=torch.channels_last_3d)
    return module


def align_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Gives gradients their weights' strides.

    Autograd makes them so, but for axes of size 1, where any stride is right; the fused step wants the same there.
    """
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.stride() != parameter.stride():
            parameter.grad = parameter.grad.as_strided(parameter.shape, parameter.stride())


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A CPU tensor on a device, without waiting for what a GPU is still doing."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.contiguous().pin_memory().to(device, non_blocking=True)


def batch_plan(samples: int, batch_size: int, epochs: int, generator: torch.Generator) -> Tensor:
    """Which samples each local step takes, (steps, batch) int64: shuffled anew each epoch, all batches of one size.

    The last batch of an epoch is filled up from the epoch's own beginning, so that every sample is seen once or
    twice and batch statistics are always taken over `min(batch_size, samples)` samples. Equal batch shapes are what
    lets clients with unequal data be trained side by side without changing their results.
    """
    size = min(batch_size, samples)
    steps: list[Tensor] = []
    for _ in range(epochs):
        order = torch.randperm(samples, generator=generator)
        steps.append(torch.cat([order, order[: -samples % size]]).view(-1, size))
    return torch.cat(steps)


def plan_batches(training: Training, job: Job, samples: int) -> Tensor:
    """The batches of a job: a function of the run's seed, the client and the occasion."""
    random = generator(training.seed, "batches", job.client, job.occasion)
    return batch_plan(samples, training.batch_size, job.epochs or training.local_epochs, random)


def augmentation_generator(training: Training, job: Job) -> torch.Generator:
    """The randomness of a job's augmentations, or of its method's task."""
    return generator(training.seed, "augment", job.client, job.occasion)


def starts_generator(training: Training, job: Job) -> torch.Generator:
    """The randomness of where a job's samples begin, where they are cut anew from longer recordings."""
    return generator(training.seed, "starts", job.client, job.occasion)


@dataclass(frozen=True)
class Preparation:
    """What happens to a batch before it is learned from: the method's own task, else augmentation, else nothing."""

    task: Task | None
    augment: Augment | None

    def draw(self, plan: Tensor, shape: tuple[int, ...], random: torch.Generator, round: int) -> dict[str, Tensor]:
        """What is drawn for a job's (steps, batch) plan and samples of a shape, (steps, batch, ...) by name.

        A task's at once: its many small operations take for thousands of samples little longer than for one.
        """
        steps, batch = plan.shape
        if self.task is not None:
            drawn = self.task.draw(steps * batch, shape, random, round)
            return {name: tensor.unflatten(0, (steps, batch)) for name, tensor in drawn.items()}
        if self.augment is None:
            return {}
        each = [self.augment.draw(batch, random)._asdict() for _ in range(steps)]
        return {name: torch.stack([one[name] for one in each]) for name in each[0]}

    def apply(self, x: Tensor, y: Tensor, drawn: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Inputs and targets of (..., *shape) samples and their (...) labels."""
        if self.task is not None:
            return self.task.apply(x, drawn)
        return (self.augment.apply(x, Drawn(**drawn)) if self.augment is not None else x), y


def dropout_buffers(module: nn.Module) -> list[str]:
    """The names of the keys of a network's dropout layers, those that drop anything."""
    return [f"{n}.key" for n, layer in module.named_modules() if isinstance(layer, Dropout) and layer.rate > 0]


def dropout_key(training: Training, job: Job, name: str) -> int:
    """The key a dropout layer starts a job with."""
    return derive(training.seed, "dropout", job.client, job.occasion, name) >> 32


def trainable(method: Method, client: str, module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that a client trains: all but FROZEN ones."""
    scopes = method.scopes_of(client)
    return {
        n: p for n, p in tensors_of(module).items() if isinstance(p, nn.Parameter) and scopes[n] is not Scope.FROZEN
    }


def undecayed_names(plan: Plan) -> frozenset[str]:
    """Names of the tensors that weight decay leaves alone."""
    return frozenset(name for name, rule in plan.rules.items() if not rule.decay)


def untrained_names(plan: Plan, step: int, steps: int, epochs: int) -> frozenset[str]:
    """Names of the tensors that a local step, one of `steps` in `epochs` local epochs, does not train."""
    epoch = step * epochs // steps
    return frozenset(name for name, rule in plan.rules.items() if not rule.trains_in(epoch, epochs))


def reestimate(
    method: Method, client: ClientData, training: Training, module: nn.Module, apply: Callable[[Tensor], object]
) -> None:
    """Estimates the statistics of a client's network anew, on its training samples, without their labels.

    `apply` passes samples through the module, with the client's tensors; frozen layers stay as they are.
    """
    name, train = client.info.id, client.train
    if not training.reestimate or not len(train):
        return
    scopes = method.scopes_of(name)
    kept = (None, Scope.FROZEN)
    norms = {n: layer for n, layer in norms_of(module).items() if scopes.get(f"{n}.running_mean") not in kept}
    plan = batch_plan(len(train), training.batch_size, 1, generator(training.seed, "statistics", name))
    starts = train.draw(plan, generator(training.seed, "statistics starts", name))
    estimate_statistics(norms, apply, take_each(train, plan, starts))


def find_fault(client: str, tree: Tree) -> str:
    """What is wrong with the tensors that a client keeps; "" where all are finite."""
    floats = {name: tensor for name, tensor in tree.items() if tensor.is_floating_point()}
    for name, largest in zip(floats, largest_values(floats), strict=True):
        if not math.isfinite(largest):
            bad = int((~torch.isfinite(floats[name])).sum())
            return (
                f"client {client!r} would keep {name!r} with {bad} of {floats[name].numel()} values NaN or infinite; "
                f"expected finite values of shape {tuple(floats[name].shape)}"
            )
    return ""


def place(data: Mapping[str, ClientData], device: torch.device) -> dict[str, ClientData]:
    """The clients' data on a device: the same objects where they are there already."""
    placed: dict[str, ClientData] = {}
    for name, client in data.items():
        validation = None if client.validation is None else client.validation.on(device)
        placed[name] = replace(
            client, train=client.train.on(device), test=client.test.on(device), validation=validation
        )
    return placed


def split_jobs(jobs: Iterable[Job], size: int) -> Iterator[Sequence[Job]]:
    """Jobs, `size` at a time, taken as they are wanted."""
    left = iter(jobs)
    while chunk := list(islice(left, size)):
        yield chunk
