"""Seconds of sections, by a clock that the test moves."""

import threading

import pytest

from fedaction.federation.profile import NOTHING, Profile, say_profile


class Clock:
    now = 0.0

    def __call__(self):
        return self.now

    def run(self, seconds):
        self.now += seconds


def seconds(profile):
    return {row.name: row.seconds for row in profile.record().sections}


def test_a_section_has_its_own_seconds_and_all_sum_to_the_wall_time():
    clock = Clock()
    profile = Profile(clock)
    clock.run(1)
    with profile.section("data"):
        clock.run(2)
    for round in range(1, 5):
        profile.begin("run", round)
        with profile.section("combining"):
            clock.run(1)
            with profile.section("steps"):
                clock.run(8 if round > 2 else 30)
            clock.run(0.5)
        with profile.section("test"):
            clock.run(0.5)
    profile.begin("run", 0)
    clock.run(4)
    record = profile.record()
    assert seconds(profile) == {"steps": 76, "combining": 6, "other": 5, "data": 2, "test": 2}
    assert sum(seconds(profile).values()) == record.wall == clock.now == 91
    assert (record.rounds, record.first, record.last, record.steps) == (4, 3, 4, 0.8)
    assert {row.name: row.per_round for row in record.sections}["steps"] == 19
    lines = say_profile(record).splitlines()
    assert lines[1].split() == ["steps", "76.000", "83.5%", "19.0000"]
    assert lines[-1] == "training steps: 80 % of rounds 3 to 4"


def test_seconds_of_waiting_go_to_what_other_threads_did():
    clock = Clock()
    profile = Profile(clock)
    profile.begin("run", 1)

    def work():
        with profile.section("load"):
            clock.run(1)
        clock.run(5)  # nothing of ours
        with profile.section("steps"):
            clock.run(3)

    with profile.section("combining"):
        clock.run(1)
        with profile.waiting():
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    assert seconds(profile) == pytest.approx({"steps": 9 * 3 / 4, "load": 9 / 4, "combining": 1, "other": 0})
    assert profile.record().wall == 10


def test_a_gpu_is_waited_for_at_the_end_of_a_section_even_of_one_that_fails():
    clock = Clock()
    profile = Profile(clock, settle=lambda: clock.run(2))
    with pytest.raises(ValueError, match="wrong"), profile.section("steps"):
        raise ValueError("wrong")
    clock.run(1)
    assert seconds(profile) == {"steps": 2, "other": 1}


def test_whoever_asked_for_no_profile_has_an_empty_one():
    with NOTHING.section("steps"), NOTHING.waiting():
        NOTHING.begin("run", 1)
    assert NOTHING.record().sections == () and NOTHING.record().steps is None


def test_of_few_rounds_the_last_counts_and_of_several_runs_all():
    clock = Clock()
    profile = Profile(clock)
    for run, rounds in (("a", 1), ("b", 3)):
        for round in range(1, rounds + 1):
            profile.begin(run, round)
            with profile.section("steps"):
                clock.run(1)
            clock.run(1 if round == rounds else 9)
    record = profile.record()
    assert (record.first, record.last, record.steps) == (1, 3, 0.5)
