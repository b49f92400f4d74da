"""How benchmarks time: contenders in turn, so that a noisy machine disturbs all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.samples import Examples
from fedaction.federation.seeds import generator
from fedaction.federation.state import Job, ServerState
from fedaction.methods.base import Method

Tick = Callable[[str], None]
"""Progress callback, called with what is timed next."""


def ignore(_: str) -> None:
    """The `Tick` of those who do not want to know."""


@dataclass(frozen=True)
class Times:
    """Seconds that contenders took, by name and turn."""

    first: dict[str, float] = field(default_factory=dict[str, float])
    """Of the turn that warms up, in which networks are compiled."""
    wall: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Of the clock."""
    processor: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Over all threads: the work itself, not the waiting for a core that others use."""


def time_in_turn(
    contenders: Mapping[str, Callable[[], object]], rounds: int, prepare: Callable[[str, int], None]
) -> Times:
    """Times contenders, all of them in turn, `rounds` times over after one that warms up.

    `prepare` is called with the contender's name and the turn, 0 for the first, before the clock starts.
    """
    times = Times()
    for turn in range(rounds + 1):
        for name, work in contenders.items():
            prepare(name, turn)
            wait()
            start, processor = time.perf_counter(), time.process_time()
            work()
            wait()
            if turn:
                times.processor.setdefault(name, []).append(time.process_time() - processor)
                times.wall.setdefault(name, []).append(time.perf_counter() - start)
            else:
                times.first[name] = time.perf_counter() - start
    return times


def wait() -> None:
    """Waits for a GPU, if one is used."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def medians(times: Mapping[str, list[float]]) -> dict[str, float]:
    """Each contender's median over turns."""
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def ratio(times: Mapping[str, list[float]], one: str, other: str) -> float:
    """The median of the per-turn ratios of two contenders' seconds."""
    return statistics.median(a / b for a, b in zip(times[one], times[other], strict=True))


@contextmanager
def one_thread(wanted: bool = True) -> Generator[None]:
    """One torch thread, as the engine's workers have."""
    threads = torch.get_num_threads()
    if wanted:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def device_or_gpu(device: torch.device | None) -> tuple[torch.device, str]:
    """A device and its name; None: a GPU if there is one."""
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return device, torch.cuda.get_device_name() if device.type == "cuda" else "CPU"


def fill_clients(infos: Iterable[ClientInfo]) -> dict[str, ClientData]:
    """Random samples and labels for clients; one test sample each, which nobody looks at."""
    clients: dict[str, ClientData] = {}
    for i, info in enumerate(infos):
        random = generator(0, "bench", i)
        x = torch.randn(info.samples, *info.shape, generator=random)
        y = torch.randint(len(info.classes), (info.samples,), generator=random)
        clients[info.id] = ClientData(info, Examples(x, y), Examples(x[:1], y[:1]))
    return clients


def jobs_of(method: Method, server: ServerState) -> list[Job]:
    """Every client's first job."""
    return [
        Job(name, info.group, 0, 1, method.payload(server, info)) for name, info in sorted(method.clients.items())
    ]


def count_parameters(method: Method) -> int:
    """Parameters of the first client's network."""
    return sum(p.numel() for p in method.build(next(iter(method.clients.values()))).parameters())
