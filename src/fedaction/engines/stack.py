"""A stack of clients' tensors and the local steps that are taken on it, recorded where a GPU can repeat them."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportPrivateUsage=false, reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from fedaction.engines.base import Training
from fedaction.engines.optimisers import StackedOptimiser
from fedaction.engines.recorded import RecordedStep
from fedaction.federation.tree import FlatTree, Places, Tree

Losses = Callable[[Tree, Tree, Tree, Tensor, Tensor], dict[str, Tensor]]
"""Every client's loss and metrics, from parameters, other tensors, anchor, samples and labels, each with a leading
client axis."""


class Stack:
    """Clients' tensors with a leading client axis, which local steps change in place.

    Steps of a shape that comes again are recorded as a CUDA graph, if asked for. A recording reads and writes the
    stack's own memory, so that other clients of the same kind are loaded into the same stack.
    """

    def __init__(
        self,
        losses: Losses,
        parameters: Sequence[str],
        undecayed: Collection[str],
        training: Training,
        state: Tree,
        anchor: Tree,
        pool: Any = None,
    ) -> None:
        """Takes over some tensors.

        Args:
            losses: what is minimised.
            parameters: names of what is trained.
            undecayed: those that weight decay leaves alone.
            training: how.
            state: all tensors, (clients, ...); they are changed in place.
            anchor: those as received, or none.
            pool: the memory of recordings, shared by stacks that take their steps in turn; None: nothing is recorded.
        """
        self.state, self._anchor, self._losses = dict(state), dict(anchor), losses
        self._parameters, self._training = tuple(parameters), training
        self._optimiser = StackedOptimiser({n: state[n] for n in parameters}, undecayed, training)
        # Adam's corrections depend on the number of the step, which a recording would repeat.
        self._pool = pool if training.optimiser == "sgd" else None
        self._recorded: dict[object, RecordedStep | None] = {}
        self._lr = torch.zeros((), device=next(iter(state.values())).device) if pool else None

    def load(self, state: Tree, anchor: Tree) -> None:
        """Copies other clients' tensors in."""
        for own, given in ((self.state, state), (self._anchor, anchor)):
            if own:
                torch._foreach_copy_([own[n] for n in given], list(given.values()))
        self._optimiser.reset()

    def step(self, batch: Tree, untrained: frozenset[str], lr: float) -> dict[str, Tensor]:
        """One step of the first clients, from samples `x` and labels `y`, (clients, batch, ...): (clients,) metrics.

        What a recorded step returns is overwritten by the next.
        """
        shapes = tuple((name, tensor.shape, tensor.dtype) for name, tensor in batch.items())
        key = (shapes, untrained)
        if self._pool is None or self._lr is None or key not in self._recorded:
            self._recorded[key] = None  # the first time; kernels are compiled
            return self._step(batch, untrained, lr)
        self._lr.fill_(lr)
        recorded = self._recorded[key]
        if recorded is None:
            rate, changed = self._lr, [*self.state.values(), *self._optimiser.memory()]
            recorded = RecordedStep(lambda given: self._step(given, untrained, rate), batch, changed, self._pool)
            self._recorded[key] = recorded
        return dict(recorded(batch))

    def _step(self, batch: Tree, untrained: frozenset[str], lr: float | Tensor) -> dict[str, Tensor]:
        active = len(batch["y"])
        live = {name: tensor[:active] for name, tensor in self.state.items()}
        parameters = {name: live.pop(name).detach().requires_grad_() for name in self._parameters}
        received = {name: tensor[:active] for name, tensor in self._anchor.items()}
        values = self._losses(parameters, live, received, batch["x"], batch["y"])
        # A parameter that the loss does not use has no gradient and is left alone, as torch.optim would.
        slopes = torch.autograd.grad(values["loss"].sum(), list(parameters.values()), allow_unused=True)
        pairs = zip(parameters, slopes, strict=True)
        gradients = {n: g for n, g in pairs if g is not None and n not in untrained}  # pyright: ignore[reportUnnecessaryComparison]
        with torch.no_grad():
            self._optimiser.step(parameters, gradients, lr)
        return {name: value.detach() for name, value in values.items()}


def copy_rows(
    stacked: Tree, classes: Sequence[int], padded: Collection[str], known: dict[tuple[object, ...], Places]
) -> tuple[list[Tree], Tensor]:
    """Each client's tensors, copied out of a stack; of each client, whether they are sound (see `FlatTree`).

    Args:
        stacked: tensors with a leading client axis.
        classes: of each client, its number of classes.
        padded: names of which a client has as many rows as classes: the rest is cut off.
        known: places that were made before, by shapes: trees of later rounds have the same.
    """
    count, tensors = len(classes), list(stacked.values())
    device = tensors[0].device if tensors else None
    sound = torch.ones(count, dtype=torch.bool, device=device)
    if not tensors:
        return [{} for _ in classes], sound
    if not stacked.keys().isdisjoint(padded) or len({tensor.dtype for tensor in tensors}) > 1:
        for tensor in tensors:
            if tensor.is_floating_point():
                sound &= tensor.isfinite().reshape(count, -1).all(1)
        copies = {name: (tensor.clone(), name in padded) for name, tensor in stacked.items()}
        return [
            {name: tensor[i][:own] if cut else tensor[i] for name, (tensor, cut) in copies.items()}
            for i, own in enumerate(classes)
        ], sound
    shapes = {name: tuple(tensor.shape[1:]) for name, tensor in stacked.items()}
    places = known.setdefault(tuple(shapes.items()), Places.of(shapes))
    flat = torch.cat([tensor.reshape(count, -1) for tensor in tensors], 1)
    if flat.is_floating_point():
        sound &= flat.isfinite().all(1)
    for name, (start, end, _) in places.items():
        if name.endswith("running_var"):
            sound &= (flat[:, start:end] >= 0).all(1)
    return [FlatTree(row, places) for row in flat.unbind()], sound
