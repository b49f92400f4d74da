"""Asynchronous methods over messages, in real time: sites in this process, on a clock that the test holds."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from fedaction.engines.flower.exchange import Bounce, Exchange, Patience
from fedaction.engines.flower.keep import SiteStore
from fedaction.engines.flower.site import Site
from fedaction.engines.flower.status import STATUS, Watch
from fedaction.federation.progress import Quiet
from fedaction.runs.checkpoint import load_checkpoint
from fedaction.runs.metrics import read_rows
from fedaction.runs.remote import RemoteRun
from fedaction.runs.single import SingleRun
from fedaction.runs.sites import SiteWorkshop, recipe_for_sites
from tests.conftest import few
from tests.engines.flower.places import (
    LatePost,
    SlowClock,
    make_like_stores,
    make_recipe,
    make_sites,
    make_stores,
    simulated,
)
from tests.engines.flower.test_contract import forge_update

TOKEN = "0123456789abcdef" * 2
PACE = {"clinic": 2.0, "gym": 3.0, "home": 7.0}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return make_stores(tmp_path_factory.mktemp("places"))


@pytest.fixture(scope="module")
def alike(tmp_path_factory):
    return make_like_stores(tmp_path_factory.mktemp("places"))


class Told(Quiet):
    """Keeps warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


class Town:
    """A server and its sites. A second one over the same folders is the server, or all of them, started anew."""

    def __init__(self, paths, recipe, folder: Path, seconds=PACE.__getitem__, known=None, **how) -> None:
        self.recipe, self.folder, self.clock, self.told = recipe, folder, SlowClock(), Told()
        self.sites = make_sites(paths, folder / "sites")
        self.post = LatePost(self.sites, self.clock, seconds)
        patience = Patience(**{"answer": 1000.0, "absence": 30.0, "poll": 1.0, **how})
        word = json.dumps(recipe_for_sites(recipe)).encode()
        self.exchange = Exchange(
            self.post, TOKEN, word, patience, self.told.warn, now=self.clock.now, sleep=self.clock.sleep
        )
        self.exchange.joined = dict(known or {})
        self.exchange.gather(3, 60)
        self.exchange.closed = True
        self.clock.time += 1000  # what time it is when a run begins does not matter

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def execute(self) -> None:
        run = self.recipe.run
        watch = Watch(self.folder / STATUS, self.told, 3, run.method, run.rounds)
        RemoteRun(self.recipe, self.exchange, self.run, watch).execute()

    def state(self, round: int):
        return load_checkpoint(self.run / "checkpoints", f"round-{round:06d}").federation

    def rows(self, split: str, name: str, client: str | None = None) -> list[float]:
        rows = read_rows(self.run / "metrics.jsonl")
        wanted = [r for r in rows if (r.split, r.name) == (split, name) and client in (None, r.client)]
        return [row.value for row in wanted]


def make_shared(paths, **more):
    """A recipe whose sites share all tensors."""
    how = {"classifier": "shared", "keep_checkpoints": 50, "batch_size": 16}
    return make_recipe(paths, "edge", **{**how, **more})


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


KINDS = {
    "all at a time": {"method": "edge", "classifier": "shared", "updates_per_round": 2},
    "two at a time": {"method": "edge", "classifier": "local", "clients_per_round": 2},
    "buffered": {"method": "fedbuff", "classifier": "local", "buffer": 2},
}


@pytest.mark.parametrize("kind", few(("all at a time", "buffered"), "two at a time"))
def test_answers_in_the_order_of_the_virtual_clock_make_the_simulated_run(paths, tmp_path, kind):
    """The same jobs, staleness, tensors, times and tests; only the clock is another."""
    more = {**KINDS[kind], "rounds": 4, "keep_checkpoints": 9, "batch_size": 16}
    fleet = tmp_path / "fleet.toml"
    fleet.write_text("\n".join(f"[{name}]\nseconds_per_epoch = {PACE[name]}" for name in sorted(PACE)))
    virtual = make_recipe(paths, devices=str(fleet), **more)
    SingleRun(virtual, simulated(virtual), tmp_path / "simulated", Quiet()).execute()
    town = Town(paths, make_recipe(paths, **more), tmp_path / "real")
    town.execute()
    for round in range(1, 5):
        here, there = town.state(round), load_checkpoint(tmp_path / "simulated/checkpoints", f"round-{round:06d}")
        other = there.federation
        assert same(here.server.shared, other.server.shared) and here.server.version == other.server.version
        assert (here.time, here.visits, here.launched) == (other.time, other.visits, other.launched)
        assert [f.job.number for f in here.flights] == [f.job.number for f in other.flights]
    rows = [{*read_rows(folder / "metrics.jsonl")} for folder in (town.run, tmp_path / "simulated")]
    ours, theirs = ({row for row in each if row.split != "test"} for each in rows)
    assert ours == theirs
    ours, theirs = ({row for row in each if row.split == "test"} for each in rows)
    rounds = {row.round for row in ours}
    assert ours == {row for row in theirs if row.round in rounds}  # whole, of the round's own model
    assert 4 in rounds and len(rounds) > 1


def test_the_server_mixes_what_comes_as_algorithm_1_says(alike, tmp_path):
    """w_t = (1 - beta_t) w_(t-1) + beta_t w_new, beta_t = beta (1 + t - tau)^-a: staleness counted by hand."""
    how = {"mixing": 0.6, "staleness_a": 0.9}
    recipe = make_shared(alike, rounds=9, updates_per_round=1, evaluate_every=9, **how)
    town = Town(alike, recipe, tmp_path)
    town.execute()
    version, asked, last = 0, {}, {}
    ages = []
    for round, (job, update) in enumerate(town.post.updates[:9], 1):
        tau = asked.get(job.client, 0)
        ages.append(version - tau)
        assert job.version == tau
        state = town.state(round)
        beta = 0.6 * (1 + version - tau) ** -0.9
        if round > 1:
            for name, value in state.server.shared.items():
                literal = (1 - beta) * last[name] + beta * update.tree[name]
                torch.testing.assert_close(value, literal, rtol=1e-5, atol=1e-6)
        version, last = version + 1, state.server.shared
        asked[job.client] = version  # it is sent the new model at once
        assert state.server.version == version
    # clinic, gym, clinic, gym (asked before the next), clinic, home, clinic, gym, clinic
    assert town.rows("train", "staleness") == ages == [0, 1, 1, 1, 1, 5, 1, 3, 1]
    assert town.rows("clock", "time") == [2, 3, 4, 6, 6, 7, 8, 9, 10]


def test_the_fast_do_not_wait_for_the_slow_nor_for_its_test(alike, tmp_path):
    pace = {"clinic": 2.0, "gym": 2.0, "home": 100.0}
    recipe = make_shared(alike, rounds=10, updates_per_round=2)
    town = Town(alike, recipe, tmp_path, pace.__getitem__)
    town.execute()
    assert town.rows("clock", "time") == [2.0 * round for round in range(1, 11)]
    assert town.state(10).visits == {"clinic": 11, "gym": 11, "home": 1}
    rows = [row for row in read_rows(town.run / "metrics.jsonl") if (row.split, row.name) == ("test", "accuracy")]
    assert {row.round for row in rows} == {1, 10}  # that of round 1 ended when the slow one had time
    assert [row.client for row in rows if row.round == 1] == ["clinic", "gym", "home"]


@pytest.mark.parametrize("kind", few(("buffered", "all at a time", "two at a time")))
def test_a_server_and_sites_that_resume_from_any_checkpoint_count_no_job_twice(paths, tmp_path, kind):
    recipe = make_recipe(paths, **KINDS[kind], rounds=4, keep_checkpoints=9, evaluate_every=4, batch_size=16)
    town = Town(paths, recipe, tmp_path / "whole")
    town.execute()
    first = {job.number: update for job, update in town.post.updates}
    for round in range(1, 4):
        folder = tmp_path / f"from-{round}"
        shutil.copytree(town.folder, folder)
        for path in (folder / "run/checkpoints").glob("round-*"):
            if int(path.stem.removeprefix("round-")) > round:
                path.unlink()
        state = town.state(round)
        # What was in flight comes in another order, after a while.
        pace = {"clinic": 9.0, "gym": 1.0, "home": 2.0}
        again = Town(paths, recipe, folder, pace.__getitem__, town.exchange.joined)
        again.execute()
        asked = [job.number for job in again.post.jobs]
        flying = {flight.job.number: flight.job for flight in state.flights}
        assert sorted(asked[: len(flying)]) == sorted(flying) and len(set(asked)) == len(asked)
        assert sorted(asked) == [*flying, *range(state.launched + 1, again.state(4).launched + 1)]
        for job, update in again.post.updates:
            if job.number in flying:  # a site that has done it already answers the same
                sent = flying[job.number]
                assert (job.version, job.round) == (sent.version, sent.round) and same(job.payload, sent.payload)
                assert job.number not in first or same(update.tree, first[job.number].tree)
        end = again.state(4)
        updates, buffer = {"all at a time": (2, 1), "two at a time": (2, 1), "buffered": (4, 2)}[kind]
        assert end.server.version == 4 * updates // buffer
        assert sum(end.visits.values()) == end.launched == 4 * updates + len(end.flights)
        times = again.rows("clock", "time")
        assert times[:round] == town.rows("clock", "time")[:round] and times == sorted(times)
        for client, tree in load_checkpoint(folder / "run/checkpoints", "round-000004").locals.committed.items():
            kept = SiteStore(folder / "sites" / client / TOKEN, client)
            assert int(tree["job"]) in kept.jobs()  # what counts is there


def test_a_job_that_fails_is_lost_and_its_client_is_asked_anew(alike, tmp_path):
    recipe = make_shared(alike, rounds=8, evaluate_every=8)
    town = Town(alike, recipe, tmp_path)
    broken = iter([b"", Bounce("its program fell over", False)] + [Bounce("again", False)] * 2)

    def change(node, kind, answer):
        return next(broken, answer) if (node, kind) == (102, "train") else answer

    town.post.change = change
    town.execute()
    mine = [job.number for job in town.post.jobs if job.client == "gym"]
    # Nothing at all comes back: lost. What carries messages fails three times: tried again, then lost.
    assert len(mine) > 4 and mine[0] != mine[1] == mine[2] == mine[3] != mine[4]
    assert sum(town.rows("server", "dropped")) == 2 and not any(town.rows("server", "refused"))
    assert sum("its job is lost" in text for text in town.told.warnings) == 2
    answered = {job.number for job, _ in town.post.updates}
    assert mine[0] not in answered and mine[1] not in answered and town.rows("train", "updates", "gym")
    end = town.state(8)
    assert end.launched == sum(end.visits.values()) == end.server.version + 2 + len(end.flights)


def test_one_who_vanishes_is_waited_for_by_nobody_and_asked_again_when_it_is_back(alike, tmp_path):
    recipe = make_shared(alike, rounds=12, updates_per_round=2, evaluate_every=20)
    town = Town(alike, recipe, tmp_path, absence=6)
    folder, back = tmp_path / "sites" / "home", []

    def pace(name):
        here = town.clock.time - 1000
        if here > 4:
            town.post.gone.add(103)  # a power cut
        if here > 14 and not back:  # longer than the 6 s that it has to come back in
            back.append(town.state(max(int(p.stem[6:]) for p in (town.run / "checkpoints").glob("*.json"))))
            town.sites[203] = Site("home", folder, SiteWorkshop("home", alike["home"], "cpu"))
        return PACE[name]

    town.post._seconds = pace
    town.execute()
    assert sum(town.rows("server", "dropped")) == 1
    assert any("'home' has been away for more than 6 s; its job is lost" in text for text in town.told.warnings)
    mine = [job for job in town.post.jobs if job.client == "home"]
    assert mine[-1].version > back[0].server.version  # it starts from what the others have come to
    times = town.rows("clock", "time")
    assert max(later - sooner for sooner, later in pairwise(times)) <= 3  # gym's pace
    assert town.rows("train", "updates", "home")[-1] >= 1


@pytest.mark.slow
def test_an_answer_after_the_deadline_is_nobody_s(alike, tmp_path):
    slow = iter([16.0])
    recipe = make_shared(alike, rounds=11, updates_per_round=2, evaluate_every=20)
    town = Town(alike, recipe, tmp_path, lambda name: next(slow, 5.0) if name == "home" else PACE[name], answer=8)
    town.execute()
    mine = [job.number for job in town.post.jobs if job.client == "home"]
    assert any("'home' did not answer within 8 s; its job is lost" in text for text in town.told.warnings)
    assert mine[0] not in {job.number for job, _ in town.post.updates} and len(mine) > 1
    assert sum(town.rows("server", "dropped")) == 1 and town.rows("train", "updates", "home")


def test_when_nobody_answers_any_more_the_run_ends_and_says_why(alike, tmp_path):
    recipe = make_shared(alike, rounds=40, evaluate_every=50)
    town = Town(alike, recipe, tmp_path / "gone")

    def leave(name):
        if town.clock.time > 1005:
            town.post.gone |= {101, 102, 103}
        return PACE[name]

    town.post._seconds = leave
    with pytest.raises(RuntimeError, match=r"'clinic' has been away for more than 30 s.*then resume"):
        town.execute()
    # Where all are there, and none can do its work, it ends as well.
    town = Town(alike, recipe, tmp_path / "broken")
    town.post.change = lambda node, kind, answer: b"" if kind == "train" else answer
    with pytest.raises(RuntimeError, match="no client is left that answers: client 'clinic' sent what is no answer"):
        town.execute()
    assert len(town.post.jobs) <= 12  # each has been asked a few times, with rests


def test_an_update_that_is_refused_leaves_what_its_site_keeps_as_it_was(paths, tmp_path):
    recipe = make_recipe(paths, **KINDS["buffered"], rounds=2, keep_checkpoints=9, evaluate_every=9)
    town = Town(paths, recipe, tmp_path)
    town.post.change = lambda n, kind, a: forge_update(a, samples=-1.0) if (n, kind) == (101, "train") else a
    town.execute()
    assert sum(town.rows("server", "refused", "")) == 2 and not town.rows("train", "updates", "clinic")
    locals = load_checkpoint(town.run / "checkpoints", "round-000002").locals
    assert set(locals.committed) == {"gym", "home"}
