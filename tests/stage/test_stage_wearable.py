from dataclasses import replace

import numpy as np
import pytest

from fedaction.stage import BODY, MOUNTS, NAMES, actor, inertial, number, perform

PEOPLE = [replace(actor(5, i), left_handed=False, off_hand=0.0) for i in range(8)]


def test_a_sensor_at_rest_reads_gravity():
    still = perform([number("salute")] * 8, PEOPLE, 1)
    for where in MOUNTS:
        signal = inertial(still, where, 50.0, 1, noise=0.0)
        assert signal.shape == (8, 200, 6)
        # The last samples: the arm hangs again and only idle sway is left.
        strength = np.linalg.norm(signal[:, -4:, :3], axis=-1)
        assert np.abs(np.median(strength) - 9.81) < 0.3
    upright = inertial(still, "spine_base", 50.0, 1, noise=0.0)
    assert np.median(upright[:, :, 0]) > 9.0  # x runs up the spine


def test_moving_hands_are_felt_at_the_wrist():
    signal = {
        name: inertial(perform([number(name)] * 8, PEOPLE, 1), "right_wrist", 50.0, 1)
        for name in ("wave", "phone_call")
    }
    shake = {name: np.diff(x[:, 60:160, :3], axis=1).std() for name, x in signal.items()}
    assert shake["wave"] > 1.5 * shake["phone_call"]


def test_turning_around_is_half_a_turn_of_the_gyroscope():
    shown = perform([number("turn_around")] * 8, PEOPLE, 1)
    rate = inertial(shown, "spine_base", 100.0, 1, noise=0.0)[..., 3]  # about the spine
    turned = rate.sum(axis=1) / 100.0
    hips = shown.at(400)[:, :, BODY.index("left_hip")] - shown.at(400)[:, :, BODY.index("right_hip")]
    heading = np.unwrap(np.arctan2(-hips[..., 2], hips[..., 0]), axis=1)
    np.testing.assert_allclose(turned, heading[:, -1] - heading[:, 0], atol=0.25)
    assert (np.abs(turned) > 2.0).sum() >= 6  # a slow performer may not finish in the clip


def test_signals_are_functions_of_their_seed_and_not_of_the_batch():
    shown = perform(np.arange(8), PEOPLE, 1)
    whole = inertial(shown, "left_ankle", 25.0, 3)
    assert whole.tobytes() == inertial(shown, "left_ankle", 25.0, 3).tobytes()
    np.testing.assert_array_equal(inertial(shown[5:6], "left_ankle", 25.0, 3), whole[5:6])
    assert not np.array_equal(whole, inertial(shown, "left_ankle", 25.0, 4))


def test_every_action_gives_finite_signals_within_range():
    shown = perform(np.arange(len(NAMES)), [PEOPLE[0]] * len(NAMES), 2)
    signal = inertial(shown, "right_wrist", 50.0, 1)
    assert np.isfinite(signal).all()
    assert np.abs(signal[..., :3]).max() <= 157.0


def test_an_unknown_mount_is_refused():
    with pytest.raises(KeyError, match="no sensor can be worn at 'ring'"):
        inertial(perform([0], PEOPLE[:1], 1), "ring")
