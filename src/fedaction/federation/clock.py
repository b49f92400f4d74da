"""The virtual clock: how long a device takes for a job. A pure function of the run's seed, the client and the job."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fedaction.federation.seeds import numpy_generator


@dataclass(frozen=True)
class Device:
    """What a job costs on a kind of device. Times are in seconds."""

    name: str = "device"
    """Of its kind."""
    seconds_per_sample: float = 0.01
    """Training on one sample once, forward and backward."""
    seconds_per_epoch: float = 0.0
    """One local epoch, however many samples it has; 0: by `seconds_per_sample`."""
    test_seconds: float = 0.0
    """One pass over a test set, where known."""
    download: float = math.inf
    """Bytes a second to the device."""
    upload: float = math.inf
    """Bytes a second from it."""
    latency: float = 0.0
    """Of every transfer, either way."""
    jitter: float = 0.0
    """Standard deviation of the logarithm of a job's training time."""
    availability: float = 1.0
    """Share of the time that it is on, in (0, 1]; work rests while it is off."""
    period: float = 86_400.0
    """From one switching on to the next; when in it the device is on is drawn once for each client."""
    failure_rate: float = 0.0
    """The chance that a job's result is lost on the way."""
    vanishes: float = math.inf
    """After this time the device is never heard of again."""


@dataclass(frozen=True)
class Span:
    """A job in time."""

    start: float
    """When the client is asked."""
    finish: float
    """When its answer is there; infinite where it never comes."""
    busy: float
    """Seconds that the device worked for it: training and transfers."""
    lost: bool = False
    """Whether there is no answer at `finish`, but only the device, free again."""


@dataclass(frozen=True)
class Clock:
    """The devices of a federation."""

    seed: int
    """The run's seed."""
    devices: Mapping[str, Device]
    """Every client's."""
    samples: Mapping[str, int]
    """Training samples of every client."""
    epochs: int = 1
    """Local epochs of a job."""
    traffic: Mapping[str, int] | None = None
    """Bytes of what a client shares: they go to it and come back."""
    own_epochs: Mapping[str, int] | None = None
    """Local epochs of clients that are asked for other than `epochs`."""
    installed: Mapping[str, int] | None = None
    """Bytes that go to a client once, with its first job: what it keeps and never trains."""
    tests: bool = False
    """Whether a device tests what it is sent before it trains."""

    def span(self, client: str, number: int, start: float = 0.0, *, first: bool = False) -> Span:
        """A client's job begun at a time; `number` tells its jobs apart (a round, say): chance is drawn for each.

        With `first`, it is the client's first job.
        """
        device = self.devices[client]
        training = device.seconds_per_epoch or device.seconds_per_sample * self.samples[client]
        if device.jitter:
            training *= math.exp(numpy_generator(self.seed, "jitter", client, number).normal() * device.jitter)
        size = (self.traffic or {}).get(client, 0)
        down = size + ((self.installed or {}).get(client, 0) if first else 0)
        epochs = (self.own_epochs or {}).get(client, self.epochs)
        busy = (
            training * epochs
            + self.tests * device.test_seconds
            + down / device.download
            + size / device.upload
            + 2 * device.latency
        )
        finish = _after(start, busy, device, self._phase(client, device))
        if finish > device.vanishes:
            return Span(start, math.inf, max(min(busy, device.vanishes - start), 0.0), lost=True)
        chance = numpy_generator(self.seed, "drop-out", client, number).random() if device.failure_rate else 1.0
        return Span(start, finish, busy, lost=bool(chance < device.failure_rate))

    def _phase(self, client: str, device: Device) -> float:
        """When a client's device is first switched on."""
        if device.availability >= 1:
            return 0.0
        return float(numpy_generator(self.seed, "availability", client).random()) * device.period


def spread_devices(
    seed: int, clients: Mapping[str, int], seconds_per_sample: float, spread: float
) -> dict[str, Device]:
    """Devices of unequal speed, where no profiles are given: the logarithm of a client's speed is normal."""
    devices: dict[str, Device] = {}
    for client in clients:
        factor = math.exp(numpy_generator(seed, "speed", client).normal() * spread)
        devices[client] = Device("ordinary", seconds_per_sample * factor, jitter=0.1)
    return devices


def _after(start: float, work: float, device: Device, phase: float) -> float:
    """When so many seconds of work are done, begun at `start`, with rests while the device is off."""
    if device.availability >= 1:
        return start + work
    on, period = device.availability * device.period, device.period
    since = (start - phase) % period
    if since >= on:
        start, since = start + period - since, 0.0
    if work <= on - since:
        return start + work
    work -= on - since
    start += period - since  # when it is next switched on
    whole = max(math.ceil(work / on) - 1, 0)
    return start + whole * period + (work - whole * on)
