"""Asynchronous methods between real processes: one site is really slow, sites and server are really killed."""

import os
import re
import signal
from collections import Counter, deque
from math import hypot
from statistics import fmean

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'fedaction[flower]'")

from fedaction.federation.progress import Quiet
from fedaction.federation.seeds import numpy_generator
from fedaction.runs.checkpoint import latest_checkpoint
from fedaction.runs.metrics import read_rows
from fedaction.runs.single import SingleRun
from fedaction.runs.study import summary
from tests.engines.flower.places import HousePost, make_like_stores, make_recipe, make_stores, simulated
from tests.engines.flower.processes import Machine
from tests.engines.flower.test_contract import compare_tensors
from tests.engines.flower.test_live import Town

pytestmark = pytest.mark.slow


def skeletons(folder, seed):
    """Places, a recipe that learns their three actions whatever the order of answers, and the share of guesses.

    All tensors are shared: statistics of its own would be as old, at the slow one, as its last answer.
    """
    paths = make_like_stores(folder, recordings=240, frames=16)
    more = {"classifier": "shared", "buffers": "average", "model_width": 8, "augment": False, "frames": 16}
    more |= {"optimiser": "adam", "lr": 0.01, "lr_decay": 0.85, "local_epochs": 3, "batch_size": 16, "seeds": [seed]}
    return paths, {**more, "rounds": 12, "evaluate_every": 4}, 1 / 3


def count_answers(state):
    """How often each site has answered: it was asked once more, and was at that job when the run was over."""
    assert {flight.job.client for flight in state.flights} == {*state.visits}
    return {name: asked - 1 for name, asked in state.visits.items()}


def write_devices(path, state, epochs, factors):
    """The devices of a virtual clock, as fast as each site really was: seconds from a question to its answer."""
    answered = count_answers(state)
    seconds = {name: state.busy[name] / answered[name] / epochs for name in sorted(answered)}
    lines = (f"[{name}]\nseconds_per_epoch = {seconds[name] * f}\n" for name, f in zip(seconds, factors, strict=True))
    path.write_text("".join(lines))
    return str(path)


def simulate(paths, more, state, folder, seed, draw):
    """A run on the virtual clock, and how often it asked each site.

    The first has the sites' own speeds; in others they differ by about 15 %, so that answers come in other orders.
    """
    factors = np.exp(0.15 * numpy_generator(seed, "speeds", draw).normal(size=3)) if draw else np.ones(3)
    folder.mkdir()
    devices = write_devices(folder / "devices.toml", state, more["local_epochs"], factors)
    recipe = make_recipe(paths, "edge", **more, devices=devices)
    SingleRun(recipe, simulated(recipe), folder / "run", Quiet()).execute()
    end = latest_checkpoint(folder / "run" / "checkpoints", folder / "run" / "metrics.jsonl")
    return summary(recipe, folder / "run"), end.federation.visits


def read_order(machine, state):
    """The clients in the order in which the server mixed in their updates, by what each site's log says.

    A site's next job is of the version that its own last update made.
    """
    names = {}
    for name in state.visits:
        for version in re.findall(r": training from version (\d+)", machine.read_log(name)):
            assert names.setdefault(int(version), name) == name or version == "0"
    order = [names.get(version, "") for version in range(1, state.server.version + 1)]
    left = Counter(count_answers(state)) - Counter(order)  # of the last version: its maker did not begin with it
    assert order.count("") == left.total() <= 1
    return [name or next(iter(left)) for name in order]


class InOrder(HousePost):
    """A `HousePost` that lets updates arrive in a given order; then all."""

    def __init__(self, sites, order):
        super().__init__(sites)
        self._order, self._about = deque(order), {}

    def send(self, messages):
        ids = super().send(messages)
        self._about |= {id: (self.sites[node].name, kind) for id, (node, kind, _) in zip(ids, messages, strict=True)}
        return ids

    def collect(self, ids):
        wanted = [id for id in ids if not self._order or self._about[id][1] != "train"]
        if first := [id for id in ids if self._order and self._about[id] == (self._order[0], "train")]:
            self._order.popleft()
        return super().collect([*wanted, *first])


@pytest.mark.parametrize("seed", [4, 5, 6])
def test_the_fast_do_not_wait_and_all_come_to_what_the_virtual_clock_comes_to(tmp_path, seed):
    paths, more, chance = skeletons(tmp_path, seed)
    recipe = make_recipe(paths, "edge", **more)
    with Machine(tmp_path, paths, recipe) as machine:
        machine.serve("--sites", "3")
        for name in paths:
            machine.join(name)
        machine.wait(lambda news: any(line["kind"] == "start" for line in news))
        with machine.slow("home", work=0.08):  # where a job is short, more than half of its time is none of its own
            machine.wait_for_round(12, 900)
        machine.finish(600)
    state = latest_checkpoint(machine.run / "checkpoints", machine.run / "metrics.jsonl").federation
    rows = read_rows(machine.run / "metrics.jsonl")
    assert 1 < 2 * state.visits["home"] < min(state.visits["clinic"], state.visits["gym"])
    assert sum(state.visits.values()) == state.launched and state.server.version == 36
    ages = {row.client: row.value for row in rows if row.name == "staleness_max"}
    assert "home" not in ages or ages["home"] >= 2  # others were heard while it worked
    times = [row.value for row in rows if (row.split, row.name) == ("clock", "time")]
    assert times == sorted(times) and times[0] > 0
    tested = {(row.round, row.client) for row in rows if (row.split, row.name) == ("test", "accuracy")}
    assert tested >= {(12, name) for name in paths}

    town = Town(paths, recipe, tmp_path / "again")  # the same sites in this process, heard in the same order
    town.exchange.post = InOrder(town.sites, read_order(machine, state))
    town.execute()
    compare_tensors(town.run, machine.run)

    runs = [simulate(paths, more, state, tmp_path / f"virtual-{draw}", seed, draw) for draw in range(6)]
    real, means = summary(recipe, machine.run), [result["mean"] for result, _ in runs]
    half = [(result["interval"][1] - result["interval"][0]) / 2 for result in (real, runs[0][0])]
    asked = [dict(state.visits), dict(runs[0][1])]
    print(f"seed {seed}: real {real['mean']:.3f}, virtual {np.round(means, 3)}, half {np.round(half, 3)}, {asked}")
    assert abs(real["mean"] - fmean(means)) <= hypot(*half), (real["mean"], means, half)
    assert real["interval"][0] > chance
    # As unequal as they really were: the slow one is asked about as seldom.
    shares = [one["home"] / sum(one.values()) for one in asked]
    assert abs(shares[0] - shares[1]) < 0.1, shares


def test_a_site_the_server_app_and_the_server_are_killed_and_no_job_is_counted_twice(tmp_path):
    paths = make_stores(tmp_path)
    recipe = make_recipe(paths, "fedbuff", buffer=2, classifier="local", rounds=8, evaluate_every=4)
    with Machine(tmp_path, paths, recipe) as machine:
        machine.serve("--sites", "3")
        for name in paths:
            machine.join(name)
        machine.wait_for_round(2)
        machine.kill("gym")
        machine.join("gym")
        machine.wait_for_round(4)
        os.kill(machine.news()[-1]["pid"], signal.SIGKILL)  # the server app; `serve` hands it in again
        machine.wait_for_round(6)
        machine.kill("server")
        machine.serve(resume=True)
        machine.finish()
    end = latest_checkpoint(machine.run / "checkpoints", machine.run / "metrics.jsonl")
    state, rows = end.federation, read_rows(machine.run / "metrics.jsonl")
    updates = sum(row.value for row in rows if (row.split, row.name) == ("train", "updates"))
    dropped = sum(row.value for row in rows if row.name == "dropped")
    assert state.round == 8 and state.server.version * 2 == updates == 32  # four a round: two buffers
    assert state.launched == sum(state.visits.values()) == updates + dropped + len(state.flights)
    kept = [int(tree["job"]) for tree in end.locals.committed.values()]
    flying = [flight.job.number for flight in state.flights]
    assert len({*kept, *flying}) == len(kept) + len(flying) and max(kept + flying) == state.launched
    times = [row.value for row in rows if (row.split, row.name) == ("clock", "time")]
    assert times == sorted(times) and len(times) == 8
