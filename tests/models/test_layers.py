import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedaction.federation.seeds import generator
from fedaction.models.layers import (
    BatchNorm,
    Dropout,
    GraphConv,
    MultiScaleTemporal,
    TemporalConv,
    initialise,
    maximum_over_time,
    shortcut,
    use_products,
    use_stacked_form,
)
from tests.models.common import literal_scales


def filled(module: nn.Module) -> nn.Module:
    for name, part in module.named_modules():
        initialise(part, generator(0, "init", name))
    for name, p in module.named_parameters():  # biases too, so that nothing is hidden by zeros
        p.data = torch.randn(p.shape, generator=generator(1, name))
    return module


def both_forms(module: nn.Module, *inputs: torch.Tensor):
    """Outputs, input gradients, parameter gradients and buffers of the plain and of the stacked form."""
    found = []
    for stacked in (False, True):
        layer = use_stacked_form(copy.deepcopy(module), stacked)
        x = [i.clone().requires_grad_() for i in inputs]
        y = layer(*x)
        y.square().sum().backward()
        found.append([y, *(i.grad for i in x), *(p.grad for p in layer.parameters()), *layer.buffers()])
    return zip(*found, strict=True)


@pytest.mark.parametrize(
    ("module", "shapes"),
    [
        (BatchNorm(6), [(4, 5, 3, 6)]),
        (BatchNorm(6).eval(), [(4, 5, 3, 6)]),
        (GraphConv(4, 6, 3), [(2, 5, 7, 4), (3, 7, 7)]),
        (TemporalConv(4, 6, 9), [(2, 11, 3, 4)]),
        (TemporalConv(4, 6, 9, stride=2), [(2, 11, 3, 4)]),
        (TemporalConv(4, 6, 9, stride=2), [(2, 12, 3, 4)]),
        (TemporalConv(4, 6, 1, stride=2), [(2, 11, 3, 4)]),
        (TemporalConv(4, 6, 5, dilation=2), [(2, 11, 3, 4)]),
        (TemporalConv(4, 6, 3, stride=2, dilation=4), [(2, 12, 3, 4)]),
        (GraphConv(4, 6, 3, bias="after"), [(2, 5, 7, 4), (3, 7, 7)]),
        (MultiScaleTemporal(5, 8, 5, 2, (1, 2), fan_out=True), [(2, 9, 3, 5)]),
    ],
)
def test_plain_and_stacked_forms_are_one_function(double, module, shapes):
    inputs = [torch.randn(shape, generator=generator(2, i)).double() for i, shape in enumerate(shapes)]
    for plain, stacked in both_forms(filled(module).double(), *inputs):
        torch.testing.assert_close(plain, stacked, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize(
    ("layer", "shapes"),
    [
        (GraphConv(4, 6, 3), [(2, 5, 25, 4), (3, 25, 25)]),
        (GraphConv(3, 16, 2, bias="after"), [(2, 5, 70, 3), (2, 70, 70)]),
        (TemporalConv(4, 6, 1, stride=2), [(2, 11, 3, 4)]),
    ],
)
def test_on_a_cpu_products_are_carried_out_as_convolutions_of_the_same_value(layer, shapes):
    inputs = [torch.randn(shape, generator=generator(2, i)) for i, shape in enumerate(shapes)]
    filled(layer)
    assert layer.convolves(inputs[0]) == torch.backends.mkldnn.is_available()
    assert not layer.convolves(inputs[0].double()) and not use_products(copy.deepcopy(layer)).convolves(inputs[0])
    found = []
    for form in (layer, use_products(copy.deepcopy(layer))):
        x = [i.clone().requires_grad_() for i in inputs]
        y = form(*x)
        y.square().sum().backward()
        found.append([y, *(i.grad for i in x), *(p.grad for p in form.parameters())])
    for convolved, product in zip(*found, strict=True):
        assert (convolved - product).norm() < 1e-5 * product.norm()


def test_batch_norm_is_torchs(double):
    ours, theirs = filled(BatchNorm(5)).double(), nn.BatchNorm1d(5)
    theirs.load_state_dict({**ours.state_dict(), "num_batches_tracked": torch.tensor(0)})
    for _ in range(3):
        x = torch.randn(6, 4, 5, generator=generator(3, "x"), dtype=torch.float64)
        torch.testing.assert_close(ours(x), theirs(x.transpose(1, 2)).transpose(1, 2))
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x.transpose(1, 2)).transpose(1, 2))


def test_graph_convolution_is_equation_1_written_out(double):
    layer = filled(GraphConv(2, 3, 2)).double()
    x, graph = torch.randn(1, 2, 4, 2).double(), torch.randn(2, 4, 4).double()
    expected = torch.zeros(1, 2, 4, 3)
    for t in range(2):
        for w in range(4):
            for k in range(2):
                for v in range(4):
                    expected[0, t, w] += graph[k, v, w] * (x[0, t, v] @ layer.weight[k] + layer.bias[k])
    torch.testing.assert_close(layer(x, graph), expected.to(torch.float64))


def test_temporal_convolution_is_conv2d(double):
    layer = filled(TemporalConv(3, 5, 9, stride=2)).double()
    x = torch.randn(2, 13, 4, 3).double()
    kernel = layer.weight.permute(2, 1, 0)[..., None]
    expected = F.conv2d(x.permute(0, 3, 1, 2), kernel, layer.bias, stride=(2, 1), padding=(4, 0)).permute(0, 2, 3, 1)
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize(("stride", "dilation"), [(1, 2), (2, 3)])
def test_dilated_temporal_convolution_frame_by_frame(double, stride, dilation):
    layer = filled(TemporalConv(3, 5, 3, stride, dilation=dilation)).double()
    x = torch.randn(2, 9, 4, 3).double()
    expected = []
    for middle in range(0, 9, stride):
        y = layer.bias.expand(2, 4, 5)
        for j in range(3):
            t = middle + (j - 1) * dilation
            y = y + x[:, t] @ layer.weight[j] if 0 <= t < 9 else y
        expected.append(y)
    torch.testing.assert_close(layer(x), torch.stack(expected, 1))


@pytest.mark.parametrize("frames", [1, 2, 8, 9])
@pytest.mark.parametrize("stride", [1, 2])
def test_maxima_over_time_are_max_pooling(frames, stride):
    x = torch.randn(2, frames, 4, 3).requires_grad_()
    ours = maximum_over_time(x, stride)
    theirs = F.max_pool2d(x.permute(0, 3, 1, 2), (3, 1), (stride, 1), (1, 0)).permute(0, 2, 3, 1)
    assert torch.equal(ours, theirs)
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (ours, theirs)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("stride", [1, 2])
def test_multi_scale_temporal_convolution_branch_by_branch(double, stride):
    layer = filled(MultiScaleTemporal(5, 12, 3, stride, (1, 2, 3, 4), fan_out=False)).double()
    x = torch.randn(2, 9, 4, 5).double()
    torch.testing.assert_close(layer(x), literal_scales(x.permute(0, 3, 1, 2), layer).permute(0, 2, 3, 1))


def test_branches_must_be_equally_wide():
    with pytest.raises(ValueError, match="10 channels do not split into 4"):
        MultiScaleTemporal(3, 10, 5, 1, (1, 2), fan_out=True)


def test_a_shortcut_is_nothing_where_the_shape_stays():
    x = torch.randn(2, 7, 3, 4)
    assert shortcut(4, 4, std=None)(x) is x
    path = filled(shortcut(4, 6, 2, std=None))
    y = x[:, ::2] @ path[0].weight[0] + path[0].bias
    torch.testing.assert_close(path(x), path[1](y))
    assert path(x).shape == (2, 4, 3, 6)


def test_initial_values_follow_the_rule_asked_for():
    def fresh(layer: nn.Module) -> nn.Module:
        initialise(layer, generator(0, "layer"))
        return layer

    assert fresh(TemporalConv(40, 50, 3)).weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert fresh(GraphConv(40, 50, 3, std=0.3)).weight.std().item() == pytest.approx(0.3, rel=0.05)
    for layer in (TemporalConv(40, 50, 3, std=None), GraphConv(40, 50, 3, std=None, bias="after")):
        for values in fresh(layer).parameters():
            assert 0.9 * 120**-0.5 < values.abs().max().item() <= 120**-0.5
    assert fresh(BatchNorm(500)).weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert torch.equal(fresh(BatchNorm(5, scale=1e-6, spread=0.0)).weight, torch.full((5,), 1e-6))


def test_dropout_depends_on_its_key_alone():
    layer = Dropout(0.3)
    x = torch.ones(200, 50)
    layer.key.fill_(5)
    first, second = layer(x), layer(x)
    layer.key.fill_(5)
    assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)  # the key moves on with every call
    assert abs((first == 0).double().mean().item() - 0.3) < 0.02
    assert abs(first.mean().item() - 1.0) < 0.03
    # Columns and rows are hit alike: the hash has no stripes.
    assert (first == 0).double().mean(0).std().item() < 0.06
    assert torch.equal(layer.eval()(x), x)


def test_dropout_masks_of_neighbouring_keys_are_unrelated():
    layer, masks = Dropout(0.5), []
    for key in (7, 8, 9, 1 << 20):
        layer.key.fill_(key)
        masks.append(layer(torch.ones(4096)) > 0)
    for i, a in enumerate(masks):
        for b in masks[i + 1 :]:
            assert abs((a == b).double().mean().item() - 0.5) < 0.04


def test_initialisation_never_draws_from_the_global_generator():
    module = nn.Sequential(nn.Linear(3, 4), BatchNorm(4), nn.BatchNorm1d(4), TemporalConv(4, 4, 3))
    before = torch.random.get_rng_state()
    for name, part in module.named_modules():
        initialise(part, generator(0, name))
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_module_that_cannot_be_initialised_says_so():
    class Strange(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.empty(2))

    with pytest.raises(TypeError, match="Strange holds parameters"):
        initialise(Strange(), generator(0))
