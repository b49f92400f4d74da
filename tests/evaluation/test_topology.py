import math

import pytest
import torch

from fedaction.data.layout import COCO_17, KINECT_V2, OPENNI_15, Layout
from fedaction.evaluation.topology import between, drift, shared_cosine, similarities
from fedaction.federation.seeds import generator


def graph(layout: Layout, number: int = 0) -> torch.Tensor:
    return torch.randn(3, len(layout), len(layout), generator=generator(4, "graph", number))


def test_the_same_layout_is_the_plain_cosine():
    one, other = graph(KINECT_V2), graph(KINECT_V2, 1)
    expected = torch.nn.functional.cosine_similarity(one.flatten(), other.flatten(), dim=0)
    assert shared_cosine(one, KINECT_V2, other, KINECT_V2) == pytest.approx(float(expected), abs=1e-6)
    assert shared_cosine(one, KINECT_V2, -2 * one, KINECT_V2) == pytest.approx(-1)


def test_only_joints_of_both_count_and_they_are_found_by_name():
    body = graph(KINECT_V2)
    places = list(OPENNI_15.map_onto(KINECT_V2))
    part = body[:, places][:, :, places].clone()
    assert shared_cosine(body, KINECT_V2, part, OPENNI_15) == pytest.approx(1)
    changed = body.clone()
    changed[:, KINECT_V2.index("spine_base")] = 99  # a joint that OpenNI lacks
    assert shared_cosine(changed, KINECT_V2, part, OPENNI_15) == pytest.approx(1)
    changed[:, KINECT_V2.index("head"), KINECT_V2.index("neck")] = 99
    assert shared_cosine(changed, KINECT_V2, part, OPENNI_15) < 0.9


def test_without_shared_joints_or_values_there_is_no_similarity():
    stranger = Layout("stranger", ("tail", "head"), ((0, 1),), 0)
    assert math.isnan(shared_cosine(graph(stranger), stranger, graph(KINECT_V2), KINECT_V2))
    assert math.isnan(shared_cosine(torch.zeros(3, 17, 17), COCO_17, graph(COCO_17), COCO_17))


def test_a_matrix_holds_every_pair_once_each_way():
    layouts = {"a": KINECT_V2, "b": OPENNI_15, "c": COCO_17}
    graphs = {name: graph(layout, i) for i, (name, layout) in enumerate(layouts.items())}
    found = similarities(graphs, layouts)
    assert torch.equal(found, found.T) and torch.allclose(found.diag(), torch.ones(3).double())
    expected = shared_cosine(graphs["c"], COCO_17, graphs["a"], KINECT_V2)
    assert float(found[0, 2]) == pytest.approx(expected)
    assert between(found).tolist() == [found[1, 0], found[2, 0], found[2, 1]]


def test_drift_is_the_way_from_one():
    found = drift({"gym": {"alpha": 0.77, "gamma": 1.27}})
    assert found == {"gym": {"alpha": pytest.approx(-0.23), "gamma": pytest.approx(0.27)}}
