"""Hostile clients in whole federations: rounds that wait, and events; what is refused, bounded and written down."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from fedaction.data.flipped import flip_labels
from fedaction.data.samples import Examples
from fedaction.engines.hostile import Attack, choose_attackers
from fedaction.engines.store import LocalStore
from fedaction.evaluation.site import Evaluation, Question
from fedaction.federation.average import Averager
from fedaction.federation.settings import RecipeError
from fedaction.federation.state import Job, Update
from fedaction.guard.reports import LONGEST_NAME, MOST_METRICS, bound_evaluation, fits
from fedaction.guard.validate import validate
from fedaction.methods.start import initial_state
from fedaction.runs.assembly import Assembly, make_federation, make_rounds
from fedaction.runs.recipe import load_recipe, parse_recipe
from fedaction.server.federation import Federation, Ledger
from fedaction.server.state import FederationState
from tests.conftest import VECTORS, make_method, mixed_clients, vector_clients

SITES = {
    **{"data": "stage_features", "stage_modalities": ["skeleton"], "stage_clients": 7, "stage_people": 1},
    **{"stage_train": 9, "stage_test": 4, "stage_actions": 3, "frames": 12, "feature_width": 16},
    **{"backbone": "perceptron", "classifier": "shared", "model_features": 6, "model_hidden": 8, "model_norm": True},
    **{"buffers": "average", "seeds": [4], "lr": 0.05, "workers": 1, "device": "cpu", "batch_size": 4},
}
BAD = ("skeleton-1", "skeleton-4")


@pytest.fixture(scope="module")
def sites():
    recipe = parse_recipe({"method": "fedavg", **SITES})
    return {client.info.id: client for client in recipe.source.load(0)}


def carry_out(clients, rounds=2, **keys):
    """Some rounds: the state after them, their rows, and what was said."""
    recipe = parse_recipe({"method": "fedavg", **SITES, **keys})
    assembly, said = Assembly.of(recipe, clients), []
    federation = make_federation(recipe, assembly.method, said.append)
    schedule, engine = make_rounds(recipe, federation), assembly.engine()
    state, rows = FederationState(0, initial_state(assembly.method, 4)), []
    for round in range(1, rounds + 1):
        state, more = schedule.advance(state, engine, round)
        rows += more
    engine.close()
    return state, rows, said


def distance(one, other):
    tensors = [(one.server.shared[n].double() - t.double()).square().sum() for n, t in other.server.shared.items()]
    return math.sqrt(float(torch.stack(tensors).sum()))


def marks(rows, name):
    return {row.client for row in rows if row.split == "server" and row.name == name and row.client}


GUARDS = {
    "norm": {"guard": "norm"},
    "absolute": {"guard": "norm", "guard_norm": 0.5, "guard_norm_unit": "absolute"},
    "median": {"guard": "median"},
    "trimmed": {"guard": "trimmed", "guard_trim": 0.28},
    "krum": {"guard": "krum", "guard_krum": 2},
}


@pytest.mark.parametrize("name", GUARDS)
@pytest.mark.parametrize("method", ["fedavg", "fedbuff"])
def test_an_update_scaled_by_a_thousand_does_little_under_every_guard(sites, method, name):
    keys = {"method": method} | ({"buffer": 7, "updates_per_round": 7} if method == "fedbuff" else {})
    quiet, _, _ = carry_out(sites, **keys)
    attack = {**keys, "attack": "scale", "attackers": BAD}
    bare, rows, _ = carry_out(sites, **attack)
    assert not any(marks(rows, what) for what in ("bounded", "outvoted", "outweighed"))
    held, rows, _ = carry_out(sites, **attack, **GUARDS[name])
    assert distance(bare, quiet) > 20 and distance(held, quiet) < 0.05 * distance(bare, quiet)
    if name in ("norm", "absolute"):
        assert marks(rows, "bounded") >= set(BAD)
    if name == "krum":
        others = marks(rows, "outvoted") - set(BAD)  # a buffer may hold one hostile update, or three of a fast client
        assert marks(rows, "outvoted") >= set(BAD) and (method == "fedbuff" or not others)


def test_the_default_is_the_plain_mean_that_streams(sites):
    recipe = parse_recipe({"method": "fedavg", **SITES})
    federation = make_federation(recipe, Assembly.of(recipe, sites).method, lambda _: None)
    assert federation.gather is Averager and list(federation.guards) == [validate]
    streams = parse_recipe({"method": "fedavg", **SITES, **GUARDS["absolute"]})
    assert make_federation(streams, Assembly.of(streams, sites).method, lambda _: None).gather is Averager


def test_nan_is_refused_and_the_round_goes_on(sites):
    without = {name: client for name, client in sites.items() if name not in BAD}
    state, rows, said = carry_out(sites, attack="nan", attackers=BAD)
    assert marks(rows, "refused") == set(BAD) and "NaN or infinite" in said[0]
    other, _, _ = carry_out(without)
    assert all(torch.equal(state.server.shared[n], t) for n, t in other.server.shared.items())


def test_a_client_that_lies_about_its_samples_counts_as_a_multiple_of_the_median():
    clients = mixed_clients()
    method = make_method("fedavg", clients)
    infos = [client.info for client in clients.values()]
    recipe = parse_recipe({"method": "fedavg", "weight_bound": 1.5})
    federation = make_federation(recipe, method, lambda _: None)
    assert [info.id for info in federation.members] == [info.id for info in infos]
    state = FederationState(0, initial_state(method, 0))
    ledger, means = Ledger(federation, state), []
    for number, info in enumerate(infos):
        job = federation.job(state.server, info.id, 1)
        tree = {n: t + number if t.is_floating_point() else t for n, t in job.payload.items()}
        said = 1e12 if number == 4 else float(info.samples)
        assert ledger.receive(Update(info.id, info.group, 0, tree, said, occasion=1), job, state.server, 1)
        means.append(min(said, 1.5 * 14))  # samples are 12, 21, 8, 14 and more than there can be
    after = ledger.combine(state.server)
    expected = sum(number * weight for number, weight in enumerate(means)) / sum(means)
    name = next(n for n, t in state.server.shared.items() if all(method.parts(i).get(n) is None for i in infos))
    moved = after.shared[name] - state.server.shared[name]
    torch.testing.assert_close(moved, torch.full_like(moved, expected))
    assert marks(ledger.rows(1, 0.0, {}), "outweighed") == {"client-4"}


def ready():
    clients = mixed_clients()
    method, said = make_method("fedavg", clients), []
    federation = Federation(method, [client.info for client in clients.values()], (validate,), said.append)
    state = FederationState(0, initial_state(method, 0))
    job = federation.job(state.server, "client-1", 3)
    return federation, state, job, Update("client-1", "skeleton", 0, job.payload, 21.0, {"loss": 0.5}, "", 3), said


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"occasion": 2}, "answered its job 2, but was asked for 3"),
        ({"client": "client-2"}, "answered as"),
        ({"version": -(10**400)}, "answered as"),
        ({"metrics": {f"m{i}": 0.0 for i in range(MOST_METRICS + 1)}}, f"{MOST_METRICS + 1} numbers"),
        ({"metrics": {"m" * (LONGEST_NAME + 1): 0.0}}, "a name of 201 characters"),
        ({"metrics": {"\x1b[2J": 0.0}}, "a name of 4 characters"),
        ({"fault": "\x1b[2J" + "words " * 200_000}, "(1200004 characters)"),
    ],
)
def test_forged_and_replayed_updates_and_endless_reports_are_refused(changes, words):
    federation, state, job, update, said = ready()
    ledger = Ledger(federation, state)
    assert not ledger.receive(replace(update, **changes), job, state.server, 3)
    assert words in said[0] and len(said[0]) < 2000 and said[0].isprintable()
    assert marks(ledger.rows(3, 0.0, {}), "refused") == {"client-1"}
    assert ledger.receive(update, job, state.server, 3)


def test_a_job_is_answered_once():
    federation, state, job, update, said = ready()
    ledger = Ledger(federation, state)
    assert ledger.receive(update, job, state.server, 3)
    assert not ledger.receive(update, job, state.server, 3)
    assert "has answered its job of round 3 before" in said[0] and ledger.accepted == ["client-1"]


def test_a_variance_below_zero_is_refused():
    job = Job("a", "g", 0, 1, {"norm.running_var": torch.ones(2)})
    update = Update("a", "g", 0, {"norm.running_var": torch.tensor([1.0, -0.1])}, 1.0, occasion=1)
    with pytest.raises(ValueError, match="a variance below zero"):
        validate(update, job, None)


class Reporter:
    """An engine whose sites report what they please."""

    def __init__(self, reports):
        self.reports = reports

    def evaluate(self, jobs, question=Question()):  # noqa: B008
        return (self.reports[job.client] for job in jobs)


def test_reports_of_tests_are_bounded_and_the_others_are_used():
    federation, state, *_, said = ready()
    seen = {"confusion": {"classes": ["a"], "matrix": [[4]]}}
    good = Evaluation("client-0", {"accuracy": 0.5, "loss": math.nan}, seen, 4)
    reports = {
        "client-0": good,
        "client-1": replace(good, client="client-1", metrics={str(i): 0.0 for i in range(2000)}),
        "client-2": replace(good, client="client-0"),
        "client-3": replace(good, client="client-3", metrics={"accuracy": math.nan}),
        "client-4": replace(good, client="client-4", evidence={"confusion": "x" * 5_000_000, "secrets": 1}),
    }
    used = federation.evaluate(state, Reporter(reports), reports)
    assert [report.client for report in used] == ["client-0", "client-4"] and used[0] is good
    assert not used[1].evidence and used[1].metrics == good.metrics
    reasons = ("reports 2000 numbers", "but 'client-0' answered", "accuracy nan")
    assert all(words in line for words, line in zip(reasons, said, strict=True)), said
    assert bound_evaluation(good, "client-0") is good
    assert fits([[1, 2], {"a": "b"}], 9) and not fits([[1, 2], {"a": "b"}], 8)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("confusion", {"classes": ["a", "b"], "matrix": [[1, 2]]}),
        ("confusion", {"classes": ["a"], "matrix": [[-1]]}),
        ("confusion", [1]),
        ("topology", {"layout": {"joints": ["a"], "edges": []}, "A": [[math.nan]]}),
        ("topology", {"layout": {"joints": 3}, "A": [[1.0]]}),
        ("samples", [{"frames": [[[0.0, 0.0]]]}]),
        ("samples", "x"),
    ],
)
def test_evidence_that_is_not_what_its_kind_is_is_left_out(kind, value):
    report = Evaluation("a", {"accuracy": 0.5}, {kind: value}, 4)
    assert bound_evaluation(report, "a") == replace(report, evidence={})


def test_guards_that_compare_need_several_updates_at_a_time(sites):
    with pytest.raises(RecipeError, match="combines them one at a time"):
        carry_out(sites, method="edge", guard="median")
    with pytest.raises(RecipeError, match="combines them one at a time"):
        carry_out(sites, method="edge", guard="norm")
    _, rows, _ = carry_out(sites, method="edge", attack="scale", attackers=BAD, **GUARDS["absolute"])
    assert marks(rows, "bounded") & set(BAD)
    _, _, said = carry_out(sites, guard="krum", guard_krum=3)
    assert said == ["guard_krum = 3 needs 9 updates at a time, but all clients has 7: Krum then expects 2 attackers"]


def test_what_attackers_send():
    clients = vector_clients()
    method = make_method("fedavg", clients, **VECTORS, model_norm=True, buffers="average")
    info = method.clients["client-2"]
    job = Job(info.id, info.group, 0, 5, method.payload(initial_state(method, 0), info))
    tree = {n: t + 0.5 for n, t in job.payload.items()}
    update, store = Update(info.id, info.group, 0, tree, 6.0, occasion=5), LocalStore(lambda _: {})
    leaves = method.plan(info).leaves
    kinds = {leaf.kind for name, leaf in leaves.items() if name in tree}
    assert kinds == {"parameter", "buffer"}
    for kind, size, moved in (("scale", 0.0, 500.0), ("scale", 3.0, 1.5), ("sign", 0.0, -0.5), ("sign", 4.0, -2.0)):
        sent = Attack(method, kind, {info.id}, 7, size)(job, update, store).tree
        for name, tensor in sent.items():
            far = moved if leaves[name].kind == "parameter" else 0.5
            torch.testing.assert_close(tensor - job.payload[name], torch.full_like(tensor, far), rtol=1e-3, atol=1e-4)
    noise = Attack(method, "noise", {info.id}, 7)
    one, again = (noise(job, update, store).tree for _ in range(2))
    other = Attack(method, "noise", {info.id}, 8)(job, update, store).tree
    weights = max((n for n in tree if leaves[n].kind == "parameter"), key=lambda n: tree[n].numel())
    assert torch.equal(one[weights], again[weights]) and not torch.equal(one[weights], other[weights])
    assert 3 < float((one[weights] - tree[weights]).std()) < 7  # ten times 0.5
    assert Attack(method, "scale", {"client-0"}, 7)(job, update, store) is update


def test_an_attack_with_nan_can_be_set_without_quotes():
    recipe = load_recipe("robust/stage", ["attack=nan"])
    assert recipe.guard.attack == "nan" and recipe.guard == load_recipe("robust/stage", ['attack="nan"']).guard


def test_who_attacks():
    names = [f"c{i}" for i in range(9)]
    drawn = [choose_attackers(count, names, 3) for count in range(10)]
    assert [len(one) for one in drawn] == [*range(10)]
    assert all(fewer < more for fewer, more in pairwise(drawn))
    assert choose_attackers(4, names[::-1], 3) == drawn[4] and choose_attackers(("c2",), names, 3) == {"c2"}
    with pytest.raises(ValueError, match="there is no client 'x'"):
        choose_attackers(("x",), names, 3)
    with pytest.raises(ValueError, match="attackers = 10, but there are 9 clients"):
        choose_attackers(10, names, 3)


def test_wrong_labels_are_learned_from_and_never_tested_on(sites):
    recipe = parse_recipe({"method": "fedavg", **SITES, "attack": "labels", "attackers": BAD})
    assembly = Assembly.of(recipe, sites)
    for name, client in sites.items():
        wrong = 2 - client.train.labels if name in BAD else client.train.labels
        assert torch.equal(assembly.clients[name].train.labels, wrong)
        assert torch.equal(assembly.clients[name].test.labels, client.test.labels)

    class Streamed:
        """Samples that are not in memory."""

        def __init__(self, held):
            self.held = held

        def __getattr__(self, name):
            return getattr(self.held, name)

        def __len__(self):
            return len(self.held)

    x = torch.arange(8.0).view(4, 2)
    held = Examples(x, torch.tensor([0, 1, 2, 0]), ("a", "b", "c", "d"))
    flipped, rows = flip_labels(Streamed(held), 3), torch.tensor([2, 0])
    assert flipped.labels.tolist() == [2, 1, 0, 2] and len(flipped) == 4 and flipped.shape == (2,)
    assert torch.equal(flipped.take(rows), x[rows]) and flipped.subjects == held.subjects
    assert flipped.pick(rows).labels.tolist() == [0, 2]
    assert flipped.on(torch.device("cpu")).labels.tolist() == [2, 1, 0, 2]
    assert flipped.resident and not flipped.fresh and flipped.recording is None
    assert flipped.draw(rows, torch.Generator()) is None
