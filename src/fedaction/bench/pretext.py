"""Speed of learning from unlabelled video, as ratios within one run: a federated round against plain loops."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from fedaction.bench import timing
from fedaction.bench.timing import Tick, ignore
from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.samples import Examples, in_memory
from fedaction.engines.base import (
    Precision,
    Preparation,
    Training,
    align_gradients,
    augmentation_generator,
    plan_batches,
    set_network_precision,
    set_precision,
    to_device,
    use_channels_last,
)
from fedaction.engines.sequential import SequentialEngine
from fedaction.federation.seeds import numpy_generator
from fedaction.federation.state import Job
from fedaction.methods.base import Net
from fedaction.methods.fedvssl import FedVSSL, FedVSSLSettings
from fedaction.methods.pretext import PRETEXTS, VCOP
from fedaction.methods.start import fresh, initial_state
from fedaction.server.federation import combine
from fedaction.server.state import FederationState

SMALL = 4
"""The batch of the reference and of Flower's port of it."""


@dataclass(frozen=True)
class Size:
    """What is trained on what."""

    width: int = 64
    """Of the network; the paper's is 64."""
    size: int = 112
    """Rows and columns of a clip; recordings have 128 x 171 pixels where clips have 112 x 112."""
    frames: int = 16
    """Of a clip; recordings have four times as many."""
    batch: int = 32
    """Recordings in a step."""
    clients: int = 4
    """That train in a round."""
    recordings: int = 128
    """Of each client."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of a recording."""
        return 4 * self.frames, round(self.size * 128 / 112), round(self.size * 171 / 112), 3


def bench_pretext(
    tasks: Sequence[str] = tuple(PRETEXTS),
    size: Size | None = None,
    *,
    rounds: int = 5,
    device: torch.device | None = None,
    compiled: bool = True,
    tick: Tick = ignore,
) -> dict[str, Any]:
    """Clips a second of each pretext task, and what is left of them in a federation.

    All contenders are timed in turn, `rounds` times over, and each ratio is the median of its per-turn ratios, so
    that a noisy machine disturbs all alike. A clip is what passes the network: VCOP has three of each recording.

    - `ours`: a round of FedVSSL by the sequential engine: every client's epoch, and the server's step. On a GPU in
      bfloat16, with channels last, compiled and recorded; on a CPU in float32, as it is.
    - `plain`: the same epochs by a plain loop, with the same task, network, precision and batch, but no federation.
    - `eager`: a plain float32 loop over one client at batch 4, channels first, not compiled: how the reference
      trains. On a GPU without TF32; `eager_tf32` is the same with it.
    - `ours_batch4`: ours, one client at batch 4, which tells the batch's part from the rest.
    - `draw` and `apply`: what of a round is drawing numbers on the CPU, and making clips and targets on the device.

    If compiling on a GPU fails, the result says how, and is of what is not compiled.
    """
    size, (device, device_name) = size or Size(), timing.device_or_gpu(device)
    if rounds < 1 or size.recordings < 1 or size.clients < 1:
        raise ValueError(
            f"rounds {rounds}, recordings {size.recordings}, clients {size.clients}: all must be at least 1"
        )
    fast = device.type == "cuda"
    with timing.one_thread(not fast):
        results = {name: _bench(name, size, rounds, device, compiled and fast, tick) for name in tasks}
    return {
        "device": device_name,
        "torch": torch.__version__,
        "precision": "bf16" if fast else "fp32",
        "channels_last": fast,
        "batch": min(size.batch, size.recordings),
        "rounds": rounds,
        "clients": size.clients,
        "recordings": size.recordings,
        "shape": size.shape,
        "clip": (size.frames, size.size, size.size, 3),
        "tasks": results,
    }


def make_phones(size: Size, device: torch.device) -> dict[str, ClientData]:
    """Clients with recordings of noise, which are on the device already."""
    phones: dict[str, ClientData] = {}
    for number in range(size.clients):
        info = ClientInfo(f"phone-{number:03d}", "video", size.recordings, ("unlabelled",), size.shape)
        noise = numpy_generator(0, "bench", info.id).integers(0, 256, (size.recordings, *size.shape), np.uint8)
        x, y = torch.from_numpy(noise).to(device), torch.zeros(size.recordings, dtype=torch.int64)
        phones[info.id] = ClientData(info, Examples(x, y), Examples(x[:0], y[:0]))
    return phones


def make_method(task: str, size: Size, phones: Mapping[str, ClientData]) -> FedVSSL:
    """FedVSSL on these clients."""
    settings: dict[str, Any] = {"pretext": task, "clip_frames": size.frames, "clip_size": size.size}
    infos = [phone.info for phone in phones.values()]
    return FedVSSL(infos, FedVSSLSettings.model_validate({**settings, "model_width": size.width}))


def training_of(batch: int) -> Training:
    """The paper's, but for the batch."""
    return Training(seed=0, batch_size=batch, lr=0.01, momentum=0.0, weight_decay=1e-4, clip_norm=40.0)


class PlainLoop:
    """One network trained by the loop that one would write by hand: no clients, nothing sent, nothing averaged."""

    def __init__(
        self,
        method: FedVSSL,
        training: Training,
        device: torch.device,
        *,
        precision: Precision = "fp32",
        channels_last: bool = False,
        channels_first: bool = False,
        compiled: bool = False,
    ) -> None:
        """With `channels_first`, activations have the order that they usually have elsewhere."""
        self.task, self.training, self.device = method.task, training, device
        self.channels_first = channels_first
        module = fresh(method, next(iter(method.clients.values())), training.seed).to(device).train()
        self.module: nn.Module = set_network_precision(module, device, precision)
        if channels_last:
            use_channels_last(module)
        self.net = torch.compile(module, dynamic=False) if compiled else module
        self.parameters = list(module.parameters())
        lr, momentum, decay = training.lr, training.momentum, training.weight_decay
        self.optimiser = torch.optim.SGD(self.parameters, lr, momentum, weight_decay=decay, fused=True)

    def epoch(self, recordings: Tensor, job: Job) -> float:
        """One pass in the order, and with the draws, of a job; the mean loss."""
        order, drawn = epoch_of(self.training, self.task, recordings, job, self.device)
        total = torch.zeros((), device=self.device)
        for step, rows in enumerate(order):
            x, y = self.task.apply(recordings[rows], {name: tensor[step] for name, tensor in drawn.items()})
            if self.channels_first:
                x = x.movedim(-1, -4).contiguous().movedim(-4, -1)
            loss, _ = self.task.loss(cast("Net", self.net), x, y)
            loss.backward()
            nn.utils.clip_grad_norm_(self.parameters, self.training.clip_norm)
            align_gradients(self.parameters)
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
            total += loss.detach()
        return float(total) / len(order)


def epoch_of(
    training: Training, task: Any, recordings: Tensor, job: Job, device: torch.device
) -> tuple[Tensor, dict[str, Tensor]]:
    """An epoch's (steps, batch) order and what is drawn for it, on the device."""
    plan = plan_batches(training, job, len(recordings))
    random = augmentation_generator(training, job)
    drawn = Preparation(task, None).draw(plan, tuple(recordings.shape[1:]), random, 1)
    return to_device(plan, device), {name: to_device(tensor, device) for name, tensor in drawn.items()}


def _bench(name: str, size: Size, rounds: int, device: torch.device, compiled: bool, tick: Tick) -> dict[str, Any]:
    phones = make_phones(size, device)
    method = make_method(name, size, phones)
    error = ""
    try:
        times = _times(name, method, phones, size, rounds, device, compiled, tick)
    except Exception as caught:
        if not compiled:
            raise
        error = f"{type(caught).__name__}: {str(caught).strip().splitlines()[0] if str(caught).strip() else ''}"
        compiled = False
        torch.compiler.reset()
        times = _times(name, method, phones, size, rounds, device, compiled, tick)
    finally:
        torch.compiler.reset()  # torch keeps a handful of compiled forms of a function, then compiles no more
    clips = method.task.clips if isinstance(method.task, VCOP) else 1
    seconds, alone = timing.medians(times.wall), size.recordings * clips
    counts = {who: alone * (1 if who in _ALONE else size.clients) for who in seconds}
    per_clip = {who: [turn / counts[who] for turn in turns] for who, turns in times.wall.items()}
    result: dict[str, Any] = {
        "parameters": timing.count_parameters(method),
        "clips_per_recording": clips,
        "compiled": compiled,
        "compile_error": error,
        "compile_seconds": max(times.first["ours"] - seconds["ours"], 0.0) if compiled else 0.0,
        "seconds": seconds,
        "clips_per_second": {w: counts[w] / took for w, took in seconds.items() if w not in ("draw", "apply")},
        "ratio_plain": timing.ratio(per_clip, "plain", "ours"),
        "ratio_eager": timing.ratio(per_clip, "eager", "ours"),
        "ratio_eager_batch4": timing.ratio(per_clip, "eager", "ours_batch4"),
        "share_draw": timing.ratio(times.wall, "draw", "ours"),
        "share_apply": timing.ratio(times.wall, "apply", "ours"),
    }
    if "eager_tf32" in seconds:
        result["ratio_eager_tf32"] = timing.ratio(per_clip, "eager_tf32", "ours")
    return result


_ALONE = ("eager", "eager_tf32", "ours_batch4")  # which train one client, not all


def _times(
    name: str,
    method: FedVSSL,
    phones: Mapping[str, ClientData],
    size: Size,
    rounds: int,
    device: torch.device,
    compiled: bool,
    tick: Tick,
) -> timing.Times:
    """Each contender's seconds; networks are compiled in the first turn."""
    fast = device.type == "cuda"
    training, small = training_of(size.batch), training_of(SMALL)
    server = FederationState(0, initial_state(method, training.seed)).to(device).server
    jobs = timing.jobs_of(method, server)
    options: dict[str, Any] = {"precision": "bf16" if fast else "fp32", "channels_last": fast, "compiled": compiled}
    ours, ours4 = (SequentialEngine(method, phones, t, device, **options, recorded=True) for t in (training, small))
    plain = PlainLoop(method, training, device, **options)
    eager = PlainLoop(method, small, device, channels_first=True)
    pixels = {client: in_memory(phone.train).x for client, phone in phones.items()}
    drawn = {job.client: epoch_of(training, method.task, pixels[job.client], job, device) for job in jobs}

    def apply() -> None:
        for client, (order, numbers) in drawn.items():
            for step, rows in enumerate(order):
                now = {name: tensor[step] for name, tensor in numbers.items()}
                method.task.apply(pixels[client][rows], now)

    def train_eagerly() -> float:
        return eager.epoch(pixels[jobs[0].client], jobs[0])

    def prepare(who: str, turn: int) -> None:
        tick(f"{name}: {who}" + (f", turn {turn} of {rounds}" if turn else ", first turn"))
        set_precision(who != "eager", fastest=not who.startswith("eager"))
        torch.backends.cudnn.deterministic = False  # torch's default: nobody is slower for bits' sake

    contenders: dict[str, Callable[[], object]] = {
        "ours": lambda: combine(method, server, ours.train(jobs)),
        "plain": lambda: [plain.epoch(pixels[job.client], job) for job in jobs],
        "eager": train_eagerly,
        **({"eager_tf32": train_eagerly} if fast else {}),
        "ours_batch4": lambda: combine(method, server, ours4.train(jobs[:1])),
        "draw": lambda: [epoch_of(training, method.task, pixels[job.client], job, device) for job in jobs],
        "apply": apply,
    }
    try:
        return timing.time_in_turn(contenders, rounds, prepare)
    finally:
        ours.close()
        ours4.close()
