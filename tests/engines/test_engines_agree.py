"""Both engines, any number of workers, any order of clients: one result, for every method."""

from dataclasses import replace

import pytest
import torch

from fedaction.data.augment import Augment
from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.samples import Examples
from fedaction.engines.base import Training, batch_plan
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.evaluation.site import Question
from fedaction.federation.seeds import generator
from fedaction.federation.state import Job
from fedaction.methods import METHODS
from fedaction.methods.start import initial_state
from fedaction.server.federation import combine
from tests.conftest import CROSS_MODAL, LABELLED, VECTORS, federation_for, make_client, make_method, mixed_clients

CPU = torch.device("cpu")
TRAINING = Training(
    seed=3, batch_size=8, local_epochs=2, lr=0.05, nesterov=True, weight_decay=1e-3, clip_norm=2.0, augment=Augment()
)
# Double precision: what is left is rounding. In single precision the same rounding, amplified by normalisation over
# tiny batches, would hide a wrong step.
TOLERANCE = 1e-10
CONFUSION = Question(evidence=("confusion",))
EVERY_WAY = ("fsar", "central", "fdarn")


def jobs_of(method, server, clients, round=1):
    return [
        Job(name, client.info.group, server.version, round, method.payload(server, client.info))
        for name, client in clients.items()
        if len(client.train)
    ]


def engines(method, clients, training=TRAINING):
    if type(method) in [METHODS[name] for name in CROSS_MODAL]:
        training = replace(training, augment=None, batch_size=4)  # some have fewer than eight samples
    return {
        "sequential": SequentialEngine(method, clients, training, CPU, 1),
        "workers": SequentialEngine(method, clients, training, CPU, 3),
        "vectorised": VectorisedEngine(method, clients, training, CPU),
        "chunked": VectorisedEngine(method, clients, training, CPU, clients_per_step=2),
    }


def rounds(engine, method, clients, count=2):
    """A few rounds of a federation: what clients sent and kept, how they tested, the server's last state."""
    server = initial_state(method, 3)
    for round in range(1, count + 1):
        updates = list(engine.train(jobs_of(method, server, clients, round)))
        kept = {update.client: engine.store.pending(update.client) for update in updates}
        engine.commit(kept)
        server = combine(method, server, updates)
    tests = [
        Job(name, client.info.group, 0, 1, method.served(server, client.info))
        for name, client in clients.items()
        if len(client.test)
    ]
    return updates, list(engine.evaluate(tests, CONFUSION)), server, kept


@pytest.mark.parametrize("backbone", ["ctrgcn", "mstgcn", pytest.param("msg3d", marks=pytest.mark.slow)])
def test_engines_agree_on_every_backbone(double, backbone):
    """FSAR, which uses all that a backbone can do, on two layouts."""
    clients = {
        name: client for name, client in mixed_clients().items() if name in ("client-0", "client-2", "client-4")
    }
    width = 12 if backbone == "msg3d" else 8
    method = make_method("fsar", clients, backbone=backbone, model_width=width, model_scales=(4, 2))
    training = replace(TRAINING, batch_size=8, local_epochs=1)
    found = [
        rounds(engines(method, clients, training)[label], method, clients, 1) for label in ("sequential", "chunked")
    ]
    for one, other in zip(found[0][0], found[1][0], strict=True):
        own, other_own = (kept[one.client] for _, _, _, kept in found)
        for tensors, other_tensors in ((one.tree, other.tree), (own, other_own)):
            for n in tensors:
                torch.testing.assert_close(
                    tensors[n], other_tensors[n], atol=1e-9, rtol=1e-9, msg=f"{one.client} {n}"
                )
    for one, other in zip(found[0][1], found[1][1], strict=True):
        assert one.evidence == other.evidence


@pytest.mark.parametrize("name", ["fedavg_within", "fdarn"])
def test_engines_agree_on_signals_of_two_devices(double, name):
    """A watch with three channels and a phone with five, at rates of their own."""
    clients = {}
    for number, (group, shape) in enumerate([("watch", (20, 3)), ("phone", (13, 5)), ("watch", (20, 3))]):
        y = torch.arange(12) % 3
        noise = torch.randn(12, *shape, generator=generator(4, "signals", number))
        x = noise.double() + y.view(-1, 1, 1)
        info = ClientInfo(f"client-{number}", group, 12, ("a", "b", "c"), shape)
        clients[info.id] = ClientData(info, Examples(x, y), Examples(x, y))
    method = make_method(name, clients, **{**VECTORS, "model_width": 4})
    made = engines(method, clients)
    found = [rounds(made[label], method, clients) for label in ("sequential", "chunked")]
    for one, other in zip(found[0][0], found[1][0], strict=True):
        for n in one.tree:
            torch.testing.assert_close(one.tree[n], other.tree[n], atol=1e-9, rtol=1e-9, msg=f"{one.client} {n}")
    for one, other in zip(found[0][1], found[1][1], strict=True):
        assert one.evidence == other.evidence


@pytest.mark.parametrize("name", LABELLED)
def test_engines_agree(double, name):
    clients, method = federation_for(name, model_dropout=0.2, model_norm=True)
    # How clients are dealt to workers and to stacks is the engine's affair: all ways for one method of each kind.
    labels = ["sequential", "workers", "vectorised", "chunked"] if name in EVERY_WAY else ["sequential", "chunked"]
    made = engines(method, clients)
    found = {label: rounds(made[label], method, clients) for label in labels}
    updates, tests, server, kept = found["sequential"]
    assert [u.client for u in updates] == [name for name, client in clients.items() if len(client.train)]
    for label, (others, other_tests, other_server, other_kept) in found.items():
        for one, other in zip(updates, others, strict=True):
            assert (one.client, one.samples, one.version) == (other.client, other.samples, other.version)
            own, other_own = kept[one.client], other_kept[one.client]
            assert one.tree.keys() == other.tree.keys() and own.keys() == other_own.keys()
            for tensors, other_tensors in ((one.tree, other.tree), (own, other_own)):
                for n in tensors:
                    if label == "workers":
                        assert torch.equal(tensors[n], other_tensors[n]), (label, one.client, n)
                    else:
                        torch.testing.assert_close(
                            tensors[n],
                            other_tensors[n],
                            atol=TOLERANCE,
                            rtol=TOLERANCE,
                            msg=f"{label} {one.client} {n}",
                        )
            assert one.metrics.keys() == other.metrics.keys()
            for metric, value in one.metrics.items():
                assert other.metrics[metric] == pytest.approx(value, rel=1e-6), (label, metric)
        for one, other in zip(tests, other_tests, strict=True):
            assert one.client == other.client and one.evidence == other.evidence
            assert one.metrics == pytest.approx(other.metrics, rel=1e-5)
        for n in server.shared:
            torch.testing.assert_close(server.shared[n], other_server.shared[n], atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("clip_by", ["network", "module"])
def test_a_norm_is_clipped_over_the_network_or_over_each_module(double, clip_by):
    """One step of plain SGD at rate 1 moves what is clipped together by exactly the norm that it is clipped to."""
    clients, method = federation_for("fdarn", model_norm=True)
    training = Training(seed=3, batch_size=32, lr=1.0, momentum=0.0, weight_decay=0.0, clip_norm=1e-3)
    server, found = initial_state(method, 3), []
    for engine in (SequentialEngine, VectorisedEngine):
        jobs = jobs_of(method, server, clients)
        updates = list(engine(method, clients, replace(training, clip_by=clip_by), CPU).train(jobs))
        found.append(updates)
        for job, update in zip(jobs, updates, strict=True):
            squares: dict[str, float] = {}
            for name in method.trained:
                module = name.partition(".")[0] if clip_by == "module" else ""
                moved = float((update.tree[name] - job.payload[name]).square().sum())
                squares[module] = squares.get(module, 0.0) + moved
            assert len(squares) == (5 if clip_by == "module" else 1)
            assert all(value**0.5 == pytest.approx(1e-3, rel=1e-2) for value in squares.values()), squares
    for one, other in zip(*found, strict=True):
        for name, tensor in one.tree.items():
            torch.testing.assert_close(tensor, other.tree[name], atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("name", ["pfedme", "perfedavg"])
def test_engines_agree_on_what_own_steps_drop_and_normalise(double, name):
    """A skeleton network, whose dropout and normalisation both change with every pass; unlike numbers of classes."""
    clients = {client.info.id: client for client in (make_client(0, train=12), make_client(1, train=7, classes=6))}
    method = make_method(name, clients, model_dropout=0.3, pfedme_steps=2)
    made = engines(method, clients, replace(TRAINING, batch_size=4, local_epochs=1, augment=None))
    found = [rounds(made[label], method, clients, 1) for label in ("sequential", "chunked")]
    for one, other in zip(found[0][0], found[1][0], strict=True):
        for n, tensor in one.tree.items():
            torch.testing.assert_close(
                tensor, other.tree[n], atol=1e-9, rtol=1e-9, msg=lambda m, n=n, c=one.client: f"{c} {n}: {m}"
            )


@pytest.mark.slow
def test_engines_agree_on_own_steps_of_video_networks(double):
    """Stacked 3D convolutions are grouped ones: slower on a GPU, and the same."""
    clients = {}
    for number, count in enumerate((6, 4)):
        y = torch.arange(count) % 2
        x = 100 + 60 * torch.randn(count, 4, 16, 16, 3, generator=generator(3, number)).double()
        info = ClientInfo(f"client-{number}", "video", count, ("a", "b"), (4, 16, 16, 3))
        clients[info.id] = ClientData(info, Examples(x, y), Examples(x, y))
    method = make_method("perfedavg", clients, backbone="resnet3d", model_width=2)
    made = engines(method, clients, replace(TRAINING, batch_size=4, local_epochs=1, augment=None))
    found = [rounds(made[label], method, clients, 1) for label in ("sequential", "vectorised")]
    for one, other in zip(found[0][0], found[1][0], strict=True):
        for n, tensor in one.tree.items():  # a few pixels are normalised over: rounding grows
            torch.testing.assert_close(tensor, other.tree[n], atol=1e-6, rtol=1e-6)


# That the engines agree is tested for every method, so one of each kind is enough for the slower one here.
@pytest.mark.parametrize(
    ("name", "label"),
    [*((name, "sequential") for name in LABELLED), ("fedavg", "vectorised"), ("fdarn", "vectorised")],
)
def test_training_lowers_the_loss_and_changes_nothing_it_was_given(name, label):
    clients, method = federation_for(name, few=True, lambda_reg=0.0)
    # Small perceptrons start slowly; some would diverge at the rate that others need.
    rates = {"pfedme": 0.12, "lgfedavg": 0.1, "fedrep": 0.1, "fdarn": 0.03, "fedavg_within": 0.1, "fedavg_pair": 0.1}
    lr = rates.get(name, 0.3) if name in CROSS_MODAL else 0.05
    engine = engines(method, clients, Training(seed=0, batch_size=4, local_epochs=4, lr=lr))[label]
    server = initial_state(method, 0)
    jobs = jobs_of(method, server, clients)
    trees = [(j.payload, engine.store.current(j.client)) for j in jobs]
    before = [{n: t.clone() for tree in pair for n, t in tree.items()} for pair in trees]
    losses: list[float] = []
    for _ in range(5):
        updates = list(engine.train(jobs))
        losses.append(sum(u.metrics["ce"] for u in updates))
        if len(losses) == 1:
            for (payload, own), tensors in zip(trees, before, strict=True):
                assert all(torch.equal({**payload, **own}[n], t) for n, t in tensors.items())
        engine.commit([u.client for u in updates])
        jobs = [Job(j.client, j.group, 0, 1, u.tree) for j, u in zip(jobs, updates, strict=True)]
    assert losses[-1] < 0.85 * losses[0], losses


def test_the_order_of_clients_does_not_matter():
    clients = mixed_clients()
    backwards = dict(reversed(clients.items()))
    results = []
    for order in (clients, backwards):
        method = make_method("fsar", order)
        engine = SequentialEngine(method, order, TRAINING, CPU, 1)
        results.append({u.client: u for u in engine.train(jobs_of(method, initial_state(method, 3), order))})
    for name, update in results[0].items():
        assert all(torch.equal(t, results[1][name].tree[n]) for n, t in update.tree.items())


def test_no_engine_draws_from_the_global_generator():
    clients = mixed_clients()
    method = make_method("fsar", clients, model_dropout=0.5)
    before = torch.random.get_rng_state()
    for engine in engines(method, clients, replace(TRAINING, local_epochs=1)).values():
        list(engine.train(jobs_of(method, initial_state(method, 3), clients)))
    assert torch.equal(before, torch.random.get_rng_state())


def test_frozen_tensors_are_neither_sent_nor_trained():
    clients = mixed_clients()
    method = make_method("fsar", clients)
    for engine in engines(method, clients, replace(TRAINING, local_epochs=1)).values():
        for update in engine.train(jobs_of(method, initial_state(method, 3), clients)):
            assert "topology.A" not in {**update.tree, **engine.store.pending(update.client)}


@pytest.mark.parametrize(("samples", "batch", "epochs"), [(10, 4, 1), (3, 8, 2), (8, 8, 1), (17, 5, 3)])
def test_every_sample_is_seen_once_or_twice_an_epoch(samples, batch, epochs):
    plan = batch_plan(samples, batch, epochs, generator(0, "plan"))
    per_epoch = plan.view(epochs, -1)
    assert plan.shape[1] == min(samples, batch)
    for rows in per_epoch:
        counts = rows.bincount(minlength=samples)
        assert counts.min() >= 1 and counts.max() <= 2
        assert len(rows) < samples + batch


def test_a_failing_client_is_raised_not_lost():
    clients = mixed_clients()
    method = make_method("fedavg", clients)
    job = jobs_of(method, initial_state(method, 3), clients)[0]
    broken = Job(job.client, job.group, 0, 1, {})
    for engine in engines(method, clients).values():
        with pytest.raises(KeyError) as caught:
            list(engine.train([broken]))
        assert job.client in caught.value.__notes__[0] and "round 1" in caught.value.__notes__[0]


@pytest.mark.slow
def test_a_compiled_step_gives_the_same_result():
    """In single precision: what compilation changes is the order of a few sums."""
    clients = {name: client for name, client in mixed_clients().items() if name in ("client-0", "client-2")}
    method = make_method("fedavg", clients)
    jobs = jobs_of(method, initial_state(method, 3), clients)
    training = Training(seed=3, batch_size=8, lr=0.01)
    found = [
        list(VectorisedEngine(method, clients, training, CPU, compiled=compiled).train(jobs))
        for compiled in (False, True)
    ]
    for plain, compiled in zip(*found, strict=True):
        for n in plain.tree:
            torch.testing.assert_close(plain.tree[n], compiled.tree[n], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("engine", [SequentialEngine, VectorisedEngine])
def test_what_clients_keep_counts_only_once_the_server_says_so(engine):
    clients = mixed_clients()
    method = make_method("fsar", clients)
    made = engine(method, clients, replace(TRAINING, local_epochs=1), CPU)
    jobs = jobs_of(method, initial_state(method, 3), clients)
    first = {name: made.store.current(name) for name in clients}
    list(made.train(jobs))
    own = {name: made.store.pending(name) for name in clients}
    assert all(not torch.equal(own[n]["topology.U"], first[n]["topology.U"]) for n in clients)
    made.commit(["client-0", "client-1"])
    made.drop(clients)
    for name in clients:
        expected = own[name] if name in ("client-0", "client-1") else first[name]
        assert all(torch.equal(t, expected[n]) for n, t in made.store.current(name).items())
        assert not made.store.pending(name)
    assert made.store.save().committed.keys() == {"client-0", "client-1"}


def test_a_client_that_would_keep_something_that_is_not_finite_says_so():
    clients = {"client-0": mixed_clients()["client-0"]}
    method = make_method("fsar", clients)
    for engine in engines(method, clients, replace(TRAINING, lr=1e30, clip_norm=0.0)).values():
        (update,) = engine.train(jobs_of(method, initial_state(method, 3), clients))
        assert update.fault.startswith("client 'client-0' would keep ")


def test_jobs_of_different_rounds_are_trained_at_their_own_rates(double):
    """Asynchronous jobs of several rounds meet in one call: each has the learning rate of the round it is from."""
    clients = {name: client for name, client in mixed_clients().items() if name in ("client-0", "client-2")}
    method = make_method("fedavg", clients)
    training = replace(TRAINING, lr_decay=0.5)
    server = initial_state(method, 3)
    jobs = [replace(job, round=round) for job, round in zip(jobs_of(method, server, clients), (1, 4), strict=True)]
    alone = [u for job in jobs for u in SequentialEngine(method, clients, training, CPU).train([job])]
    for engine in engines(method, clients, training).values():
        for one, other in zip(alone, engine.train(jobs), strict=True):
            for n, tensor in one.tree.items():
                torch.testing.assert_close(other.tree[n], tensor, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("name", ["fedavg", "fedrep"])
def test_a_job_may_ask_for_its_own_number_of_epochs(double, name):
    """On both engines; and it is what the same number for all would give that client."""
    clients = mixed_clients()
    method = make_method(name, clients)
    server = initial_state(method, 0)
    training = Training(seed=0, batch_size=4, local_epochs=2, lr=0.05)
    asked = {"client-0": 1, "client-1": 3, "client-2": 0}
    jobs = [
        Job(n, method.clients[n].group, 0, 1, method.payload(server, method.clients[n]), epochs=epochs)
        for n, epochs in asked.items()
    ]
    trees = []
    for kind in (SequentialEngine, VectorisedEngine):
        engine = kind(method, clients, training, torch.device("cpu"))
        trees.append({update.client: update.tree for update in engine.train(jobs)})
        engine.close()
    for job in jobs:
        alike = replace(training, local_epochs=job.epochs or 2)
        engine = SequentialEngine(method, clients, alike, torch.device("cpu"))
        (update,) = engine.train([replace(job, epochs=0)])
        engine.close()
        for tensor, tree in ((tensor, tree) for tensor in update.tree for tree in trees):
            torch.testing.assert_close(tree[job.client][tensor], update.tree[tensor], rtol=1e-6, atol=1e-8)
