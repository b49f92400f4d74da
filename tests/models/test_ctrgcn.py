import pytest
import torch
import torch.nn.functional as F

from fedaction.data.graph import partition
from fedaction.data.layout import KINECT_V1, KINECT_V2, Layout
from fedaction.models.ctrgcn import CTRGCN, RefinedGraphConv
from fedaction.models.layers import BatchNorm
from tests.models import common
from tests.models.common import close, count, filled, literal_scales, literal_shortcut, normalised, samples, started


def make(body: Layout = KINECT_V2, **settings) -> CTRGCN:
    values = {"classes": 4, "width": 4, "units": (2, 1, 1), **settings}
    return CTRGCN(partition(body, "inward_outward_by_source"), **values)


@pytest.mark.parametrize(
    ("classes", "expected"), [(60, 1_446_672), (120, 1_462_092), (51, 1_444_359), (41, 1_441_789), (40, 1_441_532)]
)
def test_it_has_the_known_number_of_parameters(classes, expected):
    model = make(classes=classes, width=64, units=(4, 3, 3))
    assert count(model) == expected
    assert count(model, without="classifier") == 1_431_252


def literal_graph_conv(h: torch.Tensor, layer: RefinedGraphConv, graph: torch.Tensor) -> torch.Tensor:
    """(N, C, T, V), partition by partition, as in the authors' code: [target u, source v] matrices."""
    total = torch.zeros(())
    for k in range(len(graph)):

        def conv(x: torch.Tensor, name: str, k: int = k) -> torch.Tensor:
            return F.conv2d(x, getattr(layer, name)[k].T[..., None, None], getattr(layer, f"{name}_bias")[k])

        u, v = conv(h, "target").mean(-2), conv(h, "source").mean(-2)  # N, R, V
        refined = conv((u.unsqueeze(-1) - v.unsqueeze(-2)).tanh(), "refine") * layer.alpha + graph[k].T
        total = total + torch.einsum("ncuv,nctv->nctu", refined, conv(h, "value"))
    return total


def test_refined_graph_convolution_written_out(double):
    layer = filled(RefinedGraphConv(5, 6, 3, 2))
    x, graph = samples(2, 7, 9, 5), samples(3, 9, 9, seed=3)
    expected = literal_graph_conv(x.permute(0, 3, 1, 2), layer, graph).permute(0, 2, 3, 1)
    close(layer(x, graph), expected)


def test_the_network_is_ctr_gcn_written_out(double):
    """Channels first, with convolutions, as in the authors' code."""
    model = filled(make())
    x = samples(3, 2, 10, 25, 3)
    h = common.literal_input(model, x)
    for i, unit in enumerate(model.units):
        y = normalised(literal_graph_conv(h, unit.spatial, model.PA[i]), unit.spatial_norm)
        y = literal_scales((y + literal_shortcut(h, unit.spatial_shortcut)).relu(), unit.temporal)
        assert (unit.shortcut is None) == (i == 0)
        h = (y if i == 0 else y + literal_shortcut(h, unit.shortcut)).relu()
    close(model(x), common.literal_output(model, h, 2))


def test_the_learned_topology_is_added_to_every_units_graph(double):
    adaptive, plain = filled(make(adaptive=True)), filled(make())
    change = (adaptive.topology() - adaptive.topology.A).detach()
    for learned in plain.PA:
        learned.data += change
    x = samples(2, 2, 8, 25, 3)
    close(adaptive(x), plain(x))


def test_initial_values_are_the_authors():
    model = started(make(width=64, units=(2, 1, 1)))
    for learned in model.PA:
        assert torch.equal(learned, model.topology.A)
    for unit in model.units:
        assert unit.spatial.alpha == 0
        assert torch.all(unit.spatial_norm.weight == 1e-6)
    spatial = model.units[2].spatial
    assert spatial.value.std().item() == pytest.approx((2 / 128) ** 0.5, rel=0.03)
    assert spatial.target.std().item() == pytest.approx((2 / 8) ** 0.5, rel=0.06)
    temporal = model.units[3].temporal
    assert temporal.enter.weight.std().item() == pytest.approx((2 / 64) ** 0.5, rel=0.03)
    assert temporal.scales[1].weight.std().item() == pytest.approx((2 / (64 * 5)) ** 0.5, rel=0.03)
    assert torch.all(model.data_norm.weight == 1)
    norms = [m for m in temporal.modules() if isinstance(m, BatchNorm)]
    assert all(0.01 < norm.weight.std().item() < 0.03 for norm in norms)


def test_relations_need_one_channel_at_least():
    model = make(width=4, units=(2, 1, 1))
    assert [unit.spatial.target.shape[-1] for unit in model.units] == [8, 1, 1, 1]


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
    common.check_width(make, 6, "multiple of 4, its temporal branches; it is 6")


def test_other_coordinates_and_a_projection():
    model = started(make(KINECT_V1, channels=12, projection=5))
    assert model(samples(2, 2, 6, 20, 12), output="projected").shape == (2, 5)
