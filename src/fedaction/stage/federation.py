"""Federations of synthetic skeleton recordings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.layout import Layout
from fedaction.data.layout import layout as layout_named
from fedaction.data.samples import Examples
from fedaction.federation.seeds import derive, numpy_generator
from fedaction.stage.actions import NAMES, number
from fedaction.stage.actors import ADULTS, CHILDREN, ELDERLY, Cohort, actor
from fedaction.stage.performance import perform
from fedaction.stage.sensor import Sensor, skeletons

_BATCH = 256  # recordings made at once; keeps memory small however large the set
_SHARED = 0.4  # share of a client's actions that come from the federation's common ones


def stage_federation(
    *,
    clients: int,
    layouts: Sequence[str],
    train: Sequence[int],
    test: int,
    actions: Sequence[int],
    seed: int,
    frames: int = 50,
    heterogeneity: float = 1.0,
    noise: float = 1.0,
    progress: Callable[[int, int], object] | None = None,
) -> list[ClientData]:
    """A federation of synthetic skeleton recordings. Sequences shorter than `clients` are cycled.

    A client is a place with its own people, device, camera position and list of actions. Its training and test
    recordings are of different people. A client's data depends on the seed, its number and its own settings only.

    Args:
        clients: number of clients.
        layouts: layout names by client.
        train: training recordings by client.
        test: test recordings of each client.
        actions: number of actions that each client labels; the clients' lists overlap and differ.
        seed: seed of the world.
        frames: T.
        heterogeneity: 0 makes the clients' people, cameras and devices alike, 1 is the usual difference.
        noise: scales every sensor error; 0 records exactly.
        progress: called with the recordings made and the recordings there are.

    Returns:
        The clients, x (N, 1, frames, V, 3) in metres in camera axes.
    """
    if clients < 1 or not layouts or not train or not actions:
        raise ValueError("a federation needs at least one client, layout, training amount and number of actions")
    if min(train) < 1 or test < 1 or not all(2 <= n <= len(NAMES) for n in actions):
        raise ValueError(
            f"every client needs training and test recordings and 2 to {len(NAMES)} actions; "
            f"got train={list(train)}, test={test}, actions={list(actions)}"
        )
    if frames < 2 or heterogeneity < 0.0 or noise < 0.0:
        raise ValueError(
            f"frames must be at least 2, heterogeneity and noise not negative; got {frames}, {heterogeneity}, {noise}"
        )
    lists = _action_lists([actions[i % len(actions)] for i in range(clients)], seed)
    total, made = sum(train[i % len(train)] + test for i in range(clients)), 0

    def tell(count: int) -> None:
        nonlocal made
        made += count
        if progress is not None:
            progress(made, total)

    out = []
    for i, names in enumerate(lists):
        shape = layout_named(layouts[i % len(layouts)])
        place = place_of(derive(seed, "stage client", i), shape, heterogeneity, noise)
        data = place.record(names, train[i % len(train)], "train", frames, heterogeneity, tell)
        info = ClientInfo(
            id=f"stage-{i}-{shape.name}",
            group="skeleton",
            samples=len(data),
            classes=names,
            shape=(1, frames, len(shape), 3),
            layout=shape,
        )
        out.append(ClientData(info, data, place.record(names, test, "test", frames, 0.0, tell)))
    return out


def _action_lists(counts: list[int], seed: int) -> list[tuple[str, ...]]:
    """Each client's actions: some that all clients draw first, the rest by each client's own chance."""
    common = [NAMES[i] for i in numpy_generator(seed, "common actions").permutation(len(NAMES))]
    lists: list[tuple[str, ...]] = []
    for client, count in enumerate(counts):
        first = common[: int(np.ceil(_SHARED * count))]
        names: tuple[str, ...] = ()
        for attempt in range(100):
            rng = numpy_generator(seed, "actions", client, attempt)
            rest = [name for name in NAMES if name not in first]
            drawn = first + [rest[i] for i in rng.permutation(len(rest))[: count - len(first)]]
            names = tuple(drawn[i] for i in rng.permutation(count))
            # Few of the possible lists may be left when clients label nearly everything; then a repeat is allowed.
            if all(set(names) != set(other) for other in lists):
                break
        lists.append(names)
    return lists


@dataclass(frozen=True)
class Place:
    """A client's people and device."""

    seed: int
    cohort: Cohort
    sensor: Sensor
    layout: Layout

    def record(
        self,
        names: tuple[str, ...],
        samples: int,
        split: str,
        frames: int,
        skew: float,
        tell: Callable[[int], object] = lambda _: None,
    ) -> Examples:
        """Recordings of the split's own people; `skew` makes some actions more common than others.

        `tell` is called with how many more are made.
        """
        rng = numpy_generator(self.seed, split)
        weights = np.exp(0.5 * skew * rng.standard_normal(len(names)))
        # Every action once, as far as the amount allows, then by weight.
        extra = rng.choice(len(names), max(samples - len(names), 0), p=weights / weights.sum())
        even = np.arange(samples) % len(names)
        labels = even if skew == 0.0 else np.concatenate([even[: len(names)], extra])
        labels = rng.permutation(labels)
        count = int(np.clip(samples // 12, 4, 40))
        people = [actor(self.seed, f"{split}-{i}", self.cohort) for i in range(count)]
        chosen = [people[i] for i in rng.integers(0, count, samples)]
        numbers = np.array([number(name) for name in names])[labels]
        own = derive(self.seed, split)
        x = np.empty((samples, 1, frames, len(self.layout), 3), np.float32)
        for first in range(0, samples, _BATCH):
            some = slice(first, first + _BATCH)
            shows = perform(numbers[some], chosen[some], own, frames, takes=np.arange(samples)[some])
            x[some] = skeletons(shows, self.layout, self.sensor, own)
            tell(len(x[some]))
        return Examples(torch.from_numpy(x), torch.from_numpy(labels), tuple(who.name for who in chosen))


def place_of(seed: int, shape: Layout, heterogeneity: float, noise: float) -> Place:
    """The people and the device that a seed means; the larger `heterogeneity`, the less it is like others."""
    rng = numpy_generator(seed, "place")
    kind = (ADULTS, CHILDREN, ELDERLY)[int(rng.choice(3, p=[0.5, 0.25, 0.25]))]
    n = np.clip(rng.standard_normal(6), -2.0, 2.0) * heterogeneity

    def between(name: str, deviate: float) -> float:
        """From adults towards the place's own kind of people."""
        usual = getattr(ADULTS, name)
        return usual + heterogeneity * (getattr(kind, name) - usual) + deviate

    cohort = replace(
        ADULTS,
        name=f"people of {seed}",
        height=float(np.clip(between("height", 0.03 * n[0]), 1.0, 2.0)),
        head=between("head", 0.0),
        tempo=float(np.clip(between("tempo", 0.06 * n[1]), 0.5, 1.6)),
        amplitude=float(np.clip(between("amplitude", 0.06 * n[2]), 0.6, 1.3)),
        stoop=float(np.clip(between("stoop", 0.0), 0.0, 0.4)),
        knees=float(np.clip(between("knees", 0.0), 0.0, 0.06)),
    )
    middle, down = 0.35 * n[3], 0.12 + 0.08 * n[4]
    quality = float(np.exp(0.35 * n[5]))
    sensor = Sensor(
        yaw=(middle - 0.6, middle + 0.6),
        pitch=(down - 0.08, down + 0.08),
        white=noise * (0.02 * quality),
        drift=noise * (0.035 * quality),
        dropout=min(noise * (0.04 * quality), 0.5),
        bias=noise * (0.018 * heterogeneity),
        # Every place with the same layout has the same kind of device.
        device=derive(0, "device", shape.name),
    )
    return Place(seed, cohort, sensor, shape)
