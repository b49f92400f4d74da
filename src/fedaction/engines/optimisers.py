"""Optimisers: torch.optim's, and the same rules on stacked tensors, entry by entry, for many clients at once."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportPrivateUsage=false, reportPrivateImportUsage=false

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedaction.engines.base import OptimiserName, Training
from fedaction.federation.tree import Tree

BETAS, EPSILON = (0.9, 0.999), 1e-8
"""Of Adam and AdamW, as torch.optim has them."""


class FusedOptimiser:
    """torch.optim's SGD, Adam or AdamW, whose memory is there, at zero; the step of a group is one kernel of torch's.

    To make one of torch.optim's own loads torch's compiler, which takes as long as loading torch, and 70 MB.
    """

    def __init__(
        self,
        kind: OptimiserName,
        groups: Iterable[Mapping[str, Any]],
        lr: float | Tensor,
        *,
        momentum: float,
        nesterov: bool,
    ) -> None:
        """Prepares for some parameters.

        Args:
            kind: its name.
            groups: `params` with their `weight_decay`.
            lr: the learning rate, a tensor where steps are recorded.
            momentum: of SGD.
            nesterov: whether that looks ahead.
        """
        self._groups = [(list[nn.Parameter](group["params"]), float(group["weight_decay"])) for group in groups]
        self._kind, self._lr, self._momentum, self._nesterov = kind, lr, momentum, nesterov
        self._memory = {p: _make_memory(kind, p, momentum, True) for p in self.parameters()}

    def parameters(self) -> list[nn.Parameter]:
        """All that it changes."""
        return [parameter for parameters, _ in self._groups for parameter in parameters]

    def remembered(self) -> list[Tensor]:
        """Its memory."""
        return [tensor for own in self._memory.values() for tensor in own.values()]

    def reset(self, lr: float) -> None:
        """Forgets all, and takes another learning rate."""
        for tensor in self.remembered():
            tensor.zero_()
        if isinstance(self._lr, Tensor):
            self._lr.fill_(lr)
        else:
            self._lr = lr

    def zero_grad(self) -> None:
        """Forgets gradients."""
        for parameter in self.parameters():
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """A step of all that have a gradient."""
        for parameters, decay in self._groups:
            alike: dict[torch.dtype, list[nn.Parameter]] = {}
            for parameter in parameters:
                if parameter.grad is not None:
                    alike.setdefault(parameter.dtype, []).append(parameter)
            for some in alike.values():
                self._step_alike(some, decay)

    def _step_alike(self, parameters: list[nn.Parameter], decay: float) -> None:
        gradients: list[Any] = [parameter.grad for parameter in parameters]
        memory = [self._memory[parameter] for parameter in parameters]
        if self._kind == "sgd":
            momenta: Any = torch._fused_sgd_
            momenta(
                parameters,
                gradients,
                [own["momentum_buffer"] for own in memory] if self._momentum else [],
                weight_decay=decay,
                momentum=self._momentum,
                lr=self._lr,
                dampening=0.0,
                nesterov=self._nesterov,
                maximize=False,
                is_first_step=False,
            )
            return
        steps = [own["step"] for own in memory]
        torch._foreach_add_(steps, 1)
        kernel: Any = torch._fused_adam_ if self._kind == "adam" else torch._fused_adamw_
        kernel(
            parameters,
            gradients,
            [own["exp_avg"] for own in memory],
            [own["exp_avg_sq"] for own in memory],
            [],
            steps,
            lr=self._lr,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )


def make_optimiser(
    kind: OptimiserName, groups: Sequence[Mapping[str, Any]], lr: float, *, momentum: float = 0.0, fused: bool = True
) -> torch.optim.Optimizer:
    """One of torch.optim's optimisers, whose memory is there, at zero, before its first step.

    Args:
        kind: its name.
        groups: `params` with their `weight_decay`.
        lr: the learning rate.
        momentum: of SGD.
        fused: whether one kernel does the whole step.
    """
    some = [dict(group) for group in groups]
    if kind == "sgd":
        optimiser = torch.optim.SGD(some, lr, momentum, fused=fused)
    else:
        rule = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
        optimiser = rule(some, lr, BETAS, EPSILON, fused=fused)
    for parameter in (p for group in some for p in group["params"]):
        optimiser.state[parameter] = _make_memory(kind, parameter, momentum, fused)
    return optimiser


def _make_memory(kind: OptimiserName, parameter: Tensor, momentum: float, fused: bool) -> dict[str, Tensor]:
    """What an optimiser remembers of a parameter, at zero."""
    if kind == "sgd":
        return {"momentum_buffer": torch.zeros_like(parameter)} if momentum else {}
    memory = {slot: torch.zeros_like(parameter) for slot in ("exp_avg", "exp_avg_sq")}
    # Where torch keeps it: a fused step counts on the parameter's device.
    return {**memory, "step": torch.zeros((), dtype=torch.float32, device=parameter.device if fused else "cpu")}


def memory_of(optimiser: torch.optim.Optimizer, names: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """All that an optimiser remembers, by parameter's name: its own tensors, to be saved or copied into."""
    return {
        name if slot == "momentum_buffer" else f"{slot}.{name}": tensor
        for name, parameter in names.items()
        for slot, tensor in optimiser.state[parameter].items()
    }


def clip_stacked(gradients: Mapping[str, Tensor], training: Training) -> dict[str, Tensor]:
    """Each client's gradients, (clients, ...) by name, scaled down to `clip_norm` over those clipped together."""
    squares: dict[str, list[Tensor]] = {}
    for name, g in gradients.items():
        squares.setdefault(training.clip_group(name), []).append(g.reshape(len(g), -1).square().sum(1))
    norms = {group: torch.stack(parts).sum(0).sqrt() for group, parts in squares.items()}
    scales = {group: (training.clip_norm / (norm + 1e-6)).clamp(max=1.0) for group, norm in norms.items()}
    return {n: g * scales[training.clip_group(n)].view(-1, *[1] * (g.dim() - 1)) for n, g in gradients.items()}


class _Part(NamedTuple):
    """Parameters that take a step alike."""

    weights: list[Tensor]
    slopes: list[Tensor]
    first: list[Tensor]
    second: list[Tensor]
    decay: float
    steps: int  # this one counted


class StackedOptimiser:
    """An optimiser of (clients, ...) tensors, which remembers nothing so far."""

    def __init__(self, parameters: Tree, undecayed: Collection[str], training: Training) -> None:
        """Prepares for some parameters, of which weight decay leaves the `undecayed` alone."""
        self._training, self._undecayed = training, undecayed
        adam = training.optimiser != "sgd"
        first, second = adam or training.momentum > 0, adam
        self._first = {n: torch.zeros_like(p) for n, p in parameters.items()} if first else {}
        self._second = {n: torch.zeros_like(p) for n, p in parameters.items()} if second else {}
        self._steps = dict.fromkeys(parameters, 0)

    def memory(self) -> list[Tensor]:
        """All that it remembers but the number of steps: its own tensors."""
        return [*self._first.values(), *self._second.values()]

    def reset(self) -> None:
        """Forgets all."""
        if memory := self.memory():
            torch._foreach_zero_(memory)
        self._steps = dict.fromkeys(self._steps, 0)

    def step(self, parameters: Tree, gradients: Tree, lr: float | Tensor) -> None:
        """One step, in place.

        Args:
            parameters: of the first clients, those that are not done yet.
            gradients: of the parameters that are trained in this step.
            lr: the learning rate; of SGD it may be a tensor, which a recorded step reads anew each time.
        """
        training = self._training
        if training.clip_norm:
            gradients = clip_stacked(gradients, training)
        groups: dict[tuple[float, int], list[str]] = {}
        for name in gradients:
            self._steps[name] += 1
            decay = 0.0 if name in self._undecayed else training.weight_decay
            groups.setdefault((decay, self._steps[name]), []).append(name)
        for (decay, steps), names in groups.items():
            slopes = [gradients[n] for n in names]
            active = len(slopes[0])
            memory = [[of[n][:active] for n in names] if of else [] for of in (self._first, self._second)]
            part = _Part([parameters[n].detach() for n in names], slopes, memory[0], memory[1], decay, steps)
            if training.optimiser == "sgd":
                self._step_sgd(part, lr)
            else:
                self._step_adam(part, float(lr))

    def _step_sgd(self, part: _Part, lr: float | Tensor) -> None:
        """Momentum in `part.first`."""
        training, (weights, slopes, speeds, _, decay, _) = self._training, part
        if decay:
            slopes = list(torch._foreach_add(slopes, weights, alpha=decay))
        if training.momentum:
            torch._foreach_mul_(speeds, training.momentum)
            torch._foreach_add_(speeds, slopes)
            ahead = training.nesterov
            slopes = list(torch._foreach_add(slopes, speeds, alpha=training.momentum)) if ahead else speeds
        if isinstance(lr, Tensor):
            torch._foreach_sub_(weights, torch._foreach_mul(slopes, lr))
        else:
            torch._foreach_add_(weights, slopes, alpha=-lr)

    def _step_adam(self, part: _Part, lr: float) -> None:
        """Means of gradients in `part.first`, of their squares in `part.second`."""
        (first, second), (weights, slopes, mean, square, decay, steps) = BETAS, part
        if decay and self._training.optimiser == "adamw":
            torch._foreach_mul_(weights, 1 - lr * decay)
        elif decay:
            slopes = list(torch._foreach_add(slopes, weights, alpha=decay))
        torch._foreach_lerp_(mean, slopes, 1 - first)
        torch._foreach_mul_(square, second)
        torch._foreach_addcmul_(square, slopes, slopes, value=1 - second)
        below = torch._foreach_sqrt(square)
        torch._foreach_div_(below, math.sqrt(1 - second**steps))
        torch._foreach_add_(below, EPSILON)
        torch._foreach_addcdiv_(weights, mean, below, value=-lr / (1 - first**steps))
