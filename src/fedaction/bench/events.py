"""Speed of the asynchronous schedule itself: what its bookkeeping costs beside the training of small clients."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import torch
from torch import nn

from fedaction.bench.timing import Tick, fill_clients, ignore, one_thread
from fedaction.data.client import ClientInfo
from fedaction.engines.base import Training
from fedaction.engines.sequential import SequentialEngine
from fedaction.federation.average import Averages
from fedaction.federation.clock import Clock, Device
from fedaction.federation.scope import GLOBAL, Rule, ScopeTable
from fedaction.federation.state import Job, ServerState, Update
from fedaction.federation.tree import Tree
from fedaction.guard.validate import validate
from fedaction.methods.edge import Edge, EdgeSettings
from fedaction.methods.start import initial_state
from fedaction.models.heads import Classifier
from fedaction.server.events import Events
from fedaction.server.federation import Federation
from fedaction.server.schedule import Turns
from fedaction.server.state import FederationState

FEATURES, CLASSES = 512, 51
"""Of the edge paper's classifier over its frozen backbone: 26,163 parameters."""
_KINDS = tuple(  # Table IV, HMDB-51, but that a job's time varies by a tenth, so that few answers come at one instant
    Device(name, seconds_per_epoch=seconds, jitter=0.1)
    for name, seconds in (("nano", 391.1), ("tx2", 293.1), ("nx", 121.3), ("agx", 84.5))
)


class _LastLayer(Edge):
    """Asynchronous learning of a classifier over features; notes how long the server's own arithmetic takes."""

    title = "bench"
    combining = 0.0

    def build(self, client: ClientInfo) -> nn.Module:
        return Classifier(client.shape[0], len(client.classes))

    def scopes(self) -> ScopeTable:
        return ScopeTable((Rule("**", GLOBAL),))

    def advance(self, server: ServerState, mean: Averages) -> ServerState:
        start = time.process_time()
        advanced = super().advance(server, mean)
        self.combining += time.process_time() - start
        return advanced


class _Timed(SequentialEngine):
    """The engine, which notes how long it trains."""

    training = 0.0

    def train(self, jobs: Iterable[Job]) -> Iterator[Update]:
        start = time.process_time()
        updates = list(super().train(jobs))
        self.training += time.process_time() - start
        return iter(updates)


def bench_events(
    devices: int = 1000,
    updates: int = 2000,
    *,
    samples: int = 32,
    batch_size: int = 8,
    features: int = FEATURES,
    classes: int = CLASSES,
    ahead: int = 1,
    tick: Tick = ignore,
) -> dict[str, Any]:
    """Simulates asynchronous learning (method edge) on many devices of four kinds, with one worker.

    All devices work at once. The first round, of as many updates as there are devices or a thousand, warms up: after
    it the model that each flight started from is mostly its own, as in a long run. Seconds are of processor time,
    over all threads: the work itself, not the waiting for a core that others use.

    A quarter of the devices is of each kind; each client has `samples` of `features` numbers, trained on once a job,
    and the model has `features * classes + classes` parameters. `updates` are those accepted by the server while the
    clock runs; `ahead` jobs are trained at a time.

    Returns:
        The sizes; `seconds` in all and of its parts: `training`, `combining` (the method's own arithmetic on the
        server) and `bookkeeping`, which is the rest: the events, the checks of updates, and all copying; server
        `updates_per_second` in all and without the training; `microseconds` of bookkeeping and of training for an
        update; `bookkeeping_share` of the whole, and `bookkeeping_to_training`; `held_bytes`, of the distinct tensors
        in the state at the end.
    """
    if min(devices, updates, samples, batch_size, features, classes, ahead) < 1:
        raise ValueError("devices, updates, samples and all other sizes must be at least 1")
    names = tuple(str(c) for c in range(classes))
    clients = fill_clients(
        ClientInfo(f"device-{i:05d}", "bench", samples, names, (features,)) for i in range(devices)
    )
    infos = [client.info for client in clients.values()]
    method = _LastLayer(infos, EdgeSettings.model_validate({}))
    clock = Clock(0, {c: _KINDS[i % len(_KINDS)] for i, c in enumerate(clients)}, {c: samples for c in clients})

    federation = Federation(method, infos, (validate,), timed=True)

    def events(count: int) -> Events:
        return Events(federation, Turns(0), clock, count, ahead)

    training = Training(seed=0, batch_size=batch_size, lr=0.01)
    engine = _Timed(method, clients, training, torch.device("cpu"))
    with closing(engine), one_thread():
        tick("warming up")
        first = FederationState(0, initial_state(method, 0))
        state, _ = events(min(devices, 1000)).advance(first, engine, 1)
        method.combining = engine.training = 0.0
        tick("measuring")
        start = time.process_time()
        state, _ = events(updates).advance(state, engine, 2)
        whole = time.process_time() - start
    trained = engine.training
    rest = whole - trained - method.combining
    return {
        "devices": devices,
        "kinds": len(_KINDS),
        "updates": updates,
        "parameters": features * classes + classes,
        "samples": samples,
        "virtual_seconds": state.time,
        "seconds": {"whole": whole, "training": trained, "combining": method.combining, "bookkeeping": rest},
        "updates_per_second": updates / whole,
        "updates_per_second_untrained": updates / (whole - trained),
        "microseconds": {"bookkeeping": 1e6 * rest / updates, "training": 1e6 * trained / updates},
        "bookkeeping_share": rest / whole,
        "bookkeeping_to_training": rest / trained,
        "held_bytes": held_bytes(state),
    }


def held_bytes(state: FederationState) -> int:
    """Bytes of the distinct tensors of a state: the server's, and those of jobs in flight."""
    trees: list[Tree] = [state.server.shared, *state.server.groups.values(), state.server.ahead, state.server.memory]
    for flight in state.flights:
        trees += [flight.job.payload, flight.update.tree if flight.update else {}]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for tree in trees for t in tree.values()}
    return sum(storage.nbytes() for storage in storages.values())
