import pytest
import torch

from fedaction.data.layout import COCO_17, KINECT_V1, KINECT_V2, MOCAP_31, OPENNI_15, Layout
from fedaction.data.preprocess import normalise
from fedaction.evaluation.joints import joint_map, known_share, map_joints
from fedaction.federation.seeds import generator

ALL = (KINECT_V2, KINECT_V1, OPENNI_15, MOCAP_31, COCO_17)


@pytest.mark.parametrize("target", ALL, ids=lambda item: item.name)
@pytest.mark.parametrize("source", ALL, ids=lambda item: item.name)
def test_known_joints_are_taken_as_they_are_and_others_are_means(source, target):
    weights = joint_map(source, target)
    assert torch.allclose(weights.sum(1), torch.ones(len(target)))
    for row, joint in enumerate(target.joints):
        if joint in source.joints:
            assert weights[row, source.index(joint)] == 1
    assert known_share(source, target) == len(set(source.joints) & set(target.joints)) / len(target)


def test_a_missing_joint_is_where_its_nearest_neighbours_are():
    weights = joint_map(COCO_17, KINECT_V2)
    nearest = {joint: [COCO_17.joints[i] for i in weights[KINECT_V2.index(joint)].nonzero()] for joint in
               ("left_hand", "spine_shoulder", "right_foot", "left_thumb", "spine_base")}  # fmt: skip
    assert nearest["left_hand"] == ["left_wrist"]
    assert nearest["left_thumb"] == ["left_wrist"]
    assert nearest["right_foot"] == ["right_ankle"]
    assert nearest["spine_shoulder"] == ["left_shoulder", "right_shoulder"]
    assert nearest["spine_base"] == ["left_hip", "right_hip"]


def test_other_layouts_help_to_say_what_is_near():
    alone, helped = joint_map(OPENNI_15, COCO_17), joint_map(OPENNI_15, COCO_17, [KINECT_V2])
    wrist = COCO_17.index("left_wrist")
    assert [OPENNI_15.joints[i] for i in alone[wrist].nonzero()] == ["left_elbow"]
    assert [OPENNI_15.joints[i] for i in helped[wrist].nonzero()] == ["left_elbow", "left_hand"]


def test_a_coarse_layouts_links_do_not_jump_over_joints_that_a_finer_one_has():
    # OpenNI links elbow to hand and shoulders to neck; Kinect's second version has wrists and a spine between them.
    hand = joint_map(COCO_17, OPENNI_15, ALL)[OPENNI_15.index("left_hand")]
    assert [COCO_17.joints[i] for i in hand.nonzero()] == ["left_wrist"]
    neck = joint_map(KINECT_V1, KINECT_V2, [OPENNI_15])[KINECT_V2.index("neck")]
    assert {KINECT_V1.joints[i] for i in neck.nonzero()} == {"spine_shoulder", "head"}


def test_a_joint_that_no_link_leads_to_becomes_the_centre():
    island = Layout("island", ("head", "antenna"), (), 0)
    weights = joint_map(OPENNI_15, island)
    assert weights[1, OPENNI_15.centre] == 1 and weights[0, OPENNI_15.index("head")] == 1


def test_mapped_sequences_are_centred_and_aligned_like_the_targets_own():
    x = torch.randn(5, 2, 8, 25, 3, generator=generator(7, "joints"))
    own = normalise(x, KINECT_V2)
    found = map_joints(own, KINECT_V2, OPENNI_15)
    assert found.shape == (5, 2, 8, 15, 3)
    places = list(OPENNI_15.map_onto(KINECT_V2))
    assert torch.allclose(found, normalise(own[..., places, :], OPENNI_15))
    assert torch.allclose(found[..., OPENNI_15.centre, :], torch.zeros(3))
    assert map_joints(own, KINECT_V2, KINECT_V2) is own
