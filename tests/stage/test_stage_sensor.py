import time
from dataclasses import replace

import numpy as np
import pytest

from fedaction.data.layout import LAYOUTS
from fedaction.stage import NAMES, Sensor, actor, perform, skeletons

# A frontal view without any error.
CLEAN = Sensor(yaw=(0.0, 0.0), pitch=(0.0, 0.0), distance=(3.0, 3.0), white=0.0, drift=0.0, dropout=0.0)
PEOPLE = [actor(5, i) for i in range(8)]
ALL = np.arange(len(NAMES))
SHOWN = perform(ALL, [PEOPLE[i % 8] for i in ALL], 1)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_joint_is_the_same_point_in_every_layout(name):
    whole = skeletons(SHOWN, "mocap_31", CLEAN, 1)
    seen = skeletons(SHOWN, name, CLEAN, 1)
    assert seen.shape == (len(ALL), 1, 50, len(LAYOUTS[name]), 3)
    assert seen.dtype == np.float32
    shared = LAYOUTS[name].shared_with(LAYOUTS["mocap_31"])
    assert shared
    for own, other in shared:
        np.testing.assert_array_equal(seen[..., own, :], whole[..., other, :])


def test_recordings_are_functions_of_their_seed_and_not_of_the_batch():
    sensor = Sensor(bias=0.02)
    whole = skeletons(SHOWN, "kinect_v2", sensor, 3)
    assert whole.tobytes() == skeletons(SHOWN, "kinect_v2", sensor, 3).tobytes()
    assert not np.array_equal(whole, skeletons(SHOWN, "kinect_v2", sensor, 4))
    for i in (0, 11, len(ALL) - 1):
        np.testing.assert_array_equal(skeletons(SHOWN[i : i + 1], "kinect_v2", sensor, 3), whole[i : i + 1])


def test_the_camera_moves_bodies_rigidly_and_sees_them_in_front():
    yawed = replace(CLEAN, yaw=(0.8, 0.8), pitch=(0.3, 0.3))
    front, side = (skeletons(SHOWN, "kinect_v1", s, 1)[:, 0] for s in (CLEAN, yawed))
    assert min(front[..., 2].min(), side[..., 2].min()) > 0.3
    spread = [np.linalg.norm(x[..., :, None, :] - x[..., None, :, :], axis=-1) for x in (front, side)]
    np.testing.assert_allclose(spread[0], spread[1], atol=1e-4)
    # A performer who faces the camera has the right shoulder on the camera's left, which is +x.
    standing = front[NAMES.index("point"), 0]
    joints = LAYOUTS["kinect_v1"]
    assert standing[joints.index("right_shoulder"), 0] > standing[joints.index("left_shoulder"), 0]
    assert standing[joints.index("head"), 1] > standing[joints.index("left_knee"), 1]


def test_noise_has_the_size_asked_for_and_grows_with_depth():
    near, far = (
        skeletons(SHOWN, "kinect_v2", replace(CLEAN, white=0.01, distance=(d, d)), 1)
        - skeletons(SHOWN, "kinect_v2", replace(CLEAN, distance=(d, d)), 1)
        for d in (2.5, 4.5)
    )
    assert 0.005 < near.std() < 0.010
    assert far.std() > 2.0 * near.std()
    drift = skeletons(SHOWN, "kinect_v2", replace(CLEAN, drift=0.02), 1) - skeletons(SHOWN, "kinect_v2", CLEAN, 1)
    assert 0.008 < drift.std() < 0.025
    assert np.diff(drift, axis=2).std() < 0.2 * drift.std()


def test_lost_joints_are_held_or_marked():
    lossy = replace(CLEAN, dropout=0.2)
    clean = skeletons(SHOWN, "kinect_v2", CLEAN, 1)
    held = skeletons(SHOWN, "kinect_v2", lossy, 1)
    marked = skeletons(SHOWN, "kinect_v2", replace(lossy, hold=False), 1)
    lost = np.isnan(marked[..., 0])
    assert 0.05 < lost.mean() < 0.6
    assert not lost[:, :, 0].any()
    np.testing.assert_array_equal(held[~lost], clean[~lost])
    np.testing.assert_array_equal(held[:, :, 1:][lost[:, :, 1:]], held[:, :, :-1][lost[:, :, 1:]])


def test_a_devices_bias_is_its_own():
    clean = skeletons(SHOWN, "kinect_v2", CLEAN, 1)
    one, two = (skeletons(SHOWN, "kinect_v2", replace(CLEAN, bias=0.02, device=d), 1) - clean for d in (1, 2))
    assert one.std(axis=(0, 1, 2)).max() < 1e-5  # the same offset in every frame
    assert np.abs(one.mean(axis=(0, 1, 2)) - two.mean(axis=(0, 1, 2))).max() > 0.01


def test_two_thousand_sequences_a_second_on_one_core():
    count = 256
    actions, people = np.arange(count) % len(NAMES), [PEOPLE[i % 8] for i in range(count)]
    fastest = np.inf
    for seed in range(8):  # the fastest of several runs: others may be using the machine
        begin = time.process_time()
        skeletons(perform(actions, people, seed), "kinect_v2", Sensor(bias=0.01), seed)
        fastest = min(fastest, time.process_time() - begin)
    assert count / fastest >= 2000.0
