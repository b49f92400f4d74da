"""Speed, as ratios within one run: our engines against the plainest possible PyTorch loop over the same work."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.graph import partition
from fedaction.data.layout import KINECT_V2
from fedaction.data.samples import Examples
from fedaction.engines.base import Engine, Training, plan_batches, set_precision
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.federation.processes import cores
from fedaction.federation.scope import FROZEN, GLOBAL, Rule, ScopeTable
from fedaction.federation.seeds import generator
from fedaction.federation.state import Job, ServerState
from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.fdarn import FDARN, FDARNSettings
from fedaction.methods.start import fresh, initial_state
from fedaction.models.mlp import MLP
from fedaction.models.stgcn import STGCN
from fedaction.server.federation import combine
from fedaction.server.state import FederationState


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
    classes = tuple(str(c) for c in range(workload.classes))
    layout = KINECT_V2 if len(workload.shape) == 4 else None
    names = (f"client-{i:04d}" for i in range(count))
    return fill_clients(ClientInfo(n, "bench", workload.samples, classes, workload.shape, layout) for n in names)


def fill_clients(infos: Iterable[ClientInfo]) -> dict[str, ClientData]:
    """Random samples and labels for clients; one test sample each, which nobody looks at."""
    clients: dict[str, ClientData] = {}
    for i, info in enumerate(infos):
        random = generator(0, "bench", i)
        x = torch.randn(info.samples, *info.shape, generator=random)
        y = torch.randint(len(info.classes), (info.samples,), generator=random)
        clients[info.id] = ClientData(info, Examples(x, y), Examples(x[:1], y[:1]))
    return clients


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


def bench_loop(clients: int = 20, rounds: int = 3, tick: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """A round of the sequential engine against the bare loop, single-threaded and with one worker per core.

    The three are timed in turn, `rounds` times over, and each ratio is the median of its per-turn ratios, so that a
    noisy machine disturbs all three alike.
    """
    result: dict[str, Any] = {"clients": clients, "rounds": rounds, "workers": cores(), "workloads": {}}
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for workload in (STGCN_CLIENTS, MLP_CLIENTS):
            result["workloads"][workload.name] = _against_loop(workload, clients, rounds, tick)
    finally:
        torch.set_num_threads(before)
    return result


def _against_loop(workload: Workload, count: int, rounds: int, tick: Callable[[str], None]) -> dict[str, Any]:
    clients = make_clients(workload, count)
    training = Training(seed=0, batch_size=workload.batch_size, local_epochs=workload.epochs, lr=0.01)
    method = _Averaging([c.info for c in clients.values()], workload)
    device = torch.device("cpu")
    server = initial_state(method, 0)
    jobs = _jobs(method, server)
    plans = {job.client: plan_batches(training, job, workload.samples) for job in jobs}
    model = fresh(method, method.clients[jobs[0].client], 0)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    one = SequentialEngine(method, clients, training, device, 1)
    many = SequentialEngine(method, clients, training, device, cores())
    contenders: dict[str, Callable[[], object]] = {
        "bare": lambda: bare_round(model, weights, clients, plans, training.lr),
        "one worker": lambda: combine(method, server, one.train(jobs)),
        "all workers": lambda: combine(method, server, many.train(jobs)),
    }
    times = time_in_turn(contenders, rounds, lambda name: tick(f"{workload.name}: {name}"))
    one.close()
    many.close()
    pairs = {n: [t / b for t, b in zip(times[n], times["bare"], strict=True)] for n in contenders if n != "bare"}
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds_bare": statistics.median(times["bare"]),
        "ratio_one_worker": statistics.median(pairs["one worker"]),
        "ratio_all_workers": statistics.median(pairs["all workers"]),
    }


def time_in_turn(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int,
    tick: Callable[[str], None],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each contender's turns, all of them in turn, `rounds` times over after one that warms up."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, work in contenders.items():
            tick(name)
            start = clock()
            work()
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            if turn:
                times[name].append(clock() - start)
    return times


def bench_engines(
    clients: int = 100,
    rounds: int = 3,
    device: torch.device | None = None,
    compiled: bool = False,
    tick: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """The vectorised engine against the sequential one on small ST-GCN clients (16 sequences each)."""
    data = make_clients(STGCN_CLIENTS, clients)
    method = _Averaging([c.info for c in data.values()], STGCN_CLIENTS)
    training = Training(seed=0, batch_size=16, lr=0.01)
    return {"compiled": compiled} | _compare(method, data, training, rounds, device, compiled, tick)


MODALITIES = ("audio", "flow", "inertial", "video")


def bench_fdarn(
    clients: int = 16,
    rounds: int = 3,
    device: torch.device | None = None,
    tick: Callable[[str], None] = lambda _: None,
    *,
    width: int = 1024,
) -> dict[str, Any]:
    """The vectorised engine against the sequential one on FDARN at the size of its EPIC-KITCHENS experiments.

    Clients hold features of one of four modalities each, in turn, 97 classes and 64 samples, which are one batch.

    Args:
        clients: how many.
        rounds: timed rounds of each engine.
        device: where; None: a GPU if there is one.
        tick: progress callback, called with what is timed next.
        width: of features and of all hidden layers; the paper's is 1024.
    """
    classes = tuple(str(c) for c in range(97))
    data = fill_clients(
        ClientInfo(f"client-{i:04d}", MODALITIES[i % len(MODALITIES)], 64, classes, (width,)) for i in range(clients)
    )
    method = FDARN(
        [c.info for c in data.values()],
        FDARNSettings.model_validate({"model_features": width, "model_hidden": width}),
    )
    training = Training(seed=0, batch_size=64, lr=0.01)
    first = method.build(next(iter(method.clients.values())))
    parameters = sum(p.numel() for p in first.parameters())
    return {"parameters": parameters} | _compare(method, data, training, rounds, device, False, tick)


def _compare(
    method: Method,
    data: dict[str, ClientData],
    training: Training,
    rounds: int,
    device: torch.device | None,
    compiled: bool,
    tick: Callable[[str], None],
) -> dict[str, Any]:
    """Rounds of both engines over the same clients: seconds per round (medians), samples per second, the ratio."""
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    set_precision(tf32=True)
    server = FederationState(0, initial_state(method, 0)).to(device).server
    jobs = _jobs(method, server)
    times: dict[str, float] = {}
    engines: dict[str, Engine] = {
        "sequential": SequentialEngine(method, data, training, device, cores()),
        "vectorised": VectorisedEngine(method, data, training, device, compiled=compiled),
    }
    for name, engine in engines.items():
        took = time_in_turn({name: lambda engine=engine: combine(method, server, engine.train(jobs))}, rounds, tick)
        engine.close()
        times[name] = statistics.median(took[name])
    samples = sum(len(client.train) for client in data.values())
    return {
        "clients": len(data),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
        "seconds": times,
        "samples_per_second": {name: samples / seconds for name, seconds in times.items()},
        "speed_up": times["sequential"] / times["vectorised"],
    }


def _jobs(method: Method, server: ServerState) -> list[Job]:
    return [
        Job(name, info.group, 0, 1, method.payload(server, info)) for name, info in sorted(method.clients.items())
    ]
