"""The Triton kernels against the plain layers in double precision. Run with `pytest -m gpu` where there is a GPU."""

from dataclasses import replace

import pytest
import torch
from torch.func import functional_call, vmap

from fedaction.engines.base import set_precision
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.methods.start import initial_state
from fedaction.models.layers import use_stacked_form
from fedaction.models.stgcn import STGCNUnit, use_kernels
from tests.conftest import federation_for
from tests.engines.test_engines_agree import TRAINING, jobs_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]

# Clients, samples, frames, joints; features in and out, partitions, stride, whether it is a network's first unit.
SHAPES = [
    (2, 3, 10, 25, 3, 16, 3, 1, True),
    (3, 2, 12, 25, 16, 16, 3, 1, False),
    (2, 2, 13, 20, 16, 32, 2, 2, False),
    (1, 5, 9, 15, 32, 32, 3, 1, False),
    (2, 1, 11, 31, 64, 64, 3, 1, False),
    (2, 2, 7, 25, 64, 128, 3, 2, False),
    (1, 2, 7, 17, 128, 256, 3, 1, False),
]


def stacked_unit(clients, samples, frames, joints, inputs, outputs, partitions, stride, first):
    """A unit, and stacked tensors in double precision, of values that float32 and bfloat16 have."""
    random = torch.Generator("cuda").manual_seed(7)

    def draw(*shape):
        return torch.randn(*shape, device="cuda", generator=random).bfloat16().double()

    unit = use_stacked_form(STGCNUnit(inputs, outputs, partitions, stride, 0.0, first)).cuda().train()
    tensors = {n: draw(clients, *p.shape) * 0.3 + float("norm.weight" in n) for n, p in unit.named_parameters()}
    buffers = {n: b.double().expand(clients, *b.shape).clone() for n, b in unit.named_buffers() if "running" in n}
    x = draw(clients, samples, frames, joints, inputs)
    graph = draw(clients, partitions, joints, joints).abs() / joints
    slope = draw(clients, samples, -(-frames // stride), joints, outputs)
    return unit, tensors, buffers, x, graph, slope


def train(unit, tensors, buffers, x, graph, slope, dtype, autocast=False):
    """Output, running statistics and gradients of a stacked unit."""
    own = {n: t.to(dtype).requires_grad_() for n, t in tensors.items()}
    statistics = {n: t.to(dtype).clone() for n, t in buffers.items()}
    inputs = x.to(dtype).requires_grad_(), graph.to(dtype).requires_grad_()

    def apply(parameters, others, x, graph):
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            return (
                functional_call(unit, {**parameters, **others}, (x, graph)).float()
                if autocast
                else (functional_call(unit, {**parameters, **others}, (x, graph)))
            )

    y = vmap(apply)(own, statistics, *inputs)
    names = ["x", "graph", *own]
    slopes = torch.autograd.grad(y, [*inputs, *own.values()], slope.to(y.dtype))
    # A bias in front of a normalisation has no gradient but rounding.
    kept = {n: g for n, g in zip(names, slopes, strict=True) if n not in ("temporal.bias", "shortcut.bias")}
    return {"y": y.detach(), **statistics, **kept}


def distance(one, other):
    return float((one.double() - other.double()).norm() / other.double().norm())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_unit_by_kernels_is_the_unit(shape):
    set_precision(tf32=False)
    given = stacked_unit(*shape)
    expected = train(*given, torch.float64)
    use_kernels(given[0])
    first, again = (train(*given, torch.float32) for _ in range(2))
    for name, tensor in expected.items():
        assert distance(first[name], tensor) < 2e-5, name
        assert torch.equal(first[name], again[name]), name


@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_round_no_worse_than_the_plain_layers_in_bfloat16(shape):
    set_precision(tf32=True)
    given = stacked_unit(*shape)
    expected = train(*given, torch.float64)
    plain = train(*given, torch.float32, autocast=True)
    use_kernels(given[0])
    kernels = train(*given, torch.float32, autocast=True)
    for name, tensor in expected.items():
        assert distance(kernels[name], tensor) < 1.5 * distance(plain[name], tensor) + 0.01, name


@pytest.mark.parametrize("name", ["fedavg", "fsar", "moon", "fedprox"])
def test_engines_train_alike_with_kernels_and_without(name):
    set_precision(tf32=False)
    clients, method = federation_for(name)
    jobs = jobs_of(method, initial_state(method, 3), clients)
    cuda, training = torch.device("cuda"), replace(TRAINING, augment=None)
    plain, by_kernels = (
        list(VectorisedEngine(method, clients, training, cuda, kernels=kernels).train(jobs))
        for kernels in (False, True)
    )
    for one, other in zip(plain, by_kernels, strict=True):
        assert other.metrics == pytest.approx(one.metrics, rel=1e-3, abs=1e-4)
        for n in one.tree:
            torch.testing.assert_close(other.tree[n], one.tree[n], atol=2e-4, rtol=2e-3, msg=n)
