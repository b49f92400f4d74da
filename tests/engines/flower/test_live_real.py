"""Asynchronous methods between real processes: one site is really slow, sites and server are really killed."""

import os
import signal
from math import hypot

import pytest

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'fedaction[flower]'")

from fedaction.federation.progress import Quiet
from fedaction.runs.checkpoint import latest_checkpoint
from fedaction.runs.metrics import read_rows
from fedaction.runs.single import SingleRun
from fedaction.runs.study import summary
from tests.engines.flower.places import make_like_stores, make_recipe, make_stores, simulated
from tests.engines.flower.processes import Machine

pytestmark = pytest.mark.slow


def skeletons(folder, seed):
    """Places, a recipe that learns their three actions whatever the order of answers, and the share of guesses.

    All tensors are shared: statistics of its own would be as old, at the slow one, as its last answer.
    """
    paths = make_like_stores(folder, recordings=240, frames=16)
    more = {"classifier": "shared", "buffers": "average", "model_width": 8, "augment": False, "frames": 16}
    more |= {"optimiser": "adam", "lr": 0.01, "lr_decay": 0.85, "local_epochs": 3, "batch_size": 16, "seeds": [seed]}
    return paths, {**more, "rounds": 12, "evaluate_every": 4}, 1 / 3


def write_devices(path, state, epochs):
    """The devices of a virtual clock, as fast as each site really was: seconds from a question to its answer."""
    seconds = {name: state.busy[name] / state.visits[name] / epochs for name in sorted(state.visits)}
    path.write_text("".join(f"[{name}]\nseconds_per_epoch = {value}\n" for name, value in seconds.items()))
    return str(path)


@pytest.mark.parametrize("seed", [4, 5, 6])
def test_the_fast_do_not_wait_and_all_come_to_what_the_virtual_clock_comes_to(tmp_path, seed):
    paths, more, chance = skeletons(tmp_path, seed)
    recipe = make_recipe(paths, "edge", **more)
    with Machine(tmp_path, paths, recipe) as machine:
        machine.serve("--sites", "3")
        for name in paths:
            machine.join(name)
        machine.wait(lambda news: any(line["kind"] == "start" for line in news))
        with machine.slow("home"):
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

    devices = write_devices(tmp_path / "devices.toml", state, recipe.run.local_epochs)
    virtual_recipe = make_recipe(paths, "edge", **more, devices=devices)
    SingleRun(virtual_recipe, simulated(virtual_recipe), tmp_path / "simulated", Quiet()).execute()
    visits = latest_checkpoint(
        tmp_path / "simulated/checkpoints", tmp_path / "simulated/metrics.jsonl"
    ).federation.visits
    real, virtual = summary(recipe, machine.run), summary(virtual_recipe, tmp_path / "simulated")
    half = [(result["interval"][1] - result["interval"][0]) / 2 for result in (real, virtual)]
    print(f"seed {seed}: real {real['mean']:.3f} {state.visits}, virtual {virtual['mean']:.3f} {visits}, half {half}")
    assert abs(real["mean"] - virtual["mean"]) <= hypot(*half), (real["mean"], virtual["mean"], half)
    assert real["interval"][0] > chance
    # As unequal as they really were: the slow one is asked about as seldom.
    shares = [one["home"] / sum(one.values()) for one in (state.visits, visits)]
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
