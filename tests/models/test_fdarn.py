"""FDARN's network: sizes, the prediction of Eq. 2, parts and what is left without them, many clients at once."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, vmap

from fedaction.federation.seeds import generator
from fedaction.methods.spherical import angular_margin, scaled_gradient, separation, spread_out
from fedaction.models.encoders import encoder_for
from fedaction.models.fdarn import FDARNNetwork
from fedaction.models.heads import ABSENT
from fedaction.models.layers import initialise, use_stacked_form
from tests.models.common import close, count, filled, samples, started


def full(classes, modalities):
    return FDARNNetwork(encoder_for((1024,)), encoder_for((1024,)), classes=classes, modalities=modalities)


def small(shape=(10,), **options):
    encoders = [encoder_for(shape, outputs=8, hidden=12, width=4) for _ in range(2)]
    keys = {"classes": 5, "modalities": 3, "features": 8, "hidden": 9, "sphere": 6} | options
    return FDARNNetwork(*encoders, **keys)


@pytest.mark.parametrize(
    ("classes", "modalities", "classifier", "discriminator", "whole"),
    [
        (97, 4, 1_149_025, 131_712, 6_628_162),  # EPIC-Kitchens
        (20, 2, 1_070_100, 131_456, 6_470_056),  # Multimodal-EA
        (23, 2, 1_073_175, 131_456, 6_476_206),  # Stanford-ECM
        (15, 2, 1_064_975, 131_456, 6_459_806),  # Ego-Exo-AR
    ],
)
def test_the_papers_networks_have_their_sizes(classes, modalities, classifier, discriminator, whole):
    with torch.device("meta"):
        model = full(classes, modalities)
    assert count(model.altruistic) == count(model.egocentric) == 2_099_200
    assert count(model.shared) == count(model.private) == classifier
    assert count(model.discriminator) == discriminator
    assert count(model) == whole
    names = {name for name, _ in model.named_children()}
    assert names == {"altruistic", "egocentric", "shared", "private", "discriminator"}


def literal_softmaxes(net, x):
    probabilities = []
    for encoder, head in ((net.altruistic, net.shared), (net.egocentric, net.private)):
        hidden = (encoder(x) @ head.head.weight.T + head.head.bias).clamp(min=0)
        powers = (hidden @ head.classifier.weight.T + head.classifier.bias + head.classifier.absent).exp()
        probabilities.append(powers / powers.sum(1, keepdim=True))
    return probabilities


def test_the_prediction_adds_probabilities_not_logits(double):
    net, x = filled(small()), samples(50, 10)
    shared, private = literal_softmaxes(net, x)
    close(net(x).exp(), (shared + private) / 2)  # Eq. 2, up to the factor that makes it a distribution
    close(net(x, streams="shared"), shared.log())
    close(net(x, streams="private"), private.log())
    logits = net(net(x, part="altruistic"), part="shared") + net(net(x, part="egocentric"), part="private")
    assert (logits.argmax(1) != net(x).argmax(1)).any()


def test_classes_that_are_not_there_are_never_predicted(double):
    wide, narrow, x = filled(small(classes=7)), filled(small(classes=5)), samples(6, 10)
    for name, p in narrow.named_parameters():
        p.data = dict(wide.named_parameters())[name].data[: len(p)].clone()
    for head in (wide.shared, wide.private):
        head.classifier.absent[5:] = ABSENT
    close(wide(x)[:, :5], narrow(x))
    assert (wide(x)[:, 5:] < ABSENT / 2).all()
    F.cross_entropy(wide(x), torch.arange(6) % 5).backward()
    for head in (wide.shared, wide.private):
        slope = head.classifier.weight.grad
        assert torch.isfinite(slope).all() and (slope[5:] == 0).all() and (slope[:5] != 0).any()


def test_the_discriminator_and_its_sphere(double):
    net, h = filled(small()), samples(6, 8)
    phi = net.discriminator.phi
    hidden = (h @ phi.weight.T + phi.bias).clamp(min=0)
    close(net(h, part="modality"), hidden @ net.discriminator.W)
    close(net(h, part="sphere"), hidden / hidden.norm(dim=1, keepdim=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_feature_that_phi_silences_has_no_slope(dtype):
    net = started(small()).to(dtype)
    net.discriminator.phi.bias.data.fill_(-1e3)
    h = samples(4, 8).to(dtype).requires_grad_()
    embedded = net(h, part="sphere")
    assert torch.equal(embedded, torch.zeros_like(embedded))
    angular_margin(embedded, net.discriminator.W, 1).backward()
    assert torch.equal(h.grad, torch.zeros_like(h))
    assert torch.isfinite(net.discriminator.W.grad).all()


def test_prototypes_start_with_length_one():
    net = started(small(modalities=4, sphere=128))
    torch.testing.assert_close(net.discriminator.W.norm(dim=0), torch.ones(4))
    again = started(small(modalities=4, sphere=128))
    assert torch.equal(net.discriminator.W, again.discriminator.W)
    other = small(modalities=4, sphere=128)
    initialise(other.discriminator, generator(1, "discriminator"))
    assert not torch.equal(net.discriminator.W, other.discriminator.W)


@pytest.mark.parametrize(("modalities", "least"), [(2, 34.5), (4, 35.6)])
def test_the_margin_dominates_at_first(modalities, least):
    """At the paper's size the loss starts near alpha sin(tau) + ln(M - 1), not near ln(M)."""
    h, values = samples(64, 1024), []
    for seed in range(8):
        net = FDARNNetwork(None, torch.nn.Identity(), classes=2, modalities=modalities, streams="private")
        for name, part in net.named_modules():
            initialise(part, generator(seed, name))
        values += [angular_margin(net(h, part="sphere"), net.discriminator.W, z).item() for z in range(modalities)]
    assert least - 2 < sum(values) / len(values) < least + 8
    assert min(values) > 15 > math.log(modalities)


@pytest.mark.parametrize("streams", ["shared", "private"])
def test_ablations_leave_no_idle_tensors(double, streams):
    encoder = encoder_for((10,), outputs=8, hidden=12)
    given = (encoder, None) if streams == "shared" else (None, encoder)
    net = filled(FDARNNetwork(*given, classes=5, modalities=0, features=8, hidden=9, streams=streams))
    x = samples(6, 10)
    assert torch.equal(net(x), net(x, streams=streams))
    F.cross_entropy(net(x), torch.arange(6) % 5).backward()
    assert all(p.grad is not None for p in net.parameters())
    missing, other = ("egocentric", "private") if streams == "shared" else ("altruistic", "shared")
    for part in (missing, other):
        with pytest.raises(ValueError, match=f"without its {part} part"):
            net(x, part=part)
    with pytest.raises(ValueError, match="without a modality discriminator"):
        net(samples(6, 8), part="sphere")
    with pytest.raises(ValueError, match=f"needs an {missing} encoder"):
        FDARNNetwork(*given, classes=5, modalities=0)


def test_a_classifier_can_be_left_out_beside_its_encoder(double):
    net, x = filled(small(streams="private")), samples(6, 10)
    assert net.shared is None and net(x, part="altruistic").shape == (6, 8)
    close(net(x), F.log_softmax(net(net(x, part="egocentric"), part="private"), -1))


def whole_loss(apply, W, x, y, z):
    """Everything that a method asks of the network, in one pure function."""
    h_a, h_e = apply(x, part="altruistic"), apply(x, part="egocentric")
    loss = F.cross_entropy(apply(h_a, part="shared"), y) + F.cross_entropy(apply(h_e, part="private"), y)
    for form in ("gram", "dsn", "raw"):
        loss = loss + 0.6 * separation(h_a, h_e, form=form)
    loss = loss + spread_out(W) + angular_margin(apply(scaled_gradient(h_a, -0.4), part="sphere"), W, z)
    loss = loss + angular_margin(apply(scaled_gradient(h_e, 0.4), part="sphere"), W, z)
    return loss + F.cross_entropy(apply(h_a, part="modality"), z.expand(len(y))) + F.nll_loss(apply(x), y)


@pytest.mark.parametrize("shape", [(10,), (21, 6)])
def test_clients_one_at_a_time_and_at_once_agree(double, shape):
    """Three clients of two modalities, with 5, 4 and 3 classes in classifiers of 5."""
    plain = started(small(shape))
    stacked = use_stacked_form(copy.deepcopy(plain))
    clients = []
    for seed in range(3):
        net = filled(copy.deepcopy(plain), seed=seed)
        parameters = {n: p.detach().clone().requires_grad_() for n, p in net.named_parameters()}
        buffers = {n: b.clone() for n, b in net.named_buffers()}
        for name in ("shared.classifier.absent", "private.classifier.absent"):
            buffers[name][5 - seed :] = ABSENT
        y = torch.arange(4) % (5 - seed)
        clients.append((parameters, buffers, samples(4, *shape, seed=seed), y, torch.tensor(seed % 2)))

    def loss(network, parameters, buffers, x, y, z):
        def apply(value, **options):
            return functional_call(network, {**parameters, **buffers}, (value,), options)

        return whole_loss(apply, parameters["discriminator.W"], x, y, z)

    together = {n: torch.stack([c[0][n].detach() for c in clients]).requires_grad_() for n in clients[0][0]}
    buffers = {n: torch.stack([c[1][n] for c in clients]) for n in clients[0][1]}
    rest = [torch.stack([c[i] for c in clients]) for i in (2, 3, 4)]
    losses = vmap(lambda p, b, x, y, z: loss(stacked, p, b, x, y, z))(together, buffers, *rest)
    losses.sum().backward()
    for i, (own, statistics, x, y, z) in enumerate(clients):
        one = loss(plain, own, statistics, x, y, z)
        one.backward()
        close(losses[i], one)
        for n, p in own.items():
            close(together[n].grad[i], p.grad, n)
        for n, b in statistics.items():
            close(buffers[n][i], b, n)
