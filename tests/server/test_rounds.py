from dataclasses import dataclass

from fedaction.federation.clock import Clock, Device, spread_devices
from fedaction.server.schedule import Participation


@dataclass(frozen=True)
class Person:
    id: str
    group: str = "g"
    samples: int = 100


PEOPLE = [Person(f"p{i:02d}") for i in range(20)]


def test_selection_is_derived_and_does_not_depend_on_the_order_of_clients():
    rounds = Participation(seed=4, per_round=5)
    plans = [rounds.choose(r, PEOPLE) for r in range(1, 30)]
    assert plans == [rounds.choose(r, PEOPLE[::-1]) for r in range(1, 30)]
    assert all(len(p.chosen) == 5 and list(p.chosen) == sorted(p.chosen) for p in plans)
    assert len({p.chosen for p in plans}) > 20
    assert {c for p in plans for c in p.chosen} == {p.id for p in PEOPLE}
    assert Participation(seed=5, per_round=5).choose(1, PEOPLE) != plans[0]


def test_everyone_is_asked_by_default():
    plan = Participation(seed=0).choose(1, PEOPLE)
    assert plan.chosen == plan.working == tuple(p.id for p in PEOPLE)


def test_drop_outs_come_at_the_given_rate_and_do_not_work():
    rounds = Participation(seed=1, failure_rate=0.3)
    plans = [rounds.choose(r, PEOPLE) for r in range(1, 101)]
    rate = sum(len(p.dropped) for p in plans) / 2000
    assert 0.26 < rate < 0.34
    assert all(not set(p.working) & set(p.dropped) for p in plans)


def test_slow_clients_miss_the_deadline_again_and_again():
    samples = {person.id: person.samples for person in PEOPLE}
    clock = Clock(2, spread_devices(2, samples, seconds_per_sample=0.01, spread=0.5), samples)
    rounds = Participation(seed=2, deadline=1.0, clock=clock)
    late = [set(rounds.choose(r, PEOPLE).late) for r in range(1, 21)]
    often = {c for c in late[0] if sum(c in names for names in late) > 15}
    assert often and all(len(names) < 20 for names in late)
    assert not Participation(seed=2, deadline=1e6, clock=clock).choose(1, PEOPLE).late


def test_a_round_ends_with_its_slowest_client_or_at_the_deadline():
    devices = {"a": Device(seconds_per_epoch=5.0), "b": Device(seconds_per_epoch=80.0), "c": Device(vanishes=3.0)}
    people = [Person(name) for name in devices]
    clock = Clock(0, devices, dict.fromkeys(devices, 1000), epochs=2)
    plan = Participation(seed=0, clock=clock).choose(1, people, start=100.0)
    assert plan.end == 260.0 and plan.dropped == ("c",) and plan.working == ("a", "b")
    assert {name: span.busy for name, span in plan.spans.items()} == {"a": 10.0, "b": 160.0, "c": 0.0}
    plan = Participation(seed=0, clock=clock, deadline=30.0).choose(1, people, start=100.0)
    assert plan.end == 130.0 and plan.late == ("b",)
