"""One run: rounds, quorums, drop-outs, refused updates, traffic, and what its files say."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedaction.data.client import ClientData
from fedaction.data.validation import hold_validation
from fedaction.engines.base import choose_device
from fedaction.engines.store import LocalState
from fedaction.federation.settings import to_toml
from fedaction.federation.tree import Tree
from fedaction.report import write_report
from fedaction.runs.checkpoint import RunState, load_checkpoint
from fedaction.runs.metrics import Row, read_rows
from fedaction.runs.recipe import parse_recipe
from fedaction.runs.single import SingleRun
from fedaction.server.federation import combine
from fedaction.server.rounds import Rounds
from fedaction.server.schedule import Cast
from tests.conftest import TINY, make_client, mixed_clients

ENGINES = ["sequential", "vectorised"]
JOINTS = {"client-0": 25, "client-1": 25, "client-2": 25, "client-3": 20, "client-4": 15}

# Values of the tiny FSAR network that travel, counted by hand.
UNITS = (
    (3 * 3 * 4 + 3 * 4 + 2 * 4) + (9 * 4 * 4 + 4 + 2 * 4)  # 3 to 4 channels: graph and time, each with its norm
    + (3 * 4 * 8 + 3 * 8 + 2 * 8) + (9 * 8 * 8 + 8 + 2 * 8) + (4 * 8 + 8 + 2 * 8)  # 4 to 8, with a shortcut
    + (3 * 8 * 16 + 3 * 16 + 2 * 16) + (9 * 16 * 16 + 16 + 2 * 16) + (8 * 16 + 16 + 2 * 16)  # 8 to 16
)  # fmt: skip
PROJECTION = 16 * 8 + 8


def payload_bytes(joints: int) -> int:
    masks, inflected = 3 * 3 * joints**2, 3 * joints**2
    return 4 * (UNITS + PROJECTION + masks + inflected)


def frozen_bytes(joints: int) -> int:
    return 4 * 3 * joints**2  # A


@dataclass
class Listener:
    """A `Progress` that remembers, and may stop the run by hand after a round."""

    interrupt_after: int = 0
    said: list[str] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)

    def start(self, label: str, done: int, total: int, *, unit: str = "", metric: str = "") -> None:
        self.rounds.append(done)

    def advance(self, label: str, done: int, value: float | None = None) -> None:
        self.rounds.append(done)
        if done == self.interrupt_after:
            raise KeyboardInterrupt

    def tell(self, message: str) -> None: ...

    def warn(self, message: str) -> None:
        self.said.append(message)


@dataclass
class Done:
    """A run that is over."""

    run: SingleRun
    folder: Path
    rows: list[Row]
    heard: Listener

    def state(self, round: int) -> RunState:
        return load_checkpoint(self.folder / "checkpoints", f"round-{round:06d}")

    def cast(self, round: int) -> Cast:
        rounds = self.run.rounds
        assert isinstance(rounds, Rounds)
        return rounds.participation.choose(round, self.run.federation.members)

    def server(self, round: int, name: str) -> float | int | None:
        (row,) = [r for r in self.rows if (r.round, r.client, r.split, r.name) == (round, "", "server", name)]
        return row.value

    def clients(self, round: int, split: str, name: str) -> dict[str, float | int | None]:
        rows = [r for r in self.rows if (r.round, r.split, r.name) == (round, split, name) and r.client]
        return {row.client: row.value for row in rows}


def carry_out(
    folder: Path, clients: Mapping[str, ClientData] | None = None, interrupt_after: int = 0, **settings: Any
) -> Done:
    values = {"method": "fsar", "rounds": 2, "batch_size": 8, "lr": 0.05, "workers": 1, "keep_checkpoints": 99}
    recipe = parse_recipe({**values, **TINY, "report_samples": 1, **settings})
    heard = Listener(interrupt_after)
    run = SingleRun(recipe, mixed_clients() if clients is None else clients, folder, heard)
    run.execute()
    return Done(run, folder, read_rows(folder / "metrics.jsonl"), heard)


def same(one: Tree, other: Tree) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def same_server(one: RunState, other: RunState) -> bool:
    return one.server.version == other.server.version and all(
        same(a, b) for a, b in ((one.server.shared, other.server.shared), (one.server.ahead, other.server.ahead))
    )


# What a run leaves


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Done:
    return carry_out(tmp_path_factory.mktemp("plain"), rounds=3)


def test_rounds_count_from_one_and_each_has_the_same_rows(plain):
    assert {row.round for row in plain.rows} == {1, 2, 3}
    assert plain.heard.rounds == [0, 1, 2, 3]
    shapes = [[replace(r, round=0, value=0) for r in plain.rows if r.round == round] for round in (1, 2, 3)]
    assert shapes[0] == shapes[1] == shapes[2]
    for split, names in (("train", ("loss", "ce", "kd", "reg")), ("test", ("accuracy", "loss"))):
        for name in names:
            assert plain.clients(2, split, name).keys() == JOINTS.keys()


def test_metrics_hold_no_clock_times(plain, tmp_path):
    names = {row.name for row in plain.rows}
    server = {"participants", "refused", "dropped", "late", "combined", "bytes_down", "bytes_up"}
    assert names == {"loss", "ce", "kd", "reg", "accuracy", "balanced_accuracy", "macro_f1"} | server
    for line in (plain.folder / "metrics.jsonl").read_text().splitlines():
        assert json.loads(line).keys() == {"round", "client", "group", "split", "name", "value"}
    again = carry_out(tmp_path, rounds=3)
    assert (again.folder / "metrics.jsonl").read_bytes() == (plain.folder / "metrics.jsonl").read_bytes()


def test_clock_times_have_their_own_file(plain):
    lines = [json.loads(line) for line in (plain.folder / "clock.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3]
    assert all(0 < line["train"] <= line["total"] for line in lines)


def test_without_validation_no_round_is_the_best(plain):
    """The test would have chosen it."""
    assert not (plain.folder / "checkpoints" / "best.json").exists()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_best_checkpoint_is_that_of_the_best_round_by_validation(tmp_path, engine):
    clients = {c.info.id: c for c in hold_validation(mixed_clients().values(), 0.25, seed=0)}
    plain = carry_out(tmp_path, clients, rounds=3, validation=0.25, engine=engine)
    assert plain.clients(1, "validation", "accuracy").keys() == JOINTS.keys()
    means = {
        r: math.fsum(float(v or 0) for v in plain.clients(r, "validation", "accuracy").values()) / 5
        for r in (1, 2, 3)
    }
    best = max(means, key=lambda r: (round(means[r], 12), -r))  # the first, where some are equal
    state = load_checkpoint(plain.folder / "checkpoints", "best")
    assert state.round == best and state.best == (pytest.approx(means[best]), best)
    assert same_server(state, plain.state(best))
    assert plain.state(3).best == state.best
    # And it is what the evidence, and the result, are of.
    evidence = json.loads((tmp_path / "evidence.json").read_text())
    tested = plain.clients(best, "test", "accuracy")
    for name, own in evidence["confusion"].items():
        matrix = own["matrix"]
        right = sum(matrix[i][i] for i in range(len(matrix)))
        assert right / sum(map(sum, matrix)) == pytest.approx(tested[name])


def test_the_evidence_fits_the_test_sets(plain):
    evidence = json.loads((plain.folder / "evidence.json").read_text())
    for name, client in plain.run.assembly.clients.items():
        matrix = evidence["confusion"][name]["matrix"]
        assert [sum(row) for row in matrix] == client.test.y.bincount(minlength=len(client.info.classes)).tolist()
        right = sum(matrix[i][i] for i in range(len(matrix)))
        assert right / len(client.test) == pytest.approx(plain.clients(3, "test", "accuracy")[name])
        graph = evidence["topology"][name]
        assert len(graph["A"]) == len(graph["I"]) == len(graph["U"]) == JOINTS[name]
        assert graph["alpha"] == pytest.approx(float(plain.state(3).locals.committed[name]["topology.alpha"]))
        assert len(evidence["samples"][name]) == 1


def test_report_samples_keep_recordings_out_of_the_evidence(tmp_path):
    done = carry_out(tmp_path, {"client-0": make_client(0)}, rounds=1, report_samples=0)
    assert json.loads((done.folder / "evidence.json").read_text())["samples"] == {}


def test_tests_are_taken_every_few_rounds_and_after_the_last(tmp_path):
    done = carry_out(tmp_path, {"client-0": make_client(0)}, rounds=5, evaluate_every=2)
    assert sorted({row.round for row in done.rows if row.split == "test"}) == [2, 4, 5]
    assert sorted({row.round for row in done.rows if row.split == "train"}) == [1, 2, 3, 4, 5]


def test_checkpoints_are_taken_every_few_rounds_and_after_the_last(tmp_path):
    done = carry_out(tmp_path, {"client-0": make_client(0)}, rounds=5, checkpoint_every=2)
    found = sorted(path.stem for path in (done.folder / "checkpoints").glob("round-*.json"))
    assert found == ["round-000002", "round-000004", "round-000005"]


def test_training_changes_the_model_and_what_clients_keep(plain):
    one, other = plain.state(1), plain.state(3)
    assert other.server.version == 3
    assert not any(torch.equal(one.server.shared[n], other.server.shared[n]) for n in one.server.shared)
    for name in JOINTS:
        weights = [state.locals.committed[name]["classifier.weight"] for state in (one, other)]
        assert not torch.equal(*weights)


# What does not matter


@pytest.mark.parametrize("workers", [2, 5])
def test_metrics_and_model_do_not_depend_on_workers(plain, tmp_path, workers):
    done = carry_out(tmp_path, rounds=3, workers=workers)
    assert (done.folder / "metrics.jsonl").read_bytes() == (plain.folder / "metrics.jsonl").read_bytes()
    assert same_server(done.state(3), plain.state(3))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_order_in_which_clients_are_listed_does_not_matter(tmp_path, engine):
    clients = mixed_clients()
    orders = [clients, dict(reversed(clients.items()))]
    done = [
        carry_out(
            tmp_path / str(i),
            {client.info.id: client for client in hold_validation(order.values(), 0.2, seed=0)},
            engine=engine,
            clients_per_round=4,
            failure_rate=0.2,
            validation=0.2,
        )
        for i, order in enumerate(orders)
    ]
    one, other = [(d.folder / "metrics.jsonl").read_bytes() for d in done]
    assert one == other
    for name in ("round-000002.safetensors", "best.safetensors"):
        assert len({(d.folder / "checkpoints" / name).read_bytes() for d in done}) == 1


def test_the_seed_matters(plain, tmp_path):
    done = carry_out(tmp_path, rounds=1, seeds=[1])
    assert done.clients(1, "train", "loss") != plain.clients(1, "train", "loss")


# Quorums, drop-outs, deadlines


@pytest.mark.parametrize("engine", ENGINES)
def test_a_round_below_its_quorum_changes_nothing_and_says_so(tmp_path, engine):
    done = carry_out(tmp_path, engine=engine, rounds=4, seeds=[4], failure_rate=0.4, quorum=0.6)
    plans = {round: done.cast(round) for round in range(1, 5)}
    failed = [round for round, plan in plans.items() if len(plan.working) < 3]
    assert failed == [2, 3], "choose another seed: rounds of both kinds are needed, a good one first"
    for round, plan in plans.items():
        assert done.server(round, "combined") == int(round not in failed)
        assert done.server(round, "participants") == len(plan.working)
        assert done.server(round, "dropped") == len(plan.dropped)
        assert done.clients(round, "train", "loss").keys() == set(plan.working)
    for round in failed:
        before, after = done.state(round - 1), done.state(round)
        assert same_server(before, after)
        kept, still = before.locals.committed, after.locals.committed
        assert kept.keys() == still.keys() and not after.locals.pending
        assert all(same(kept[name], still[name]) for name in kept)
        assert done.clients(round, "test", "loss") == done.clients(round - 1, "test", "loss")
        visits = [sum(state.federation.visits.values()) for state in (before, after)]
        assert visits[1] == visits[0] + 5  # they were asked all the same
    assert done.state(4).server.version == 4 - len(failed)
    said = [text for text in done.heard.said if "quorum (60%)" in text]
    assert [text.split(":")[0] for text in said] == [f"round {round}" for round in failed]


def test_a_round_without_any_answer_goes_by(tmp_path):
    clients = {"client-0": make_client(0)}
    done = carry_out(tmp_path, clients, rounds=2, quorum=0.0, deadline=1e-9)  # nobody is that fast
    for round in (1, 2):
        assert (done.server(round, "participants"), done.server(round, "combined")) == (0, 0)
        assert (done.server(round, "late"), done.server(round, "bytes_up")) == (1, 0)
        assert done.clients(round, "train", "loss") == {}
    state = done.state(2)
    assert state.server.version == 0 and not state.locals.committed


def test_late_answers_are_ignored(tmp_path):
    done = carry_out(tmp_path, rounds=2, deadline=0.1, quorum=0.0)
    plans = {round: done.cast(round) for round in (1, 2)}
    late = {name for plan in plans.values() for name in plan.late}
    assert late and len(late) < 5, "choose another deadline: both kinds of client are needed"
    worked = {name for plan in plans.values() for name in plan.working}
    for round, plan in plans.items():
        assert done.server(round, "late") == len(plan.late)
        assert done.server(round, "bytes_up") == sum(payload_bytes(JOINTS[name]) for name in plan.working)
        assert not done.clients(round, "train", "loss").keys() & set(plan.late)
    assert done.state(2).locals.committed.keys() == worked < JOINTS.keys()
    assert dict(done.state(2).federation.visits) == dict.fromkeys(JOINTS, 2)


# Refused updates


def with_nan(client: ClientData) -> ClientData:
    x = client.train.x.clone()
    x[:, 0, 0, 0, 0] = math.nan
    return replace(client, train=replace(client.train, x=x))


@pytest.mark.parametrize("engine", ENGINES)
def test_an_update_with_nan_is_refused_and_the_round_goes_on(tmp_path, engine):
    """Client 1 is sound for two rounds; in the third its samples have NaN in them."""
    clients = {
        name: client for name, client in mixed_clients().items() if name in ("client-0", "client-1", "client-4")
    }
    sound = carry_out(tmp_path / "sound", clients, engine=engine, rounds=3)
    carry_out(tmp_path / "bad", clients, engine=engine, rounds=2)
    bad = {**clients, "client-1": with_nan(clients["client-1"])}
    done = carry_out(tmp_path / "bad", bad, engine=engine, rounds=3, extended=[2])
    assert done.heard.rounds == [2, 3]  # it went on from the second round's checkpoint
    assert done.server(3, "refused") == 1 and done.server(2, "refused") == 0
    assert done.server(3, "participants") == 2 and done.server(3, "combined") == 1
    assert done.clients(3, "server", "refused") == {"client-1": 1}
    assert done.server(3, "bytes_up") == sound.server(3, "bytes_up")  # it had travelled before it was refused
    assert len(done.heard.said) == 1
    for word in ("round 3", "'client-1'", "NaN", "not used"):
        assert word in done.heard.said[0]
    # The refused client keeps what it had; the others train as if nothing had happened.
    before, after = done.state(2), done.state(3)
    assert same(before.locals.committed["client-1"], after.locals.committed["client-1"])
    losses = sound.clients(3, "train", "loss")
    del losses["client-1"]
    assert done.clients(3, "train", "loss") == losses
    for name in losses:
        assert same(after.locals.committed[name], sound.state(3).locals.committed[name])
    # The server has combined the two others, and only them.
    run = sound.run
    makers = run.engine(before)
    jobs = [run.federation.job(before.server, name, 3) for name in sorted(losses)]
    expected = combine(run.assembly.method, before.server, makers.train(jobs))
    makers.close()
    assert same(after.server.shared, expected.shared) and same(after.server.ahead, expected.ahead)
    assert all(bool(torch.isfinite(t).all()) for t in after.server.shared.values())


def test_a_client_that_is_refused_from_the_start_keeps_nothing(tmp_path):
    clients = mixed_clients()
    done = carry_out(tmp_path, {**clients, "client-2": with_nan(clients["client-2"])}, rounds=2)
    assert done.state(2).locals.committed.keys() == JOINTS.keys() - {"client-2"}
    assert done.state(2).federation.visits["client-2"] == 2
    assert "client-2" in done.clients(2, "test", "accuracy")  # the model still serves it
    assert "client-2" not in done.clients(2, "train", "loss")


def test_refused_updates_count_against_the_quorum(tmp_path):
    clients = {name: with_nan(client) if name != "client-0" else client for name, client in mixed_clients().items()}
    done = carry_out(tmp_path, clients, rounds=1, quorum=0.5)
    assert (done.server(1, "participants"), done.server(1, "refused"), done.server(1, "combined")) == (1, 4, 0)
    assert done.state(1).server.version == 0 and not done.state(1).locals.committed


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_whose_answers_are_not_finite_still_ends_with_a_report(tmp_path, engine):
    """As after a learning rate that was much too high: finite weights, infinite logits."""
    clients = {"client-0": make_client(0), "client-1": make_client(1)}
    test = clients["client-1"].test
    clients["client-1"] = replace(clients["client-1"], test=replace(test, x=torch.full_like(test.x, math.inf)))
    done = carry_out(tmp_path, clients, engine=engine, rounds=1)
    assert done.clients(1, "test", "loss")["client-1"] is None
    assert done.clients(1, "test", "loss")["client-0"] is not None
    (sample,) = json.loads((tmp_path / "evidence.json").read_text())["samples"]["client-1"]
    assert sample["confidence"] is None and sample["frames"][0][0] == [None, None, None]
    (tmp_path / "recipe.toml").write_text(to_toml(done.run.recipe.flat()))
    assert write_report(tmp_path).stat().st_size > 1000


def test_a_graph_that_diverged_is_left_out_of_the_evidence(tmp_path):
    clients = {"client-0": make_client(0), "client-1": make_client(1)}
    done = carry_out(tmp_path, clients, rounds=1)
    state = done.state(1)
    kept = state.locals.committed
    own = {**kept["client-1"], "topology.U": torch.full((3, 25, 25), math.nan)}
    engine = done.run.engine(replace(state, locals=LocalState({**kept, "client-1": own})))
    done.run._finish(state, engine)
    engine.close()
    assert json.loads((tmp_path / "evidence.json").read_text())["topology"].keys() == {"client-0"}


# Traffic


@pytest.mark.parametrize("engine", ENGINES)
def test_traffic_is_what_the_tensors_weigh_and_frozen_ones_go_once(tmp_path, engine):
    assert payload_bytes(25) == 46528 and frozen_bytes(25) == 7500
    done = carry_out(tmp_path, engine=engine, rounds=4, clients_per_round=2, lr=0.01)
    seen: set[str] = set()
    repeated = False
    for round in range(1, 5):
        chosen = done.cast(round).chosen
        assert len(chosen) == 2
        up = sum(payload_bytes(JOINTS[name]) for name in chosen)
        first = sum(frozen_bytes(JOINTS[name]) for name in chosen if name not in seen)
        repeated = repeated or bool(seen & set(chosen))
        seen |= set(chosen)
        assert done.server(round, "bytes_up") == up
        assert done.server(round, "bytes_down") == up + first
    assert repeated, "choose another seed: no client came twice"


@pytest.mark.parametrize(("method", "rounds"), [("fsar", 2), ("edge", 12)])
def test_the_clock_counts_the_first_download_of_frozen_tensors(tmp_path, method, rounds):
    """At a thousand bytes a second, in rounds and asynchronously: a client's first job is longer, by them alone."""
    devices = tmp_path / "devices.toml"
    devices.write_text("[phone]\nseconds_per_epoch = 1\ndownload_mbit = 0.008\n")
    own = {"rounds": rounds, "devices": str(devices), **({"updates_per_round": 1} if method == "edge" else {})}
    done = carry_out(tmp_path / "run", method=method, **own)
    again = 0
    for name, joints in JOINTS.items():
        busy = [row.value for row in done.rows if row.name == "busy" and row.client == name]  # where it has worked
        jobs = [after - before for before, after in zip([0.0, *busy], busy, strict=False)]
        again += len(jobs) - 1
        assert all(jobs[0] - job == pytest.approx(frozen_bytes(joints) / 1000) for job in jobs[1:])
    assert again >= 3


def test_clients_that_drop_out_are_sent_the_model_all_the_same(tmp_path):
    done = carry_out(tmp_path, rounds=3, failure_rate=0.5, quorum=0.0)
    plans = {round: done.cast(round) for round in (1, 2, 3)}
    assert any(plan.dropped for plan in plans.values())
    everyone = sum(payload_bytes(joints) for joints in JOINTS.values())
    frozen = sum(frozen_bytes(joints) for joints in JOINTS.values())
    for round, plan in plans.items():
        assert done.server(round, "bytes_down") == everyone + (frozen if round == 1 else 0)
        assert done.server(round, "bytes_up") == sum(payload_bytes(JOINTS[name]) for name in plan.working)


def test_averaged_buffers_travel_too(tmp_path):
    """The same tensors, and the norms' running means and variances: 2 x (75 + 2 x 4 + 3 x 8 + 3 x 16) values."""
    clients = {"client-0": make_client(0)}
    local = carry_out(tmp_path / "local", clients, rounds=1, method="fedavg")
    average = carry_out(tmp_path / "average", clients, rounds=1, method="fedavg", buffers="average")
    difference = 4 * 2 * (75 + 2 * 4 + 3 * 8 + 3 * 16)
    for name in ("bytes_up", "bytes_down"):
        assert average.server(1, name) == (local.server(1, name) or 0) + difference


# The device


def test_a_device_that_is_not_there_is_refused():
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no CUDA device here; use --device cpu or auto"):
            choose_device("cuda")


def test_a_run_whose_recipe_was_changed_is_not_gone_on_with(tmp_path):
    clients = mixed_clients()
    carry_out(tmp_path, clients, rounds=1)
    with pytest.raises(ValueError, match=r"was begun with lr = .*, now it is 0.5: put recipe.toml back"):
        carry_out(tmp_path, clients, rounds=2, lr=0.5)
    with pytest.raises(ValueError, match=r"was begun with rounds = 1, now they are 2.*--extend rounds=2"):
        carry_out(tmp_path, clients, rounds=2)
    assert carry_out(tmp_path, clients, rounds=2, extended=[1]).heard.rounds == [1, 2]  # longer is not another
