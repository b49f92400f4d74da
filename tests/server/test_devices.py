"""Device profiles, and what the paper's Table IV says of time."""

from pathlib import Path

import pytest

from fedaction.federation.clock import Clock
from fedaction.federation.settings import RecipeError
from fedaction.federation.state import Job
from fedaction.server.devices import FLEETS, deal_devices, fleet_of, share_work
from fedaction.server.flights import Flight, InFlight
from fedaction.server.schedule import Participation, Turns


class Person:
    group, samples = "video", 100

    def __init__(self, id: str) -> None:
        self.id = id


PEOPLE = [Person(f"camera-{i}") for i in range(4)]


def clock_of(fleet: str, epochs: int = 1) -> Clock:
    names = [person.id for person in PEOPLE]
    return Clock(0, deal_devices(FLEETS[fleet], names), dict.fromkeys(names, 100), epochs)


def synchronous(fleet: str, rounds: int) -> float:
    schedule, time = Participation(seed=0, clock=clock_of(fleet)), 0.0
    for round in range(1, rounds + 1):
        time = schedule.choose(round, PEOPLE, time).end
    return time


def asynchronous(fleet: str, updates: int) -> tuple[float, dict[str, int]]:
    """When so many updates have come, and how many of them from each client."""
    clock, first = clock_of(fleet), Turns(0).first(PEOPLE)

    def flight(client: str, number: int, now: float) -> Flight:
        return Flight(Job(client, "video", 0, 1, {}, number), clock.span(client, number, now))

    flights = InFlight(flight(c, n, 0.0) for n, c in enumerate(first, 1))
    count, number, time = dict.fromkeys((p.id for p in PEOPLE), 0), len(first), 0.0
    for _ in range(updates):
        landed = flights.land()
        client, time, number = landed.job.client, landed.span.finish, number + 1
        count[client] += 1
        flights.add(flight(client, number, time))
    return time, count


@pytest.mark.parametrize(("fleet", "sync", "async_"), [("jetson_hmdb51", 8.69, 3.42), ("jetson_ucf101", 59.8, 23.3)])
def test_equal_work_takes_61_per_cent_less_time(fleet, sync, async_):
    """4 clients x 80 local epochs each, in hours; the paper reports 40 % less, which its Table IV does not give."""
    together, apart = synchronous(fleet, 80) / 3600, asynchronous(fleet, 320)[0] / 3600
    assert together == pytest.approx(sync, abs=0.01 * sync) and apart == pytest.approx(async_, abs=0.01 * async_)
    assert 1 - apart / together == pytest.approx(0.61, abs=0.005)


def test_eighty_server_updates_take_a_tenth_and_come_mostly_from_the_fast():
    time, count = asynchronous("jetson_hmdb51", 80)
    assert time / 3600 == pytest.approx(0.866, abs=0.01)  # 52 minutes
    assert 1 - time / 3600 / 8.69 == pytest.approx(0.90, abs=0.005)
    assert sorted(count.values()) == [8, 10, 25, 37]


def test_the_paper_reports_the_time_of_eighty_epochs_on_its_second_slowest_device():
    tx2 = FLEETS["jetson_hmdb51"].devices[1]
    assert 80 * tx2.seconds_per_epoch / 3600 == pytest.approx(6 + 31 / 60, abs=0.01)


def test_profiles_from_a_file(tmp_path: Path):
    path = tmp_path / "fleet.toml"
    path.write_text(
        "[camera]\nseconds_per_sample = 0.2\nupload_mbit = 8\ndownload_mbit = 80\njitter = 0.1\ncount = 2\n"
        "[hub]\nseconds_per_epoch = 4\nvanishes = 100\n[server]\nseconds_per_sample = 0.01\n"
    )
    fleet = fleet_of(str(path))
    assert [device.name for device in fleet.devices] == ["camera", "camera", "hub"]
    assert fleet.devices[0].upload == 1e6 and fleet.devices[0].download == 1e7 and fleet.devices[2].vanishes == 100
    dealt = deal_devices(fleet, ["b", "a", "d", "c", "everyone"], ["everyone"])
    assert [dealt[name].name for name in "abcd"] == ["camera", "camera", "hub", "camera"]
    assert dealt["everyone"].name == "server"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a]\nseconds_per_sampl = 1", "seconds_per_sampl"),
        ("[a]\nseconds_per_epoch = -1", "greater than or equal to 0"),
        ("[a]\njitter = 0.1", "needs seconds_per_sample or seconds_per_epoch"),
        ("a = 1", "'a' is not a table"),
        ("", "names no device"),
        ("[a", "not valid TOML"),
    ],
)
def test_bad_profiles_are_refused(tmp_path: Path, text: str, message: str):
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    with pytest.raises(RecipeError, match=message):
        fleet_of(str(path))


def test_unknown_fleets_are_refused():
    with pytest.raises(RecipeError, match="did you mean 'jetson_hmdb51'"):
        fleet_of("jetson_hmdb")


def test_slower_devices_are_asked_for_less():
    """As many epochs as each does while the fastest does eight; the slowest would do 1.7, and 0.2 of five hundred."""
    names = ["a", "b", "c", "d"]
    devices = deal_devices(FLEETS["jetson_hmdb51"], names)  # 391.1, 293.1, 121.3 and 84.5 s an epoch
    samples = dict.fromkeys(names, 100)
    assert share_work(devices, samples, 1, 8) == {"a": 1, "b": 2, "c": 5, "d": 8}
    assert share_work(devices, samples, 3, 8) == {"a": 3, "b": 3, "c": 5, "d": 8}
    assert set(share_work(devices, samples, 8, 8).values()) == {8}
    clock = Clock(0, devices, samples, 8, own_epochs=share_work(devices, samples, 1, 8))
    spans = {name: clock.span(name, 1).busy for name in names}
    assert max(spans.values()) == spans["d"] == pytest.approx(8 * 84.5)
