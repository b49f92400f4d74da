"""`engine = "auto"`: what it takes, when it tries, what a run keeps, and that hashes stay."""

import json
from dataclasses import dataclass, field, replace

import pytest
import torch

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.samples import Examples
from fedaction.federation.files import read_sealed_json, write_sealed_json
from fedaction.federation.progress import Quiet
from fedaction.federation.state import Job
from fedaction.methods.start import initial_state
from fedaction.runs import settle as settling
from fedaction.runs import way as ways
from fedaction.runs.assembly import Assembly, make_federation, make_rounds
from fedaction.runs.checkpoint import RunState
from fedaction.runs.recipe import RunSettings, parse_recipe
from fedaction.runs.single import SingleRun
from fedaction.runs.way import EngineWay, choose_way, list_ways, read_way
from fedaction.server.state import FederationState
from tests.conftest import VECTORS, federation_for, vector_clients

CPU, GPU = torch.device("cpu"), torch.device("cuda")
SEQUENTIAL, STACKED = EngineWay("sequential", 1, True), EngineWay("vectorised", 1, True, why="many at once")
COMPILED = EngineWay("vectorised", 1, False, True)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self):
        return self.now


@dataclass
class Engine:
    """Takes its time for every job, and to get going."""

    clock: Clock
    seconds: float
    first: float = 0.0
    log: list = field(default_factory=list)

    def train(self, jobs):
        self.clock.now += self.first
        self.first = 0.0
        for job in jobs:
            self.clock.now += self.seconds
            yield job

    def drop(self, clients):
        self.log.append(len(clients))

    def close(self):
        self.log.append("closed")


def jobs(count):
    return [Job(f"c{i}", "", 0, 1, {}) for i in range(count)]


def choose(speeds, rounds, count=10, options=(STACKED, SEQUENTIAL, COMPILED)):
    """What is chosen, and the seconds of all trials; of each way its seconds for a job, or an error."""
    clock, made = Clock(), []

    def make(way):
        speed = next(own for known, own in speeds.items() if way.same(known))
        if isinstance(speed, Exception):
            raise speed
        made.append(Engine(clock, speed, first=100.0 if way.compiled else 0.0))
        return made[-1]

    way = choose_way(options, make, jobs(count), rounds, clock)
    assert all(engine.log[-1] == "closed" and len(engine.log) == 4 for engine in made)  # dropped, and closed
    return way, clock.now


def test_the_fastest_on_the_runs_own_jobs_is_taken():
    way, _ = choose({STACKED: 1.0, SEQUENTIAL: 2.0, COMPILED: 0.5}, 1000)
    assert way.same(COMPILED)
    assert "tried on 10 jobs: vectorised, recorded steps 10 s; sequential, recorded steps slower; " in way.why
    assert way.why.endswith("vectorised, compiled steps 5 s")
    assert choose({STACKED: 1.0, SEQUENTIAL: 0.5, COMPILED: 2.0}, 1000)[0].same(SEQUENTIAL)


def test_what_is_hardly_faster_changes_nothing():
    assert choose({STACKED: 1.0, SEQUENTIAL: 0.95, COMPILED: 0.95}, 1000)[0].same(STACKED)


def test_a_run_too_short_to_repay_a_trial_has_none():
    way, spent = choose({}, 59)
    assert way.same(STACKED) and spent == 0 and way.why == "many at once; too short a run to try others"
    way, spent = choose({STACKED: 1.0, SEQUENTIAL: 3.0}, 100)
    assert way.same(STACKED) and "vectorised, compiled steps not tried" in way.why
    assert spent <= 0.1 * 100 * 10  # trials have their share of the run, and little more


def test_what_is_slower_is_stopped_early():
    _, spent = choose({STACKED: 1.0, SEQUENTIAL: 100.0}, 100, options=(STACKED, SEQUENTIAL))
    assert spent == 3 * 10 + 2 * 4 * 100 + 100  # warm on four jobs, and no more than the first of those timed


def test_a_way_that_fails_is_passed_over():
    way, _ = choose({STACKED: 1.0, SEQUENTIAL: 2.0, COMPILED: RuntimeError("no compiler\nhere")}, 1000)
    assert way.same(STACKED) and "vectorised, compiled steps failed (no compiler)" in way.why


def options(device=CPU, name="fedavg", **keys):
    _, method = federation_for(name, few=True)
    return list_ways(RunSettings(method=name, **keys), method, device, 0)


def test_on_a_cpu_only_the_number_of_workers_is_open(monkeypatch):
    monkeypatch.setattr(ways, "cores", lambda: 4)
    assert [str(way) for way in options()] == ["sequential, 4 workers", "sequential"]
    assert [way.workers for way in options(workers=2)] == [2]
    assert [(way.engine, way.workers) for way in options(engine="sequential")] == [("sequential", 4)]
    assert [str(way) for way in options(engine="vectorised")] == ["vectorised"]
    monkeypatch.setattr(ways, "cores", lambda: 1)
    assert [way.workers for way in options()] == [1]


def test_on_a_gpu_a_network_that_does_not_stack_is_said(monkeypatch):
    monkeypatch.setattr(ways, "find_unstackable", lambda *_: "")
    monkeypatch.setattr(ways, "find_spec", lambda _: object())
    assert [str(way) for way in options(GPU)] == [
        "vectorised, recorded steps",
        "sequential, recorded steps",
        "vectorised, compiled steps",
    ]
    assert len(options(GPU, "pfedme")) == 2  # its own step is not compiled
    assert next(str(way) for way in options(GPU, compile_step=True)) == "vectorised, compiled steps"
    assert [way.why for way in options(GPU, channels_last=True)] == ["channels_last is of this engine alone"]
    monkeypatch.setattr(ways, "find_unstackable", lambda *_: "layer 'x' cannot be stacked")
    assert [(way.engine, way.why) for way in options(GPU)] == [("sequential", "layer 'x' cannot be stacked")]


@pytest.mark.parametrize("record", [None, 3, {}, {"engine": "warp"}, {"engine": "sequential", "workers": "two"}])
def test_a_way_that_cannot_be_read_is_none(record):
    assert read_way({"way": record}) is None
    assert read_way({}) is None and read_way({"way": STACKED.record()}) == STACKED


# Runs

NETWORK = {key: value for key, value in VECTORS.items() if key != "fdarn_sphere"}
VALUES = {"method": "fedavg", "batch_size": 4, "controls": [], **NETWORK}
CLIENTS = vector_clients((10, 10))


@dataclass
class Heard(Quiet):
    said: list = field(default_factory=list)

    def tell(self, message):
        self.said.append(message)

    warn = tell


def carry_out(folder, rounds, **keys):
    heard = Heard()
    run = SingleRun(parse_recipe({**VALUES, "rounds": rounds, **keys}), CLIENTS, folder, heard)
    run.execute()
    return heard.said, read_sealed_json(folder / "environment.json"), run


def test_a_run_says_what_it_took_and_why_and_one_that_goes_on_keeps_it(tmp_path, monkeypatch):
    monkeypatch.setattr(ways, "cores", lambda: 2)
    said, about, _ = carry_out(tmp_path / "run", 1)
    line = "sequential, 2 workers: a CPU trains clients side by side on its cores; too short a run to try others"
    assert said == [f"engine: {line}"]
    assert (about["engine"], about["way"]["workers"]) == ("sequential", 2) and about["way"]["why"] in line
    path = tmp_path / "run" / "environment.json"
    write_sealed_json(path, {**about, "way": {**about["way"], "workers": 1}})
    said, about, run = carry_out(tmp_path / "run", 2, extended=[1])
    assert said == [] and about["way"]["workers"] == run.assembly.way.workers == 1
    write_sealed_json(path, {**about, "engine": "vectorised", "way": STACKED.record()})
    said, about, _ = carry_out(tmp_path / "run", 3, extended=[1, 2])
    assert about["engine"] == "sequential" and about["way"]["workers"] == 2
    assert "rounds up to 2 are by the engine vectorised, those from here on by sequential" in said[1]
    assert "cannot be used here" in said[1]


def test_stacked_video_is_warned_of_and_auto_takes_the_other(tmp_path):
    info = ClientInfo("client-0", "video", 4, ("a", "b"), (4, 16, 16, 3))
    x, y = torch.rand(4, 4, 16, 16, 3), torch.arange(4) % 2
    clients = {"client-0": ClientData(info, Examples(x, y), Examples(x, y))}
    keys = {"method": "fedavg", "backbone": "resnet3d", "model_width": 2, "rounds": 1, "controls": []}
    heard = []
    for engine in ("vectorised", "auto"):
        recipe = parse_recipe({**keys, "engine": engine})
        assembly, said = Assembly.of(recipe, clients), Heard()
        federation = make_federation(recipe, assembly.method, print)
        state = RunState(FederationState(0, initial_state(assembly.method, 0)))
        settling.settle(assembly, federation, state, tmp_path, said)
        heard.append(said.said)
    assert "on video: a stacked 3D convolution is a grouped one, many times slower" in heard[0][0]
    assert heard[1] == [f"engine: {list_ways(recipe.run, assembly.method, CPU, 0)[0]}: {heard[1][0].split(': ')[2]}"]
    (way,) = list_ways(recipe.run, assembly.method, GPU, 0)
    assert (way.engine, way.recorded) == ("sequential", True) and way.why.startswith("of video: ")


def test_a_trial_changes_no_byte(tmp_path, monkeypatch):
    monkeypatch.setattr(ways, "cores", lambda: 2)
    monkeypatch.setattr(ways, "SHARE", 100.0)
    tried, about, _ = carry_out(tmp_path / "tried", 2)
    assert "tried on 5 jobs: sequential, 2 workers" in tried[0] and "tried on" in about["way"]["why"]
    _, _, run = carry_out(tmp_path / "plain", 2, engine="sequential", workers=1)
    assert run.assembly.way == EngineWay("sequential", 1)
    for name in ("metrics.jsonl", "checkpoints/round-000002.safetensors"):
        assert (tmp_path / "tried" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


def test_asynchronous_rounds_hand_out_jobs_for_the_engine_that_is_used():
    recipe = parse_recipe({**VALUES, "method": "fedbuff", "workers": 2})
    federation = make_federation(recipe, Assembly.of(recipe, CLIENTS).method, print)
    assert [make_rounds(recipe, federation, engine=name).ahead for name in ("sequential", "vectorised")] == [2, 64]
    stacked = parse_recipe({**VALUES, "method": "fedbuff", "engine": "vectorised"})
    assert make_rounds(stacked, federation).ahead == 64


# Hashes


def test_hashes_of_published_runs_stay():
    """Of recipes that name an engine, and of those that leave it to the default, which was sequential."""
    known = [  # as they were when the default was sequential
        ({"method": "fedavg"}, "1bd18e028f3f"),
        ({"method": "fedavg", "engine": "sequential"}, "1bd18e028f3f"),
        ({"method": "fedavg", "engine": "vectorised"}, "7f41430c83d7"),
        ({"method": "fsar", "lr": 0.02}, "0f006f2aa4da"),
        ({"method": "fdarn", "data": "stage_features", "engine": "vectorised"}, "930ce30654c1"),
    ]
    for values, digest in known:
        assert parse_recipe(values).configuration() == digest
    assert parse_recipe({"method": "fedavg", "engine": "auto"}).older_hash == "df3d1491ad4c"
    plain = parse_recipe(VALUES)
    assert plain.run.engine == "auto"
    assert plain.configuration() == parse_recipe({**VALUES, "engine": "sequential"}).configuration()
    assert plain.configuration() != parse_recipe({**VALUES, "engine": "vectorised"}).configuration()
    for engine in ("auto", "sequential"):
        assert "engine" not in parse_recipe({**VALUES, "engine": engine}).run.deciding()
    assert parse_recipe({**VALUES, "engine": "vectorised"}).run.deciding()["engine"] == "vectorised"


def test_a_run_begun_when_the_default_was_another_goes_on(tmp_path, monkeypatch):
    carry_out(tmp_path / "run", 1, engine="sequential")
    said, _, _ = carry_out(tmp_path / "run", 2, extended=[1])
    assert "cannot be used" not in str(said)
    older = parse_recipe({**VALUES, "rounds": 1, "engine": "auto"})
    found = SingleRun(older, CLIENTS, tmp_path / "older", Quiet())
    found._seal = replace(found._seal, configuration=older.older_hash)  # as a version had it that auto was named in
    found.execute()
    carry_out(tmp_path / "older", 2, extended=[1])
    assert settling.read_way(json.loads((tmp_path / "older" / "environment.json").read_text())) is not None
