"""Sites that mean harm, in whole runs over messages: what they try is refused or bounded, and the run goes on."""

import math
import random
from dataclasses import replace

import pytest
import torch

from fedaction.engines.flower.envelope import Envelope, Front, open_envelope
from fedaction.engines.flower.status import STATUS, ServerStatus, read_record
from fedaction.engines.messages import MOST_BYTES, pack, unpack
from fedaction.engines.observed import ObservedEngine
from fedaction.federation.progress import Quiet
from fedaction.federation.seeds import numpy_generator
from fedaction.federation.state import Job, Update
from fedaction.runs.metrics import read_rows
from fedaction.runs.remote import NEWS, Roll, carry_out, open_run
from fedaction.runs.single import SingleRun
from tests.engines.flower.places import HousePost, make_recipe, make_sites, make_stores, simulated
from tests.engines.flower.test_contract import House, compare, compare_tensors, forge, forge_update
from tests.engines.test_hostile_messages import change

ATTACKER = 102
"""The gym's node."""


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return make_stores(tmp_path_factory.mktemp("places"))


def fill(value):
    """Every number of an update is the same."""
    return lambda tree: {n: torch.full_like(t, value) if t.is_floating_point() else t for n, t in tree.items()}


def first(tree):
    return next(name for name, tensor in tree.items() if tensor.is_floating_point())


def change_tree(change):
    return lambda answer, before: forge_update(answer, tree=change(read_update(answer).tree))


def read_update(answer):
    return unpack(Update, open_envelope(answer, MOST_BYTES).parts[0])


MILLION = {f"{number}": 0.0 for number in range(1_000_000)}
TRIES = [  # what the gym sends in each round, given its sound answer and that of the round before; what is said of it
    (lambda answer, before: answer, ""),
    (change_tree(fill(math.nan)), "NaN or infinite"),
    (change_tree(fill(math.inf)), "NaN or infinite"),
    (change_tree(lambda tree: {f"{name}.more": tensor for name, tensor in tree.items()}), "did not send"),
    (change_tree(lambda tree: {**tree, "more": torch.ones(1)}), "more"),
    (change_tree(lambda tree: {n: t for n, t in tree.items() if n != first(tree)}), "did not send"),
    (change_tree(lambda tree: {**tree, first(tree): torch.ones(3, 3)}), "expected"),
    (change_tree(lambda tree: {**tree, first(tree): tree[first(tree)].double()}), "expected"),
    (change_tree(lambda tree: {**tree, first(tree): torch.ones(5_000_000)}), "are the most that were expected"),
    (lambda answer, before: answer[: len(answer) // 3], "parts of a message would have"),
    (lambda answer, before: random.Random(7).randbytes(len(answer)), "no message"),
    (lambda answer, before: before, "another question"),  # replayed
    (lambda answer, before: forge(answer, client="home"), "another question"),  # forged
    (lambda answer, before: forge_update(answer, client="home"), "answered as"),
    (lambda answer, before: forge_update(answer, occasion=1), "answered its job 1, but was asked for"),
    (lambda answer, before: forge_update(answer, metrics=MILLION), "are the most that were expected"),
    (lambda answer, before: forge_update(answer, metrics={"x" * (1 << 20): 1.0}), "are the most that were expected"),
    (lambda answer, before: forge_update(answer, fault="words " * 100_000), "words words"),
    (lambda answer, before: forge_update(answer, samples=math.nan), "samples"),
    (lambda answer, before: forge_update(answer, samples=-5.0), "samples"),
    (lambda answer, before: answer, ""),
]


class Deaf(SingleRun):
    """A simulation whose server does not hear one client in some rounds."""

    rounds_lost: frozenset[int] = frozenset()

    def engine(self, state):
        def lose(job, update, store):
            lost = job.client == "gym" and job.round in self.rounds_lost
            return replace(update, tree={}, fault="not heard") if lost else update

        return ObservedEngine(super().engine(state), [lose])


def test_whatever_a_site_tries_is_refused_and_the_run_is_as_if_it_had_been_silent(paths, tmp_path):
    """To the last bit, its own tensors included: those of refused updates do not count."""
    rounds, paths = len(TRIES), {name: paths[name] for name in ("clinic", "gym")}
    recipe = make_recipe(paths, "fsar", rounds=rounds, quorum=0.5, evaluate_every=rounds)
    open_run(recipe, tmp_path / "real", Roll(count=2))
    post, answers = HousePost(make_sites(paths, tmp_path / "sites")), [b""]

    def attack(node, kind, answer):
        if (node, kind) != (ATTACKER, "train"):
            return answer
        answers.append(answer)
        return TRIES[len(answers) - 2][0](answer, answers[-2])

    post.change = attack
    carry_out(post, tmp_path / "real")
    assert len(answers) == rounds + 1  # asked once a round, however it answers
    bad = {number for number, (_, reason) in enumerate(TRIES, 1) if reason}
    rows = read_rows(tmp_path / "real" / "metrics.jsonl")
    assert {row.round for row in rows if (row.client, row.name) == ("gym", "refused")} == bad
    assert [row.value for row in rows if row.name == "combined"] == [1] * rounds
    said = (tmp_path / "real" / NEWS).read_text().splitlines()
    refusals = [line for line in said if "is not used" in line]
    assert len(refusals) == len(bad) and all(len(line) < 3000 for line in refusals)
    for line, number in zip(refusals, sorted(bad), strict=True):
        assert TRIES[number - 1][1] in line, line
    status = read_record(ServerStatus, tmp_path / "real" / STATUS)
    assert status is not None and status.sites["gym"].refused == len(bad)

    quiet = Deaf(recipe, simulated(recipe), tmp_path / "simulated", Quiet())
    quiet.rounds_lost = frozenset(bad)
    quiet.execute()
    compare_tensors(tmp_path / "simulated", tmp_path / "real")
    others = [
        [row for row in read_rows(tmp_path / name / "metrics.jsonl") if not row.name.startswith("bytes")]
        for name in ("simulated", "real")
    ]
    assert others[0] == others[1]  # what was refused has been sent: it is counted


def exaggerate(job, update):
    """What was learned, times a thousand, by somebody who has a billion samples."""
    tree = {n: job.payload[n] + 1000 * (t - job.payload[n]) if t.is_floating_point() else t
            for n, t in update.tree.items() if not n.endswith("running_var")}  # fmt: skip
    return replace(update, tree={**update.tree, **tree}, samples=1e9)


class Exaggerated(SingleRun):
    """A simulation with such a client."""

    def engine(self, state):
        def lie(job, update, store):
            return exaggerate(job, update) if job.client == "gym" else update

        return ObservedEngine(super().engine(state), [lie])


def test_an_update_scaled_by_a_thousand_and_a_lie_about_samples_are_bounded_between_sites_too(paths, tmp_path):
    honest = make_recipe(paths, "fedavg", rounds=2)
    recipe = make_recipe(paths, "fedavg", rounds=2, guard="norm", weight_bound=1.5)
    ends = {}
    for name, asked in (("bare", honest), ("guarded", recipe)):
        open_run(asked, tmp_path / name, Roll(count=3))
        post = HousePost(make_sites(paths, tmp_path / f"{name}-sites"))

        def lie(node, kind, answer, post=post):
            if (node, kind) != (ATTACKER, "train"):
                return answer
            job = unpack(Job, open_envelope(post.seen[-1][2], MOST_BYTES).parts[0])
            update = exaggerate(job, read_update(answer))
            return forge_update(answer, tree=update.tree, samples=update.samples)

        post.change = lie
        carry_out(post, tmp_path / name)
    Exaggerated(recipe, simulated(recipe), tmp_path / "simulated", Quiet()).execute()
    compare(tmp_path / "simulated", tmp_path / "guarded")
    SingleRun(honest, simulated(honest), tmp_path / "honest", Quiet()).execute()
    for name in ("honest", "bare", "guarded"):
        state, _ = compare_tensors(tmp_path / name, tmp_path / name)
        floats = [t.double().flatten() for _, t in sorted(state.server.shared.items()) if t.is_floating_point()]
        ends[name] = torch.cat(floats)
    far, near = ((ends[name] - ends["honest"]).norm() for name in ("bare", "guarded"))
    assert near < 0.02 * far
    rows = read_rows(tmp_path / "guarded" / "metrics.jsonl")
    for mark in ("bounded", "outweighed"):
        assert {row.round for row in rows if (row.client, row.name) == ("gym", mark)} == {1, 2}


def test_a_site_answers_any_bytes_and_goes_on(paths, tmp_path):
    house = House(paths, tmp_path)
    (before,) = house.train("clinic")
    house.engine.evaluate([house.job("clinic")])
    asked = [question for node, _, question, _ in house.post.seen if node == 101]
    kinds = set()
    for number in range(600):
        random = numpy_generator(9, "asked", number)
        question = asked[number % len(asked)]
        if number % 3:
            question = change(question, random)
        else:  # a sound envelope around broken parts
            envelope = open_envelope(question, MOST_BYTES)
            question = Envelope(envelope.header, tuple(change(part, random) for part in envelope.parts)).seal()
        kinds.add(open_envelope(house.sites[101].answer(question), MOST_BYTES).header.kind)
    assert kinds >= {"fault"} and kinds <= {"fault", "unknown", "hello", "begin", "train", "evaluate"}
    house.sites[101].answer(asked[0])  # what was begun may have been another run
    (after,) = house.train("clinic")
    assert not after.fault and all(torch.equal(after.tree[n], t) for n, t in before.tree.items())


def test_a_server_reads_any_answer_and_goes_on(paths, tmp_path):
    house = House(paths, tmp_path)
    whole = house.train("gym")[0]
    number, faults = 0, 0

    def spoil(node, kind, answer):
        nonlocal number
        if kind != "train":
            return answer
        number += 1
        random = numpy_generator(11, "answered", number)
        if number % 2:
            return change(answer, random)
        envelope = open_envelope(answer, MOST_BYTES)
        return Envelope(envelope.header, tuple(change(part, random) for part in envelope.parts)).seal()

    house.post.change = spoil
    for _ in range(40):
        (update,) = house.train("gym")
        faults += bool(update.fault)
    assert faults > 20 and all(len(line) < 3000 and line.isprintable() for line in house.warnings)
    house.post.change = lambda node, kind, answer: answer
    (after,) = house.train("gym")
    assert not after.fault and all(torch.equal(after.tree[n], t) for n, t in whole.tree.items())


def test_a_key_is_one_name_and_a_node_without_one_is_nobody(paths, tmp_path):
    """Where the server was given keys; each node's is known from the SuperLink, not from what the node says."""
    open_run(
        make_recipe(paths, "fedavg", rounds=1), tmp_path / "real", Roll(count=2, keys={"f1": "clinic", "f2": "home"})
    )
    post = HousePost(make_sites(paths, tmp_path / "sites"))
    post.keys = {101: "f1", 102: "f1", 103: "f2"}  # the gym has the clinic's key
    carry_out(post, tmp_path / "real")
    assert set(Roll.read(tmp_path / "real").joined()) == {"clinic", "home"}
    assert "it says that it is 'gym', but its key is 'clinic'" in (tmp_path / "real" / NEWS).read_text()


def test_a_refusal_of_a_hello_is_bounded_too(paths, tmp_path):
    house = House(paths, tmp_path)
    long = Front(kind="fault", run="0" * 32, nonce="1" * 32, text="x" * 2000)
    with pytest.raises(ValueError, match="String should have at most 2000"):
        Front.model_validate({**long.model_dump(), "text": "x" * 2001})
    many = replace(house.method.clients["gym"], classes=tuple(f"class {i}" for i in range(200_000)))
    house.post.change = lambda node, kind, answer: (
        Envelope(open_envelope(answer, MOST_BYTES).header, (pack(many),)).seal() if kind == "hello" else answer
    )
    house.sites[401] = house.sites[102]
    house.clock.time += 5
    assert not house.train("clinic")[0].fault
    assert "is left out" in house.warnings[-1] and len(house.warnings[-1]) < 1000
