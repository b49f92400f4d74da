"""The virtual clock: transfers, jitter, rests and losses, all derived."""

import math

import pytest

from fedaction.federation.clock import Clock, Device, spread_devices


def clock(device: Device, samples: int = 100, epochs: int = 1, traffic: int = 0, seed: int = 0) -> Clock:
    return Clock(seed, {"a": device}, {"a": samples}, epochs, {"a": traffic})


def test_a_job_is_training_and_two_transfers():
    device = Device(seconds_per_sample=0.5, download=1000.0, upload=100.0, latency=0.25)
    span = clock(device, samples=20, epochs=3, traffic=5000).span("a", 1, start=7.0)
    assert span.busy == 20 * 0.5 * 3 + 5.0 + 50.0 + 0.5
    assert span.finish == 7.0 + span.busy and not span.lost
    assert clock(Device(seconds_per_epoch=9.0), samples=20, epochs=3).span("a", 1).finish == 27.0


def test_what_is_installed_goes_down_once_with_the_first_job():
    devices = {"a": Device(seconds_per_epoch=1.0, download=1000.0, upload=100.0)}
    timed = Clock(0, devices, {"a": 1}, traffic={"a": 200}, installed={"a": 5000})
    assert timed.span("a", 1).busy == pytest.approx(1.0 + 0.2 + 2.0)
    assert timed.span("a", 1, first=True).busy == pytest.approx(1.0 + 5.2 + 2.0)


def test_jitter_is_drawn_for_each_job_and_stays_the_same():
    found = clock(Device(seconds_per_epoch=10.0, jitter=0.3))
    times = [found.span("a", number).busy for number in range(1, 400)]
    assert times == [found.span("a", number).busy for number in range(1, 400)]
    logs = [math.log(t / 10) for t in times]
    mean = sum(logs) / len(logs)
    assert abs(mean) < 0.05
    assert math.sqrt(sum((x - mean) ** 2 for x in logs) / len(logs)) == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize("availability", [0.3, 0.75])
def test_work_rests_while_a_device_is_off(availability):
    device = Device(seconds_per_epoch=35.0, availability=availability, period=10.0)
    found = clock(device)
    phase = found._phase("a", device)  # pyright: ignore[reportPrivateUsage]
    for start in (0.0, 3.0, 17.5, 123.456):
        # Literally: count a small step as work whenever the device is on.
        t, done, step = start, 0.0, 0.001
        while done < 35.0:
            if ((t - phase) % 10.0) < availability * 10.0:
                done += step
            t += step
        span = found.span("a", 1, start)
        assert span.finish == pytest.approx(t, abs=0.02) and span.busy == 35.0


def test_exactly_one_period_of_work():
    device = Device(seconds_per_epoch=5.0, availability=0.5, period=10.0)
    found = clock(device)
    phase = found._phase("a", device)  # pyright: ignore[reportPrivateUsage]
    assert found.span("a", 1, phase).finish == pytest.approx(phase + 5.0)
    assert found.span("a", 1, phase + 5.0).finish == pytest.approx(phase + 15.0)
    assert found.span("a", 1, phase + 4.0).finish == pytest.approx(phase + 14.0)


def test_answers_are_lost_at_the_given_rate_and_vanished_devices_never_answer():
    lost = [clock(Device(failure_rate=0.2), seed=3).span("a", number).lost for number in range(1000)]
    assert 160 < sum(lost) < 240
    found = clock(Device(seconds_per_epoch=10.0, vanishes=25.0))
    assert not found.span("a", 1, 0.0).lost and not found.span("a", 2, 15.0).lost
    gone = found.span("a", 3, 20.0)
    assert gone.lost and math.isinf(gone.finish) and gone.busy == 5.0


def test_ordinary_devices_differ_as_much_as_asked():
    names = {f"c{i}": 10 for i in range(500)}
    devices = spread_devices(0, names, 0.01, 0.5)
    logs = [math.log(device.seconds_per_sample / 0.01) for device in devices.values()]
    assert math.sqrt(sum(x * x for x in logs) / len(logs)) == pytest.approx(0.5, abs=0.05)
    assert {d.seconds_per_sample for d in spread_devices(0, names, 0.01, 0.0).values()} == {0.01}


def test_a_test_takes_time_only_where_it_is_asked_for():
    device = Device(seconds_per_epoch=10.0, test_seconds=3.0)
    spans = [Clock(0, {"a": device}, {"a": 1}, 2, tests=tests).span("a", 1).busy for tests in (False, True)]
    assert spans == [20.0, 23.0]
