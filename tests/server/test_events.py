"""The asynchronous loop: staleness, ties, losses, buffers, and exact resume with updates in flight."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedaction.engines.sequential import SequentialEngine
from fedaction.federation.state import Update
from fedaction.federation.tree import tree_bytes
from fedaction.methods.start import initial_state
from fedaction.runs.checkpoint import load_checkpoint
from fedaction.runs.recipe import parse_recipe
from fedaction.runs.study import run_study
from tests.conftest import VECTORS, vector_clients
from tests.runs.test_single import Done, carry_out, same

EDGE = {**VECTORS, "method": "edge", "lr": 0.1, "batch_size": 4}
NAMES = [f"client-{i}" for i in range(5)]


def fleet(folder: Path, *lines: str) -> str:
    path = folder / "fleet.toml"
    tables = [f"[kind{i}]\n{line}" for i, line in enumerate(lines)]
    path.write_text("\n".join(tables))
    return str(path)


def run(folder: Path, **settings: object) -> Done:
    values = {key: value for key, value in {**EDGE, **settings}.items() if key != "fdarn_sphere"}
    return carry_out(folder, vector_clients((10, 10)), **values)


def arrivals(done: Done) -> list[tuple[str, ...]]:
    """Who was heard in each round of one update."""
    return [tuple(done.clients(round, "train", "updates")) for round in range(1, done.run.recipe.run.rounds + 1)]


def times(done: Done) -> list[float]:
    return [float(row.value or 0) for row in done.rows if row.split == "clock" and row.name == "time"]


def test_the_fast_are_heard_more_often_and_staleness_counts_server_updates(tmp_path):
    # One device answers every 2 s, the other four every 7 s.
    devices = fleet(tmp_path, "seconds_per_epoch = 2", *["seconds_per_epoch = 7"] * 4)
    done = run(tmp_path / "run", devices=devices, rounds=8, updates_per_round=1)
    heard = [name for (name,) in arrivals(done)]
    assert heard == ["client-0"] * 3 + ["client-1", "client-2", "client-3", "client-4"] + ["client-0"]
    assert times(done) == [2, 4, 6, 7, 7, 7, 7, 8]  # ties go by who was asked first
    ages = [done.clients(round, "train", "staleness")[name] for round, name in enumerate(heard, 1)]
    assert ages == [0, 0, 0, 3, 4, 5, 6, 4]
    assert done.state(8).server.version == 8
    assert [{*done.clients(round, "clock", "busy")} for round in range(1, 9)] == [{name} for name in heard]
    busy = {row.client: row.value for row in done.rows if row.name == "busy"}  # the last that is known of each
    assert busy == {"client-0": 8, **dict.fromkeys(NAMES[1:], 7)}


def test_the_server_mixes_as_algorithm_1_says(tmp_path, monkeypatch):
    """w_t = (1 - beta_t) w_(t-1) + beta_t w_new, beta_t = beta (1 + t - tau)^-a, over a whole run, literally."""
    sent: dict[int, Update] = {}
    train = SequentialEngine.train

    def listen(self, jobs):
        jobs = list(jobs)
        for job, update in zip(jobs, train(self, jobs), strict=True):
            sent[job.number] = update
            yield update

    monkeypatch.setattr(SequentialEngine, "train", listen)
    devices = fleet(tmp_path, *[f"seconds_per_epoch = {s}" for s in (2, 3, 5, 7, 11)])
    done = run(tmp_path / "run", devices=devices, rounds=6, updates_per_round=1, mixing=0.6, staleness_a=0.9)
    before = None
    numbers = {name: i for i, name in enumerate(NAMES, 1)}  # the job that each is at
    launched = 5
    for round, (name,) in enumerate(arrivals(done), 1):
        state = done.state(round)
        update = sent[numbers[name]]
        if before is not None:
            beta = 0.6 * (1 + before.server.version - update.version) ** -0.9
            for key, value in state.server.shared.items():
                literal = (1 - beta) * before.server.shared[key] + beta * update.tree[key]
                torch.testing.assert_close(value, literal, rtol=1e-5, atol=1e-6)
        launched += 1
        numbers[name], before = launched, state


def test_nothing_moves_when_everyone_returns_what_it_was_sent(tmp_path, monkeypatch):
    def idle(_, jobs):
        for job in jobs:
            tree = {n: t.clone() for n, t in job.payload.items()}
            yield Update(job.client, job.group, job.version, tree, 1.0, occasion=job.occasion)

    monkeypatch.setattr(SequentialEngine, "train", idle)
    done = run(tmp_path, rounds=3)
    first, last = initial_state(done.run.assembly.method, 0), done.state(3).server
    assert same(first.shared, last.shared)
    assert last.version == 15  # a round is as many updates as there are clients


@pytest.mark.parametrize("method", ["edge", "fedbuff"])
def test_the_result_does_not_depend_on_how_many_jobs_are_trained_at_a_time(tmp_path, method):
    """Though the learning rate falls from round to round: a job has that of the round it was given out in."""
    devices = fleet(tmp_path, *[f"seconds_per_epoch = {s}" for s in (2, 3, 5, 7, 30)])
    settings = {"method": method, "devices": devices, "rounds": 5, "updates_per_round": 2, "lr_decay": 0.5}
    if method == "fedbuff":
        settings["buffer"] = 2
    one, four = (run(tmp_path / f"{n}", **settings, workers=n) for n in (1, 4))
    assert same(one.state(5).server.shared, four.state(5).server.shared)
    assert (one.folder / "metrics.jsonl").read_bytes() == (four.folder / "metrics.jsonl").read_bytes()
    stacked = run(tmp_path / "stacked", **settings, engine="vectorised")
    for name, tensor in one.state(5).server.shared.items():
        torch.testing.assert_close(stacked.state(5).server.shared[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
@pytest.mark.parametrize("method", ["edge", "fedbuff"])
def test_a_run_stopped_after_any_round_goes_on_to_the_same_bytes(tmp_path, method, engine):
    settings = {
        "method": method,
        "engine": engine,
        "rounds": 4,
        "updates_per_round": 3,
        "seconds_per_sample": 0.1,
        "speed_spread": 1.0,
        "classifier": "local",
        **({"buffer": 2} if method == "fedbuff" else {}),
    }
    whole = run(tmp_path / "whole", **settings)
    for stop in (1, 2, 3):
        folder = tmp_path / f"stopped-{stop}"
        with pytest.raises(KeyboardInterrupt):
            run(folder, **settings, interrupt_after=stop)
        state = load_checkpoint(folder / "checkpoints", f"round-{stop:06d}").federation
        assert state.flights and all(flight.span.finish >= state.time for flight in state.flights)
        run(folder, **settings)
        for name in ("metrics.jsonl", "checkpoints/round-000004.json", "checkpoints/round-000004.safetensors"):
            assert (whole.folder / name).read_bytes() == (folder / name).read_bytes(), name


def test_a_checkpoint_holds_one_copy_of_a_model_that_many_were_sent(tmp_path):
    done = run(tmp_path, rounds=1, updates_per_round=1, workers=1)
    record = json.loads((tmp_path / "checkpoints" / "round-000001.json").read_text())
    pending = [flight for flight in done.state(1).federation.flights if flight.update is None]
    # Four were sent the first model, one the second, which is the server's own.
    assert len(pending) == 5 and len(record["aliases"]) == 4 * len(pending[0].job.payload)
    size = (tmp_path / "checkpoints" / "round-000001.safetensors").stat().st_size
    assert size < 4 * tree_bytes(pending[0].job.payload)


def test_lost_answers_are_asked_for_again_and_vanished_devices_are_not_waited_for(tmp_path):
    devices = fleet(
        tmp_path,
        "seconds_per_epoch = 2\nfailure_rate = 0.5",
        "seconds_per_epoch = 3\nvanishes = 7",
        *["seconds_per_epoch = 4"] * 3,
    )
    done = run(tmp_path / "run", devices=devices, rounds=6)
    heard = [set(done.clients(round, "train", "updates")) for round in range(1, 7)]
    assert "client-1" in heard[0] and all("client-1" not in names for names in heard[2:])
    lost = [done.server(round, "dropped") for round in range(1, 7)]
    assert sum(int(n or 0) for n in lost) > 0 and all("client-3" in names for names in heard)


def test_when_all_have_vanished_the_run_says_so(tmp_path):
    devices = fleet(tmp_path, "seconds_per_epoch = 2\nvanishes = 5")
    with pytest.raises(RuntimeError, match="no client is left that will ever answer"):
        run(tmp_path / "run", devices=devices, rounds=6)


def test_updates_that_are_too_old_or_not_finite_are_refused_and_the_run_goes_on(tmp_path, monkeypatch):
    devices = fleet(tmp_path, "seconds_per_epoch = 1", *["seconds_per_epoch = 10"] * 4)
    done = run(tmp_path / "old", devices=devices, rounds=14, updates_per_round=1, oldest_update=5)
    assert {name for (name,) in arrivals(done)} == {"client-0"}
    assert any("9 server updates old; 5 is the most" in text for text in done.heard.said)
    train = SequentialEngine.train

    def poison(self, jobs):
        for update in train(self, jobs):
            bad = {name: torch.full_like(tensor, math.nan) for name, tensor in update.tree.items()}
            yield replace(update, tree=bad) if update.client == "client-0" else update

    monkeypatch.setattr(SequentialEngine, "train", poison)
    done = run(tmp_path / "bad", devices=devices, rounds=2)
    assert all("client-0" not in done.clients(round, "train", "updates") for round in (1, 2))
    assert all(torch.isfinite(t).all() for t in done.state(2).server.shared.values())


def test_with_fewer_at_once_idle_clients_take_their_turn(tmp_path):
    done = run(tmp_path, rounds=10, clients_per_round=2)
    assert all(len(done.state(round).federation.flights) == 2 for round in range(1, 11))
    heard = {name for round in range(1, 11) for name in done.clients(round, "train", "updates")}
    assert heard == set(NAMES)


def test_a_buffer_is_combined_when_it_is_full(tmp_path):
    done = run(tmp_path, method="fedbuff", buffer=3, rounds=2, updates_per_round=4)
    # Four accepted updates do not fill a second buffer of three: the round goes on to six.
    assert [done.server(round, "participants") for round in (1, 2)] == [6, 6]
    assert [done.state(round).server.version for round in (1, 2)] == [2, 4]


def test_clients_that_come_late_have_no_rounds_to_come_late_to(tmp_path):
    stage = {"stage_clients": 2, "stage_train": [4], "stage_test": 2, "frames": 8}
    recipe = parse_recipe({"method": "edge", "late": ["stage-0-kinect_v2"], "rounds": 1, **stage})
    with pytest.raises(ValueError, match="late: method edge has no rounds"):
        run_study(recipe, tmp_path / "x")


def test_the_clock_of_a_synchronous_run_waits_for_the_slowest(tmp_path):
    devices = fleet(tmp_path, "seconds_per_epoch = 2", *["seconds_per_epoch = 7"] * 4)
    done = run(tmp_path / "run", method="fedavg", devices=devices, rounds=3, local_epochs=2)
    assert times(done) == [14, 28, 42]
    assert done.clients(3, "clock", "busy") == {"client-0": 12, **dict.fromkeys(NAMES[1:], 42)}


def test_a_slow_device_does_fewer_epochs_and_the_round_says_how_many_were_done(tmp_path):
    devices = fleet(tmp_path, "seconds_per_epoch = 2", *["seconds_per_epoch = 7"] * 4)
    done = run(tmp_path / "run", method="fedavg", devices=devices, rounds=1, local_epochs=7, least_epochs=1)
    assert done.server(1, "epochs") == 7 + 4 * 2


@pytest.mark.parametrize(("method", "expected"), [("fedavg", [11, 22]), ("edge", [6, 11])])
def test_devices_that_test_what_they_are_sent_take_their_time_for_it(tmp_path, method, expected):
    """Two seconds of training and four of a test, or seven and four: in rounds, and one by one."""
    slow = ["seconds_per_epoch = 7\ntest_seconds = 4"] * 4
    devices = fleet(tmp_path, "seconds_per_epoch = 2\ntest_seconds = 4", *slow)
    own = {"updates_per_round": 1} if method == "edge" else {}
    done = run(tmp_path / "run", method=method, devices=devices, rounds=2, clock_tests=True, **own)
    assert times(done) == expected
