"""FSAR's equations against slow, literal versions."""

import math
from dataclasses import replace

import pytest
import torch

from fedaction.data.layout import KINECT_V2
from fedaction.engines.sequential import _Resident
from fedaction.federation.scope import FROZEN, GLOBAL, LOCAL
from fedaction.federation.seeds import generator
from fedaction.federation.state import ServerState, Update
from fedaction.methods.base import Batch
from fedaction.methods.fsar import divergence
from fedaction.methods.start import fresh, initial_state
from fedaction.server.federation import combine
from tests.conftest import make_client, make_method, mixed_clients


def nets(method, client):
    """A net being trained and the anchor it started from, with values that differ."""
    pair = []
    for role in ("net", "anchor"):
        module = fresh(method, client.info, 0)
        for name, p in module.named_parameters():
            p.data = p.data + 0.2 * torch.randn(p.shape, generator=generator(1, role, name)).to(p.dtype)
        pair.append(_Resident(module.train(role == "net")))
    return pair


def test_scopes_are_the_papers():
    clients = mixed_clients()
    method = make_method("fsar", clients)
    scopes = method.scopes_of("client-0")
    assert scopes["topology.A"] is FROZEN and scopes["topology.I"] is GLOBAL
    local = {
        "topology.U",
        "topology.alpha",
        "topology.beta",
        "topology.gamma",
        "classifier.weight",
        "classifier.bias",
    }
    assert {n for n, s in scopes.items() if s is LOCAL and "norm" not in n} == local
    assert all(scopes[n] is LOCAL for n in scopes if "running" in n or n.startswith("data_norm"))
    assert scopes["units.0.temporal_norm.weight"] is GLOBAL
    rules = method.plan(clients["client-0"].info).rules
    undecayed = {n for n, rule in rules.items() if not rule.decay}
    assert undecayed == {f"topology.{n}" for n in ("I", "U", "alpha", "beta", "gamma")}
    averaged = make_method("fsar", clients, buffers="average").scopes_of("client-0")
    assert averaged["units.0.temporal_norm.running_mean"] is GLOBAL


@pytest.mark.parametrize(("form", "weight"), [("half_mean", 0.25), ("sum", 1.0)])
def test_equations_8_to_11_written_out(double, form, weight):
    client = make_client(0)
    settings = {"lambda_ce": 0.7, "lambda_kd": 1.3, "lambda_reg": 0.2, "mkd_blocks": 2, "mkd_weight": form}
    method = make_method("fsar", {"client-0": client}, **settings)
    net, anchor = nets(method, client)
    x, y = client.train.x, client.train.y
    total, metrics = method.loss(net, anchor, Batch(x, y))

    def cross_entropy(logits):
        return sum(-math.log(math.exp(row[label]) / sum(map(math.exp, row))) for row, label in zip(
            logits.tolist(), y.tolist(), strict=True)) / len(y)  # fmt: skip

    def kl(p_logits, q_logits):
        found = 0.0
        for p_row, q_row in zip(p_logits.tolist(), q_logits.tolist(), strict=True):
            p = [math.exp(v) / sum(map(math.exp, p_row)) for v in p_row]
            q = [math.exp(v) / sum(map(math.exp, q_row)) for v in q_row]
            found += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
        return found / len(p_logits)

    fresh_net, fresh_anchor = nets(method, client)
    fresh_anchor.module.train()  # the server's stream is normalised by the batch, too
    h = fresh_net(x)
    f1 = fresh_anchor(x, leave=1, unique=False)
    f2 = fresh_anchor(x, leave=2, unique=False)
    h1, h2 = fresh_net(f1, enter=1), fresh_net(f2, enter=2)
    l_ce = cross_entropy(h) + weight * (cross_entropy(h1) + cross_entropy(h2))
    l_kd = weight * (kl(h1, h) + kl(h2, h))
    scopes = method.scopes_of("client-0")
    shared = [n for n, p in net.module.named_parameters() if scopes[n] is GLOBAL]
    l_reg = 0.5 * sum(
        (a - b) ** 2
        for n in shared
        for a, b in zip(net.tensors[n].flatten().tolist(), anchor.tensors[n].flatten().tolist(), strict=True)
    )
    assert metrics["ce"].item() == pytest.approx(l_ce, rel=1e-10)
    assert metrics["kd"].item() == pytest.approx(l_kd, rel=1e-8)
    assert metrics["reg"].item() == pytest.approx(l_reg, rel=1e-10)
    assert total.item() == pytest.approx(0.7 * l_ce + 1.3 * l_kd + 0.2 * l_reg, rel=1e-10)
    assert "topology.U" not in shared and "classifier.weight" not in shared and "topology.I" in shared


def test_the_servers_stream_is_frozen_and_has_no_u(double):
    client = make_client(0)
    method = make_method("fsar", {"client-0": client})
    net, anchor = nets(method, client)
    loss, _ = method.loss(net, anchor, Batch(client.train.x, client.train.y))
    loss.backward()
    assert all(p.grad is None for p in anchor.module.parameters())
    before = float(loss.detach())
    anchor.tensors["topology.U"].data += 5.0  # must not matter
    for name, p in anchor.module.named_parameters():
        if name.startswith("classifier"):
            p.data += 5.0  # nor the teacher's classifier
    net, _ = nets(method, client)
    assert float(method.loss(net, anchor, Batch(client.train.x, client.train.y))[0].detach()) == before


@pytest.mark.parametrize("detach", [True, False])
def test_the_distillation_target_is_detached_only_by_default(double, detach):
    client = make_client(0)
    method = make_method("fsar", {"client-0": client}, kd_detach=detach, lambda_ce=0.0, lambda_reg=0.0, mkd_blocks=3)
    net, anchor = nets(method, client)
    # With all three blocks grafted, the branch is a function of the classifier and projection alone; with a fixed
    # target, KL's gradient on the classifier comes from the local stream only.
    loss, _ = method.loss(net, anchor, Batch(client.train.x, client.train.y))
    loss.backward()
    found = net.module.classifier.bias.grad
    net2, anchor2 = nets(method, client)
    anchor2.module.train()
    logits = net2(client.train.x)
    target = 0
    for m in (1, 2, 3):
        branch = net2(anchor2(client.train.x, leave=m, unique=False).detach(), enter=m)
        target = target + divergence(branch.detach() if detach else branch, logits) / 6
    target.backward()
    torch.testing.assert_close(found, net2.module.classifier.bias.grad)
    other, anchor3 = nets(method, client)
    wrong = make_method(
        "fsar", {"client-0": client}, kd_detach=not detach, lambda_ce=0.0, lambda_reg=0.0, mkd_blocks=3
    )
    wrong.loss(other, anchor3, Batch(client.train.x, client.train.y))[0].backward()
    assert not torch.allclose(found, other.module.classifier.bias.grad)


def test_input_normalisation_is_shared_where_all_have_one_layout():
    """Its weights, as in the released code; its statistics stay with clients like all others."""
    alike = {f"client-{number}": make_client(number) for number in (0, 1)}
    scopes = make_method("fsar", alike).scopes_of("client-0")
    assert scopes["data_norm.weight"] is scopes["data_norm.bias"] is GLOBAL
    assert scopes["data_norm.running_mean"] is LOCAL
    assert make_method("fedbn", alike).scopes_of("client-0")["data_norm.weight"] is LOCAL


def test_grafts_leave_the_statistics_that_tests_use_alone():
    """They are those of the local stream, whoever else passes the network."""
    client = make_client(0)
    after = []
    for blocks in (0, 3):
        method = make_method("fsar", {"client-0": client}, mkd_blocks=blocks)
        net, anchor = nets(method, client)
        received = {name: tensor.clone() for name, tensor in anchor.tensors.items()}
        method.loss(net, anchor, Batch(client.train.x, client.train.y))
        after.append({name: tensor for name, tensor in net.tensors.items() if "running" in name})
        assert all(torch.equal(anchor.tensors[name], tensor) for name, tensor in received.items())
    assert len(after[0]) > 10 and not torch.equal(after[0]["data_norm.running_mean"], torch.zeros(()))
    for name, tensor in after[0].items():
        torch.testing.assert_close(after[1][name], tensor)


def test_a_clients_first_step_is_no_larger_for_its_grafts():
    """Before a client has trained, its statistics are 0 and 1, by which small features are not normalised."""
    client = make_client(0)
    largest = []
    for blocks in (0, 2):
        method = make_method("fsar", {"client-0": client}, mkd_blocks=blocks, lambda_reg=0.0)
        net, anchor = (_Resident(fresh(method, client.info, 0).train(role)) for role in (True, False))
        method.loss(net, anchor, Batch(client.train.x, client.train.y))[0].backward()
        slopes = {name: p.grad for name, p in net.module.named_parameters() if p.grad is not None}
        largest.append(max(float(slope.abs().max()) for slope in slopes.values()))
    assert largest[1] < 3 * largest[0]


def test_divergence_is_zero_for_equals_and_positive_else(double):
    a, b = torch.randn(4, 5), torch.randn(4, 5)
    assert divergence(a, a).item() == pytest.approx(0.0, abs=1e-12)
    assert divergence(a, b) > 0 and divergence(a, b) != divergence(b, a)


@pytest.mark.parametrize(
    ("settings", "absent"),
    [({"ats": False}, "topology.I"), ({"ats_coefficients": (1.0, 0.0, 1.0)}, "topology.alpha")],
)
def test_ablations_remove_what_they_say(settings, absent):
    clients = mixed_clients()
    assert absent in make_method("fsar", clients).scopes_of("client-0")
    assert absent not in make_method("fsar", clients, **settings).scopes_of("client-0")


def test_without_mkd_there_is_one_stream(double):
    client = make_client(0)
    method = make_method("fsar", {"client-0": client}, mkd_blocks=0, lambda_reg=0.0)
    net, anchor = nets(method, client)
    loss, metrics = method.loss(net, anchor, Batch(client.train.x, client.train.y))
    net2, _ = nets(method, client)
    expected = torch.nn.functional.cross_entropy(net2(client.train.x), client.train.y)
    torch.testing.assert_close(loss, expected)
    assert metrics["kd"] == 0


def update(name, tree, samples, version=0):
    return Update(name, "skeleton", version, tree, samples)


def test_algorithm_1_over_three_rounds(double):
    """send = W + xi (W - W_previous);  W' = tau sum p_i W_i + (1 - tau) send, as a literal recursion."""
    clients = {c.info.id: c for c in (make_client(0, train=12), make_client(1, train=4))}
    method = make_method("fsar", clients, tau=0.7, xi=0.6)
    server = initial_state(method, 0)
    w = {n: t.clone() for n, t in server.shared.items()}
    previous = {n: t.clone() for n, t in w.items()}
    for r in range(3):
        send = {n: w[n] + 0.6 * (w[n] - previous[n]) for n in w}
        received = method.payload(server, clients["client-0"].info)
        for n in received:
            torch.testing.assert_close(received[n], send[n])
        moved = {
            c: {
                n: t + torch.randn(t.shape, generator=generator(r, c, n), dtype=torch.float64)
                for n, t in send.items()
            }
            for c in clients
        }
        server = combine(method, server, (update(c, moved[c], clients[c].info.samples, r) for c in sorted(clients)))
        previous = w
        w = {n: 0.7 * (12 / 16 * moved["client-0"][n] + 4 / 16 * moved["client-1"][n]) + 0.3 * send[n] for n in w}
        for n in w:
            torch.testing.assert_close(server.shared[n], w[n])
    # Evaluation sees W, not the look-ahead.
    torch.testing.assert_close(method.served(server, clients["client-0"].info)["topology.I"], w["topology.I"])


def test_a_model_that_comes_back_unchanged_does_not_grow(double):
    """The supplement's Eq. 3 without tau on the sum would grow it by 2 - tau each round."""
    clients = {"client-0": make_client(0)}
    method = make_method("fsar", clients)
    server = initial_state(method, 0)
    start = {n: t.clone() for n, t in server.shared.items()}
    for _ in range(5):
        sent = method.payload(server, clients["client-0"].info)
        server = combine(method, server, iter([update("client-0", sent, 12.0)]))
    for n in start:
        torch.testing.assert_close(server.shared[n], start[n])


def test_i_is_shared_over_joints_that_mean_the_same(double):
    clients = {c.info.id: c for c in (make_client(0), make_client(1, joints="openni_15"))}
    method = make_method("fsar", clients, tau=1.0, xi=0.0)
    assert method.body.joints == KINECT_V2.joints  # they include all fifteen
    server = initial_state(method, 0)
    assert tuple(server.shared["topology.I"].shape) == (3, 25, 25)
    small = clients["client-1"].info
    sent = method.payload(server, small)
    assert tuple(sent["topology.I"].shape) == (3, 15, 15)
    head, neck = small.layout.index("head"), small.layout.index("neck")
    changed = dict(sent)
    changed["topology.I"] = sent["topology.I"].clone()
    changed["topology.I"][:, head, neck] = 7.0
    new = combine(method, server, iter([update("client-1", changed, 5.0)]))
    found = new.shared["topology.I"]
    assert (found == 7.0).sum() == 3 and found[0, KINECT_V2.index("head"), KINECT_V2.index("neck")] == 7.0


def test_one_layout_makes_the_joint_map_the_identity():
    clients = {c.info.id: c for c in (make_client(0), make_client(1, classes=6))}
    method = make_method("fsar", clients)
    assert method.parts(clients["client-0"].info) == {}


def test_groups_pass_through():
    clients = {"client-0": make_client(0)}
    method = make_method("fsar", clients)
    server = replace(initial_state(method, 0), groups={"g": {"t": torch.ones(1)}})
    new = combine(method, server, iter([]))
    assert isinstance(new, ServerState) and new.groups == server.groups
