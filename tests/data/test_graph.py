"""Graph partitions against a literal rewriting of ST-GCN's loops."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from fedaction.data import graph
from fedaction.data.layout import COCO_17, KINECT_V1, KINECT_V2, LAYOUTS, Layout, layout, union_body
from fedaction.federation.seeds import generator


def literal_spatial(item: Layout, max_hop: int) -> npt.NDArray[np.float64]:
    """ST-GCN's 'spatial' strategy, loop by loop; hop distances stop at max_hop, links are always one hop."""
    count = len(item)
    adjacency = np.zeros((count, count))
    for a, b in item.edges:
        adjacency[a, b] = adjacency[b, a] = 1
    hop = np.full((count, count), np.inf)
    reach = [np.linalg.matrix_power(adjacency, d) for d in range(max_hop + 1)]
    for d in range(max_hop, -1, -1):
        hop[reach[d] > 0] = d
    weights = (hop <= 1).astype(float)
    weights = weights / weights.sum(axis=0)
    root, close, further = (np.zeros((count, count)) for _ in range(3))
    for source in range(count):
        for target in range(count):
            if hop[source, target] == 0:
                root[source, target] = weights[source, target]
            elif hop[source, target] == 1:
                if hop[source, item.centre] >= hop[target, item.centre]:
                    close[source, target] = weights[source, target]
                else:
                    further[source, target] = weights[source, target]
    return np.stack([root, close, further])


def literal_inward_outward(item: Layout) -> npt.NDArray[np.float64]:
    hop = graph.hops_to_centre(item).numpy()
    matrices = np.zeros((3, len(item), len(item)))
    matrices[0] = np.eye(len(item))
    for a, b in item.edges:
        for source, target in ((a, b), (b, a)):
            matrices[1 if hop[source] >= hop[target] else 2, source, target] = 1
    for subset in (1, 2):
        for target in range(len(item)):
            total = matrices[subset, :, target].sum()
            if total > 0:
                matrices[subset, :, target] /= total
    return matrices


def literal_k_adjacency(links: npt.NDArray[np.float64], k: int) -> npt.NDArray[np.float64]:
    """MS-G3D's matrices by powers of the adjacency, with self links, normalised on both sides."""
    itself = np.eye(len(links))
    matrix = itself
    if k > 0:
        power = np.linalg.matrix_power
        matrix = np.minimum(power(links + itself, k), 1) - np.minimum(power(links + itself, k - 1), 1) + itself
    root = np.diag(matrix.sum(-1) ** -0.5)
    return root @ matrix @ root


EVERY = [*LAYOUTS.values(), union_body([KINECT_V2, COCO_17]), union_body(LAYOUTS.values())]


@pytest.mark.parametrize("item", EVERY, ids=lambda item: item.name[:40])
def test_partitions_equal_the_literal_ones(item: Layout) -> None:
    assert np.allclose(graph.spatial_legacy(item).numpy(), literal_spatial(item, 1))
    assert np.allclose(graph.spatial_full(item).numpy(), literal_spatial(item, len(item)))
    assert np.allclose(graph.inward_outward(item).numpy(), literal_inward_outward(item))


def test_kinect_v2_non_zeros() -> None:
    kinds = [kind for kind in graph.KINDS if kind != "disentangled"]
    counts = {kind: [int((subset != 0).sum()) for subset in graph.partition(KINECT_V2, kind)] for kind in kinds}
    assert counts == {
        "spatial_legacy": [25, 40, 8],
        "spatial_full": [25, 24, 24],
        "inward_outward": [25, 24, 24],
        "inward_outward_by_source": [25, 24, 24],
    }


def test_legacy_third_subset_holds_exactly_these_links() -> None:
    third = graph.spatial_legacy(KINECT_V2)[2]
    links = {(int(v) + 1, int(w) + 1) for v, w in third.nonzero()}
    assert links == {(21, 2), (21, 3), (21, 5), (21, 9), (2, 1), (3, 4), (5, 6), (9, 10)}


@pytest.mark.parametrize("item", EVERY, ids=lambda item: item.name[:40])
def test_columns_sum_to_one(item: Layout) -> None:
    for kind in ("spatial_legacy", "spatial_full"):
        assert torch.allclose(graph.partition(item, kind).sum(dim=(0, 1)), torch.ones(len(item)))
    for subset in graph.inward_outward(item):
        columns = subset.sum(dim=0)
        assert torch.allclose(columns, (columns > 0).float())


@pytest.mark.parametrize("kind", list(graph.KINDS))
@pytest.mark.parametrize("name", list(LAYOUTS))
def test_shape_and_type(name: str, kind: str) -> None:
    matrices = graph.partition(layout(name), kind)
    subsets = 13 if kind == "disentangled" else 3
    assert matrices.shape == (subsets, len(layout(name)), len(layout(name)))
    assert matrices.dtype == torch.float32


def test_direction_is_source_then_target() -> None:
    hand, wrist = KINECT_V1.index("left_hand"), KINECT_V1.index("left_wrist")
    kinds = (graph.spatial_full, graph.inward_outward, graph.inward_outward_by_source)
    for matrices in (build(KINECT_V1) for build in kinds):
        assert matrices[1, hand, wrist] > 0 and matrices[1, wrist, hand] == 0
        assert matrices[2, wrist, hand] > 0 and matrices[2, hand, wrist] == 0


def test_by_source_is_ctr_gcn_written_out() -> None:
    """Its code: A[j, i] for a link (i, j), columns normalised, then out[u] = sum over v of A[u, v] x[v]."""
    hop = graph.hops_to_centre(KINECT_V2)
    x = torch.randn(25, 4, generator=generator(0, "x"))
    inward = [(a, b) if hop[a] > hop[b] else (b, a) for a, b in KINECT_V2.edges]
    outward = [(b, a) for a, b in inward]
    ours = torch.einsum("vc,kvw->kwc", x, graph.inward_outward_by_source(KINECT_V2))
    for subset, links in enumerate((tuple((i, i) for i in range(25)), inward, outward)):
        matrix = torch.zeros(25, 25)
        for i, j in links:
            matrix[j, i] = 1
        matrix = matrix / matrix.sum(0).clamp(min=1)
        torch.testing.assert_close(ours[subset], torch.einsum("uv,vc->uc", matrix, x))


@pytest.mark.parametrize("item", EVERY, ids=lambda item: item.name[:40])
def test_rows_by_source_sum_to_one(item: Layout) -> None:
    for ours, other in zip(graph.inward_outward_by_source(item), graph.inward_outward(item), strict=True):
        assert torch.equal(ours > 0, other > 0)
        assert torch.allclose(ours.sum(dim=1), (ours.sum(dim=1) > 0).float())


@pytest.mark.parametrize("item", EVERY, ids=lambda item: item.name[:40])
def test_k_adjacencies_equal_the_literal_ones(item: Layout) -> None:
    links = np.zeros((len(item), len(item)))
    for a, b in item.edges:
        links[a, b] = links[b, a] = 1
    ours = graph.disentangled(item)
    for k in range(13):
        assert np.allclose(ours[k].numpy(), literal_k_adjacency(links, k), atol=1e-6), k


@pytest.mark.parametrize("frames", [3, 5])
@pytest.mark.parametrize("self_links", [False, True])
def test_window_graphs_equal_the_literal_ones(frames: int, self_links: bool) -> None:
    links = graph.disentangled(KINECT_V1)[1] > 0
    joined = np.tile(links.double().numpy(), (frames, frames))
    given = links if self_links else links & ~torch.eye(20, dtype=torch.bool)
    ours = graph.window_adjacencies(given, 6, frames)
    assert ours.shape == (6, frames, 20, frames, 20)
    for k in range(6):
        literal = literal_k_adjacency(joined, k).reshape(frames, 20, frames, 20)
        assert np.allclose(ours[k].numpy(), literal, atol=1e-6), k


def test_beyond_the_bodys_diameter_only_the_joint_itself_is_left() -> None:
    item = Layout("chain", ("a", "b", "c"), ((0, 1), (1, 2)), 0)
    matrices = graph.disentangled(item, 5)
    assert matrices[2, 0, 2] > 0
    assert torch.equal(matrices[3:], torch.eye(3).expand(2, 3, 3))


def test_hops_count_links_and_are_infinite_where_there_is_no_way() -> None:
    item = Layout("apart", ("a", "b", "c", "d"), ((0, 1), (1, 2)), 0)
    assert graph.hops_to_centre(item).tolist() == [0, 1, 2, float("inf")]
    assert torch.isfinite(graph.spatial_full(item)).all()


def test_unknown_kind_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="spatial_legacy, spatial_full, inward_outward"):
        graph.partition(KINECT_V2, "spatial")
