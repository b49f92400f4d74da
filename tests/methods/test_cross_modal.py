"""FDARN and the baselines of its paper: each rule against a slow, literal version of it."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.samples import Examples
from fedaction.engines.base import Applied, Training, plan_batches
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.federation.scope import Scope, ScopeTable
from fedaction.federation.seeds import generator
from fedaction.federation.tree import tensors_of
from fedaction.methods import METHODS
from fedaction.methods.base import Batch
from fedaction.methods.fdarn import FDARNSettings
from fedaction.methods.memory import kept_name
from fedaction.methods.spherical import angular_margin, separation, spread_out
from fedaction.methods.start import fresh, initial_state
from fedaction.server.federation import combine
from tests.conftest import VECTORS, federation_for, make_method, vector_clients
from tests.engines.test_engines_agree import CPU, jobs_of

PLAIN = Training(seed=0, batch_size=4, lr=0.1, momentum=0.0, weight_decay=0.0)


def applied(module):
    return Applied(module, tensors_of(module))


def first_batch(clients, name="client-1"):
    client = clients[name]
    return Batch(client.train.x, client.train.y)


# FDARN


def test_what_all_modalities_share_is_global_and_what_one_has_is_its_group_s():
    clients, method = federation_for("fdarn")
    scopes = method.scopes_of("client-0")
    found = {name.partition(".")[0]: scope for name, scope in scopes.items()}
    assert found == {
        **{"shared": Scope.GLOBAL, "discriminator": Scope.GLOBAL},
        **{"altruistic": Scope.GROUP, "egocentric": Scope.GROUP, "private": Scope.GROUP},
    }
    server = initial_state(method, 0)
    assert set(server.groups) == {"camera", "wrist"} and method.modalities == ("camera", "wrist")
    assert "altruistic.enter.weight" in server.groups["wrist"] and "shared.head.weight" in server.shared
    assert len(clients) == 5


def test_aggregation_is_eqs_11_and_12(double):
    clients, method = federation_for("fdarn")
    server = initial_state(method, 3)
    updates = list(SequentialEngine(method, clients, PLAIN, CPU).train(jobs_of(method, server, clients)))
    after = combine(method, server, updates)
    weights = {u.client: float(len(clients[u.client].train)) for u in updates}
    for name in ("shared.head.weight", "discriminator.W"):
        mean = sum(weights[u.client] * u.tree[name] for u in updates) / sum(weights.values())
        torch.testing.assert_close(after.shared[name], mean)
    for modality in ("camera", "wrist"):
        own = [u for u in updates if clients[u.client].info.group == modality]
        mean = sum(weights[u.client] * u.tree["private.head.weight"] for u in own) / sum(
            weights[u.client] for u in own
        )
        torch.testing.assert_close(after.groups[modality]["private.head.weight"], mean)


@pytest.mark.parametrize("rescale", [False, True])
def test_the_loss_is_eqs_9_and_10(double, rescale):
    """One backward pass gives each tensor the gradient of its own objective, gamma_2 to the letter or over alpha."""
    clients, method = federation_for("fdarn", fdarn_rescale=rescale, model_norm=True)
    batch, info = first_batch(clients), clients["client-1"].info  # the second modality: wrist
    net = fresh(method, info, 3)
    total, metrics = method.loss(applied(net), applied(net), batch)
    total.backward()
    found = {name: p.grad.clone() for name, p in net.named_parameters()}
    s = FDARNSettings()
    h_a, h_e = net(batch.x, part="altruistic"), net(batch.x, part="egocentric")
    l_c = F.cross_entropy(net(h_a, part="shared"), batch.y) + F.cross_entropy(net(h_e, part="private"), batch.y)
    W = net.discriminator.W
    l_ama, l_ams = (angular_margin(net(h, part="sphere"), W, 1) for h in (h_a, h_e))
    l_sp, l_sep = spread_out(W), separation(h_a, h_e)
    gamma_2 = s.fdarn_adversary / s.fdarn_scale if rescale else s.fdarn_adversary
    encoders = l_c + s.fdarn_separation * l_sep + gamma_2 * (l_sp - l_ama + l_ams)  # Eq. 9
    discriminator = l_sp + l_ama + l_ams  # Eq. 10
    for name, parameter in net.named_parameters():
        objective = discriminator if name.startswith("discriminator") else encoders
        (expected,) = torch.autograd.grad(objective, parameter, retain_graph=True)
        torch.testing.assert_close(found[name], expected, atol=1e-10, rtol=1e-10, msg=name)
    assert float(metrics["margin_altruistic"].detach()) == pytest.approx(float(l_ama.detach()))


def test_a_cross_entropy_s_gradient_is_not_divided_by_a_scale_that_it_does_not_have(double):
    found = []
    for rescale in (False, True):
        clients, method = federation_for("fdarn", fdarn_rescale=rescale, fdarn_loss="cross_entropy")
        net = fresh(method, clients["client-1"].info, 3)
        method.loss(applied(net), applied(net), first_batch(clients))[0].backward()
        found.append(net.altruistic.enter.weight.grad)
    assert torch.equal(found[0], found[1])


def few_samples():
    """Four clients of two modalities with two training samples of each of twelve classes."""
    clients = {}
    for number in range(4):
        group, random = ("camera", "wrist")[number % 2], generator(8, "few", number)
        centres = torch.randn(12, 64, generator=generator(9, group))
        parts = []
        for each in (2, 4):
            y = torch.arange(12).repeat(each)
            parts.append(Examples(centres[y] + torch.randn(len(y), 64, generator=random), y))
        info = ClientInfo(f"client-{number}", group, len(parts[0]), tuple(map(str, range(12))), (64,))
        clients[info.id] = ClientData(info, *parts)
    return clients


def test_the_discriminator_does_not_stop_the_learning_of_activities():
    """With one norm over all modules, and gamma_2 to the letter, it leaves hardly any step to the classifiers."""
    clients, means = few_samples(), {}
    for clip_by, rescale in (("network", False), ("module", True)):
        keys = {**VECTORS, "model_features": 64, "model_hidden": 64, "model_norm": True, "fdarn_sphere": 128}
        method = make_method("fdarn", clients, **keys, fdarn_rescale=rescale)
        training = Training(seed=0, batch_size=8, lr=0.05, clip_norm=2.0, weight_decay=1e-5, clip_by=clip_by)
        engine, server = SequentialEngine(method, clients, training, CPU), initial_state(method, 0)
        for round in range(1, 21):
            updates = list(engine.train(jobs_of(method, server, clients, round)))
            server = combine(method, server, updates)
        tests = engine.evaluate(jobs_of(method, server, clients))
        means[clip_by] = sum(test.metrics["accuracy"] for test in tests) / 4
    assert means["network"] < 0.25 and means["module"] > 0.5, means  # chance: 0.083


def test_a_prediction_adds_probabilities(double):
    clients, method = federation_for("fdarn")
    net = fresh(method, clients["client-0"].info, 3).eval()
    x = clients["client-0"].test.x
    shared = net(net(x, part="altruistic"), part="shared").softmax(-1)
    private = net(net(x, part="egocentric"), part="private").softmax(-1)
    torch.testing.assert_close(net(x).exp(), (shared + private) / 2)


@pytest.mark.parametrize(("without", "part"), [("psi_sc_at_test", "private"), ("psi_pc_at_test", "shared")])
def test_a_classifier_can_be_trained_and_not_asked(double, without, part):
    clients, method = federation_for("fdarn", fdarn_without=without)
    job, net = by_hand(method, clients)
    x = clients["client-1"].test.x
    h = net(x, part="egocentric" if part == "private" else "altruistic")
    torch.testing.assert_close(net(x), F.log_softmax(net(h, part=part), -1))
    for engine in (SequentialEngine, VectorisedEngine):
        (update,) = engine(method, clients, PLAIN, CPU).train([job])
        for head in ("shared.head.weight", "private.head.weight"):
            assert not torch.equal(update.tree[head], job.payload[head]), head


EVERY_TERM = "ce_shared ce_private separation margin spread"


@pytest.mark.parametrize(
    ("without", "parts", "terms"),
    [
        ("psi_sc", "altruistic egocentric private discriminator", "ce_private separation margin spread"),
        ("psi_pc", "altruistic egocentric shared discriminator", "ce_shared separation margin spread"),
        *(
            (f"psi_{which}_at_test", "altruistic egocentric shared private discriminator", EVERY_TERM)
            for which in ("sc", "pc")
        ),
        ("phi_a", "egocentric private", "ce_private"),
        ("phi_e", "altruistic shared discriminator", "ce_shared margin spread"),
        ("psi_md", "altruistic egocentric shared private", "ce_shared ce_private separation"),
        ("L_sep", "altruistic egocentric shared private discriminator", "ce_shared ce_private margin spread"),
        ("L_sp", "altruistic egocentric shared private discriminator", "ce_shared ce_private separation margin"),
    ],
)
def test_the_rows_of_table_3_leave_out_what_they_name(without, parts, terms):
    clients, method = federation_for("fdarn", fdarn_without=without)
    batch, net = first_batch(clients), fresh(method, clients["client-1"].info, 3)
    assert {name.partition(".")[0] for name in tensors_of(net)} == set(parts.split())
    _, metrics = method.loss(applied(net), applied(net), batch)
    assert {
        name.replace("margin_altruistic", "margin").replace("margin_egocentric", "margin") for name in metrics
    } - {*("ce", "seen_altruistic", "seen_egocentric")} == set(terms.split())
    assert net.eval()(batch.x).shape == (len(batch.y), 4)
    for engine in (SequentialEngine, VectorisedEngine):
        jobs = jobs_of(method, initial_state(method, 3), clients)
        assert len(list(engine(method, clients, PLAIN, CPU).train(jobs))) == 5


def test_table_4_replaces_the_sphere_by_a_cross_entropy(double):
    clients, method = federation_for("fdarn", fdarn_loss="cross_entropy")
    batch, net = first_batch(clients), fresh(method, clients["client-1"].info, 3)
    _, metrics = method.loss(applied(net), applied(net), batch)
    logits = net.discriminator.phi(net(batch.x, part="egocentric")).relu() @ net.discriminator.W
    expected = F.cross_entropy(logits, torch.ones(len(batch.y), dtype=torch.int64))
    assert float(metrics["margin_egocentric"].detach()) == pytest.approx(float(expected.detach()))
    assert "spread" not in metrics


def test_modalities_may_have_unequal_widths_and_single_clients():
    clients = vector_clients((10, 17))
    alone = {name: clients[name] for name in ("client-0", "client-2", "client-1")}  # one wrist
    method = make_method("fdarn", alone, **VECTORS)
    server = initial_state(method, 3)
    updates = list(SequentialEngine(method, alone, PLAIN, CPU).train(jobs_of(method, server, alone)))
    after = combine(method, server, updates)
    wrist = next(u for u in updates if u.client == "client-1")
    assert torch.equal(after.groups["wrist"]["altruistic.enter.weight"], wrist.tree["altruistic.enter.weight"])
    assert after.groups["wrist"]["altruistic.enter.weight"].shape == (8, 17)


def test_cameras_with_raw_clips_train_beside_wrists_with_features(double):
    """A 3D ResNet end to end beside vectors, on both engines."""
    clients = vector_clients()
    for name, client in list(clients.items()):
        if client.info.group == "camera":
            random = generator(3, "clips", name)
            train, test = (
                replace(part, x=torch.randint(0, 256, (len(part), 4, 16, 16, 3), generator=random, dtype=torch.uint8))
                for part in (client.train, client.test)
            )
            clients[name] = replace(client, info=replace(client.info, shape=(4, 16, 16, 3)), train=train, test=test)
    method = make_method("fdarn", clients, **{**VECTORS, "model_width": 2})
    server = initial_state(method, 3)
    assert any(n.startswith("altruistic.backbone.layer1") for n in server.groups["camera"])
    found = []
    for engine in (SequentialEngine, VectorisedEngine):
        worker = engine(method, clients, Training(seed=3, batch_size=4, lr=0.01), CPU)
        updates = list(worker.train(jobs_of(method, server, clients)))
        found.append(combine(method, server, updates))
        assert len(list(worker.evaluate(jobs_of(method, found[-1], clients)))) == 5
    for group, tree in found[0].groups.items():
        for name, tensor in tree.items():
            torch.testing.assert_close(found[1].groups[group][name], tensor, rtol=1e-8, atol=1e-8)
    assert not torch.equal(found[0].shared["shared.head.weight"], server.shared["shared.head.weight"])


def test_a_modality_that_is_absent_keeps_its_tensors():
    clients, method = federation_for("fdarn")
    server = initial_state(method, 3)
    jobs = [job for job in jobs_of(method, server, clients) if job.group == "camera"]
    after = combine(method, server, SequentialEngine(method, clients, PLAIN, CPU).train(jobs))
    assert all(torch.equal(t, server.groups["wrist"][n]) for n, t in after.groups["wrist"].items())
    assert not torch.equal(after.shared["shared.head.weight"], server.shared["shared.head.weight"])


# Its baselines


def by_hand(method, clients, name="client-1"):
    """A client's first job, and its network as that starts."""
    server = initial_state(method, 3)
    job = next(j for j in jobs_of(method, server, clients) if j.client == name)
    net = fresh(method, clients[name].info, 4)
    start = SequentialEngine(method, clients, PLAIN, CPU).tensors(job)
    with torch.no_grad():
        for n, tensor in tensors_of(net).items():
            tensor.copy_(start[n])
    return job, net


def one_step(method, clients, lr=0.05):
    """A client's first step, on all of its samples at once; its update, and what it keeps."""
    clients = {name: replace(client, train=client.train) for name, client in clients.items()}
    training = replace(PLAIN, batch_size=1000, lr=lr)
    job, net = by_hand(method, clients)
    engine = SequentialEngine(method, clients, training, CPU)
    (update,) = engine.train([job])
    return net, first_batch(clients), update, engine.store.pending(job.client)


def slope(net, batch, rows=slice(None)):
    loss = F.cross_entropy(net(batch.x[rows]), batch.y[rows])
    names = [n for n, p in net.named_parameters()]
    return dict(zip(names, torch.autograd.grad(loss, list(net.parameters())), strict=True))


def test_pfedme_is_its_algorithm(double):
    clients, method = federation_for("pfedme", pfedme_lambda=3.0, pfedme_steps=4, pfedme_lr=0.05)
    net, batch, update, keeps = one_step(method, clients)
    w = {n: p.detach().clone() for n, p in net.named_parameters()}
    for _ in range(4):
        g = slope(net, batch)
        with torch.no_grad():
            for n, p in net.named_parameters():
                p -= 0.05 * (g[n] + 3.0 * (p - w[n]) + 0.001 * p)
    for n, p in net.named_parameters():
        torch.testing.assert_close(keeps[kept_name(n)], p.detach())  # theta
        torch.testing.assert_close(update.tree[n], w[n] - 3.0 * 0.05 * (w[n] - p.detach()))
    server = initial_state(method, 3)
    beyond = combine(make_method("pfedme", clients, **VECTORS, pfedme_beta=2.0), server, [update])
    name = "head.weight"
    torch.testing.assert_close(
        beyond.shared[name], server.shared[name] + 2 * (update.tree[name] - server.shared[name])
    )


def test_pfedme_is_tested_with_the_personal_model(double):
    clients, method = federation_for("pfedme")
    _, net = by_hand(method, clients)
    x, train = clients["client-1"].test.x, first_batch(clients)

    def tested():
        return applied(net).with_tensors(method.adapt(applied(net), train))

    plain = net(x)
    torch.testing.assert_close(tested()(x), plain)  # not seen yet
    with torch.no_grad():
        tensors_of(net)[kept_name("seen")].fill_(1.0)
        for n, _ in list(net.named_parameters()):
            tensors_of(net)[kept_name(n)].fill_(0.1)
    personal = fresh(method, clients["client-1"].info, 3)
    with torch.no_grad():
        for p in personal.parameters():
            p.fill_(0.1)
    torch.testing.assert_close(tested()(x), personal(x))


@pytest.mark.parametrize("kind", [SequentialEngine, VectorisedEngine])
def test_a_pfedme_client_reports_its_personal_model_s_test_once_it_has_trained(double, kind):
    clients, method = federation_for("pfedme")
    job, net = by_hand(method, clients)
    test, engine = clients["client-1"].test, kind(method, clients, PLAIN, CPU)

    def reported():
        (found,) = engine.evaluate([job])
        return found.metrics["loss"]

    shared = float(F.cross_entropy(net(test.x), test.y).detach())
    assert reported() == pytest.approx(shared, rel=1e-6)
    list(engine.train([job]))
    theta = engine.store.pending("client-1")
    assert reported() == pytest.approx(shared, rel=1e-6)  # what it has trained does not count yet
    engine.commit(["client-1"])
    with torch.no_grad():
        for n, p in net.named_parameters():
            p.copy_(theta[kept_name(n)])
    personal = float(F.cross_entropy(net(test.x), test.y).detach())
    assert reported() == pytest.approx(personal, rel=1e-6) and personal != pytest.approx(shared, rel=1e-3)


def test_perfedavg_steps_with_the_gradient_after_a_step(double):
    clients, method = federation_for("perfedavg", perfedavg_alpha=0.3)
    net, _, update, _ = one_step(method, clients, lr=0.05)
    job, _ = by_hand(method, clients)
    # The batch in the order that the engine drew it.
    data = clients["client-1"].train
    rows = plan_batches(replace(PLAIN, batch_size=1000), job, len(data))[0]
    batch = Batch(data.x[rows], data.y[rows])
    half = (len(rows) + 1) // 2
    w = {n: p.detach().clone() for n, p in net.named_parameters()}
    g = slope(net, batch, slice(0, half))
    with torch.no_grad():
        for n, p in net.named_parameters():
            p -= 0.3 * g[n]
    g = slope(net, batch, slice(-half, None))
    for n in w:
        torch.testing.assert_close(update.tree[n], w[n] - 0.05 * g[n])


def test_perfedavg_personalises_on_training_samples_before_a_test(double):
    clients, method = federation_for("perfedavg", perfedavg_alpha=0.5)
    job, net = by_hand(method, clients)
    g = slope(net, first_batch(clients))
    with torch.no_grad():
        for n, p in net.named_parameters():
            p -= 0.5 * g[n]
    test = clients["client-1"].test
    expected = F.cross_entropy(net(test.x), test.y)
    for engine in (SequentialEngine, VectorisedEngine):
        (found,) = engine(method, clients, PLAIN, CPU).evaluate([job])
        assert found.metrics["loss"] == pytest.approx(float(expected.detach()), rel=1e-6)


@pytest.mark.parametrize("kind", [SequentialEngine, VectorisedEngine])
@pytest.mark.parametrize("name", ["pfedme", "perfedavg"])
def test_own_steps_move_normalisation_statistics_as_their_passes_do(double, name, kind):
    """Two local steps, each with the passes of the algorithm, through a network in training mode."""
    clients, method = federation_for(name, model_norm=True, pfedme_steps=3, pfedme_lr=0.05, perfedavg_alpha=0.3)
    job, net = by_hand(method, clients)
    w = {n: p.detach().clone() for n, p in net.named_parameters()}
    theta = {n: t.clone() for n, t in w.items()}

    def descend_from(start, g, *, rate, pull):
        return {n: t - rate * (g[n] + pull * (15.0 * (t - w[n]) + 0.001 * t)) for n, t in start.items()}

    def slope_at(values, batch, rows=slice(None)):
        with torch.no_grad():
            for n, p in net.named_parameters():
                p.copy_(values[n])
        return slope(net, batch, rows)

    train, training = clients["client-1"].train, replace(PLAIN, batch_size=6)
    for rows in plan_batches(training, job, len(train)):
        batch = Batch(train.x[rows], train.y[rows])
        if name == "pfedme":
            for _ in range(3):
                theta = descend_from(theta, slope_at(theta, batch), rate=0.05, pull=1)
            w = {n: t - 15.0 * 0.1 * (t - theta[n]) for n, t in w.items()}
        else:
            ahead = descend_from(w, slope_at(w, batch, slice(0, 3)), rate=0.3, pull=0)
            w = descend_from(w, slope_at(ahead, batch, slice(3, 6)), rate=0.1, pull=0)
    engine = kind(method, clients, training, CPU)
    (update,) = engine.train([job])
    kept = engine.store.pending(job.client)
    for statistic in ("encoder.norm.running_mean", "encoder.norm.running_var"):
        torch.testing.assert_close(kept[statistic], tensors_of(net)[statistic])
    torch.testing.assert_close(update.tree["encoder.enter.weight"], w["encoder.enter.weight"])


def test_lg_fedavg_shares_what_reads_the_features():
    _, method = federation_for("lgfedavg")
    scopes = method.scopes_of("client-0")
    assert {n.partition(".")[0] for n, s in scopes.items() if s is Scope.GLOBAL} == {"head", "classifier"}
    assert {n.partition(".")[0] for n, s in scopes.items() if s is Scope.LOCAL} == {"encoder"}


@pytest.mark.parametrize("kind", [SequentialEngine, VectorisedEngine])
def test_fedrep_trains_the_head_then_the_representation(double, kind):
    clients, method = federation_for("fedrep", rep_epochs=1)
    server = initial_state(method, 3)
    jobs = jobs_of(method, server, clients)
    training = replace(PLAIN, local_epochs=3, momentum=0.9, weight_decay=0.01)
    one = kind(method, clients, training, CPU)
    full = {u.client: u for u in one.train(jobs)}
    # Two epochs of the head alone: the representation has not moved, weight decay or not.
    two = kind(HeadAlone(method.clients.values(), method.settings), clients, replace(training, local_epochs=2), CPU)
    heads = {u.client: u for u in two.train(jobs)}
    for job in jobs:
        for n in job.payload:
            assert torch.equal(heads[job.client].tree[n], job.payload[n]), n
            assert not torch.equal(full[job.client].tree[n], job.payload[n]), n
        begun, after = one.store.current(job.client), one.store.pending(job.client)
        alone = two.store.pending(job.client)
        assert begun.keys() == after.keys() == alone.keys() and begun
        for n in begun:
            assert not torch.equal(alone[n], begun[n])
            torch.testing.assert_close(after[n], alone[n])


class HeadAlone(METHODS["fedrep"]):
    """FedRep in which the representation always rests."""

    def scopes(self):
        never, rows = slice(0, 0), super().scopes().rules
        return ScopeTable(tuple(replace(r, epochs=never if r.scope is Scope.GLOBAL else None) for r in rows))


def test_fedrep_s_turns_are_rows_of_its_scope_table():
    clients, method = federation_for("fedrep", rep_epochs=2)
    plan = method.plan(clients["client-0"].info)
    for name, rule in plan.rules.items():
        head = name.startswith(("head.", "classifier."))
        assert rule.scope is (Scope.LOCAL if head else Scope.GLOBAL), name
        assert [rule.trains_in(epoch, 5) for epoch in range(5)] == [head, head, head, not head, not head], name
        assert rule.trains_in(0, 1)  # with one local epoch in all there is no turn to take
    assert {name.split(".")[0] for name in plan.rules} == {"encoder", "head", "classifier"}


def test_meta_har_learns_from_pairs(double):
    clients, method = federation_for("metahar")
    _, net = by_hand(method, clients)
    batch = first_batch(clients)
    loss, _ = method.loss(applied(net), applied(net), batch)
    z = net(batch.x, output="projected")
    terms = []
    for i in range(len(z)):
        for j in range(len(z)):
            if i != j:
                c = 10 * (z[i] @ z[j]) / (z[i].norm() * z[j].norm())
                terms.append(torch.log1p(c.exp()) - c * (batch.y[i] == batch.y[j]))
    assert float(loss.detach()) == pytest.approx(float(torch.stack(terms).mean().detach()), rel=1e-10)


def test_meta_har_fits_its_head_to_training_samples():
    clients, method = federation_for("metahar", meta_head=60)
    jobs = jobs_of(method, initial_state(method, 3), clients)
    for kind in (SequentialEngine, VectorisedEngine):
        found = list(kind(method, clients, PLAIN, CPU).evaluate(jobs))
        # Four classes, nothing trained before.
        assert sum(item.metrics["accuracy"] for item in found) / len(found) > 0.6, kind


@pytest.mark.parametrize("name", ["fedavg_within", "fedavg_pair"])
def test_fedavg_within_a_modality_shares_with_nobody_else(double, name):
    clients, method = federation_for(name, model_norm=True)
    server = initial_state(method, 3)
    assert not server.shared and {s for s in method.scopes_of("client-0").values()} == {Scope.GROUP, Scope.LOCAL}
    jobs = jobs_of(method, server, clients)
    everybody = combine(method, server, SequentialEngine(method, clients, PLAIN, CPU).train(jobs))
    wrists = [job for job in jobs if job.group == "wrist"]
    alone = combine(method, server, SequentialEngine(method, clients, PLAIN, CPU).train(wrists))
    for n, tensor in everybody.groups["wrist"].items():
        torch.testing.assert_close(tensor, alone.groups["wrist"][n])
        assert not n.endswith("weight") or not torch.equal(tensor, server.groups["wrist"][n]), n


def test_a_pair_is_two_networks_that_do_not_learn_from_each_other(double):
    clients, method = federation_for("fedavg_pair", model_norm=True)
    _, net = by_hand(method, clients)
    assert not torch.equal(net.first.encoder.enter.weight, net.second.encoder.enter.weight)
    x, batch = clients["client-1"].test.x, first_batch(clients)
    loss, _ = method.loss(applied(net), applied(net), batch)
    loss.backward()
    found = net.second.encoder.enter.weight.grad.clone()
    alone = F.cross_entropy(net.second(batch.x), batch.y)
    torch.testing.assert_close(found, torch.autograd.grad(alone, net.second.encoder.enter.weight)[0])
    net.eval()
    mean = (net.first(x).softmax(-1) + net.second(x).softmax(-1)) / 2
    torch.testing.assert_close(net(x).exp(), mean)


def test_fedbn_needs_something_to_keep():
    clients = vector_clients()
    with pytest.raises(ValueError, match="model_norm = true"):
        initial_state(make_method("fedbn", clients, **VECTORS), 0)
    method = make_method("fedbn", clients, **VECTORS, model_norm=True)
    local = {n for n, s in method.scopes_of("client-0").items() if s is Scope.LOCAL}
    assert local == {f"encoder.norm.{t}" for t in ("weight", "bias", "running_mean", "running_var")}


def test_averaging_everything_needs_one_width():
    clients = vector_clients((10, 17))
    with pytest.raises(ValueError, match=r"'encoder\.enter\.weight' is shared, but it is"):
        initial_state(make_method("fedavg", clients, **VECTORS), 0)


def test_a_late_client_starts_from_the_server_s_values():
    """Its modality's tensors are there from the start, though nobody of it has trained."""
    clients, method = federation_for("fdarn")
    server = initial_state(method, 3)
    engine = SequentialEngine(method, clients, PLAIN, CPU)
    for _ in range(2):
        jobs = [job for job in jobs_of(method, server, clients) if job.group == "camera"]
        server = combine(method, server, engine.train(jobs))
    late = next(job for job in jobs_of(method, server, clients) if job.group == "wrist")
    assert torch.equal(late.payload["shared.head.weight"], server.shared["shared.head.weight"])
    after = combine(method, server, engine.train([late]))
    assert not torch.equal(
        after.groups["wrist"]["private.head.weight"], server.groups["wrist"]["private.head.weight"]
    )
