from dataclasses import replace

import numpy as np
import pytest

from fedaction.stage import ADULTS, BODY, CHILDREN, ELDERLY, NAMES, actor, number, perform

PEOPLE = [actor(5, i) for i in range(6)]
ALL = np.arange(len(NAMES))
CAST = [PEOPLE[i % 6] for i in ALL]


def joint(performance, name):
    return performance.positions[:, :, BODY.index(name)]


def test_equal_seeds_give_equal_bytes_and_others_do_not():
    a, b, c = (perform(ALL, CAST, seed) for seed in (1, 1, 2))
    assert a.positions.tobytes() == b.positions.tobytes()
    assert not np.array_equal(a.positions, c.positions)
    assert a.positions.shape == (len(ALL), 50, len(BODY), 3)
    assert a.positions.dtype == np.float32
    assert a.script.action.tolist() == list(range(len(NAMES)))


def test_a_performance_does_not_depend_on_its_batch():
    whole = perform(ALL, CAST, 1)
    for i in (0, 7, len(ALL) - 1):
        alone = perform(ALL[i : i + 1], [CAST[i]], 1, takes=[i])
        np.testing.assert_array_equal(alone.positions, whole.positions[i : i + 1])
        np.testing.assert_array_equal(whole[i : i + 1].positions, alone.positions)
    backwards = perform(ALL[::-1], CAST[::-1], 1, takes=ALL[::-1])
    np.testing.assert_array_equal(backwards.positions[::-1], whole.positions)


def test_takes_of_the_same_action_differ():
    two = perform([3, 3], [PEOPLE[0]] * 2, 1)
    assert np.abs(two.positions[0] - two.positions[1]).max() > 0.05


@pytest.mark.parametrize(
    "bone",
    [
        ("left_shoulder", "left_elbow"),
        ("right_elbow", "right_wrist"),
        ("right_wrist", "right_hand"),
        ("left_hip", "left_knee"),
        ("right_knee", "right_ankle"),
        ("left_ankle", "left_foot"),
        ("spine_base", "spine_low"),
        ("spine_mid", "spine_shoulder"),
        ("skull_base", "head"),
        ("left_hip", "right_hip"),
        ("left_shoulder", "right_shoulder"),
    ],
    ids="-".join,
)
def test_bones_keep_their_length_in_every_action(bone):
    # Goals out of reach are approached, never stretched for, so this holds to rounding: 0.1 mm.
    shown = perform(ALL, CAST, 1)
    length = np.linalg.norm(joint(shown, bone[0]) - joint(shown, bone[1]), axis=-1)
    assert np.abs(length - length[:, :1]).max() < 1e-4
    assert length.min() > 0.02


def test_bodies_stay_above_the_floor_and_feet_on_it():
    shown = perform(np.tile(ALL, 3), CAST * 3, 4)
    height = shown.positions[..., 1]
    assert height.min() > -0.12
    feet = np.minimum(joint(shown, "left_foot")[..., 1], joint(shown, "right_foot")[..., 1])
    assert np.abs(np.median(feet, axis=1)).max() < 0.25
    assert (height.max(axis=(1, 2)) < 2.9).all()


def test_motion_has_no_jumps():
    shown = perform(np.tile(ALL, 3), CAST * 3, 4)
    fine = shown.at(400)
    speed = np.linalg.norm(np.diff(fine, axis=1), axis=-1) * 100.0
    free = [i for i, name in enumerate(BODY.joints) if "elbow" not in name]
    assert speed[..., free].max() < 40.0  # metres a second, the hand of a fast throw or jumping jack
    # An elbow can whip round when the arm passes through the direction that it bends in; that must stay rare.
    assert (speed > 20.0).mean() < 1e-3


@pytest.mark.parametrize("cohort", [ADULTS, CHILDREN, ELDERLY], ids=lambda c: c.name)
def test_a_drink_reaches_the_mouth_of_every_body(cohort):
    people = [replace(actor(2, i, cohort), left_handed=False, off_hand=0.0) for i in range(20)]
    shown = perform([number("drink")] * 20, people, 1, frames=100)
    away = np.linalg.norm(joint(shown, "right_hand") - joint(shown, "nose"), axis=-1).min(axis=1)
    assert away.max() < 0.25
    other = np.linalg.norm(joint(shown, "left_hand") - joint(shown, "nose"), axis=-1).min(axis=1)
    assert other.min() > 0.30


def test_actors_differ_and_are_functions_of_their_name():
    assert actor(5, 0) == PEOPLE[0]
    assert len({who.height for who in PEOPLE}) == len(PEOPLE)
    assert len({who.tempo for who in PEOPLE}) == len(PEOPLE)
    shown = perform([number("wave")] * 6, PEOPLE, 1, takes=[0] * 6)
    assert all(np.abs(shown.positions[i] - shown.positions[0]).max() > 0.1 for i in range(1, 6))
    heights = {c.name: np.mean([actor(1, i, c).height for i in range(50)]) for c in (ADULTS, CHILDREN)}
    assert heights["adults"] > heights["children"] + 0.25


def test_left_handers_wave_with_the_left():
    left = [replace(who, left_handed=True, off_hand=0.0) for who in PEOPLE]
    right = [replace(who, left_handed=False, off_hand=0.0) for who in PEOPLE]
    for people, used, idle in ((left, "left", "right"), (right, "right", "left")):
        shown = perform([number("wave")] * 6, people, 1)
        top = {side: joint(shown, f"{side}_hand")[..., 1].max(axis=1) for side in (used, idle)}
        assert (top[used] > top[idle] + 0.2).all()


def test_other_rates_show_the_same_motion():
    shown = perform(ALL, CAST, 1)
    np.testing.assert_allclose(shown.at(100)[:, ::2], shown.positions, atol=1e-5)


def test_wrong_requests_are_refused():
    with pytest.raises(ValueError, match="as many actions, actors and takes"):
        perform([0, 1], PEOPLE[:1], 1)
    with pytest.raises(ValueError, match="action numbers run from 0"):
        perform([len(NAMES)], PEOPLE[:1], 1)
    with pytest.raises(ValueError, match="at least 2 frames"):
        perform([0], PEOPLE[:1], 1, frames=1)
