"""The engine and its sites without a network: the same run as a simulation, and what each side refuses."""

import json
import random
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from fedaction.cli import app
from fedaction.engines.flower.envelope import Envelope, EnvelopeError, Front, open_envelope
from fedaction.engines.flower.exchange import Bounce, Exchange, NobodyLeftError, Patience
from fedaction.engines.flower.install import installer
from fedaction.engines.flower.keep import LostError, SiteStore
from fedaction.engines.flower.server import FlowerEngine, QuorumError
from fedaction.engines.flower.site import REPORTS, USUAL_REPORTS, Site
from fedaction.engines.messages import MOST_BYTES, pack, unpack
from fedaction.evaluation.site import Evaluation, Question
from fedaction.federation.progress import Quiet
from fedaction.federation.state import Job, Update
from fedaction.methods.start import initial_state
from fedaction.runs.checkpoint import latest_checkpoint
from fedaction.runs.remote import Roll, carry_out, open_run
from fedaction.runs.single import SingleRun
from fedaction.runs.sites import SiteWorkshop, check_real, recipe_for_sites
from fedaction.serve.network import load_network
from tests.engines.flower.places import (
    HousePost,
    SlowClock,
    make_device_recipe,
    make_recipe,
    make_signals,
    make_sites,
    make_stores,
    simulated,
)

TOKEN = "0123456789abcdef" * 2


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return make_stores(tmp_path_factory.mktemp("places"))


def compare(one, other):
    """Two run directories hold the same numbers and the same tensors."""
    assert (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    return compare_tensors(one, other)


def compare_tensors(one, other):
    """Two run directories hold the same tensors; their last states."""
    states = [latest_checkpoint(folder / "checkpoints", folder / "metrics.jsonl") for folder in (one, other)]
    trees = [(s.server.shared, s.server.ahead, s.server.memory, *s.server.groups.values()) for s in states]
    assert any(len(tree) for tree in trees[0])
    for mine, theirs in zip(*trees, strict=True):
        assert mine.keys() == theirs.keys() and all(torch.equal(mine[n], theirs[n]) for n in mine)
    return states


@pytest.mark.parametrize("method", ["fedavg", "fsar"])
def test_a_run_over_messages_is_the_simulated_run(paths, tmp_path, method):
    recipe = make_recipe(paths, method)
    SingleRun(recipe, simulated(recipe), tmp_path / "simulated", Quiet()).execute()
    open_run(recipe, tmp_path / "real", Roll(count=3))
    post = HousePost(make_sites(paths, tmp_path / "sites"))
    carry_out(post, tmp_path / "real")

    here, there = compare(tmp_path / "simulated", tmp_path / "real")
    words = {one.info.id: one.data for one in Roll.read(tmp_path / "real").joined().values()}
    assert there.seal.data == words and len({*words.values()}) == 3  # the server has no data to look at
    evidence = [json.loads((tmp_path / f / "evidence.json").read_text()) for f in ("simulated", "real")]
    assert evidence[0]["confusion"] == evidence[1]["confusion"] and evidence[1]["samples"] == {}
    # The LOCAL tensors are at the sites alone, and are those of the simulation.
    assert all(tree.keys() == {"job"} for tree in there.locals.committed.values())
    for name, tree in here.locals.committed.items():
        run = Roll.read(tmp_path / "real").run
        kept = SiteStore(tmp_path / "sites" / name / run, name).read(3)
        assert kept.keys() == tree.keys() and all(torch.equal(kept[n], tree[n]) for n in kept)
    # Each site has the network that the simulation wrote for it, in a file that predicts.
    run = Roll.read(tmp_path / "real").run
    own, same = tmp_path / "sites" / "gym" / run / "model.safetensors", tmp_path / "simulated/models/clients"
    tensors = [load_file(path) for path in (own, same / "gym.safetensors")]
    assert tensors[0].keys() == tensors[1].keys() and all(
        torch.equal(t, tensors[1][n]) for n, t in tensors[0].items()
    )
    assert load_network(own).classes == simulated(recipe)["gym"].info.classes
    wire = b"".join(content for _, _, question, answer in post.seen for content in (question, answer))
    assert str(paths["clinic"]).encode() not in wire


@pytest.mark.parametrize("method", ["fdarn", "fedavg_within"])
def test_devices_of_two_kinds_over_messages_are_the_simulated_run(tmp_path, method):
    paths = make_signals(tmp_path)
    recipe = make_device_recipe(paths, method)
    SingleRun(recipe, simulated(recipe), tmp_path / "simulated", Quiet()).execute()
    open_run(recipe, tmp_path / "real", Roll(count=2))
    carry_out(HousePost(make_sites(paths, tmp_path / "sites")), tmp_path / "real")
    compare(tmp_path / "simulated", tmp_path / "real")


class House:
    """A server's exchange with three sites in this process, all of whom have joined."""

    def __init__(self, paths, folder, **more) -> None:
        self.recipe = make_recipe(paths, "fsar")
        self.sites = make_sites(paths, folder, **more)
        self.post, self.clock, self.warnings = HousePost(self.sites), SlowClock(), []
        told = json.dumps(recipe_for_sites(self.recipe)).encode()
        how = Patience(answer=100, absence=30)
        self.exchange = Exchange(self.post, TOKEN, told, how, self.warnings.append)
        self.exchange.now, self.exchange.sleep = self.clock.now, self.clock.sleep
        self.exchange.gather(3, 60)
        self.exchange.closed = True
        infos = [self.exchange.joined[name].info for name in sorted(self.exchange.joined)]
        self.method = self.recipe.kinds["fsar"](infos, self.recipe.methods["fsar"])
        self.exchange.install = installer(self.method, 4)
        self.engine = FlowerEngine(self.exchange)
        self.server = initial_state(self.method, 4)

    def job(self, name, round=1):
        info = self.method.clients[name]
        return Job(name, info.group, 0, round, self.method.payload(self.server, info))

    def train(self, *names):
        return list(self.engine.train([self.job(name) for name in names or sorted(self.exchange.joined)]))

    def envelope(self, kind, name, *parts, **header):
        front = Front(kind=kind, run=TOKEN, nonce=TOKEN, client=name, **header)
        return Envelope(front, parts).seal()

    def ask(self, node, content):
        return open_envelope(self.sites[node].answer(content), MOST_BYTES).header


@pytest.fixture
def house(paths, tmp_path):
    return House(paths, tmp_path / "sites")


def forge(content, **changes):
    """An answer with another header."""
    envelope = open_envelope(content, MOST_BYTES)
    return Envelope(envelope.header.model_copy(update=changes), envelope.parts).seal()


def forge_update(content, **changes):
    """An answer with another update in it."""
    envelope = open_envelope(content, MOST_BYTES)
    return Envelope(envelope.header, (pack(replace(unpack(Update, envelope.parts[0]), **changes)),)).seal()


NUMBERS = {f"number {i}": 0.0 for i in range(5000)}
FORGERIES = {
    "another word": (lambda c: forge(c, nonce=TOKEN), "another question"),
    "another run": (lambda c: forge(c, run="f" * 32), "another question"),
    "another client": (lambda c: forge(c, client="home"), "another question"),
    "another kind": (lambda c: forge(c, kind="evaluate"), "answered 'evaluate' to 'train'"),
    "no part": (lambda c: Envelope(open_envelope(c, MOST_BYTES).header).seal(), "in 0 parts"),
    "random bytes": (lambda c: random.Random(5).randbytes(1000), "no message"),
    "half of it": (lambda c: c[: len(c) // 2], "parts of a message would have"),
    "nothing": (lambda c: b"", "no message"),
    "far too much": (lambda c: c + bytes(20 << 20), "are the most that were expected"),
    "many numbers": (lambda c: forge_update(c, metrics=NUMBERS), "reported 5000 numbers"),
    "a long name": (lambda c: forge_update(c, metrics={"x" * 100_000: 1.0}), "reported 1 numbers"),
    "a long excuse": (lambda c: c.replace(b"fedact01", b"fedact02"), "no message of this version"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_answer_is_a_failed_client_and_the_others_go_on(house, forgery):
    change, reason = FORGERIES[forgery]
    house.post.change = lambda node, kind, answer: change(answer) if (node, kind) == (101, "train") else answer
    clinic, gym = house.train("clinic", "gym")
    assert reason in clinic.fault and not clinic.tree and (clinic.client, clinic.version) == ("clinic", 0)
    assert not gym.fault and gym.tree
    house.engine.commit(["clinic", "gym"])
    assert (house.engine.store.basis("clinic"), house.engine.store.basis("gym")) == (0, 1)


def test_an_answer_counts_once(house):
    house.train("clinic")
    first = house.post.seen[-1][3]
    house.post.change = lambda node, kind, answer: first  # what was sound in its time comes again
    (again,) = house.train("clinic")
    assert "another question" in again.fault


def test_reports_that_nobody_asked_for_are_refused(house):
    def change(node, kind, answer):
        if kind != "evaluate":
            return answer
        envelope = open_envelope(answer, MOST_BYTES)
        report = unpack(Evaluation, envelope.parts[0])
        more = replace(report, evidence={"samples": [1, 2, 3]})
        return Envelope(envelope.header, (pack(more),)).seal()

    house.post.change = change
    (report,) = house.engine.evaluate([house.job("gym")], Question(("confusion",)))
    assert report == Evaluation("gym", {}) and "nobody asked for" in house.warnings[-1]


def test_a_site_tells_only_what_its_owner_allows(paths, tmp_path):
    house = House(paths, tmp_path, reports=["metrics"])
    (report,) = house.engine.evaluate([house.job("gym")], Question(("confusion", "topology", "samples"), samples=4))
    assert "accuracy" in report.metrics and report.evidence == {}
    assert house.train("gym")[0].metrics == {}
    wanted = Question(("confusion", "topology"))
    for told, kinds in ((USUAL_REPORTS, {"confusion"}), (tuple(REPORTS), {"confusion", "topology"})):
        house = House(paths, tmp_path / str(len(told)), reports=told)
        (report,) = house.engine.evaluate([house.job("gym")], wanted)
        assert set(report.evidence) == kinds  # a learned graph leaves where its owner agrees


def test_a_straggler_fails_and_one_who_vanished_comes_back_as_another_node(house, paths, tmp_path):
    silent = {103}
    house.post.change = lambda node, kind, answer: None if node in silent and kind == "train" else answer
    updates = house.train()
    assert [bool(u.fault) for u in updates] == [False, False, True] and "within 100 s" in updates[2].fault

    def vanish(node, kind, answer):
        if node != 102 or kind != "train":
            return answer
        house.post.gone.add(102)  # killed while it trained; its supervisor starts it again
        house.sites[202] = Site("gym", tmp_path / "sites" / "gym", SiteWorkshop("gym", paths["gym"], "cpu"))
        return Bounce("node unavailable", True)

    house.post.change = vanish
    back = house.train("clinic", "gym")
    assert not any(u.fault for u in back)
    assert all(torch.equal(back[1].tree[n], t) for n, t in updates[1].tree.items())
    house.post.gone |= {101, 103, 202}
    with pytest.raises(NobodyLeftError, match="start the sites again"):
        house.train()


def test_too_few_answers_end_the_training_and_say_whose_are_missing(house):
    house.engine = FlowerEngine(house.exchange, quorum=0.6)
    house.post.gone.add(102)
    assert [bool(update.fault) for update in house.train()] == [False, True, False]
    house.post.gone.add(103)
    with pytest.raises(QuorumError) as error:
        house.train()
    said = str(error.value)
    assert "1 of 3 sites answered" in said and "'gym' has been away" in said and "'home' has been away" in said


def test_one_name_is_one_site_with_the_data_it_joined_with(house, paths, tmp_path):
    house.sites[301] = Site("gym", tmp_path / "impostor", SiteWorkshop("gym", paths["gym"], "cpu"))
    house.sites[302] = Site("late", tmp_path / "late", SiteWorkshop("late", paths["gym"], "cpu"))
    changed = Site("home", tmp_path / "sites" / "home", SiteWorkshop("home", paths["clinic"], "cpu"))
    house.sites[303] = changed
    house.clock.time += 5
    assert not any(update.fault for update in house.train())
    said = " ".join(house.warnings)
    assert "another site has already joined as 'gym'" in said and "'late' came after the run had begun" in said
    assert "the data of 'home' are not those" in said


def test_a_site_refuses_what_a_server_has_no_say_in(house, paths):
    job = house.job("clinic")
    name = next(iter(job.payload))
    bad = {
        "is not shared": replace(job, payload={**job.payload, "more": torch.ones(1)}),
        "expected torch.float32": replace(job, payload={**job.payload, name: torch.ones(3)}),
        "NaN or infinite": replace(job, payload={**job.payload, name: job.payload[name] * float("nan")}),
        "came to 'clinic'": replace(job, client="gym"),
        "epochs": replace(job, epochs=1 << 40),
    }
    house.train("clinic")
    for reason, one in bad.items():
        said = house.ask(101, house.envelope("train", "clinic", pack(one)))
        assert said.kind == "fault" and reason in said.text, said
    assert "came to 'clinic'" in house.ask(101, house.envelope("train", "gym", pack(job))).text
    assert (
        "has lost what it kept after job 9"
        in house.ask(101, house.envelope("train", "clinic", pack(job), basis=9)).text
    )
    for content in (b"", b"fedact01", random.Random(1).randbytes(500)):
        assert house.ask(101, content).kind == "fault"
    recipe = recipe_for_sites(house.recipe)
    for change in ({"method": "nothing"}, {"data": "video"}, {"pretrained": "/etc/passwd"}, {"unknown": 1}):
        said = house.ask(101, house.envelope("hello", "", json.dumps({**recipe, **change}).encode()))
        assert said.kind == "fault", change
    workshop = SiteWorkshop("clinic", paths["clinic"], "cpu")
    told = workshop.read({**recipe, "store_paths": ["/etc"], "device": "cuda", "compile_step": True})
    assert told.source.store_paths == (str(paths["clinic"]),) and not told.run.compile_step


def test_envelopes_survive_any_change_of_a_byte(house):
    whole = house.envelope("train", "clinic", b"123", b"", basis=7)
    back = open_envelope(whole, 1000)
    assert back.parts == (b"123", b"") and back.header.basis == 7
    for place in range(len(whole)):
        broken = bytearray(whole)
        broken[place] ^= 0x41
        for content in (bytes(broken), whole[:place]):
            try:
                open_envelope(content, 1000)
            except EnvelopeError:
                continue
    with pytest.raises(EnvelopeError, match="are the most"):
        open_envelope(whole, 10)


def test_what_a_site_keeps_is_whole_or_lost_with_a_reason(tmp_path):
    store = SiteStore(tmp_path / "kept", "gym")
    for job in (1, 2, 3):
        store.write(job, {"w": torch.full((2,), float(job))})
    assert SiteStore(tmp_path / "kept", "gym").read(2)["w"].tolist() == [2, 2]
    store.forget(2)
    assert store.jobs() == [2, 3]
    path = tmp_path / "kept" / "job-000000003.kept"
    content = path.read_bytes()
    path.write_bytes(content[:50] + b"x" + content[51:])
    with pytest.raises(LostError, match="damaged"):
        store.read(3)
    shutil.copy(tmp_path / "kept" / "job-000000002.kept", path)
    with pytest.raises(LostError, match="belongs to"):
        store.read(3)
    with pytest.raises(LostError, match="has lost"):
        store.read(1)


@pytest.mark.slow
def test_a_server_and_sites_killed_at_any_message_resume_to_the_same_run(paths, tmp_path):
    recipe = make_recipe(paths, "fsar", rounds=4, checkpoint_every=2)
    SingleRun(recipe, simulated(recipe), tmp_path / "simulated", Quiet()).execute()
    open_run(recipe, tmp_path / "real", Roll(count=3))
    for stop in (20, 10, None):  # in round 4, which goes back to the checkpoint of round 2; then again
        post = HousePost(make_sites(paths, tmp_path / "sites"))  # the sites are started anew as well

        def kill(node, kind, answer, post=post, stop=stop):
            if stop is not None and sum(seen[1] in ("train", "evaluate") for seen in post.seen) >= stop:
                raise KeyboardInterrupt
            return answer

        post.change = kill
        if stop is None:
            carry_out(post, tmp_path / "real")
            assert set(Roll.read(tmp_path / "real").joined()) == set(paths)
        else:
            with pytest.raises(KeyboardInterrupt):
                carry_out(post, tmp_path / "real")
    compare(tmp_path / "simulated", tmp_path / "real")


def test_recipes_that_are_for_simulations_are_refused(paths):
    for method, more in (
        ("fsar", {"unseen": "gym"}),
        ("central", {}),
        ("fsar", {"late": ["gym"]}),
        ("fsar", {"attack": "scale", "attackers": 1}),
        ("edge", {"least_epochs": 1}),
    ):
        with pytest.raises(ValueError, match=r"simulations|one place"):
            check_real(make_recipe(paths, method, **more))


def test_other_machines_and_open_traffic_are_refused(monkeypatch):
    monkeypatch.setattr("fedaction.engines.flower.launch.check_flower", lambda: None)  # whether or not it is here
    place = ("--data", ".", "--name", "clinic")
    for words, reason in (
        (("join", "127.0.0.1:8000", *place), "or --insecure"),
        (("join", "hospital.example:8000", *place, "--insecure"), "another machine"),
        (("join", "8000", *place, "--insecure"), "no address"),
        (("join", "127.0.0.1:8000", "--data", ".", "--name", "../x", "--insecure"), "use letters"),
        (("serve", "fsar/demo"), "or --insecure"),
        (("serve", "fsar/demo", "--insecure", "--out", "unused"), "data = 'stage'"),
        (("serve", "fsar/demo", "--insecure", "--host", "localhost.example"), "another machine"),
        (("serve", "fsar/demo", "--keys", ".", "--host", "10.0.0.7"), "say --host 0.0.0.0"),
    ):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 2 and reason in " ".join(result.stderr.split()), result.stderr
