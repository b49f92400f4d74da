import pytest
import torch

from fedaction.bench import events as module
from fedaction.bench.events import bench_events, held_bytes
from fedaction.server.events import Events

SMALL = {"samples": 4, "batch_size": 2, "features": 6, "classes": 3}


def test_the_parts_of_the_time_make_up_the_whole():
    ticks = []
    found = bench_events(8, 40, **SMALL, tick=ticks.append)
    assert ticks == ["warming up", "measuring"] and (found["devices"], found["updates"]) == (8, 40)
    seconds = found["seconds"]
    parts = [seconds[name] for name in ("training", "combining", "bookkeeping")]
    assert min(parts) > 0 and sum(parts) == pytest.approx(seconds["whole"])
    assert found["updates_per_second"] * seconds["whole"] == pytest.approx(40)
    assert found["updates_per_second_untrained"] > found["updates_per_second"]
    assert found["bookkeeping_share"] == pytest.approx(seconds["bookkeeping"] / seconds["whole"])
    assert found["microseconds"]["training"] == pytest.approx(1e6 * seconds["training"] / 40)


def test_it_is_the_schedule_that_runs_use_with_the_papers_classifier(monkeypatch):
    states = []
    advance = Events.advance

    def listen(self, *arguments):
        states.append(advance(self, *arguments)[0])
        return states[-1], []

    monkeypatch.setattr(module.Events, "advance", listen)
    found = bench_events(4, 6, samples=2)
    assert found["parameters"] == 26_163
    first, last = states
    assert (first.server.version, last.server.version) == (4, 10) and last.time == found["virtual_seconds"] > 0
    assert len(last.flights) == 4 and {flight.job.client for flight in last.flights} == set(last.visits)
    # The four kinds take 391, 293, 121 and 85 s: the faster, the more often asked.
    assert list(last.visits.values()) == sorted(last.visits.values()) and last.visits["device-00003"] > 2
    assert not torch.equal(last.server.shared["weight"], first.server.shared["weight"])
    # What is held: the server's model, and one that each flight started from; one of them is also there as trained.
    assert found["held_bytes"] == held_bytes(last) and 4 <= found["held_bytes"] / (4 * 26_163) <= 6


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="at least 1"):
        bench_events(0)
