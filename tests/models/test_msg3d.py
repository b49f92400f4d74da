import pytest
import torch
import torch.nn.functional as F

from fedaction.data.graph import disentangled, partition
from fedaction.data.layout import KINECT_V2, Layout
from fedaction.models.layers import BatchNorm, GraphConv
from fedaction.models.msg3d import MSG3D, TemporalUnit, WindowPath, windows
from tests.models import common
from tests.models.common import close, count, filled, literal_scales, literal_shortcut, normalised, samples, started


def make(body: Layout = KINECT_V2, **settings) -> MSG3D:
    values = {"classes": 4, "width": 6, "scales": (4, 2), **settings}
    return MSG3D(disentangled(body, values["scales"][0]), **values)


@pytest.mark.parametrize(
    ("classes", "expected"), [(60, 3_194_595), (120, 3_217_695), (51, 3_191_130), (40, 3_186_895)]
)
def test_it_has_the_known_number_of_parameters(classes, expected):
    model = MSG3D(partition(KINECT_V2, "disentangled"), classes=classes)
    assert count(model) == expected
    assert count(model, without="classifier") == 3_171_495
    assert count(model.data_norm) == 300
    parts = [(count(stage.windows), count(stage.hops), count(stage.temporal)) for stage in model.stages]
    assert parts == [(205_836, 37_757, 12_800), (387_276, 229_149, 50_176), (1_163_148, 886_397, 198_656)]


def literal_graph_conv(h: torch.Tensor, layer: GraphConv, graph: torch.Tensor) -> torch.Tensor:
    """(N, C, T, V) and a [k, source, target] graph, as in the authors' code: [k * target, source] rows."""
    n, c, t, v = h.shape
    k = len(graph)
    support = torch.einsum("vu,nctu->nctv", graph.transpose(1, 2).reshape(k * v, v), h)
    support = support.view(n, c, t, k, v).permute(0, 3, 1, 2, 4).reshape(n, k * c, t, v)
    return F.conv2d(support, layer.weight.reshape(k * c, -1).T[..., None, None], layer.bias)


def literal_window(h: torch.Tensor, path: WindowPath) -> torch.Tensor:
    n, c, _, v = h.shape
    w = path.frames
    unfold = torch.nn.Unfold((w, 1), stride=(path.stride, 1), padding=((w - 1) // 2, 0))
    y = unfold(h).view(n, c, w, -1, v).permute(0, 1, 3, 2, 4).reshape(n, c, -1, w * v)
    graph = (path.graph + path.A_res).reshape(-1, w * v, w * v)
    y = normalised(literal_graph_conv(y, path.spatial, graph), path.norm).relu()
    kernel = path.collapse.weight.view(w, y.shape[1], -1).permute(2, 1, 0)[:, :, None, :, None]  # C', C, 1, w, 1
    y = F.conv3d(y.view(n, y.shape[1], -1, w, v), kernel, path.collapse.bias).squeeze(3)
    return normalised(y, path.collapse_norm)


def literal_temporal(h: torch.Tensor, unit: TemporalUnit, rectified: bool = True) -> torch.Tensor:
    y = literal_scales(h, unit.scales) + literal_shortcut(h, unit.shortcut)
    return y.relu() if rectified else y


def test_the_network_is_ms_g3d_written_out(double):
    """Channels first, with convolutions, as in the authors' code."""
    model = filled(make())
    x = samples(3, 2, 10, 25, 3)
    h = common.literal_input(model, x)
    for stage in model.stages:
        hops = stage.hops
        y = normalised(literal_graph_conv(h, hops.spatial, model.topology.A + hops.A_res), hops.norm).relu()
        y = literal_temporal(literal_temporal(y, hops.temporal[0]), hops.temporal[1], rectified=False)
        y = y + literal_window(h, stage.windows[0]) + literal_window(h, stage.windows[1])
        h = literal_temporal(y.relu(), stage.temporal)
    assert [path.frames for path in stage.windows] == [3, 5]
    close(model(x), common.literal_output(model, h, 2))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("frames", [3, 5])
def test_windows_frame_by_frame(frames, stride):
    x = samples(2, 7, 4, 3)
    found = windows(x, frames, stride).unflatten(2, (frames, 4))
    middles = range(0, 7, stride)
    assert found.shape == (2, len(middles), frames, 4, 3)
    for i, middle in enumerate(middles):
        for j in range(frames):
            t = middle + j - frames // 2
            assert torch.equal(found[:, i, j], x[:, t] if 0 <= t < 7 else torch.zeros(2, 4, 3))


def test_the_learned_topology_enters_both_kinds_of_path(double):
    adaptive, plain = filled(make(adaptive=True)), filled(make())
    change = (adaptive.topology() - adaptive.topology.A).detach()
    for stage in plain.stages:
        stage.hops.A_res.data += change
        for path in stage.windows:
            for source in range(path.frames):
                for target in range(path.frames):
                    path.A_res.data[:, source, :, target] += change[:2]
    x = samples(2, 2, 8, 25, 3)
    close(adaptive(x), plain(x))


def test_initial_values_are_the_authors():
    model = started(make(width=24))
    for stage in model.stages:
        for path in (stage.hops, *stage.windows):
            assert path.A_res.abs().max() <= 1e-6 and path.A_res.std() > 5e-7
    assert all(torch.all(m.weight == 1) for m in model.modules() if isinstance(m, BatchNorm))
    collapse = model.stages[2].windows[1].collapse
    bound = (5 * 48) ** -0.5
    for values in (collapse.weight, collapse.bias):
        assert 0.95 * bound < values.abs().max().item() <= bound


def test_window_graphs_are_neither_sent_nor_saved():
    model = make()
    names = set(model.state_dict())
    assert "topology.A" in names
    assert not [n for n in names if n.endswith("windows.0.graph")]
    assert model.stages[1].windows[1].graph.shape == (2, 5, 25, 5, 25)


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
    common.check_width(make, 16, "multiple of 6, its temporal branches; it is 16")


def test_a_graph_that_is_not_a_stack_of_k_adjacencies_is_refused():
    with pytest.raises(ValueError, match=r"the graph has 3, the scales are \(13, 6\)"):
        MSG3D(partition(KINECT_V2, "spatial_full"), classes=4)
    with pytest.raises(ValueError, match=r"the scales are \(3, 4\)"):
        make(scales=(3, 4))
