import pytest
import torch
import torch.nn.functional as F

from fedaction.data.graph import partition
from fedaction.data.layout import KINECT_V2, OPENPOSE_18
from fedaction.federation.seeds import generator
from fedaction.models.layers import initialise
from fedaction.models.stgcn import STGCN


def graph(layout=KINECT_V2):
    return torch.as_tensor(partition(layout, "spatial_legacy"))


def count(model, without="nothing"):
    return sum(p.numel() for n, p in model.named_parameters() if not n.startswith(without))


@pytest.mark.parametrize(
    ("classes", "expected"), [(60, 3_098_832), (120, 3_114_252), (51, 3_096_519), (40, 3_093_692), (400, 3_186_212)]
)
def test_full_width_has_the_known_number_of_parameters(classes, expected):
    assert count(STGCN(graph(), classes=classes)) == expected


@pytest.mark.parametrize(("classes", "expected"), [(60, 3_089_760), (400, 3_177_140)])
def test_full_width_on_openpose(classes, expected):
    assert count(STGCN(graph(OPENPOSE_18), classes=classes)) == expected


@pytest.mark.parametrize(("last", "expected"), [(256, 821_380), (128, 344_836), (None, 212_868)])
def test_quarter_width_has_the_known_number_of_parameters(last, expected):
    assert count(STGCN(graph(), classes=60, width=16, last=last), without="classifier") == expected


@pytest.mark.parametrize(
    ("classes", "expected"),
    [(128, 854_276), (60, 836_800), (120, 852_220), (51, 834_487), (41, 831_917), (40, 831_660)],
)
def test_quarter_width_with_its_classifier(classes, expected):
    assert count(STGCN(graph(), classes=classes, width=16, last=256)) == expected


def test_quarter_width_unit_by_unit():
    model = STGCN(graph(), classes=60, width=16, last=256)
    units = [count(unit) for unit in model.units]
    assert units == [2576, 3200, 3200, 3200, 11616, 12544, 12544, 45760, 49664, 658176]
    assert sum(p.numel() for p in model.importance) == 18_750
    assert count(model.data_norm) == 150


def test_adaptive_topology_adds_two_matrices_and_three_scalars():
    plain, adaptive = (STGCN(graph(), classes=60, width=16, last=256, adaptive=a) for a in (False, True))
    assert count(adaptive) - count(plain) == 2 * 1875 + 3


def filled(model):
    for name, part in model.named_modules():
        initialise(part, generator(0, name))
    for name, p in model.named_parameters():
        p.data = torch.randn(p.shape, generator=generator(1, name)) * 0.3
    return model


def test_the_network_is_st_gcn_written_out(double):
    """A literal version with convolutions, channels first, as in the paper's own code."""
    model = filled(STGCN(graph(), classes=5, width=4, units=(2, 1, 1))).double()
    x = torch.randn(3, 2, 10, 25, 3, dtype=torch.float64)
    n, bodies, frames, joints, channels = x.shape

    def norm(h, layer):  # N, C, ...
        return F.batch_norm(h, None, None, layer.weight, layer.bias, training=True)

    h = x.permute(0, 1, 3, 4, 2).reshape(n * bodies, joints * channels, frames)
    h = norm(h, model.data_norm).view(n * bodies, joints, channels, frames).permute(0, 2, 3, 1)  # N*M, C, T, V
    for i, unit in enumerate(model.units):
        stride = unit.temporal.stride
        a = model.topology.A * model.importance[i]
        k = a.shape[0]
        weight = unit.spatial.weight.permute(0, 2, 1).reshape(-1, h.shape[1], 1, 1)  # K*C', C
        y = F.conv2d(h, weight, unit.spatial.bias.reshape(-1))
        y = torch.einsum("nkctv,kvw->nctw", y.view(y.shape[0], k, -1, *y.shape[2:]), a)
        y = norm(y, unit.spatial_norm).relu()
        kernel = unit.temporal.weight.permute(2, 1, 0)[..., None]
        y = norm(F.conv2d(y, kernel, unit.temporal.bias, (stride, 1), (4, 0)), unit.temporal_norm)
        if i > 0:
            if unit.shortcut is None:
                y = y + h
            else:
                kernel = unit.shortcut.weight.permute(2, 1, 0)[..., None]
                y = y + norm(F.conv2d(h, kernel, unit.shortcut.bias, (stride, 1)), unit.shortcut_norm)
        h = y.relu()
    pooled = h.mean((2, 3)).view(n, bodies, -1).mean(1)
    expected = pooled @ model.classifier.weight.T + model.classifier.bias
    torch.testing.assert_close(model(x), expected)


def test_fifty_frames_become_fifty_twenty_five_thirteen():
    model = filled(STGCN(graph(), classes=5, width=4)).eval()
    x = torch.randn(2, 1, 50, 25, 3)
    assert [model(x, leave=b).shape[2] for b in (1, 2, 3)] == [50, 25, 13]


def test_stretches_join_up_to_the_whole(double):
    model = filled(STGCN(graph(), classes=5, width=4, adaptive=True)).double().eval()
    x = torch.randn(2, 2, 20, 25, 3, dtype=torch.float64)
    whole = model(x)
    for cut in (1, 2, 3):
        torch.testing.assert_close(model(model(x, leave=cut), enter=cut), whole)


def test_equation_5_and_the_stream_without_u(double):
    model = filled(STGCN(graph(), classes=5, width=4, adaptive=True)).double()
    t = model.topology
    torch.testing.assert_close(t(), t.alpha * t.A + t.beta * t.I + t.gamma * t.U)
    torch.testing.assert_close(t(unique=False), t.alpha * t.A + t.beta * t.I)
    fixed = filled(STGCN(graph(), classes=5, width=4, adaptive=True, coefficients=(1.0, 0.0, 1.0))).topology
    torch.testing.assert_close(fixed(), fixed.A + fixed.U)
    assert "alpha" not in dict(fixed.named_parameters())
