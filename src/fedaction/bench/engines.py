"""Speed of engines: whole rounds over random clients, by one engine or by both, in samples a second."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import torch

from fedaction.bench import timing
from fedaction.bench.timing import Tick, ignore
from fedaction.data.augment import Augment
from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.layout import KINECT_V2
from fedaction.engines.base import Precision, Training, check_precision, set_precision
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.stackable import find_unstackable
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.federation.processes import cores
from fedaction.federation.profile import STEPS, Profile
from fedaction.guard.validate import validate
from fedaction.methods import METHODS
from fedaction.methods.base import Method
from fedaction.methods.fdarn import FDARN, FDARNSettings
from fedaction.methods.start import initial_state
from fedaction.server.federation import Federation
from fedaction.server.rounds import Rounds
from fedaction.server.schedule import Participation
from fedaction.server.state import FederationState

EngineName = Literal["sequential", "vectorised"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
WARM = 2
"""Rounds that are not timed: kernels are compiled in the first, steps recorded in the first two."""


@dataclass(frozen=True)
class EngineSetup:
    """How engines work."""

    engines: tuple[EngineName, ...] = ENGINES
    """Which."""
    precision: Precision = "fp32"
    """What networks compute in."""
    recorded: bool = False
    """Whether a GPU repeats steps by itself."""
    compiled: bool = False
    """Whether torch.compile makes the stacked step, or the network of the sequential engine."""
    kernels: bool = True
    """Whether stacked layers use Triton kernels where there are any."""


@dataclass(frozen=True)
class Skeletons:
    """Clients with random skeletons, and what they train."""

    clients: int = 100
    """How many; all of them train in every round."""
    bodies: int = 1
    """Persons in a sequence."""
    batch: int = 16
    """Sequences in a local step."""
    steps: int = 1
    """Local steps in a round; a client holds `batch * steps` sequences."""
    method: str = "fedavg"
    """What is trained."""
    backbone: str = "stgcn"
    """The network; ST-GCN is a quarter wide."""
    last: int = 0
    """ST-GCN: channels of the last unit; 0: as its block."""
    augment: bool = False
    """Whether sequences are sheared and cropped, as recipes have it by default."""
    frames: int = 50
    width: int = 0
    """Channels of the network's first block; 0: as its recipe has it."""

    def make(self) -> tuple[Method, dict[str, ClientData], Training]:
        """The method, its clients' data and how they train."""
        about = (self.batch * self.steps, tuple(map(str, range(60))), (self.bodies, self.frames, 25, 3), KINECT_V2)
        data = timing.fill_clients(ClientInfo(f"client-{i:04d}", "bench", *about) for i in range(self.clients))
        kind = METHODS[self.method]
        values = {
            "backbone": self.backbone,
            "model_last": self.last,
            "model_projection": 0,
            "model_width": self.width,
        }
        if self.method == "fedavg":  # plain averaging of all that a network has
            values |= {"classifier": "shared", "buffers": "average"}
        method = kind([client.info for client in data.values()], kind.settings_type.model_validate(values))
        augment = Augment() if self.augment else None
        return method, data, Training(seed=0, batch_size=self.batch, lr=0.01, augment=augment)


def choose_engines(name: str) -> tuple[EngineName, ...]:
    """The engines that are meant by a name, or by "both"."""
    chosen: tuple[EngineName, ...] = tuple(own for own in ENGINES if name in (own, "both"))
    if not chosen:
        raise ValueError(f"there is no engine {name!r}; say sequential, vectorised or both")
    return chosen


def choose_precision(name: str) -> Precision:
    """The precision of a name."""
    if name == "fp32" or name == "bf16":
        return name
    raise ValueError(f"there is no precision {name!r}; say fp32 or bf16")


class _FirstStep(Profile):
    """Notes when the first training step was done."""

    def __init__(self) -> None:
        super().__init__()
        self.done: float | None = None

    def section(self, name: str) -> AbstractContextManager[None]:
        return self._note() if name == STEPS and self.done is None else nullcontext()

    def waiting(self) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def _note(self) -> Generator[None]:
        yield
        timing.wait()
        self.done = self.done or time.perf_counter()


def bench_engines(
    work: Skeletons = Skeletons(),  # noqa: B008
    way: EngineSetup = EngineSetup(),  # noqa: B008
    rounds: int = 5,
    device: torch.device | None = None,
    tick: Tick = ignore,
) -> dict[str, Any]:
    """Whole rounds of many clients with skeletons, by each engine."""
    method, data, training = work.make()
    return asdict(work) | _compare(method, data, training, way, rounds, device, tick)


MODALITIES = ("audio", "flow", "inertial", "video")


def bench_fdarn(
    clients: int = 16,
    way: EngineSetup = EngineSetup(),  # noqa: B008
    rounds: int = 5,
    device: torch.device | None = None,
    tick: Tick = ignore,
    *,
    width: int = 1024,
) -> dict[str, Any]:
    """Whole rounds of FDARN at the size of its EPIC-KITCHENS experiments, by each engine.

    Clients hold features of one of four modalities each, in turn, 97 classes and 64 samples, which are one batch.
    `width` is that of features and of all hidden layers; the paper's is 1024.
    """
    about = (64, tuple(map(str, range(97))), (width,))
    groups = (MODALITIES[i % len(MODALITIES)] for i in range(clients))
    data = timing.fill_clients(ClientInfo(f"client-{i:04d}", group, *about) for i, group in enumerate(groups))
    settings = FDARNSettings.model_validate({"model_features": width, "model_hidden": width})
    method = FDARN([c.info for c in data.values()], settings)
    training = Training(seed=0, batch_size=64, lr=0.01)
    return {"clients": clients} | _compare(method, data, training, way, rounds, device, tick)


def _compare(
    method: Method,
    data: Mapping[str, ClientData],
    training: Training,
    way: EngineSetup,
    rounds: int,
    device: torch.device | None,
    tick: Tick,
) -> dict[str, Any]:
    """Rounds of engines over the same clients: seconds, samples a second, seconds until the first step was done."""
    device, name = timing.device_or_gpu(device)
    check_precision(way.precision, device)
    set_precision(tf32=True, fastest=way.precision == "bf16")
    makers: dict[EngineName, Callable[[], SequentialEngine | VectorisedEngine]] = {
        "sequential": lambda: SequentialEngine(
            method,
            data,
            training,
            device,
            cores(),
            precision=way.precision,
            compiled=way.compiled,
            recorded=way.recorded,
        ),
        "vectorised": lambda: VectorisedEngine(
            method,
            data,
            training,
            device,
            compiled=way.compiled,
            precision=way.precision,
            recorded=way.recorded,
            kernels=way.kernels,
        ),
    }
    if "vectorised" in way.engines and (fault := find_unstackable(method, training.seed)):
        raise ValueError(f"engine vectorised trains many clients at once, but {fault}; say --engine sequential")
    measured = {n: _time_rounds(method, makers[n], device, rounds, lambda n=n: tick(n)) for n in way.engines}
    size = min(training.batch_size, *(len(client.train) for client in data.values()))
    samples = sum(-(-len(client.train) // size) * size for client in data.values())  # each of a step counted once
    seconds = {n: statistics.median(own["rounds"]) for n, own in measured.items()}
    result: dict[str, Any] = {
        "parameters": timing.count_parameters(method),
        "device": name,
        "precision": way.precision,
        "recorded": way.recorded,
        "compiled": way.compiled,
        "kernels": way.kernels,
        "rounds": rounds,
        "seconds": seconds,
        "seconds_first_step": {n: own["first_step"] for n, own in measured.items()},
        "seconds_first_round": {n: own["first_round"] for n, own in measured.items()},
        "samples_per_second": {n: samples / took for n, took in seconds.items()},
    }
    if len(seconds) > 1:
        result["speed_up"] = seconds["sequential"] / seconds["vectorised"]
    return result


def _time_rounds(
    method: Method,
    make: Callable[[], SequentialEngine | VectorisedEngine],
    device: torch.device,
    rounds: int,
    tick: Callable[[], object],
) -> dict[str, Any]:
    """Seconds of each round after the first two, and from the engine's making to the end of its first step and round.

    A round is a run's: choosing clients, their work, checks of updates, the mean and the server's step.
    """
    schedule = Rounds(Federation(method, [*method.clients.values()], (validate,)), Participation(seed=0))
    state = FederationState(0, initial_state(method, 0)).to(device)
    tick()
    timing.wait()
    begun = time.perf_counter()
    engine, first = make(), _FirstStep()
    engine.profile = first
    took, ends = list[float](), list[float]()
    try:
        for round in range(1, WARM + rounds + 1):
            start = time.perf_counter()
            state, _ = schedule.advance(state, engine, round)
            timing.wait()
            took.append(time.perf_counter() - start)
            ends.append(time.perf_counter() - begun)
    finally:
        engine.close()
    assert first.done is not None
    return {"rounds": took[WARM:], "first_step": first.done - begun, "first_round": ends[0]}
