"""FDARN's terms against slow, literal versions, at their edges, and the one backward pass for Eqs. 9 and 10."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch.func import grad, vmap

from fedaction.federation.seeds import generator
from fedaction.methods.spherical import EDGE, angular_margin, scaled_gradient, separation, spread_out
from fedaction.models.encoders import PerceptronEncoder
from fedaction.models.fdarn import FDARNNetwork
from tests.models.common import close, samples, started


def sphere(*shape, seed=0):
    return F.normalize(samples(*shape, seed=seed), dim=-1)


def literal_margin(embedding, W, labels, alpha, tau):
    """Eq. 4 instance by instance, with angles, and the linear continuation past pi."""
    total = 0.0
    for g, z in zip(embedding.tolist(), labels, strict=True):
        angles = []
        for column in W.T.tolist():
            length = math.sqrt(sum(w * w for w in column))
            angles.append(math.acos(sum(a * w for a, w in zip(g, column, strict=True)) / length))
        wide = angles[z] + tau > math.pi
        own = math.cos(angles[z]) - tau * math.sin(tau) if wide else math.cos(angles[z] + tau)
        others = sum(math.exp(alpha * math.cos(t)) for m, t in enumerate(angles) if m != z)
        total -= math.log(math.exp(alpha * own) / (math.exp(alpha * own) + others))
    return total / len(labels)


@pytest.mark.parametrize(("scale", "margin"), [(72.0, 0.5), (8.0, 1.2), (1.0, 0.0)])
def test_angular_margin_is_equation_4(double, scale, margin):
    embedding, W = sphere(40, 3), samples(3, 4, seed=1)  # three dimensions: all angles occur
    labels = [i % 4 for i in range(40)]
    cosines = embedding @ F.normalize(W, dim=0)
    if margin:
        assert any(math.acos(cosines[i, z]) + margin > math.pi for i, z in enumerate(labels))
    expected = literal_margin(embedding, W, labels, scale, margin)
    value = angular_margin(embedding, W, torch.tensor(labels), scale=scale, margin=margin)
    assert value.item() == pytest.approx(expected, rel=1e-10)


def test_one_modality_for_the_whole_batch(double):
    embedding, W = sphere(6, 8), samples(8, 3, seed=1)
    by_sample = angular_margin(embedding, W, torch.full((6,), 2))
    for z in (2, torch.tensor(2)):
        assert torch.equal(angular_margin(embedding, W, z), by_sample)
    assert not torch.allclose(angular_margin(embedding, W, 1), by_sample)
    close(angular_margin(embedding, W * torch.tensor([0.1, 3.0, 7.0]), 2), by_sample)  # only directions count


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("z", [0, 1])
def test_aligned_and_opposite_vectors_have_finite_slopes(dtype, sign, z):
    for seed in range(20):
        W = torch.randn(128, 2, generator=generator(seed, "W")).to(dtype).requires_grad_()
        raw = (sign * W.detach()[:, 0]).clone().repeat(3, 1).requires_grad_()
        angular_margin(F.normalize(raw, dim=1), W, z).backward()
        assert torch.isfinite(raw.grad).all() and torch.isfinite(W.grad).all()
        assert raw.grad.abs().max() < 1e3 and W.grad.abs().max() < 1e3
    exact = torch.tensor([[sign, 0.0]], dtype=dtype, requires_grad=True)
    prototypes = torch.eye(2, dtype=dtype, requires_grad=True)
    angular_margin(exact, prototypes, z).backward()
    assert torch.isfinite(exact.grad).all() and torch.isfinite(prototypes.grad).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_slopes_near_the_edge_stay_bounded_on_the_sphere(dtype):
    """The angle's infinite slope meets a vanishing tangent: no step is longer than alpha."""
    for gap in (10 * EDGE, 2 * EDGE, 0.5 * EDGE, 1e-12):
        angle = math.acos(1 - gap)
        for turn in (angle, math.pi - angle):
            raw = torch.tensor([[math.cos(turn), math.sin(turn)]], dtype=dtype, requires_grad=True)
            W = torch.eye(2, dtype=dtype)
            angular_margin(F.normalize(raw, dim=1), W, 0).backward()
            assert raw.grad.norm() <= 2 * 72 * 1.01


def test_its_gradient_is_right(double):
    embedding = sphere(5, 4).requires_grad_()
    W = samples(4, 3, seed=1).requires_grad_()
    z = torch.tensor([0, 1, 2, 0, 1])
    assert torch.autograd.gradcheck(lambda e, w: angular_margin(e, w, z, scale=4.0), (embedding, W))
    assert torch.autograd.gradcheck(lambda w: spread_out(w), (W,))


@pytest.mark.parametrize(("modalities", "expected"), [(2, 34.52), (4, 35.62)])
def test_the_loss_of_a_feature_that_is_like_no_modality(modalities, expected):
    """alpha sin(tau) + ln(M - 1): where training starts, up to the spread of the cosines."""
    axes = torch.eye(modalities + 1)
    value = angular_margin(axes[-1:], axes[:, :modalities], 0)
    assert value.item() == pytest.approx(72 * math.sin(0.5) + math.log(modalities - 1), abs=1e-4)
    assert value.item() == pytest.approx(expected, abs=0.01)


def test_spread_out_is_equation_7(double):
    W = samples(3, 5)
    unit = [w / w.norm() for w in W.T]
    literal = sum(max(0.0, 1.5 - (1 - float(unit[a] @ unit[b]))) for a, b in itertools.permutations(range(5), 2))
    assert spread_out(W).item() == pytest.approx(literal, rel=1e-12)
    assert 0 < literal < 5 * 4 * 1.5  # some pairs are beyond the margin, some are not


@pytest.mark.parametrize(("modalities", "floor"), [(2, 0.0), (3, 0.0), (4, 2.0)])
def test_the_least_that_spread_out_can_be(double, modalities, floor):
    corners = torch.eye(modalities) - 1 / modalities  # a regular simplex
    assert spread_out(corners).item() == pytest.approx(floor, abs=1e-12)
    W = samples(8, modalities, seed=3).requires_grad_()
    for _ in range(400):
        (slope,) = torch.autograd.grad(spread_out(W), W)
        W = (W - 0.02 * slope).detach().requires_grad_()
    assert floor - 1e-9 <= spread_out(W).item() < floor + 0.02
    assert spread_out(torch.ones(8, modalities)).item() == pytest.approx(1.5 * modalities * (modalities - 1))


def test_separation_is_equation_3_in_four_readings(double):
    a, b = samples(5, 4), samples(5, 4, seed=3)
    pairs = list(itertools.product(range(5), repeat=2))
    raw = sum(float(a[i] @ b[j]) ** 2 for i, j in pairs)
    gram = sum(float(a[i] @ b[j] / (a[i].norm() * b[j].norm())) ** 2 for i, j in pairs) / 25
    centred = [[row / row.norm() for row in h - h.mean(0)] for h in (a, b)]
    dsn = 0.0
    for p, q in itertools.product(range(4), repeat=2):
        dsn += sum(float(u[p] * v[q]) for u, v in zip(*centred, strict=True)) ** 2 / 16
    assert separation(a, b, form="raw").item() == pytest.approx(raw, rel=1e-12)
    assert separation(a, b, form="dsn").item() == pytest.approx(dsn, rel=1e-12)
    assert separation(a, b, form="frobenius").item() == pytest.approx(25 * gram, rel=1e-12)
    assert separation(a, b).item() == separation(a, b, form="gram").item() == pytest.approx(gram, rel=1e-12)


def test_separation_is_zero_for_orthogonal_features_and_safe_at_zero():
    a, b = torch.eye(6)[:3], torch.eye(6)[3:]
    assert separation(a, b) == 0 and separation(a, b, form="raw") == 0
    assert separation(a[:1].repeat(4, 1), a[:1].repeat(4, 1)).item() == pytest.approx(1.0)
    for form in ("gram", "frobenius", "dsn", "raw"):
        zero, other = torch.zeros(3, 6, requires_grad=True), torch.randn(3, 6, generator=generator(0, "b"))
        separation(zero, other, form=form).backward()
        assert torch.equal(zero.grad, torch.zeros(3, 6))


@pytest.mark.parametrize("factor", [-0.4, 0.4, 0.0])
def test_a_scaled_gradient_leaves_the_values(factor):
    x = torch.randn(50, 7, generator=generator(0, "x")) * 1e3
    x.requires_grad_()
    y = scaled_gradient(x, factor)
    assert torch.equal(y, x)
    weights = torch.randn(50, 7, generator=generator(1, "x"))
    (y * weights).sum().backward()
    assert torch.equal(x.grad, factor * weights)
    inner = grad(lambda v: (scaled_gradient(v, factor) ** 2).sum())
    torch.testing.assert_close(vmap(inner)(x.detach()), 2 * factor * x.detach())


@pytest.mark.parametrize("form", ["gram", "frobenius", "dsn", "raw"])
def test_one_backward_pass_is_equations_9_and_10(double, form):
    encoders = (PerceptronEncoder(10, 12, 8) for _ in range(2))
    net = started(FDARNNetwork(*encoders, classes=5, modalities=4, features=8, hidden=9, sphere=6))
    x, y, z, gamma1, gamma2 = samples(7, 10), torch.arange(7) % 5, 2, 0.6, 0.4

    def terms(before_a, before_e):
        h_a, h_e = net(x, part="altruistic"), net(x, part="egocentric")
        l_c = F.cross_entropy(net(h_a, part="shared"), y) + F.cross_entropy(net(h_e, part="private"), y)
        W = net.discriminator.W
        l_ama = angular_margin(net(before_a(h_a), part="sphere"), W, z)
        l_ams = angular_margin(net(before_e(h_e), part="sphere"), W, z)
        return l_c, separation(h_a, h_e, form=form), spread_out(W), l_ama, l_ams

    def slopes(loss):
        values = torch.autograd.grad(loss, list(net.parameters()), allow_unused=True, retain_graph=True)
        return {n: v for (n, _), v in zip(net.named_parameters(), values, strict=True)}

    l_c, l_sep, l_sp, l_ama, l_ams = terms(lambda h: h, lambda h: h)
    rest = slopes(l_c + gamma1 * l_sep + gamma2 * (l_sp - l_ama + l_ams))  # Eq. 9
    discriminator = slopes(l_sp + l_ama + l_ams)  # Eq. 10
    l_c, l_sep, l_sp, l_ama, l_ams = terms(
        lambda h: scaled_gradient(h, -gamma2), lambda h: scaled_gradient(h, gamma2)
    )
    once = slopes(l_c + gamma1 * l_sep + l_sp + l_ama + l_ams)
    assert any(n.startswith("discriminator") for n in once)
    for name, slope in once.items():
        assert slope.abs().max() > 0, name
        close(slope, (discriminator if name.startswith("discriminator") else rest)[name], name)
    unreversed = slopes(sum(terms(lambda h: h, lambda h: h)))
    assert not torch.allclose(unreversed["altruistic.leave.weight"], once["altruistic.leave.weight"])
