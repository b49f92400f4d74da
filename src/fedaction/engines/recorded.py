"""Steps that a GPU repeats by itself: small kernels take a CPU longer to launch than a GPU to carry out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fedaction.federation.tree import Tree

_REHEARSALS = 3
"""Steps taken before one is recorded: libraries choose kernels and memory in the first few."""


class RecordedStep:
    """A CUDA graph of a step: what it does to tensors, with places for a batch.

    Only the GPU's work is recorded: whatever Python decides in a step is decided once, for all that follow.
    """

    def __init__(
        self, step: Callable[[Tree], Tree], batch: Tree, changed: Sequence[Tensor], pool: Any = None
    ) -> None:
        """Records a step; every tensor in `changed` is afterwards as it was.

        Args:
            step: changes tensors in place and returns some; it must not wait for the GPU, and draws nothing.
            batch: of the shapes that all batches will have.
            changed: every tensor that `step` changes.
            pool: memory to share with other recordings, which are never repeated at the same time; None: its own.
        """
        self._places = {name: tensor.clone() for name, tensor in batch.items()}
        self._graph = torch.cuda.CUDAGraph()
        kept = [tensor.detach().clone() for tensor in changed]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_REHEARSALS):
                step(self._places)
        # Other threads may go on with the GPU meanwhile.
        with torch.cuda.graph(self._graph, pool, stream, capture_error_mode="thread_local"):
            self._outputs = {name: tensor.detach() for name, tensor in step(self._places).items()}
        torch.cuda.current_stream().wait_stream(stream)
        with torch.no_grad():
            for tensor, was in zip(changed, kept, strict=True):
                tensor.copy_(was)

    def __call__(self, batch: Tree) -> Tree:
        """Takes the step on a batch. What it returns is overwritten by the next."""
        for name, place in self._places.items():
            place.copy_(batch[name])
        self._graph.replay()
        return self._outputs
