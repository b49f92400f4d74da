from dataclasses import replace

import numpy as np

from fedaction.stage import BODY, actor, contacts, number, perform, sound

PEOPLE = [replace(actor(9, i), amplitude=1.0) for i in range(6)]


def test_claps_are_loudest_when_the_hands_meet():
    shown = perform([number("clap")] * 6, PEOPLE, 1)
    heard = sound(shown, 8000, 1)
    assert heard.shape == (6, 32000)
    track = shown.at(800)
    gap = np.linalg.norm(track[:, :, BODY.index("left_hand")] - track[:, :, BODY.index("right_hand")], axis=-1)
    found = 0
    for i, events in enumerate(contacts(shown)):
        claps = [time for time, kind, _ in events if kind == "clap" and time < 3.9]
        found += len(claps) >= 3
        quiet = np.abs(heard[i, :400]).max()
        for time in claps:
            near = gap[i, max(int(time * 200) - 4, 0) : int(time * 200) + 5].min()
            assert near < 0.17
            peak = np.abs(heard[i, int(time * 8000) : int(time * 8000) + 400]).max()
            assert peak > 4.0 * quiet
    assert found >= 5  # a slow performer may clap twice only


def test_steps_jumps_and_falls_make_their_own_sounds():
    names = ("walk", "run", "hop", "jump", "fall")
    shown = perform([number(n) for n in names for _ in range(6)], PEOPLE * len(names), 1)
    kinds = [[kind for _, kind, _ in events] for events in contacts(shown)]
    steps = {n: np.mean([k.count("step") for k in kinds[6 * i : 6 * i + 6]]) for i, n in enumerate(names)}
    assert steps["walk"] >= 3
    assert steps["run"] >= 5
    assert steps["hop"] >= 3
    assert steps["jump"] >= 0.8
    assert sum("thud" in k for k in kinds[24:]) >= 5
    assert not any("clap" in k for k in kinds[:18])


def test_a_phone_call_is_quiet():
    shown = perform([number("phone_call")] * 6, PEOPLE, 1)
    assert not any(contacts(shown))
    assert np.abs(sound(shown, 8000, 1)).max() < 0.1
    assert np.abs(sound(shown, 8000, 1, room_noise=0.0)).max() == 0.0


def test_sound_is_a_function_of_its_seed_and_not_of_the_batch():
    shown = perform([number("clap"), number("walk"), number("knock")], PEOPLE[:3], 1)
    whole = sound(shown, 4000, 2)
    assert whole.tobytes() == sound(shown, 4000, 2).tobytes()
    np.testing.assert_array_equal(sound(shown[1:2], 4000, 2), whole[1:2])
    assert np.abs(whole).max() <= 1.0
