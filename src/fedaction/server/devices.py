"""Device profiles: how fast, how far away and how reliable the machines of a federation are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError

from fedaction.federation.clock import Device
from fedaction.federation.outside import MOST_SETTINGS, parse_toml, read_text, refuse_damage
from fedaction.federation.settings import RecipeError, Settings, explain, nearest


@dataclass(frozen=True)
class Fleet:
    """Kinds of devices, dealt to clients in turn, and the machine that central training runs on."""

    devices: tuple[Device, ...]
    """One or more kinds."""
    server: Device | None = None
    """The central machine; None: the first kind."""


# Tables IV and V of the edge paper (Jain et al., 2021): seconds for a local epoch over a quarter of the dataset and
# for its whole test set, fine-tuning the last layer of ResNet-18 at 8 x 112 x 112. Central: Table II over 80 epochs.
_JETSONS = {
    "jetson_hmdb51": (
        ("jetson_nano", 391.1, 181.4),
        ("jetson_tx2", 293.1, 116.3),
        ("jetson_xavier_nx", 121.3, 89.4),
        ("jetson_agx_xavier", 84.5, 68.3),
        ("v100s", (3 * 3600 + 15 * 60) / 80, 0.0),
    ),
    "jetson_ucf101": (
        ("jetson_nano", 2691.6, 621.3),
        ("jetson_tx2", 2001.4, 381.2),
        ("jetson_xavier_nx", 821.9, 322.5),
        ("jetson_agx_xavier", 572.1, 217.7),
        ("v100s", (22 * 3600 + 5 * 60) / 80, 0.0),
    ),
}

FLEETS: dict[str, Fleet] = {
    name: Fleet(
        tuple(Device(kind, seconds_per_epoch=train, test_seconds=test) for kind, train, test in rows[:-1]),
        Device(rows[-1][0], seconds_per_epoch=rows[-1][1]),
    )
    for name, rows in _JETSONS.items()
}
"""Built-in fleets: the edge paper's four Jetsons, with their times on either of its datasets."""


class _Profile(Settings):
    """A table of a TOML file of devices."""

    seconds_per_sample: float = Field(0.0, ge=0)
    seconds_per_epoch: float = Field(0.0, ge=0)
    test_seconds: float = Field(0.0, ge=0)
    download_mbit: float = Field(0.0, ge=0)
    upload_mbit: float = Field(0.0, ge=0)
    latency: float = Field(0.0, ge=0)
    jitter: float = Field(0.0, ge=0)
    availability: float = Field(1.0, gt=0, le=1)
    period: float = Field(86_400.0, gt=0)
    failure_rate: float = Field(0.0, ge=0, lt=1)
    vanishes: float = Field(0.0, ge=0)
    count: int = Field(1, ge=1, le=100_000)

    def device(self, name: str) -> Device:
        def rate(mbit: float) -> float:
            return mbit * 1e6 / 8 if mbit else math.inf

        return Device(
            name,
            self.seconds_per_sample,
            self.seconds_per_epoch,
            self.test_seconds,
            rate(self.download_mbit),
            rate(self.upload_mbit),
            self.latency,
            self.jitter,
            self.availability,
            self.period,
            self.failure_rate,
            self.vanishes or math.inf,
        )


def fleet_of(name: str) -> Fleet:
    """A built-in fleet by name, or one read from a TOML file: a table for each kind of device.

    Raises RecipeError with a message for people.
    """
    if name in FLEETS:
        return FLEETS[name]
    path = Path(name)
    if path.suffix != ".toml":
        raise RecipeError(
            f"devices = {name!r} is unknown{nearest(name, FLEETS)}; there are {', '.join(FLEETS)}, and your own as a "
            ".toml file"
        )
    with refuse_damage(path, "a list of devices", RecipeError):
        tables = parse_toml(read_text(path, MOST_SETTINGS, RecipeError), path, RecipeError)
    devices: list[Device] = []
    server: Device | None = None
    for kind, values in tables.items():
        if not isinstance(values, dict):
            raise RecipeError(f"devices: {path}: {kind!r} is not a table; write [{kind}] and its keys below")
        try:
            profile = _Profile.model_validate(values)
        except ValidationError as error:
            raise RecipeError(f"devices: {path}: [{kind}]: {explain(error)}") from None
        if not profile.seconds_per_sample and not profile.seconds_per_epoch:
            raise RecipeError(f"devices: {path}: [{kind}] needs seconds_per_sample or seconds_per_epoch")
        if kind == "server":
            server = profile.device(kind)
        else:
            devices += [profile.device(kind)] * profile.count
    if not devices:
        raise RecipeError(f"devices: {path} names no device; write a table for each kind, such as [camera]")
    return Fleet(tuple(devices), server)


def share_work(devices: Mapping[str, Device], samples: Mapping[str, int], least: int, most: int) -> dict[str, int]:
    """Local epochs of each client, H_min to H_max: as many as its device does while the fastest does H_max.

    Edge paper, section III-D: how much local work there is, is for the server to say, by what devices can do.
    """
    seconds = {name: d.seconds_per_epoch or d.seconds_per_sample * samples[name] for name, d in devices.items()}
    fastest = min(seconds.values(), default=0.0)
    return {name: max(least, min(most, int(most * fastest / own + 1e-9))) for name, own in seconds.items()}


def deal_devices(fleet: Fleet, clients: Sequence[str], pooled: Sequence[str] = ()) -> dict[str, Device]:
    """Every client's device: the kinds in turn, by the order of names; for those in `pooled` the server."""
    names = sorted(name for name in clients if name not in pooled)
    dealt = {name: fleet.devices[i % len(fleet.devices)] for i, name in enumerate(names)}
    return dealt | dict.fromkeys(pooled, fleet.server or fleet.devices[0])
