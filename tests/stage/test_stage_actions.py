import pytest

from fedaction.stage import ACTIONS, NAMES, number
from fedaction.stage.pose import CHANNELS


def test_there_are_many_different_actions():
    assert len(NAMES) >= 30
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("action", ACTIONS, ids=NAMES)
def test_an_action_is_well_written(action):
    moments = [moment for moment, _ in action.keys]
    assert moments[0] == 0.0
    assert moments[-1] == 1.0
    assert moments == sorted(set(moments))
    assert all(set(pose) == set(CHANNELS) for _, pose in action.keys)
    assert all(swing.channel in CHANNELS for swing in action.swings)
    assert bool(action.swings) == (action.cycles > 0)
    assert all(0.0 <= mark <= 1.0 for mark in action.contacts)


@pytest.mark.parametrize("action", [a for a in ACTIONS if a.loop[0] < a.loop[1]], ids=lambda a: a.name)
def test_a_loop_ends_in_the_pose_in_which_it_began(action):
    poses = dict(action.keys)
    assert poses[action.loop[0]] == poses[action.loop[1]]


def test_an_unknown_action_is_refused_by_name():
    assert NAMES[number("drink")] == "drink"
    with pytest.raises(KeyError, match="no action is called 'fly'"):
        number("fly")
