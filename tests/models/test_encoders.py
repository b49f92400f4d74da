"""Encoders: sizes, shapes, what fits which samples, and one client at a time against many at once."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, vmap

from fedaction.data.layout import KINECT_V1, KINECT_V2
from fedaction.federation.seeds import generator
from fedaction.models.encoders import InertialEncoder, PerceptronEncoder, SkeletonEncoder, encoder_for
from fedaction.models.layers import use_stacked_form
from fedaction.models.perceptron import Perceptron
from fedaction.models.resnet3d import ResNet3D
from fedaction.models.stgcn import STGCN
from tests.models.common import close, count, filled, literal_conv, normalised, samples, started

KINDS = {
    "features": ((10,), None),
    "signals": ((21, 6), None),
    "skeletons": ((2, 9, 20, 3), KINECT_V1),
    "video": ((8, 24, 24, 3), None),
}
"""Samples that have an encoder: their shape and layout."""


def small(kind, **options):
    shape, layout = KINDS[kind]
    return encoder_for(shape, layout, outputs=5, hidden=7, width=4, **options)


def test_the_perceptron_has_the_papers_size():
    assert count(encoder_for((1024,))) == count(PerceptronEncoder(1024, 1024, 1024)) == 2_099_200
    assert count(PerceptronEncoder(1024, 1024, 1024, norm=True)) == 2_099_200 + 2 * 1024
    assert set(PerceptronEncoder(3, 4, 5).state_dict()) == {
        "enter.weight",
        "enter.bias",
        "leave.weight",
        "leave.bias",
    }


def test_the_perceptron_is_two_layers(double):
    model, x = filled(PerceptronEncoder(6, 7, 5)), samples(4, 6)
    w = dict(model.named_parameters())
    hidden = torch.clamp(x @ w["enter.weight"].T + w["enter.bias"], min=0)
    close(model(x), hidden @ w["leave.weight"].T + w["leave.bias"])
    model = filled(PerceptronEncoder(6, 7, 5, norm=True))
    hidden = normalised(model.enter(x), model.norm).clamp(min=0)
    close(model(x), model.leave(hidden))


def test_the_inertial_network_against_torchs_convolutions(double):
    model, x = filled(InertialEncoder(6, 5, width=4)), samples(3, 21, 6)
    h = normalised(x.transpose(1, 2), model.data_norm)[..., None]  # N, C, T, 1
    frames = []
    for convolution, norm in zip(model.convolutions, model.norms, strict=True):
        h = normalised(literal_conv(h, convolution), norm).relu()
        frames.append(h.shape[2])
    assert frames == [11, 6, 3]
    close(model(x), model.leave(h.mean((2, 3))))


def test_the_skeleton_network_is_the_backbone_without_its_classifier(double):
    graph = encoder_for((1, 9, 25, 3), KINECT_V2, outputs=5, width=4).backbone.topology.A
    x = samples(3, 1, 9, 25, 3)
    for projection, output in ((None, "pooled"), (6, "projected")):
        backbone = started(STGCN(graph, classes=11, width=4, projection=projection))
        features = copy.deepcopy(backbone)(x, output=output)
        model = SkeletonEncoder(backbone, 5)
        started(model.leave)
        close(model(x), features @ model.leave.weight.T + model.leave.bias)
        assert not any("classifier" in name for name in model.state_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_is_trained_and_no_output_is_rectified(kind):
    x = samples(4, *KINDS[kind][0])
    model = started(small(kind))
    y = model(x)
    assert y.shape == (4, 5) and (y < 0).any()
    y.square().sum().backward()
    for name, p in model.named_parameters():
        assert p.grad is not None and torch.isfinite(p.grad).all(), name


@pytest.mark.parametrize(
    ("shape", "layout"),
    [((1024,), KINECT_V2), ((50, 6), KINECT_V2), ((1, 50, 25, 2), None), ((1, 50, 20, 3), KINECT_V2)],
)
def test_samples_and_layouts_must_fit(shape, layout):
    with pytest.raises(ValueError, match=r"no encoder fits samples of shape \(.*there is one for features \(F,\)"):
        encoder_for(shape, layout)


def test_video_must_come_with_colours_last():
    with pytest.raises(ValueError, match=r"\(3, 16, 112, 112\) with no skeleton layout"):
        encoder_for((3, 16, 112, 112))
    with pytest.raises(ValueError, match=r"\(\)"):
        encoder_for(())


def test_the_video_network_is_a_resnet_without_its_classifier(double):
    model = filled(encoder_for((8, 112, 112, 3), outputs=5, width=4)).eval()
    x = torch.randint(0, 256, (2, 8, 24, 24, 3), generator=generator(0, "clips"), dtype=torch.uint8)
    resnet = ResNet3D(18, 7, width=4).eval()
    resnet.load_state_dict(model.backbone.state_dict(), strict=False)
    close(model(x), resnet(x, output="pooled") @ model.leave.weight.T + model.leave.bias)
    assert not any("classifier" in name for name in model.state_dict())
    with torch.device("meta"):
        assert count(encoder_for((8, 112, 112, 3), width=64).backbone) == 33_203_904
        assert encoder_for((8, 112, 112, 3)).leave.weight.shape == (1024, 128)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_clients_one_at_a_time_and_at_once_agree(double, kind, norm):
    """The baselines' network over each encoder: values, gradients, statistics."""
    plain = started(Perceptron(small(kind, norm=norm), features=5, hidden=6, classes=3))
    stacked = use_stacked_form(copy.deepcopy(plain))
    y = torch.tensor([0, 2, 1, 0])
    clients = []
    for seed in range(3):
        net = filled(copy.deepcopy(plain), seed=seed)
        parameters = {n: p.detach().clone().requires_grad_() for n, p in net.named_parameters()}
        buffers = {n: b.clone() for n, b in net.named_buffers() if "running" in n}
        clients.append((parameters, buffers, samples(4, *KINDS[kind][0], seed=seed)))

    def loss(network, values, others, x):
        return F.cross_entropy(functional_call(network, {**values, **others}, (x,)), y)

    together = {n: torch.stack([c[0][n].detach() for c in clients]).requires_grad_() for n in clients[0][0]}
    statistics = {n: torch.stack([c[1][n] for c in clients]) for n in clients[0][1]}
    xs = torch.stack([c[2] for c in clients])
    losses = vmap(lambda p, b, x: loss(stacked, p, b, x))(together, statistics, xs)
    losses.sum().backward()
    for i, (parameters, buffers, x) in enumerate(clients):
        one = loss(plain, parameters, buffers, x)
        one.backward()
        close(losses[i], one)
        for n, p in parameters.items():
            close(together[n].grad[i], p.grad, n)
        for n, b in buffers.items():
            close(statistics[n][i], b, n)


def test_the_baselines_network_splits_into_representation_and_classifier():
    model = Perceptron(encoder_for((1024,)), classes=97)
    assert {name for name, _ in model.named_children()} == {"encoder", "head", "classifier"}
    assert count(model.encoder) == 2_099_200
    assert count(model, without="encoder") == 1_049_600 + 1025 * 97
