"""The federated baselines: each rule against a slow, literal version of it."""

from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F

from fedaction.engines.base import Applied, Training
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.federation.scope import Scope
from fedaction.federation.state import Job, Update
from fedaction.federation.tree import Tree, tensors_of
from fedaction.methods import METHODS
from fedaction.methods.base import Batch
from fedaction.methods.central import EVERYONE, arrange
from fedaction.methods.memory import kept_name
from fedaction.methods.start import fresh, initial_state
from fedaction.models.layers import BatchNorm
from fedaction.server.federation import combine
from tests.conftest import CROSS_MODAL, UNLABELLED, make_client, make_method, mixed_clients
from tests.engines.test_engines_agree import CPU, jobs_of


def pair(name, **settings):
    """A method, a client's data, its network, and another network of the same shape as the anchor."""
    clients = mixed_clients()
    method = make_method(name, clients, **settings)
    client = clients["client-1"]
    net, anchor = (fresh(method, client.info, seed) for seed in (1, 2))
    return method, Batch(client.train.x, client.train.y), net, anchor.eval()


def applied(module):
    return Applied(module, tensors_of(module))


def test_every_method_is_listed_by_its_name():
    skeletons = {"fsar", "fedavg", "fedprox", "fedbn", "fedagm", "moon", "fedema", "local", "central"}
    assert set(METHODS) == skeletons | set(CROSS_MODAL) | {"edge", "fedbuff", *UNLABELLED}


@pytest.mark.parametrize(
    ("name", "key", "factor"), [("fedprox", "prox_mu", 0.5), ("fedagm", "agm_mu", 1.0), ("edge", "prox_theta", 0.5)]
)
def test_the_pull_is_the_squared_distance_over_shared_weights(double, name, key, factor):
    method, batch, net, anchor = pair(name, **{key: 0.3})
    loss, metrics = method.loss(applied(net), applied(anchor), batch)
    scopes = method.scopes_of("client-1")
    distance = 0.0
    for (n, w), (_, a) in zip(net.named_parameters(), anchor.named_parameters(), strict=True):
        if scopes[n] is Scope.GLOBAL:
            distance += float(((w - a) ** 2).sum().detach())
    ce = F.cross_entropy(fresh(method, method.clients["client-1"], 1)(batch.x), batch.y)
    assert float(loss.detach()) == pytest.approx(float(ce.detach()) + 0.3 * factor * distance, rel=1e-12)
    assert float(metrics["ce"].detach()) == pytest.approx(float(ce.detach()))


def test_fedbn_keeps_every_normalisation_and_nothing_else_of_the_backbone():
    method = make_method("fedbn", mixed_clients())
    network = fresh(method, method.clients["client-0"], 0)
    own = {
        f"{name}.{tensor}"
        for name, layer in network.named_modules()
        if isinstance(layer, BatchNorm)
        for tensor in ("weight", "bias", "running_mean", "running_var")
    }
    found = {name for name, scope in method.scopes_of("client-0").items() if scope is Scope.LOCAL}
    assert found == own | {"classifier.weight", "classifier.bias"}
    assert len(own) > 4 * len(network.units)


def test_fedagm_moves_as_fedacg_does(double):
    """With tau = 1: m <- xi m + mean(W_i - sent); W <- W + m; sent = W + xi m (Kim et al., Algorithm 1)."""
    clients = {n: c for n, c in mixed_clients().items() if n in ("client-0", "client-1")}
    method = make_method("fedagm", clients, tau=1.0, xi=0.6)
    server = initial_state(method, 0)
    w = {n: t.clone() for n, t in server.shared.items()}
    m = {n: torch.zeros_like(t) for n, t in w.items()}
    random = torch.Generator().manual_seed(0)
    for version in range(4):
        sent = method.payload(server, clients["client-0"].info)
        for n in w:
            torch.testing.assert_close(sent[n], w[n] + 0.6 * m[n])
        trees = [{n: t + torch.randn(t.shape, generator=random) for n, t in sent.items()} for _ in clients]
        server = combine(
            method,
            server,
            [Update(c, "skeleton", version, t, k) for c, t, k in zip(clients, trees, (1.0, 3.0), strict=True)],
        )
        for n in w:
            step = 0.25 * (trees[0][n] - sent[n]) + 0.75 * (trees[1][n] - sent[n])
            m[n] = 0.6 * m[n] + step
            w[n] = w[n] + m[n]
            torch.testing.assert_close(server.shared[n], w[n])


def test_moon_contrasts_the_received_with_the_previous_model(double):
    method, batch, net, anchor = pair("moon", moon_mu=2.0, moon_temperature=0.3)
    third = fresh(method, method.clients["client-1"], 3).eval()
    with torch.no_grad():
        for name, tensor in tensors_of(third).items():
            if kept_name(name) in tensors_of(anchor):
                tensors_of(anchor)[kept_name(name)].copy_(tensor)
    loss, _ = method.loss(applied(net), applied(anchor), batch)
    plain = fresh(method, method.clients["client-1"], 1)
    z = plain(batch.x, output="projected")
    ce = F.cross_entropy(fresh(method, method.clients["client-1"], 1)(batch.x), batch.y)
    terms = []
    for a, b, c in zip(z, anchor(batch.x, output="projected"), third(batch.x, output="projected"), strict=True):
        near, far = (torch.exp((a @ o) / (a.norm() * o.norm()) / 0.3) for o in (b, c))
        terms.append(-torch.log(near / (near + far)))
    expected = ce + 2.0 * torch.stack(terms).mean()
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-10)
    loss.backward()
    assert all(p.grad is None for p in anchor.parameters())


class Turn(NamedTuple):
    """A client's part in a round: what it was given and had, what it sent and kept."""

    job: Job
    had: Tree
    update: Update
    keeps: Tree


def rounds_of(method, clients, count, lr=0.05) -> list[dict[str, Turn]]:
    engine = SequentialEngine(method, clients, Training(seed=0, batch_size=4, lr=lr, momentum=0.0), CPU)
    server = initial_state(method, 3)
    history = []
    for round in range(1, count + 1):
        jobs = jobs_of(method, server, clients, round)
        had = [engine.store.current(job.client) for job in jobs]
        updates = list(engine.train(jobs))
        keeps = [engine.store.pending(update.client) for update in updates]
        history.append({t.job.client: t for t in map(Turn, jobs, had, updates, keeps)})
        engine.commit(clients)
        server = combine(method, server, updates)
    return history


def test_moon_remembers_what_it_trained_last(double):
    clients = mixed_clients()
    method = make_method("moon", clients)
    first, second = (turns["client-1"] for turns in rounds_of(method, clients, 2))
    assert float(first.had[kept_name("seen")]) == 0 and float(first.keeps[kept_name("seen")]) == 1
    name = "units.1.temporal.weight"
    assert torch.equal(first.keeps[kept_name(name)], first.update.tree[name])
    assert torch.equal(second.had[kept_name(name)], first.update.tree[name])
    # In its first round received and previous model are one, so the contrast is log 2.
    contrast = first.update.metrics["contrast"]
    assert contrast == pytest.approx(torch.log(torch.tensor(2.0)).item(), rel=1e-6)
    assert second.update.metrics["contrast"] != pytest.approx(contrast, rel=1e-6)
    assert not any(n.startswith("kept") for n in first.update.tree)


def test_fedema_keeps_the_more_of_itself_the_more_it_moved(double):
    clients = mixed_clients()
    method = make_method("fedema", clients, ema_tau=0.7)
    history = rounds_of(method, clients, 3, lr=0.05)
    name = "units.2.temporal.weight"
    for client in clients:
        first, second, third = (turns[client] for turns in history)
        trained, again = first.update.tree, second.update.tree
        matrices = [n for n in trained if n.endswith("weight") and trained[n].dim() > 1]
        # First round: nothing of its own to mix in, so training starts from what was received.
        moved = torch.stack([(trained[n] - first.job.payload[n]).norm() for n in matrices]).mean()
        torch.testing.assert_close(first.keeps[kept_name("moved")], moved)
        torch.testing.assert_close(first.keeps[kept_name("scale")], 0.7 / moved)
        # Second: mu = lambda * first divergence = tau.
        begun = method.begin({**second.job.payload, **second.had})
        torch.testing.assert_close(begun[name], 0.7 * trained[name] + 0.3 * second.job.payload[name])
        # Third: the divergence of the second, measured from the mixture, times the same lambda, at most 1.
        divergence = torch.stack([(again[n] - begun[n]).norm() for n in matrices]).mean()
        mu = min(float(0.7 / moved * divergence), 1.0)
        begun = method.begin({**third.job.payload, **third.had})
        torch.testing.assert_close(begun[name], mu * again[name] + (1 - mu) * third.job.payload[name])
        assert clients[client].info.id == first.update.client


@pytest.mark.parametrize("kind", [SequentialEngine, VectorisedEngine])
def test_fedema_is_tested_with_the_mixture_that_its_classifier_belongs_to(double, kind):
    """Normalised by its own statistics; once it has trained, not with what the server sends."""
    clients = mixed_clients()
    method, client = make_method("fedema", clients, ema_tau=0.7), clients["client-1"]
    engine = kind(method, clients, Training(seed=0, batch_size=4, lr=0.5, local_epochs=5, momentum=0.0), CPU)
    server = initial_state(method, 3)
    updates = list(engine.train(jobs_of(method, server, clients, 1)))
    engine.commit(clients)
    own = next(update.tree for update in updates if update.client == "client-1")
    server = combine(method, server, updates)
    job = next(job for job in jobs_of(method, server, clients, 2) if job.client == "client-1")
    net, losses = fresh(method, client.info, 0).eval(), []
    for share in (0.7, 0.0):  # mu is tau after one round
        mixed = {
            n: share * own[n] + (1 - share) * t if kept_name(n) in net.state_dict() else t
            for n, t in job.payload.items()
        }
        net.load_state_dict({**net.state_dict(), **engine.store.current("client-1"), **mixed})
        losses.append(float(F.cross_entropy(net(client.test.x), client.test.y).detach()))
    (report,) = engine.evaluate([job])
    engine.close()
    assert report.metrics["loss"] == pytest.approx(losses[0], rel=1e-6)
    assert losses[1] != pytest.approx(losses[0], rel=1e-3)


def test_local_training_is_not_touched_by_others():
    clients = mixed_clients()
    alone = {"client-2": clients["client-2"]}
    among, single = (rounds_of(make_method("local", c), c, 2)[-1]["client-2"] for c in (clients, alone))
    assert among.update.tree == {} and "units.0.temporal.weight" in among.keeps
    assert among.keeps.keys() == single.keeps.keys()
    assert all(torch.equal(t, single.keeps[n]) for n, t in among.keeps.items())


def test_centralised_training_pools_data_on_one_body():
    clients = mixed_clients()
    arranged = arrange(METHODS["central"], clients)
    pooled = arranged[EVERYONE]
    assert len(pooled.train) == sum(len(c.train) for c in clients.values()) == pooled.info.samples
    assert not len(pooled.test) and all(not len(c.train) for n, c in arranged.items() if n != EVERYONE)
    # A sample stands on its joints, and its label is its own client's class.
    start = sum(len(clients[f"client-{i}"].train) for i in range(3))
    source = clients["client-3"]
    body, own = pooled.info.layout, source.info.layout
    for i in range(3):
        label = pooled.info.classes[int(pooled.train.y[start + i])]
        assert label == f"client-3: {source.info.classes[int(source.train.y[i])]}"
        for j, joint in enumerate(own.joints):
            assert torch.equal(pooled.train.x[start + i, 0, :, body.index(joint)], source.train.x[i, 0, :, j])
        missing = [i for i, joint in enumerate(body.joints) if joint not in own.joints]
        assert not pooled.train.x[start + i, 0, :, missing].any()


def test_centralised_training_tests_each_client_among_its_own_classes(double):
    arranged = arrange(METHODS["central"], mixed_clients())
    method = make_method("central", arranged)
    server = initial_state(method, 0)
    full = server.shared["classifier.weight"]
    names = arranged[EVERYONE].info.classes
    assert len(full) == len(names)
    for client in ("client-0", "client-4"):  # as many classes, other rows
        rows = [names.index(c) for c in arranged[client].info.classes]
        assert torch.equal(method.served(server, arranged[client].info)["classifier.weight"], full[rows])


def test_a_client_named_everyone_is_refused():
    client = make_client(0)
    with pytest.raises(ValueError, match="rename"):
        arrange(METHODS["central"], {EVERYONE: client})
