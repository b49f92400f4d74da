"""Normalisation statistics: applied by the batch, and estimated anew before a test."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedaction.engines.base import Applied, Training, batch_plan
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.federation.seeds import generator
from fedaction.federation.state import Job
from fedaction.methods.start import fresh, initial_state
from fedaction.models.statistics import norms_of, share_by_batch
from tests.conftest import make_method, mixed_clients

TRAINING = Training(seed=0, batch_size=4, lr=0.05)
AGAIN = replace(TRAINING, reestimate=True)


def answer(engine_type, method, clients, training):
    """Each client's logits with what it keeps of a round, under what it was sent for that."""
    engine = engine_type(method, clients, training, torch.device("cpu"))
    server = initial_state(method, 0)
    jobs = [Job(n, i.group, 0, 1, method.payload(server, i)) for n, i in sorted(method.clients.items())]
    try:
        for update in engine.train(jobs):
            engine.commit([update.client])
        return {a.client.info.id: a.logits for a in engine._answer(jobs)}
    finally:
        engine.close()


@pytest.mark.parametrize("name", ["fedavg", "fsar", "fedbn", "fedema"])
def test_engines_agree_on_statistics_estimated_anew(double, name):
    clients = mixed_clients()
    method = make_method(name, clients)
    one, other = (answer(kind, method, clients, AGAIN) for kind in (SequentialEngine, VectorisedEngine))
    before = answer(SequentialEngine, method, clients, TRAINING)
    for client, logits in one.items():
        torch.testing.assert_close(logits, other[client], rtol=1e-5, atol=1e-6)
        assert not torch.allclose(logits, before[client], atol=1e-3)


def test_statistics_are_the_means_over_batches_of_training_samples(double):
    """By hand, in the first normalisation, whose input is the samples themselves; and labels do not matter."""
    clients = mixed_clients()
    client = clients["client-0"]
    method = make_method("fedavg", clients)
    engine = SequentialEngine(method, clients, AGAIN, torch.device("cpu"))
    server = initial_state(method, 0)
    job = Job("client-0", client.info.group, 0, 1, method.payload(server, client.info))
    kept = {n: t.clone() for n, t in engine.store.current("client-0").items()}
    logits = engine._test("test", job).logits
    norm = engine._resident("client-0", "train").module.data_norm
    plan = batch_plan(len(client.train), 4, 1, generator(0, "statistics", "client-0"))
    flat = [client.train.x[rows].flatten(0, 2).flatten(1) for rows in plan]  # every frame of every body
    torch.testing.assert_close(norm.running_mean, torch.stack([f.mean(0) for f in flat]).mean(0))
    torch.testing.assert_close(norm.running_var, torch.stack([f.var(0) for f in flat]).mean(0))
    assert all(torch.equal(t, engine.store.current("client-0")[n]) for n, t in kept.items())  # a test changes nothing
    shuffled = replace(client, train=replace(client.train, y=client.train.y.flip(0)))
    again = SequentialEngine(method, {**clients, "client-0": shuffled}, AGAIN, torch.device("cpu"))
    torch.testing.assert_close(again._test("test", job).logits, logits)
    engine.close()
    again.close()


def test_a_network_by_the_batch_shares_its_tensors_and_keeps_no_statistics():
    clients = mixed_clients()
    info = clients["client-0"].info
    module = fresh(make_method("fedavg", clients), info, 0).eval()
    twin, x = share_by_batch(module), clients["client-0"].train.x
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    assert all(p is q for p, q in zip(module.parameters(), twin.parameters(), strict=True))
    trained = fresh(make_method("fedavg", clients), info, 0).train()
    torch.testing.assert_close(twin(x), trained(x))  # no dropout here: in training it is the same
    assert not torch.allclose(twin(x), module(x))
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    torch.testing.assert_close(Applied(module, dict(module.state_dict())).by_batch()(x), twin(x))
    assert norms_of(module).keys() == norms_of(twin).keys() and len(norms_of(module)) > 3


def test_torchs_own_normalisations_are_meant_too():
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).eval()
    twin, x = share_by_batch(module), torch.randn(8, 3, generator=generator(0, "x"))
    torch.testing.assert_close(twin(x).mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    assert torch.equal(module[1].running_mean, torch.zeros(4)) and int(module[1].num_batches_tracked) == 0
