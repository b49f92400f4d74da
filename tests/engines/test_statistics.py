"""Normalisation statistics: applied by the batch, and estimated anew before a test."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedaction.data.samples import in_memory
from fedaction.engines.base import Applied, Training, batch_plan
from fedaction.engines.ready import ready_tensors
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.evaluation.neighbours import middle, nearest_labels
from fedaction.federation.scope import Scope
from fedaction.federation.seeds import generator
from fedaction.federation.state import Job
from fedaction.federation.tree import tensors_of
from fedaction.methods import METHODS
from fedaction.methods.base import Batch
from fedaction.methods.central import EVERYONE, arrange
from fedaction.methods.start import fresh, initial_state, precompute_frozen
from fedaction.models.statistics import estimate_statistics, norms_of, share_by_batch
from fedaction.runs.assembly import Assembly
from fedaction.runs.recipe import parse_recipe
from fedaction.runs.study import load_clients
from tests.conftest import CROSS_MODAL, TINY, VECTORS, few, make_method, mixed_clients, vector_clients
from tests.methods.test_edge import VIDEO, video_clients
from tests.methods.test_fedvssl import make, phones

TRAINING = Training(seed=0, batch_size=4, lr=0.05)
AGAIN = replace(TRAINING, reestimate=True)


CPU = torch.device("cpu")
SHORT = {"meta_head": 3, "meta_adapt": 1}
"""Meta-HAR's steps before a test."""


def federation(name):
    """Clients and a method over them, in a network with batch normalisation."""
    if name in CROSS_MODAL:
        clients = vector_clients()
        return clients, make_method(name, clients, **{**VECTORS, **SHORT, "model_norm": True})
    clients = dict(arrange(METHODS[name], mixed_clients(), keep=True))
    return clients, make_method(name, clients)


def train(engine, method, clients):
    """A round's jobs, trained and committed; jobs to test everybody under what they were sent for that."""
    server = initial_state(method, 0)
    jobs = [Job(n, i.group, 0, 1, method.payload(server, i)) for n, i in sorted(method.clients.items())]
    for update in engine.train([job for job in jobs if method.clients[job.client].samples]):
        engine.commit([update.client])
    return [job for job in jobs if len(clients[job.client].test)]


def answer(engine_type, method, clients, training):
    """Each client's logits with what it keeps of a round, under what it was sent for that."""
    engine = engine_type(method, clients, training, CPU)
    try:
        return {a.client.info.id: a.logits for a in engine._answer(train(engine, method, clients))}
    finally:
        engine.close()


@pytest.mark.parametrize(
    "name", few(("fedbn", "fedema", "central", *CROSS_MODAL), "fedavg", "fsar", "fdarn", "pfedme")
)
def test_engines_agree_on_statistics_estimated_anew(double, name):
    clients, method = federation(name)
    assert all(norms_of(fresh(method, client.info, 0)) for client in clients.values())
    one, other = (answer(kind, method, clients, AGAIN) for kind in (SequentialEngine, VectorisedEngine))
    before = answer(SequentialEngine, method, clients, TRAINING)
    assert one.keys() == {name for name, client in clients.items() if len(client.test)}
    for client, logits in one.items():
        torch.testing.assert_close(logits, other[client], rtol=1e-5, atol=1e-6)
        assert not torch.allclose(logits, before[client], atol=1e-3)


@pytest.mark.parametrize("name", ["perfedavg", "metahar"])
def test_a_client_adapts_with_the_statistics_estimated_anew(double, name):
    """By hand: first the statistics, then the method's steps with them. The other way round is something else."""
    clients, method = federation(name)
    engine = SequentialEngine(method, clients, AGAIN, CPU)
    (job, *_), client = train(engine, method, clients), clients["client-0"]
    tensors, samples = engine.tensors(job), Batch(client.train.x, client.train.y)
    first = [*batch_plan(len(client.train), 4, 1, generator(0, "statistics", "client-0"))]

    def by_hand(*, estimate_last: bool):
        module = fresh(method, client.info, 0).eval()
        own, batches = tensors_of(module), [client.train.x[rows] for rows in first]
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(tensors[name])
            if not estimate_last:
                estimate_statistics(norms_of(module), module, batches)
            for name, tensor in method.adapt(Applied(module, own), samples).items():
                own[name].copy_(tensor)
            if estimate_last:
                estimate_statistics(norms_of(module), module, batches)
            return module(client.test.x), own

    (logits, own), (wrong, _) = by_hand(estimate_last=False), by_hand(estimate_last=True)
    torch.testing.assert_close(engine._test("test", job).logits, logits.float())
    assert not torch.allclose(logits, wrong, atol=1e-4)
    ready = ready_tensors(method, client, AGAIN, fresh(method, client.info, 0), tensors)  # what is saved and served
    for key, tensor in own.items():
        torch.testing.assert_close(ready[key], tensor)
    engine.close()


def test_centralised_statistics_are_estimated_on_each_clients_own_samples(double):
    """Without training there: a client's samples serve its statistics alone, and stay where they are by default."""
    clients, method = federation("central")
    assert len(clients[EVERYONE].train) == sum(len(c.train) for n, c in clients.items() if n != EVERYONE)
    assert not any(method.clients[name].samples for name in clients if name != EVERYONE)
    assert not any(len(c.train) for n, c in arrange(METHODS["central"], mixed_clients()).items() if n != EVERYONE)
    engine = SequentialEngine(method, clients, AGAIN, CPU)
    job = next(job for job in train(engine, method, clients) if job.client == "client-3")
    engine._test("test", job)
    x, norm = clients["client-3"].train.x, engine._resident("client-3", "train").module.data_norm
    plan = batch_plan(len(x), 4, 1, generator(0, "statistics", "client-3"))
    means = torch.stack([x[rows].flatten(0, 2).flatten(1).mean(0) for rows in plan]).mean(0)
    torch.testing.assert_close(norm.running_mean, means)
    engine.close()


def test_a_centralised_runs_clients_keep_their_samples_where_the_recipe_says_so():
    values = {
        "method": "central",
        "data": "stage",
        "stage_clients": 2,
        "stage_train": [6],
        "stage_test": 4,
        "frames": 8,
    }
    kept, again = (parse_recipe({**values, **TINY, "statistics": how}) for how in ("kept", "reestimate"))
    clients = load_clients(kept)
    amounts = [
        [len(client.train) for client in Assembly.of(recipe, clients).clients.values()] for recipe in (kept, again)
    ]
    assert amounts == [[0, 0, 12], [6, 6, 12]]
    assert Assembly.of(again, clients).training.reestimate


@pytest.mark.parametrize("kind", [SequentialEngine, VectorisedEngine])
def test_statistics_of_frozen_stages_stay(kind):
    """Of an edge device's network, whose first stages have seen its clips once and for all."""
    clients = video_clients()
    method = make_method("edge", clients, **{**VIDEO, "model_frozen": 3})
    clients = precompute_frozen(method, clients, 0, CPU)
    method = METHODS["edge"]([client.info for client in clients.values()], method.settings)
    info = clients["camera-0"].info
    scopes, module = method.scopes_of("camera-0"), fresh(method, info, 0).eval()
    frozen = {n for n in norms_of(module) if scopes[f"{n}.running_mean"] is Scope.FROZEN}
    assert frozen and frozen < {*norms_of(module)}
    before = {n: t.clone() for n, t in tensors_of(module).items()}
    payload = method.payload(initial_state(method, 0), info)
    ready = ready_tensors(method, clients["camera-0"], AGAIN, module, payload)
    for name in norms_of(module):
        same = torch.equal(ready[f"{name}.running_var"], before[f"{name}.running_var"])
        assert same == (name in frozen), name
    engine = kind(method, clients, AGAIN, CPU)
    (answers,) = engine._answer([Job("camera-0", info.group, 0, 1, payload)])
    with torch.no_grad():
        torch.testing.assert_close(answers.logits, module(clients["camera-0"].test.x), rtol=1e-4, atol=1e-5)
    engine.close()


@pytest.mark.parametrize("kind", [SequentialEngine, VectorisedEngine])
def test_nearest_recordings_are_found_with_statistics_estimated_anew(kind):
    """FedVSSL's test: by hand, the statistics of each normalisation are those of the training clips."""
    method, clients = make(), phones()
    client = clients["phone-0"]
    again = fresh(method, client.info, 0).eval()
    expected = share_by_batch(fresh(method, client.info, 0).eval().backbone)
    clip = middle(in_memory(client.train).x, 4, 16)
    votes = nearest_labels(again, method.task, client, CPU, reestimate=True)
    seen = {}
    for name, layer in norms_of(expected).items():
        layer.register_forward_pre_hook(lambda _, given, name=name: seen.update({name: given[0]}))
    with torch.no_grad():
        expected(clip, output="pooled")
    for name, layer in norms_of(again.backbone).items():
        mean = seen[name].flatten(0, -2).mean(0)  # features are last
        torch.testing.assert_close(layer.running_mean, mean, rtol=1e-4, atol=1e-5)
    engine = kind(method, clients, AGAIN, CPU)
    job = Job("phone-0", client.info.group, 0, 1, method.payload(initial_state(method, 0), client.info))
    (answers,) = engine._retrieve([job])
    torch.testing.assert_close(answers.logits, votes)
    engine.close()


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
