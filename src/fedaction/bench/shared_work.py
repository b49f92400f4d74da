"""What contenders of `bench peers` get, written into a folder, and what they give back: see `programs/work.py`."""

# NumPy's and torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedaction.bench.loop import Workload, average_plainly, make_clients
from fedaction.data.graph import partition
from fedaction.data.layout import KINECT_V2
from fedaction.data.samples import in_memory
from fedaction.engines.base import Training, plan_batches
from fedaction.federation.processes import cores
from fedaction.federation.state import Job
from fedaction.methods.start import initial_state

Arrays = Mapping[str, npt.NDArray[Any]]
_LR, _MOMENTUM, _DECAY = 0.01, 0.9, 1e-4


def write_work(folder: Path, name: str, workload: Workload, count: int, rounds: int) -> None:
    """Writes what all programs read: see `programs/work.py`."""
    folder.mkdir(parents=True)
    clients = make_clients(workload, count)
    method = average_plainly(workload, clients.values())
    _write_arrays(folder / "weights.npz", {n: as_plain(n, t) for n, t in initial_state(method, 0).shared.items()})
    x = torch.stack([in_memory(client.train).x for client in clients.values()])
    if name == "stgcn":  # one body: clients, sequences, coordinates, frames, joints
        x = x.squeeze(2).permute(0, 1, 4, 2, 3).contiguous()
    training = Training(seed=0, batch_size=workload.batch_size, local_epochs=workload.epochs)
    batches = [
        torch.stack([plan_batches(training, Job(c, "bench", 0, round, {}), workload.samples) for c in clients])
        for round in range(1, rounds + 1)
    ]
    np.save(folder / "samples.npy", x.numpy())
    np.save(folder / "labels.npy", torch.stack([client.train.labels for client in clients.values()]).numpy())
    np.save(folder / "batches.npy", torch.stack(batches).numpy())
    np.save(folder / "graph.npy", partition(KINECT_V2, "spatial_legacy").float().numpy())
    about = {
        "network": name,
        "classes": workload.classes,
        "clients": count,
        "rounds": rounds,
        "batch_size": workload.batch_size,
        "local_epochs": workload.epochs,
        "lr": _LR,
        "momentum": _MOMENTUM,
        "weight_decay": _DECAY,
        "cores": cores(),
    }
    (folder / "work.json").write_text(json.dumps(about), encoding="utf-8")


def as_plain(name: str, tensor: Tensor) -> Tensor:
    """A tensor of this package's ST-GCN, whose features come last, as `PlainSTGCN` has it; others stay."""
    if name.endswith("spatial.weight") and tensor.dim() == 3:  # partitions, inputs, outputs
        return tensor.transpose(1, 2).flatten(0, 1)[..., None, None]
    if name.endswith("spatial.bias"):
        return tensor.flatten()
    if name.endswith(("temporal.weight", "shortcut.weight")) and tensor.dim() == 3:  # frames, inputs, outputs
        return tensor.permute(2, 1, 0)[..., None]
    return tensor


def _write_arrays(path: Path, tensors: Mapping[str, Tensor]) -> None:
    arrays = {name: tensor.contiguous().numpy() for name, tensor in tensors.items()}
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]


def read_plain(path: Path) -> Arrays:
    """What is trained, under the names and in the shapes of the plain networks; statistics are left out."""
    with np.load(path) as held:
        names = [name for name in held.files if "running_" not in name]
        return {name: as_plain(name, torch.from_numpy(held[name])).numpy() for name in names}
