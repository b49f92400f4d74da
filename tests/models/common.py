"""What the tests of the skeleton networks share: filling, and checks that every backbone must pass."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fedaction.data.layout import KINECT_V1, LAYOUTS, Layout
from fedaction.federation.seeds import generator
from fedaction.models.backbone import Backbone
from fedaction.models.layers import initialise, use_stacked_form

Make = Callable[..., Backbone]
"""Builds a small network: a layout, then keyword arguments of the constructor."""


def count(module: nn.Module, without: str = "nothing") -> int:
    return sum(p.numel() for n, p in module.named_parameters() if not n.startswith(without))


def started(module: nn.Module) -> nn.Module:
    """The network with its initial values."""
    for name, part in module.named_modules():
        initialise(part, generator(0, name))
    return module


def filled(module: nn.Module, seed: int = 1) -> nn.Module:
    """The network with random values everywhere, so that nothing is hidden by zeros."""
    for name, p in started(module).named_parameters():
        p.data = torch.randn(p.shape, generator=generator(seed, name)).to(p) * 0.3
    return module


def samples(*shape: int, seed: int = 2) -> Tensor:
    return torch.randn(shape, generator=generator(seed, "samples")).to(torch.get_default_dtype())


def normalised(h: Tensor, layer: nn.Module, part: slice = slice(None)) -> Tensor:
    """Batch normalisation of (N, C, ...) by batch statistics, with some of a layer's channels."""
    return F.batch_norm(h, None, None, layer.weight[part], layer.bias[part], training=True)


def literal_input(model: Backbone, x: Tensor) -> Tensor:
    """(N, M, T, V, C) to (N*M, C, T, V), normalised over M*V*C features as in the reference code."""
    n, m, t, v, c = x.shape
    h = x.permute(0, 1, 3, 4, 2).reshape(n, m * v * c, t)
    return normalised(h, model.data_norm).view(n, m, v, c, t).permute(0, 1, 3, 4, 2).reshape(n * m, c, t, v)


def literal_output(model: Backbone, h: Tensor, bodies: int) -> Tensor:
    pooled = h.view(-1, bodies, h.shape[1], h.shape[2] * h.shape[3]).mean(3).mean(1)
    return pooled @ model.classifier.weight.T + model.classifier.bias


def literal_conv(h: Tensor, layer: nn.Module, part: slice = slice(None)) -> Tensor:
    """A `TemporalConv` on (N, C, T, V), or some of its output channels, by torch's convolution."""
    kernel = layer.weight[..., part].permute(2, 1, 0)[..., None]
    margin = layer.dilation * (layer.kernel - 1) // 2
    return F.conv2d(h, kernel, layer.bias[part], (layer.stride, 1), (margin, 0), (layer.dilation, 1))


def literal_shortcut(h: Tensor, layer: nn.Module) -> Tensor:
    return h if isinstance(layer, nn.Identity) else normalised(literal_conv(h, layer[0]), layer[1])


def literal_scales(h: Tensor, layer: nn.Module) -> Tensor:
    """`MultiScaleTemporal` on (N, C, T, V), branch by branch, each with its own normalisations."""
    branches, width, count = [], layer.width, len(layer.scales)
    for b in range(count + 1):
        part = slice(b * width, (b + 1) * width)
        y = normalised(literal_conv(h, layer.enter, part), layer.enter_norm, part).relu()
        y = literal_conv(y, layer.scales[b]) if b < count else F.max_pool2d(y, (3, 1), (layer.stride, 1), (1, 0))
        branches.append(normalised(y, layer.norm, part))
    branches.append(normalised(literal_conv(h, layer.plain), layer.norm, slice((count + 1) * width, None)))
    return torch.cat(branches, 1)


def check_forms(make: Make) -> None:
    """Three clients with their own values, one at a time in the plain form and at once in the stacked form."""
    plain = started(make(KINECT_V1, adaptive=True))
    stacked = use_stacked_form(copy.deepcopy(plain))
    parameters, buffers, xs = [], [], []
    for client in range(3):
        net = filled(copy.deepcopy(plain), seed=client)
        parameters.append({n: p.detach().clone().requires_grad_() for n, p in net.named_parameters()})
        buffers.append({n: b.clone() for n, b in net.named_buffers() if "running" in n})
        xs.append(samples(2, 2, 9, 20, 3, seed=client))
    target = torch.tensor([0, 2])

    def loss(network: nn.Module, values: dict[str, Tensor], others: dict[str, Tensor], x: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(network, {**values, **others}, (x,)), target)

    together = {n: torch.stack([p[n].detach() for p in parameters]).requires_grad_() for n in parameters[0]}
    statistics = {n: torch.stack([b[n] for b in buffers]) for n in buffers[0]}
    losses = vmap(lambda p, b, x: loss(stacked, p, b, x))(together, statistics, torch.stack(xs))
    losses.sum().backward()
    for client, (own, others) in enumerate(zip(parameters, buffers, strict=True)):
        one = loss(plain, own, others, xs[client])
        one.backward()
        close(losses[client], one)
        for n, p in own.items():
            assert p.grad is not None and together[n].grad is not None, n
            close(together[n].grad[client], p.grad, n)
        for n, b in others.items():
            close(statistics[n][client], b, n)


def close(actual: Tensor, expected: Tensor, name: str = "") -> None:
    torch.testing.assert_close(
        actual, expected, atol=1e-10, rtol=1e-10, msg=lambda text: f"{name}: {text}" if name else text
    )


def check_stretches(make: Make) -> None:
    """Block by block is the whole; U is left out where asked; 50 frames become 25 and 13."""
    model = filled(make(KINECT_V1, adaptive=True)).eval()
    x = samples(2, 2, 12, 20, 3)
    for unique in (True, False):
        whole = model(x, unique=unique)
        for cut in (1, 2, 3):
            close(model(model(x, leave=cut, unique=unique), enter=cut, unique=unique), whole)
    assert not torch.allclose(model(x), model(x, unique=False))
    without = model(x, unique=False)
    model.topology.U.data.zero_()
    close(model(x), without)
    with torch.no_grad():
        frames = [model(samples(1, 2, 50, 20, 3), leave=b).shape[2] for b in (1, 2, 3)]
    assert frames == [50, 25, 13]
    assert model(x, output="pooled").shape == (2, model.classifier.weight.shape[1])


def check_neutral_topology(make: Make) -> None:
    """I = U = 0 and alpha = 1 are no topology of one's own, exactly."""
    plain, adaptive = filled(make(KINECT_V1)), filled(make(KINECT_V1, adaptive=True))
    for matrix in (adaptive.topology.I, adaptive.topology.U):
        matrix.data.zero_()
    adaptive.topology.alpha.data.fill_(1.0)
    x = samples(2, 2, 8, 20, 3)
    assert torch.equal(plain(x), adaptive(x))


def check_joint_axes(make: Make) -> None:
    """Every tensor over joints is listed, and reordering the body's joints along those axes changes nothing."""
    body = LAYOUTS["mocap_31"]
    order = torch.randperm(31, generator=generator(3, "order"))
    place = {int(old): new for new, old in enumerate(order)}
    edges = tuple((place[a], place[b]) for a, b in body.edges)
    shuffled = Layout("shuffled", tuple(body.joints[i] for i in order), edges, place[body.centre])
    one, other = filled(make(body, adaptive=True)), filled(make(shuffled, adaptive=True))
    axes = one.joint_axes()
    values = dict(one.named_parameters())
    over_joints = {n: tuple(a for a, size in enumerate(p.shape) if size == 31) for n, p in values.items()}
    assert axes == {n: found for n, found in over_joints.items() if found}
    for name, p in other.named_parameters():
        p.data = values[name].data.clone()
        for axis in axes.get(name, ()):
            p.data = p.data.index_select(axis, order)
    for p in other.data_norm.parameters():
        p.data = p.data.view(2, 31, 3)[:, order].flatten()
    x = samples(2, 2, 6, 31, 3)
    close(other(x[..., order, :]), one(x))


def check_every_layout(make: Make) -> None:
    """Any body, one person or two: finite outputs and gradients for everything that is learned."""
    for body in LAYOUTS.values():
        bodies = 1 + len(body) % 2
        model = started(make(body, adaptive=True, bodies=bodies))
        model(samples(2, bodies, 5, len(body), 3)).square().sum().backward()
        for name, p in model.named_parameters():
            assert p.grad is not None and torch.isfinite(p.grad).all(), (body.name, name)


def check_width(make: Make, wrong: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make(KINECT_V1, width=wrong)
