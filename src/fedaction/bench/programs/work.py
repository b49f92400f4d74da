"""What everybody does whose speed is compared: the network, samples, batches and local steps, in plain torch.

These programs run in environments that have torch and one framework, and know nothing of fedaction.
"""

# torch's and NumPy's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PlainUnit(nn.Module):
    """A unit of ST-GCN: a convolution over the graph, one over time, and a residual."""

    def __init__(self, inputs: int, outputs: int, partitions: int, stride: int, residual: bool) -> None:
        super().__init__()
        self.spatial = nn.Conv2d(inputs, outputs * partitions, 1)
        self.spatial_norm = nn.BatchNorm2d(outputs)
        self.temporal = nn.Conv2d(outputs, outputs, (9, 1), (stride, 1), (4, 0))
        self.temporal_norm = nn.BatchNorm2d(outputs)
        self.residual = residual
        self.reshapes = residual and (inputs != outputs or stride != 1)
        if self.reshapes:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, (stride, 1))
            self.shortcut_norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor, graph: Tensor) -> Tensor:
        """(N, C, T, V) to (N, C', T / stride, V)."""
        mixed = self.spatial(x).unflatten(1, (len(graph), -1))
        y = F.relu(self.spatial_norm(torch.einsum("nkctv,kvw->nctw", mixed, graph)))
        y = self.temporal_norm(self.temporal(y))
        if self.residual:
            y = y + (self.shortcut_norm(self.shortcut(x)) if self.reshapes else x)
        return F.relu(y)


class PlainSTGCN(nn.Module):
    """ST-GCN as its authors wrote it, a quarter as wide: ten units, channels 16, 32 and 64, learned edge masks."""

    graph: Tensor

    def __init__(self, graph: Tensor, classes: int) -> None:
        super().__init__()
        widths = (3, *[16] * 4, *[32] * 3, *[64] * 3)
        self.register_buffer("graph", graph, persistent=False)
        self.data_norm = nn.BatchNorm1d(3 * graph.shape[-1])
        self.units = nn.ModuleList(
            PlainUnit(a, b, len(graph), 2 if b == 2 * a else 1, residual=place > 0)
            for place, (a, b) in enumerate(itertools.pairwise(widths))
        )
        self.importance = nn.ParameterList(torch.ones_like(graph) for _ in self.units)
        self.classifier = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, T, V) sequences to (N, classes) logits."""
        rows = x.permute(0, 3, 1, 2).flatten(1, 2)
        x = self.data_norm(rows).unflatten(1, (x.shape[3], x.shape[1])).permute(0, 2, 3, 1)
        for unit, mask in zip(self.units, self.importance, strict=True):
            x = unit(x, self.graph * mask)
        return self.classifier(x.mean((2, 3)))


class PlainMLP(nn.Module):
    """Linear layers with ReLU between them."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        widths = (inputs, 2048, 1024, 512, 256)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.classifier = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs) vectors to (N, classes) logits."""
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.classifier(x)


@dataclass(frozen=True)
class SharedWork:
    """A federation's training, as a folder has it; where what happens is noted, too."""

    folder: Path
    about: Mapping[str, Any]
    """network, classes, clients, rounds, batch_size, local_epochs, lr, momentum, weight_decay, cores."""

    @classmethod
    def read(cls, folder: str | Path) -> SharedWork:
        """The work of a folder."""
        return cls(Path(folder), json.loads((Path(folder) / "work.json").read_text(encoding="utf-8")))

    @property
    def clients(self) -> int:
        """How many clients there are; all train in every round."""
        return self.about["clients"]

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return self.about["rounds"]

    @cached_property
    def samples(self) -> Tensor:
        """(clients, samples, *shape)."""
        return torch.from_numpy(np.load(self.folder / "samples.npy"))

    @cached_property
    def labels(self) -> Tensor:
        """(clients, samples)."""
        return torch.from_numpy(np.load(self.folder / "labels.npy"))

    @cached_property
    def batches(self) -> Tensor:
        """(rounds, clients, steps, batch): the samples of every local step."""
        return torch.from_numpy(np.load(self.folder / "batches.npy"))

    def read_weights(self) -> dict[str, npt.NDArray[Any]]:
        """The first tensors, by name; counters are not among them."""
        with np.load(self.folder / "weights.npz") as held:
            return {name: held[name] for name in held.files}

    def build(self) -> nn.Module:
        """The network, with any values."""
        if self.about["network"] == "mlp":
            return PlainMLP(self.samples.shape[-1], self.about["classes"])
        return PlainSTGCN(torch.from_numpy(np.load(self.folder / "graph.npy")), self.about["classes"])

    def build_first(self) -> nn.Module:
        """The network with its first values."""
        network = self.build()
        load(network, self.read_weights())
        return network

    def make_optimiser(self, network: nn.Module) -> torch.optim.Optimizer:
        """A client's optimiser."""
        keys = ("lr", "momentum", "weight_decay")
        return torch.optim.SGD(network.parameters(), **{key: self.about[key] for key in keys})

    def train(self, network: nn.Module, client: int, round: int) -> None:
        """A client's local steps in a round, counted from 0, on a network that has the server's tensors."""
        x, y = self.samples[client], self.labels[client]
        optimiser = self.make_optimiser(network)
        network.train()
        for rows in self.batches[round, client]:
            self.note_first_step()
            optimiser.zero_grad()
            F.cross_entropy(network(x[rows]), y[rows]).backward()
            optimiser.step()

    def note_first_step(self) -> None:
        """Notes when the first training step of all began; whoever comes later notes nothing."""
        try:
            with open(self.folder / "first_step", "x", encoding="ascii") as file:
                file.write(repr(time.monotonic()))
        except FileExistsError:
            pass

    def end_round(self, round: int, tensors: Callable[[], Mapping[str, Any]]) -> None:
        """Notes that a round, counted from 0, is over; writes what the server has after the first and the last."""
        if round == 0:  # before the clock is read: what follows is the second round's
            write_arrays(self.folder / "first.npz", tensors())
        with open(self.folder / "rounds", "a", encoding="ascii") as file:
            file.write(f"{time.monotonic()!r}\n")
        if round == self.rounds - 1:
            write_arrays(self.folder / "last.npz", tensors())


def load(network: nn.Module, tensors: Mapping[str, Any]) -> None:
    """Gives a network tensors or arrays, by name; counters stay as they are."""
    with torch.no_grad():
        held = network.state_dict()
        for name, tensor in tensors.items():
            held[name].copy_(torch.as_tensor(tensor))


def take(network: nn.Module) -> dict[str, Tensor]:
    """What clients and server send each other: all of a network but counters."""
    return {name: tensor for name, tensor in network.state_dict().items() if tensor.is_floating_point()}


def write_arrays(path: Path, tensors: Mapping[str, Any]) -> None:
    """Writes tensors or arrays, by name."""
    arrays = {name: torch.as_tensor(tensor).detach().numpy() for name, tensor in tensors.items()}
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]
