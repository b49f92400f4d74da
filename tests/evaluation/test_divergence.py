"""How far clients' models go: against literal sums, on both engines."""

import math
import statistics
import weakref
from collections.abc import Iterator

import pytest
import torch

from fedaction.data.client import ClientData
from fedaction.engines import vectorised
from fedaction.engines.base import Training
from fedaction.engines.observed import ObservedEngine
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.evaluation.divergence import Distances, consistency, deviations, distances
from fedaction.federation.state import Job, ServerState
from fedaction.methods.base import Method
from fedaction.methods.start import fresh, initial_state
from tests.conftest import federation_for


def test_a_distance_is_over_all_tensors_of_a_module():
    before = {"body.a": torch.zeros(2, 2), "body.b": torch.ones(3), "head.w": torch.ones(2), "head.n": torch.ones(1)}
    after = {"body.a": torch.ones(2, 2), "body.b": torch.tensor([1.0, 1.0, 4.0]), "head.w": -torch.ones(2)}
    found = distances(before, after, ["body.a", "body.b", "head.w"])
    assert found == pytest.approx({"body": math.sqrt(4 + 9), "head": math.sqrt(8)})
    assert distances(before, after, []) == {}


def job_for(method: Method, server: ServerState, client: str) -> Job:
    info = method.clients[client]
    return Job(client, info.group, 0, 1, method.payload(server, info))


def measured(engine: type, method: Method, clients: dict[str, ClientData]) -> ObservedEngine:
    made = engine(method, clients, Training(3, lr=0.05), torch.device("cpu"))
    return ObservedEngine(made, [Distances(method)])


@pytest.mark.parametrize("engine", [SequentialEngine, VectorisedEngine])
@pytest.mark.parametrize("name", ["fsar", "fdarn"])  # shared and local parts; parts shared in groups
def test_updates_say_how_far_they_went_on_both_engines(name, engine):
    clients, method = federation_for(name, few=True)
    server = initial_state(method, 3)
    trained = measured(engine, method, clients)
    jobs = [job_for(method, server, client) for client in sorted(clients)[:2]]
    for job, update in zip(jobs, trained.train(jobs), strict=True):
        assert update.client == job.client
        expected: dict[str, float] = {}
        before, after = trained.store.current(job.client), trained.store.pending(job.client)
        for tensor in (n for n, _ in fresh(method, clients[job.client].info, 3).named_parameters()):
            sent = tensor in job.payload
            if not sent and tensor not in before:
                continue  # frozen
            one, other = (job.payload, update.tree) if sent else (before, after)
            key = ("distance/" if sent else "own_distance/") + tensor.split(".")[0]
            expected[key] = expected.get(key, 0.0) + sum((one[tensor] - other[tensor]).double().flatten() ** 2).item()
        found = {key: value for key, value in update.metrics.items() if "distance/" in key}
        assert found == pytest.approx({key: math.sqrt(total) for key, total in expected.items()}, rel=1e-5)
        assert "loss" in update.metrics and max(found.values()) > 0
        assert ("own_distance/classifier" in found) == (name == "fsar")
    trained.close()


@pytest.mark.parametrize("engine", [SequentialEngine, VectorisedEngine])
def test_jobs_are_taken_as_they_are_wanted_and_let_go(engine, monkeypatch):
    monkeypatch.setattr(vectorised, "_WINDOW", 2)
    clients, method = federation_for("fedavg", few=True)
    server = initial_state(method, 3)
    names = sorted(clients)[:2] * 4
    taken: list[weakref.ref[Job]] = []

    def jobs() -> Iterator[Job]:
        for name in names:
            job = job_for(method, server, name)
            taken.append(weakref.ref(job))
            yield job

    trained = measured(engine, method, clients)
    found: list[str] = []
    for update in trained.train(jobs()):
        found.append(update.client)
        assert len(taken) <= len(found) + 1  # one worker, or a window of two
        assert sum(job() is not None for job in taken) <= 4
        assert any(name.startswith("distance/") for name in update.metrics)
    trained.close()
    assert found == names


def test_deviations_are_over_the_clients_of_a_round():
    by_round = {2: [1.0, 4.0, 4.0], 1: [0.5, 0.75], 3: [7.0]}
    found = deviations(by_round)
    assert list(found) == [1, 2]  # one client has no deviation
    assert found == pytest.approx({1: statistics.stdev([0.5, 0.75]), 2: statistics.stdev([1, 4, 4])})


def test_consistency_has_the_ends_of_a_curve():
    curve = {r: float(r * r) for r in range(1, 31)}
    found = consistency(curve)
    assert found.mean == pytest.approx(statistics.fmean(curve.values()))
    assert found.variation == pytest.approx(statistics.stdev(curve.values()))
    assert (found.first, found.last) == pytest.approx(((1 + 4 + 9) / 3, (28**2 + 29**2 + 30**2) / 3))
    one = consistency({5: 2.0})
    assert (one.mean, one.variation, one.first, one.last) == (2, 0, 2, 2)
    with pytest.raises(ValueError, match="at least one round"):
        consistency({})
