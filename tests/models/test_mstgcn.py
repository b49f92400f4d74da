import pytest
import torch
import torch.nn.functional as F

from fedaction.data.graph import partition
from fedaction.data.layout import KINECT_V2, Layout
from fedaction.models.layers import BatchNorm, GraphConv
from fedaction.models.mstgcn import MSTGCN, FirstUnit, SpatialGroups, TemporalGroups
from tests.models import common
from tests.models.common import close, count, filled, literal_conv, literal_shortcut, normalised, samples, started


def make(body: Layout = KINECT_V2, **settings) -> MSTGCN:
    values = {"classes": 4, "width": 4, "units": (2, 2, 1), **settings}
    return MSTGCN(partition(body, "inward_outward"), **values)


@pytest.mark.parametrize(
    ("classes", "published"), [(60, 2_896_055), (120, 2_922_995), (51, 2_892_014), (40, 2_887_075)]
)
def test_it_has_the_known_number_of_parameters_without_the_dead_ones(classes, published):
    dead = 2 * 3 * (112 + 224 + 448)  # the temporal layers' input normalisation, never applied
    model = make(classes=classes, width=112, units=(4, 3, 3))
    assert dead == 4_704
    assert count(model) == published - dead
    assert count(model, without="classifier") == 2_869_115 - dead


def literal_graph_conv(h: torch.Tensor, layer: GraphConv, graph: torch.Tensor) -> torch.Tensor:
    """(N, C, T, V), as in the authors' code."""
    weight = layer.weight.permute(0, 2, 1).reshape(-1, h.shape[1], 1, 1)  # K*C', C
    y = F.conv2d(h, weight, layer.bias.reshape(-1))
    return torch.einsum("nkctv,kvw->nctw", y.view(len(y), len(graph), -1, *y.shape[2:]), graph)


def literal_spatial(h: torch.Tensor, layer: SpatialGroups, graphs: torch.Tensor) -> torch.Tensor:
    parts = torch.split(normalised(h, layer.norm), h.shape[1] // 4, 1)
    outputs, y = [], None
    for i in range(4):
        same = layer.groups[0].weight.shape[1] == layer.groups[0].weight.shape[2]
        y = parts[i] + y if i > 0 and same else parts[i]
        y = normalised(literal_graph_conv(y, layer.groups[i], graphs[i]), layer.norms[i])
        outputs.append(y)
    return (torch.cat(outputs, 1) + literal_shortcut(h, layer.shortcut)).relu()


def literal_temporal(h: torch.Tensor, layer: TemporalGroups) -> torch.Tensor:
    parts = torch.split(h, h.shape[1] // 4, 1)
    outputs, y = [], None
    for i, (conv, norm) in enumerate(layer.groups):
        y = parts[i] + y if i > 0 and conv.stride == 1 else parts[i]
        y = normalised(literal_conv(y, conv), norm)
        outputs.append(y)
    return (torch.cat(outputs, 1) + literal_shortcut(h, layer.shortcut)).relu()


def test_the_network_is_mst_gcn_written_out(double):
    """Channels first, with convolutions, as in the authors' code."""
    model = filled(make())
    x = samples(3, 2, 10, 25, 3)
    h = common.literal_input(model, x)
    strides = []
    for i, unit in enumerate(model.units):
        graphs = model.topology.A + model.PA[i]
        if isinstance(unit, FirstUnit):
            h = normalised(literal_graph_conv(h, unit.spatial, graphs[0]), unit.spatial_norm).relu()
            h = normalised(literal_conv(h, unit.temporal), unit.temporal_norm).relu()
        else:
            h = literal_temporal(literal_spatial(h, unit.spatial, graphs), unit.temporal)
            strides.append(unit.temporal.groups[0][0].stride)
    assert strides == [1, 2, 1, 2]
    close(model(x), common.literal_output(model, h, 2))


def test_the_learned_topology_is_added_to_every_groups_graph(double):
    adaptive, plain = filled(make(adaptive=True)), filled(make())
    change = (adaptive.topology() - adaptive.topology.A).detach()
    for learned in plain.PA:
        learned.data += change
    x = samples(2, 2, 8, 25, 3)
    close(adaptive(x), plain(x))


def test_initial_values_are_the_authors():
    model = started(make(width=64))
    assert [tuple(learned.shape) for learned in model.PA] == [(1, 3, 25, 25)] + [(4, 3, 25, 25)] * 4
    for learned in model.PA:
        assert all(torch.equal(group, model.topology.A) for group in learned)
    assert all(torch.all(m.weight == 1) for m in model.modules() if isinstance(m, BatchNorm))
    unit = model.units[4]
    assert unit.spatial.groups[0].weight.std().item() == pytest.approx((2 / (3 * 64)) ** 0.5, rel=0.03)
    assert unit.temporal.groups[0][0].weight.std().item() == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.03)


def test_plain_and_stacked_forms_are_one_function(double):
    common.check_forms(make)


def test_stretches_join_up_to_the_whole(double):
    common.check_stretches(make)


def test_a_neutral_topology_is_none():
    common.check_neutral_topology(make)


def test_joint_axes(double):
    common.check_joint_axes(make)


def test_every_layout():
    common.check_every_layout(make)


def test_a_width_that_does_not_split_is_refused():
    common.check_width(make, 10, "multiple of 4, its channel groups; it is 10")
