"""What a run holds: clients' own tensors and nothing else, and no more after many rounds than after a few."""

import ctypes
import gc
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fedaction.data.client import ClientData
from fedaction.federation.progress import Quiet
from fedaction.federation.state import Update
from fedaction.federation.tree import tree_bytes
from fedaction.runs.recipe import parse_recipe
from fedaction.runs.single import SingleRun
from fedaction.server.federation import combine
from tests.conftest import TINY, few, make_client

ENGINES = ["sequential", "vectorised"]


def make_run(folder: Path, clients: Mapping[str, ClientData], engine: str, **settings: object) -> SingleRun:
    values = {"method": "fsar", "batch_size": 4, "lr": 0.01, "workers": 1, "engine": engine, "device": "cpu"}
    return SingleRun(parse_recipe({**values, **TINY, **settings}), clients, folder, Quiet())


@pytest.mark.parametrize("engine", few(ENGINES, "vectorised"))
def test_a_thousand_clients_hold_only_their_local_tensors(tmp_path, engine):
    kinds = [make_client(0, train=4, test=1, classes=4, frames=8)]
    kinds.append(make_client(1, joints="openni_15", train=4, test=1, classes=3, frames=8))
    clients = {}
    for number in range(1000):
        kind = kinds[number % 2]
        name = f"client-{number:04d}"
        clients[name] = replace(kind, info=replace(kind.info, id=name))
    run = make_run(tmp_path, clients, engine, clients_per_round=25)
    state, metrics = run._open()
    metrics.close()
    maker, federation = run.engine(state), state.federation
    for round in (1, 2):
        federation, _ = run.rounds.advance(federation, maker, round)
    maker.close()
    trained, kept = federation.visits.keys(), maker.store.save().committed
    assert 25 < len(trained) <= 50
    assert kept.keys() == trained and not maker.store.save().pending  # those that never trained hold nothing
    for name in trained:
        joints, classes = (25, 4) if int(name[-4:]) % 2 == 0 else (15, 3)
        values = (
            3 * joints**2  # U
            + 3  # alpha, beta, gamma
            + 4 * 3 * joints  # normalisation of the data: weight, bias, mean, variance
            + 2 * (2 * 4 + 3 * 8 + 3 * 16)  # mean and variance of the units' norms
            + (8 + 1) * classes  # classifier
        )
        assert tree_bytes(kept[name]) == 4 * values
        # Nor does a small tensor keep a large one alive, as a view of the stack it was trained in would.
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in kept[name].values()}
        assert sum(storages.values()) == 4 * values
    assert len({t.data_ptr() for tree in kept.values() for t in tree.values()}) == sum(
        len(tree) for tree in kept.values()
    )
    # What the others will start from is there once for each kind of network, not once for each client.
    assert len(maker.engine._first) == 2


def resident() -> float:
    """MB of this process in memory, without what the allocator keeps for later (some 15 MB that come and go)."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_forty_rounds_leave_memory_as_it_was(tmp_path, engine):
    clients = {f"client-{n}": make_client(n, train=4, test=2, frames=8) for n in range(2)}
    run = make_run(tmp_path, clients, engine, rounds=1000, model_width=24, model_dropout=0.1, mkd_blocks=1)
    state, metrics = run._open()
    maker = run.engine(state)
    shared = tree_bytes(state.server.shared) / 1e6
    for _ in range(10):
        state = run._advance(state, maker, metrics)
    before = resident()
    for _ in range(40):
        state = run._advance(state, maker, metrics)
    grown = resident() - before
    metrics.close()
    maker.close()
    assert state.round == 50
    # Heaps do not shrink to the byte: a few MB stay fragmented. Keeping one copy of the shared tensors a round would
    # come to many times that.
    tolerance = 5
    assert 40 * shared > 4 * tolerance
    assert grown < tolerance, f"{grown:.1f} MB more after 40 rounds"


@pytest.mark.parametrize("engine", few(ENGINES, "sequential"))
def test_updates_are_let_go_as_they_are_combined(tmp_path, engine):
    """Forty clients' updates are never in memory together: only what a few workers, or one stack, hold."""
    kind = make_client(0, train=4, test=1, frames=8)
    clients = {f"client-{n:03d}": replace(kind, info=replace(kind.info, id=f"client-{n:03d}")) for n in range(40)}
    run = make_run(tmp_path, clients, engine, clients_per_step=4)
    state, metrics = run._open()
    metrics.close()
    maker = run.engine(state)
    jobs = [run.federation.job(state.server, name, 1) for name in sorted(clients)]
    before = updates_alive()
    counts: list[int] = []

    def watched(updates: Iterator[Update]) -> Iterator[Update]:
        for number, update in enumerate(updates):
            if number % 20 == 19:
                time.sleep(0.5 if number == 19 else 0)  # a slow server: workers must wait for it, not run ahead
                counts.append(updates_alive() - before)
            yield update

    combine(run.assembly.method, state.server, watched(maker.train(jobs)))
    maker.close()
    assert len(counts) == 2 and max(counts) <= 8, f"so many updates were alive: {counts}"


def updates_alive() -> int:
    gc.collect()
    return sum(type(thing) is Update for thing in gc.get_objects())
