"""Speed, as ratios within one run: our engines against the plainest possible PyTorch loop over the same work."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaction.bench import timing
from fedaction.bench.timing import Tick, ignore
from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.graph import partition
from fedaction.data.layout import KINECT_V2
from fedaction.engines.base import Training, plan_batches
from fedaction.engines.sequential import SequentialEngine
from fedaction.federation.processes import cores
from fedaction.federation.scope import FROZEN, GLOBAL, Rule, ScopeTable
from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.start import fresh, initial_state
from fedaction.models.layers import use_products
from fedaction.models.mlp import MLP
from fedaction.models.stgcn import STGCN
from fedaction.server.federation import combine


@dataclass(frozen=True)
class Workload:
    """Clients of one shape that train one network."""

    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int
    samples: int
    batch_size: int
    epochs: int


def _stgcn() -> nn.Module:
    return STGCN(torch.as_tensor(partition(KINECT_V2, "spatial_legacy")), classes=60, width=16)


STGCN_CLIENTS = Workload("ST-GCN", _stgcn, (1, 50, 25, 3), 60, 16, 16, 1)
MLP_CLIENTS = Workload("MLP", lambda: MLP(1024, (2048, 1024, 512, 256), 56), (1024,), 56, 64, 32, 2)


class _Averaging(Method):
    """Everything shared, cross-entropy: the work of the bare loop, as a method."""

    name = "bench"

    def __init__(self, clients: Iterable[ClientInfo], workload: Workload) -> None:
        super().__init__(clients, None)
        self._workload = workload

    def build(self, client: ClientInfo) -> nn.Module:
        return self._workload.build()

    def scopes(self) -> ScopeTable:
        return ScopeTable((Rule("topology.A", FROZEN), Rule("**", GLOBAL)))

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        return F.cross_entropy(net(batch.x), batch.y), {}


def make_clients(workload: Workload, count: int) -> dict[str, ClientData]:
    """Clients with random samples."""
    classes = tuple(map(str, range(workload.classes)))
    about = (workload.samples, classes, workload.shape, KINECT_V2 if len(workload.shape) == 4 else None)
    return timing.fill_clients(ClientInfo(f"client-{i:04d}", "bench", *about) for i in range(count))


def average_plainly(workload: Workload, clients: Iterable[ClientData]) -> Method:
    """What the bare loop does, as a method."""
    return _Averaging([client.info for client in clients], workload)


def bare_round(
    model: nn.Module, weights: dict[str, Tensor], clients: dict[str, ClientData], plans: dict[str, Tensor], lr: float
) -> dict[str, Tensor]:
    """One round of federated averaging as one would write it by hand."""
    mean: dict[str, Tensor] = {}
    total = sum(len(client.train) for client in clients.values())
    for name, client in clients.items():
        model.load_state_dict(weights)
        model.train()
        labels = client.train.labels
        optimiser = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)
        for rows in plans[name]:
            optimiser.zero_grad()
            F.cross_entropy(model(client.train.take(rows)), labels[rows]).backward()
            optimiser.step()
        share = len(client.train) / total
        for key, tensor in model.state_dict().items():
            mean[key] = mean[key] + share * tensor if key in mean else share * tensor
    return mean


def bench_loop(clients: int = 20, rounds: int = 3, tick: Tick = ignore) -> dict[str, Any]:
    """A round of the sequential engine against the bare loop, single-threaded and with one worker per core.

    The three are timed in turn, `rounds` times over; each ratio is the median of its per-turn ratios.
    """
    with timing.one_thread():
        workloads = {w.name: _against_loop(w, clients, rounds, tick) for w in (STGCN_CLIENTS, MLP_CLIENTS)}
    return {"clients": clients, "rounds": rounds, "workers": cores(), "workloads": workloads}


def _against_loop(workload: Workload, count: int, rounds: int, tick: Tick) -> dict[str, Any]:
    clients = make_clients(workload, count)
    training = Training(seed=0, batch_size=workload.batch_size, local_epochs=workload.epochs, lr=0.01)
    method = average_plainly(workload, clients.values())
    server = initial_state(method, 0)
    jobs = timing.jobs_of(method, server)
    plans = {job.client: plan_batches(training, job, workload.samples) for job in jobs}
    model = use_products(fresh(method, method.clients[jobs[0].client], 0))
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    one, many = (SequentialEngine(method, clients, training, torch.device("cpu"), n) for n in (1, cores()))
    contenders: dict[str, Callable[[], object]] = {
        "bare": lambda: bare_round(model, weights, clients, plans, training.lr),
        "one worker": lambda: combine(method, server, one.train(jobs)),
        "all workers": lambda: combine(method, server, many.train(jobs)),
    }
    times = timing.time_in_turn(contenders, rounds, lambda name, _: tick(f"{workload.name}: {name}")).wall
    one.close()
    many.close()
    return {
        "parameters": timing.count_parameters(method),
        "seconds_bare": timing.medians(times)["bare"],
        "ratio_one_worker": timing.ratio(times, "one worker", "bare"),
        "ratio_all_workers": timing.ratio(times, "all workers", "bare"),
    }
