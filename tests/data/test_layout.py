"""Layouts against the published joint lists, written here as the sources write them."""

from __future__ import annotations

import itertools

import pytest

from fedaction.data.layout import (
    COCO_17,
    FLORENCE_15,
    KINECT_V1,
    KINECT_V2,
    LAYOUTS,
    MOCAP_31,
    OPENNI_15,
    OPENPOSE_18,
    Layout,
    layout,
    union_body,
)

# ST-GCN's graph file, 1-based.
NTU = (
    "1-2 2-21 3-21 4-3 5-21 6-5 7-6 8-7 9-21 10-9 11-10 12-11 13-1 14-13 15-14 16-15 17-1 18-17 19-18 20-19 "
    "22-23 23-8 24-25 25-12"
)
# 0-based: the Kinect SDK's order, ST-GCN's OpenPose graph, pyskl's COCO graph.
KINECT_1 = "0-1 1-2 2-3 2-4 4-5 5-6 6-7 2-8 8-9 9-10 10-11 0-12 12-13 13-14 14-15 0-16 16-17 17-18 18-19"
OPENPOSE = "4-3 3-2 7-6 6-5 13-12 12-11 10-9 9-8 11-5 8-2 5-1 2-1 0-1 15-0 14-0 17-15 16-14"
COCO = "15-13 13-11 16-14 14-12 11-5 12-6 9-7 7-5 10-8 8-6 5-0 6-0 1-0 3-1 2-0 4-2"


def links(text: str, base: int) -> set[frozenset[int]]:
    return {frozenset(int(joint) - base for joint in pair.split("-")) for pair in text.split()}


@pytest.mark.parametrize(
    ("item", "joints", "edges", "base", "centre"),
    [
        (KINECT_V2, 25, NTU, 1, 20),
        (KINECT_V1, 20, KINECT_1, 0, 2),
        (OPENPOSE_18, 18, OPENPOSE, 0, 1),
        (COCO_17, 17, COCO, 0, 0),
    ],
)
def test_layouts_have_the_published_joints_edges_and_centre(
    item: Layout, joints: int, edges: str, base: int, centre: int
) -> None:
    assert len(item) == joints
    assert {frozenset(edge) for edge in item.edges} == links(edges, base)
    assert len(item.edges) == joints - 1
    assert item.centre == centre


@pytest.mark.parametrize(("item", "joints"), [(OPENNI_15, 15), (FLORENCE_15, 15), (MOCAP_31, 31)])
def test_other_layouts_have_their_joint_count(item: Layout, joints: int) -> None:
    assert len(item) == joints


def test_florence_15_is_in_the_order_of_its_documentation() -> None:
    arms = [f"{side}_{part}" for side in ("left", "right") for part in ("shoulder", "elbow", "wrist")]
    legs = [f"{side}_{part}" for side in ("left", "right") for part in ("hip", "knee", "ankle")]
    assert list(FLORENCE_15.joints) == ["head", "neck", "spine_mid", *arms, *legs]
    assert FLORENCE_15.joints[FLORENCE_15.centre] == "neck"


@pytest.mark.parametrize("name", list(LAYOUTS))
def test_every_layout_is_one_tree(name: str) -> None:
    item = layout(name)
    assert len(item.edges) == len(item) - 1
    reached = {item.centre}
    for _ in range(len(item)):
        reached |= {j for edge in item.edges if reached & set(edge) for j in edge}
    assert reached == set(range(len(item)))


def test_kinect_v2_joints_are_in_sdk_order() -> None:
    for index, name in [(0, "spine_base"), (4, "left_shoulder"), (8, "right_shoulder"), (12, "left_hip")]:
        assert KINECT_V2.joints[index] == name
    assert KINECT_V2.joints[20:] == (
        "spine_shoulder",
        "left_hand_tip",
        "left_thumb",
        "right_hand_tip",
        "right_thumb",
    )


def test_kinect_v2_mirror_is_the_published_flip() -> None:
    expected = [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 20, 23, 24, 21, 22]
    assert list(KINECT_V2.mirror) == expected


@pytest.mark.parametrize("name", list(LAYOUTS))
def test_mirror_is_its_own_inverse_and_swaps_exactly_the_pairs(name: str) -> None:
    item = layout(name)
    assert [item.mirror[j] for j in item.mirror] == list(range(len(item)))
    for left, right in item.pairs:
        assert item.joints[left].removeprefix("left_") == item.joints[right].removeprefix("right_")
        assert item.mirror[left] == right
    moved = [i for i, j in enumerate(item.mirror) if i != j]
    assert len(moved) == 2 * len(item.pairs)
    edges = {frozenset(edge) for edge in item.edges}
    assert {frozenset(item.mirror[j] for j in edge) for edge in item.edges} == edges


def test_union_of_one_layout_is_that_layout() -> None:
    assert union_body([KINECT_V2]) is KINECT_V2
    assert union_body([COCO_17, COCO_17]) is COCO_17
    assert KINECT_V2.map_onto(union_body([KINECT_V2])) == tuple(range(25))


def test_union_does_not_depend_on_order_and_holds_every_joint_and_edge() -> None:
    members = (KINECT_V2, KINECT_V1, OPENNI_15, COCO_17)
    body = union_body(members)
    for order in itertools.permutations(members):
        assert union_body(order) == body
    assert set(body.joints) == {joint for item in members for joint in item.joints}
    assert body.joints[: len(KINECT_V2)] == KINECT_V2.joints
    edges = [frozenset(edge) for edge in body.edges]
    assert len(edges) == len(set(edges))
    for item in members:
        place = item.map_onto(body)
        assert [body.joints[i] for i in place] == list(item.joints)
        assert {frozenset((place[a], place[b])) for a, b in item.edges} <= set(edges)
    assert body.joints[body.centre] == "spine_shoulder"


def test_union_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no layouts"):
        union_body([])


def test_shared_joints_pair_equal_names() -> None:
    for own, other in KINECT_V1.shared_with(KINECT_V2):
        assert KINECT_V1.joints[own] == KINECT_V2.joints[other]
    assert len(KINECT_V1.shared_with(KINECT_V2)) == 20


@pytest.mark.parametrize("name", list(LAYOUTS))
def test_dict_round_trip(name: str) -> None:
    assert Layout.from_dict(layout(name).to_dict()) == layout(name)


def test_from_dict_takes_joints_by_name_or_index() -> None:
    by_name = Layout.from_dict({"name": "arm", "joints": ["a", "b"], "edges": [["a", "b"]], "centre": "b"})
    by_index = Layout.from_dict({"name": "arm", "joints": ["a", "b"], "edges": [[0, 1]], "centre": 1})
    assert by_name == by_index


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "needs"),
        ({"joints": ["a"], "edges": "a-b"}, "needs"),
        ({"joints": ["a", "b"], "edges": [["a"]]}, "joins two"),
        ({"joints": ["a", "b"], "edges": [["a", "c"]]}, "'c' is not among"),
        ({"joints": ["a", "b"], "edges": [[0, 2]]}, "does not join"),
        ({"joints": ["a", "b"], "edges": [[1, 1]]}, "does not join"),
        ({"joints": ["a", "a"], "edges": []}, "twice"),
        ({"joints": ["a", "b"], "edges": [[True, 1]]}, "by name or by index"),
        ({"joints": ["a", "b"], "edges": [], "centre": 2}, "centre 2"),
        ({"joints": [], "edges": []}, "centre 0"),
    ],
)
def test_from_dict_refuses_what_is_no_layout(spec: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layout.from_dict(spec)


def test_unknown_names_are_errors_that_list_the_known_ones() -> None:
    with pytest.raises(KeyError, match="kinect_v2"):
        layout("kinect_v3")
    with pytest.raises(KeyError, match="left_elbow"):
        COCO_17.index("left_elbo")
    with pytest.raises(KeyError, match="spine_base"):
        KINECT_V2.map_onto(COCO_17)
