"""Robust averages against slow, literal versions: in each scope and group, on parts of tensors."""

import math
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
import torch
from torch import nn

from fedaction.federation.average import Averager
from fedaction.federation.scope import Rule, Scope, ScopeTable
from fedaction.federation.seeds import generator
from fedaction.federation.settings import Settings
from fedaction.federation.state import Job, Report, Update
from fedaction.guard.norm import NormBound, blocks_of, measure_lengths
from fedaction.guard.robust import RobustAverager
from fedaction.guard.settings import GuardSettings
from fedaction.methods.base import Method
from fedaction.methods.start import initial_state
from tests.conftest import VECTORS, make_client, make_method, mixed_clients, vector_clients

SAMPLES = (12.0, 21.0, 8.0, 14.0, 5.0, 9.0, 30.0)


def skeleton_method():
    """Parts (three layouts), unequal classes and shared statistics, all GLOBAL; seven clients."""
    clients = mixed_clients() | {c.info.id: c for c in (make_client(5, joints="kinect_v1"), make_client(6))}
    return make_method("fsar", clients, buffers="average", classifier="shared")


def vector_method():
    """GROUP tensors of two modalities besides GLOBAL ones, with normalisation."""
    return make_method("fdarn", vector_clients(), **VECTORS, model_norm=True)


class OwnNetwork(Method):
    """A program's network: torch's own normalisation, with its counter, all of it GLOBAL."""

    title = "Own"
    settings_type = Settings

    def build(self, client):
        return nn.Sequential(nn.Linear(10, 4), nn.BatchNorm1d(4), nn.Linear(4, len(client.classes)))

    def scopes(self):
        return ScopeTable((Rule("**", Scope.GLOBAL),))


def own_method():
    """Counters besides statistics."""
    return OwnNetwork([client.info for client in vector_clients().values()], Settings())


METHODS = {"parts": skeleton_method, "groups": vector_method, "counters": own_method}


def answers(method, *, versions=False, wild=()):
    """A job and an update of every client; with `versions`, each from a model of its own."""
    found, first = [], initial_state(method, 0)
    for number, info in enumerate(method.clients.values()):
        server = initial_state(method, number) if versions else first
        job = Job(info.id, info.group, 0, 1, method.payload(server, info))
        random = generator(3, "moved", number)
        tree = {}
        for name, sent in job.payload.items():
            size = (1000.0 if info.id in wild else 1.0) * (0.1 + number)
            moved = torch.randn(sent.shape, generator=random) * size
            tree[name] = sent + moved.abs() if sent.is_floating_point() else sent + number
        found.append((job, Update(info.id, info.group, 0, tree, SAMPLES[number], occasion=1)))
    return found


def gather(method, found, averager, weights=None):
    for number, (job, update) in enumerate(found):
        info = method.clients[job.client]
        weight = update.samples if weights is None else weights[number]
        averager.add(update, job, weight, method.plan(info).scopes, method.parts(info))
    return averager.averages()


def robust(method, found, weights=None, **keys):
    averager = RobustAverager(method, GuardSettings(**keys))
    return gather(method, found, averager, weights), averager.marks


def entries(method, found, take):
    """By group (None: GLOBAL), tensor and place: the values `take(job, update, name)` of those who hold the entry."""
    seen = {}
    for job, update in found:
        info = method.clients[job.client]
        plan, parts = method.plan(info), method.parts(info)
        for name in update.tree:
            group = info.group if plan.scopes[name] is Scope.GROUP else None
            values = take(job, update, name).double().numpy()
            held = [range(n) for n in values.shape]
            if name in parts:
                kept = zip(parts[name].index, values.shape, strict=True)
                held = [range(n) if i is None else i.tolist() for i, n in kept]
            for place in np.ndindex(values.shape):
                whole = tuple(axis[p] for axis, p in zip(held, place, strict=True))
                seen.setdefault((group, name), {}).setdefault(whole, []).append(float(values[place]))
    return seen


def trimmed(values, share):
    out = min(math.ceil(share * len(values) - 1e-9), (len(values) - 1) // 2)
    return float(np.mean(sorted(values)[out : len(values) - out]))


def trees_of(averages):
    return {None: averages.shared, **averages.groups}


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize(
    ("keys", "middle"),
    [({"guard": "median"}, np.median), ({"guard": "trimmed", "guard_trim": 0.3}, lambda v: trimmed(v, 0.3))],
)
def test_medians_and_trimmed_means_are_taken_of_each_entry_among_those_who_hold_it(kind, keys, middle):
    method = METHODS[kind]()
    found = answers(method, wild=("client-1",))
    averages, _ = robust(method, found, **keys)
    literal = entries(method, found, lambda job, update, name: update.tree[name])
    counts = {len(values) for one in literal.values() for values in one.values()}
    assert len(counts) > 1 or kind == "counters"  # held by more and by fewer
    for (group, name), places in literal.items():
        tensor = trees_of(averages)[group].after[name]
        for place, values in places.items():
            assert float(tensor[place]) == pytest.approx(float(middle(values)), rel=1e-5), (name, place)
    plain = gather(method, found, Averager())
    for group, mean in trees_of(averages).items():  # weights and counts are those of the updates
        assert repr(mean.weights) == repr(trees_of(plain)[group].weights)


def test_differences_are_taken_from_what_each_job_carried():
    method = skeleton_method()
    found = answers(method, versions=True)
    averages, _ = robust(method, found, guard="median")
    moved = entries(method, found, lambda job, update, name: update.tree[name] - job.payload[name])
    for (_, name), places in moved.items():
        tensor = averages.shared.after[name] - averages.shared.sent[name]
        for place, values in places.items():
            assert float(tensor[place]) == pytest.approx(float(np.median(values)), rel=1e-3, abs=1e-4), (name, place)


@pytest.mark.parametrize("kind", METHODS)
def test_a_few_wild_updates_move_no_entry_out_of_the_range_of_the_others(kind):
    method = METHODS[kind]()
    wild = ("client-1",)
    found = answers(method, wild=wild)
    others = [(job, update) for job, update in found if job.client not in wild]
    inside = entries(method, others, lambda job, update, name: update.tree[name])
    for keys in ({"guard": "median"}, {"guard": "trimmed", "guard_trim": 0.34}):
        averages, _ = robust(method, found, **keys)
        for (group, name), places in inside.items():
            tensor = trees_of(averages)[group].after[name]
            for place, values in places.items():
                if len(values) > 1:  # beside a single other, nobody can say who is wild
                    assert min(values) - 1e-4 <= float(tensor[place]) <= max(values) + 1e-4, (name, place)


@pytest.mark.parametrize("kind", METHODS)
def test_norms_are_bounded_by_the_median_of_each_block(kind):
    method = METHODS[kind]()
    found = answers(method, wild=("client-1",))
    averages, marks = robust(method, found, guard="norm", guard_norm=1.5)
    lengths = {}
    for job, update in found:
        plan = method.plan(method.clients[job.client])
        for name, tensor in update.tree.items():
            if tensor.is_floating_point():
                group = job.group if plan.scopes[name] is Scope.GROUP else None
                block = (group, plan.leaves[name].kind)
                square = float((tensor.double() - job.payload[name].double()).square().sum())
                lengths.setdefault(block, {}).setdefault(job.client, []).append(square)
    assert {kind for _, kind in lengths} >= {"parameter", "buffer"}
    bounded, far = [], set()
    for job, update in found:
        plan, tree = method.plan(method.clients[job.client]), dict(update.tree)
        for name, tensor in update.tree.items():
            if tensor.is_floating_point():
                own = lengths[job.group if plan.scopes[name] is Scope.GROUP else None, plan.leaves[name].kind]
                norms = {client: math.sqrt(sum(squares)) for client, squares in own.items()}
                factor = min(1.0, 1.5 * median(norms.values()) / norms[job.client])
                far |= {job.client} if factor < 1 else set()
                tree[name] = job.payload[name] + factor * (tensor - job.payload[name])
        bounded.append((job, replace(update, tree=tree)))
    assert "client-1" in far and marks == {"bounded": sorted(far)}
    expected = trees_of(gather(method, bounded, Averager()))
    for group, mean in trees_of(averages).items():
        for name, tensor in mean.after.items():
            torch.testing.assert_close(tensor, expected[group].after[name], rtol=1e-4, atol=1e-4)


def test_a_bound_in_numbers_needs_one_update_at_a_time():
    method = own_method()
    guard = NormBound(method, 3.0)
    for job, update in answers(method, wild=("client-1",)):
        blocks = blocks_of(method, job.client, update.tree)
        before = measure_lengths(update, job, blocks)
        after = guard(update, job, Report(job.client, job.group, 1.0, 0))
        lengths = measure_lengths(after, job, blocks)
        assert lengths == pytest.approx({block: min(3.0, length) for block, length in before.items()}, rel=1e-4)
        assert (after is update) == all(length <= 3 for length in before.values())
        counters = [name for name, tensor in update.tree.items() if not tensor.is_floating_point()]
        assert counters and all(after.tree[name] is update.tree[name] for name in counters)


def krum(method, found, group, expected, keep):
    """Names that Krum chooses, pair by pair and entry by entry."""
    moved = {}
    for job, update in found:
        info = method.clients[job.client]
        plan = method.plan(info)
        own = {n for n, s in plan.scopes.items() if (s is Scope.GROUP) == (group is not None)}
        own = {n for n in own if plan.leaves[n].kind == "parameter"} if group in (None, job.group) else set()
        one = replace(update, tree={n: t for n, t in update.tree.items() if n in own})
        seen = entries(method, [(job, one)], lambda job, update, name: update.tree[name] - job.payload[name])
        if own:
            moved[job.client] = {(n, p): v[0] for (_, n), places in seen.items() for p, v in places.items()}
    scores = {}
    for client, mine in moved.items():
        distances = []
        for other, theirs in moved.items():
            if other != client:
                common = mine.keys() & theirs.keys()
                distances.append(np.mean([(mine[entry] - theirs[entry]) ** 2 for entry in common]))
        scores[client] = sum(sorted(distances)[: len(moved) - expected - 2])
    return sorted(moved, key=lambda client: scores[client])[:keep]


@pytest.mark.parametrize(("kind", "group", "keep"), [("parts", None, 0), ("parts", None, 1), ("groups", None, 3)])
def test_krum_chooses_by_the_nearest_neighbours_among_entries_both_have(kind, group, keep):
    method = METHODS[kind]()
    found = answers(method, wild=("client-1", "client-2")[: 2 if kind == "parts" else 1])
    expected = 2 if kind == "parts" else 1
    averages, marks = robust(method, found, guard="krum", guard_krum=expected, guard_keep=keep)
    chosen = krum(method, found, group, expected, keep or len(found) - expected)
    assert "client-1" not in chosen
    outvoted = set(marks["outvoted"])
    assert outvoted == {job.client for job, _ in found} - set(chosen)
    kept = [(job, update) for job, update in found if job.client in chosen]
    plain = gather(method, kept, Averager()).shared
    assert all(torch.equal(averages.shared.after[name], tensor) for name, tensor in plain.after.items())
    if kind == "groups":  # of two and three updates, nobody can be told from the others
        whole = gather(method, found, Averager())
        for name, mean in averages.groups.items():
            assert all(torch.equal(mean.after[n], t) for n, t in whole.groups[name].after.items())


@pytest.mark.parametrize(
    "keys", [{"guard": g} for g in ("norm", "median", "trimmed", "krum")] + [{"weight_bound": 1.0}]
)
@pytest.mark.parametrize("kind", METHODS)
def test_the_order_of_clients_does_not_matter(kind, keys):
    method = METHODS[kind]()
    found = answers(method, wild=("client-1",))
    one, marks = robust(method, found, **keys)
    for order in (found[::-1], found[2:] + found[:2]):
        other, again = robust(method, order, **keys)
        assert again == marks
        for group, mean in trees_of(one).items():
            assert mean.after.keys() == trees_of(other)[group].after.keys()
            assert all(torch.equal(tensor, trees_of(other)[group].after[n]) for n, tensor in mean.after.items())


@pytest.mark.parametrize("pairs", [False, True])
def test_weights_are_bounded_by_a_multiple_of_their_median(pairs):
    method = skeleton_method()
    found = answers(method)
    samples = [12.0, 21.0, 8.0, 1e9, 5.0, 9.0, 30.0]
    by_loss = [0.1, 0.2, 1e300, 0.1, 0.3, 0.2, 0.1]
    weights = [((0.9, w), (0.1, s)) for w, s in zip(by_loss, samples, strict=True)] if pairs else samples
    averages, marks = robust(method, found, weights, weight_bound=2.0)
    cut = [min(s, 24.0) for s in samples]  # the medians are 12 and 0.2
    bounded = [((0.9, min(w, 0.4)), (0.1, s)) for w, s in zip(by_loss, cut, strict=True)] if pairs else cut
    expected = gather(method, found, Averager(), bounded)
    assert all(torch.equal(tensor, expected.shared.after[name]) for name, tensor in averages.shared.after.items())
    assert marks == {"outweighed": ["client-2", "client-3", "client-6"] if pairs else ["client-3", "client-6"]}


def test_without_a_guard_a_held_round_is_the_plain_mean():
    method = skeleton_method()
    found = answers(method)
    averages, marks = robust(method, found, weight_bound=1e9)
    plain = gather(method, found, Averager())
    assert not marks and all(torch.equal(averages.shared.after[n], t) for n, t in plain.shared.after.items())
