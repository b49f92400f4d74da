"""Robust averages over messages: a hostile site does to them what it does in a simulation, to the last bit."""

from dataclasses import replace

import pytest
import torch

from fedaction.data.flipped import flip_labels
from fedaction.engines.flower.envelope import open_envelope
from fedaction.engines.flower.site import Site
from fedaction.engines.hostile import Attack
from fedaction.engines.messages import MOST_BYTES, unpack
from fedaction.engines.store import LocalStore
from fedaction.federation.progress import Quiet
from fedaction.federation.state import Job, Update
from fedaction.runs.metrics import read_rows
from fedaction.runs.remote import Roll, carry_out, open_run
from fedaction.runs.single import SingleRun
from fedaction.runs.sites import SiteWorkshop
from tests.conftest import few
from tests.engines.flower.places import HousePost, make_like_stores, make_recipe, make_sites, simulated
from tests.engines.flower.test_contract import compare, compare_tensors, forge_update

NAMES = ("bath", "clinic", "gym", "home", "shop")  # Krum needs five to expect one attacker
ATTACKER = "gym"
GUARDS = {"median": {}, "trimmed": {"guard_trim": 0.2}, "krum": {"guard_krum": 1}}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return make_like_stores(tmp_path_factory.mktemp("places"), recordings=50, names=NAMES)


def over_messages(paths, folder, recipe, sites, kind=""):
    """A run over messages, in which the attacker's updates are changed on their way."""
    open_run(recipe, folder / "real", Roll(count=len(paths)))
    post = HousePost(sites)

    def attack(node, what, answer):
        if what != "train" or post.sites[node].name != ATTACKER:
            return answer
        job, update = (
            unpack(of, open_envelope(content, MOST_BYTES).parts[0])
            for of, content in ((Job, post.seen[-1][2]), (Update, answer))
        )
        method = post.sites[node]._run.work.method
        lie = Attack(method, kind, [ATTACKER], recipe.run.seeds[0], 5.0)
        return forge_update(answer, tree=lie(job, update, LocalStore(lambda _: {})).tree)

    post.change = attack if kind else post.change
    carry_out(post, folder / "real")


def shared(folder):
    state, _ = compare_tensors(folder, folder)
    return torch.cat([t.flatten() for _, t in sorted(state.server.shared.items()) if t.is_floating_point()])


@pytest.mark.parametrize("guard", few(GUARDS, "median"))
def test_a_site_that_turns_its_update_around_is_held_as_in_a_simulation(paths, tmp_path, guard):
    more = {"rounds": 1, "guard": guard, "buffers": "average", "classifier": "shared", **GUARDS[guard]}
    over_messages(
        paths, tmp_path, make_recipe(paths, "fedavg", **more), make_sites(paths, tmp_path / "sites"), "sign"
    )
    attack = {"attack": "sign", "attackers": [ATTACKER], "attack_size": 5.0}
    hostile = make_recipe(paths, "fedavg", **more, **attack)
    SingleRun(hostile, simulated(hostile), tmp_path / "simulated", Quiet()).execute()
    compare(tmp_path / "simulated", tmp_path / "real")
    rows = read_rows(tmp_path / "real" / "metrics.jsonl")
    if guard == "krum":
        assert {row.client for row in rows if row.name == "outvoted"} == {ATTACKER}
    ends = {"guarded": shared(tmp_path / "real")}
    for name, keys in (("bare", {"guard": "none"}), ("honest", {"attack": "none", "attackers": 0})):
        other = make_recipe(paths, "fedavg", **{**more, **attack, **keys})
        SingleRun(other, simulated(other), tmp_path / name, Quiet()).execute()
        ends[name] = shared(tmp_path / name)
    assert (ends["guarded"] - ends["honest"]).norm() < 0.5 * (ends["bare"] - ends["honest"]).norm()


class Flipped(SiteWorkshop):
    """The data of a site whose labels are wrong; its tests stay as they are."""

    def load(self, recipe):
        data = super().load(recipe)
        return replace(data, train=flip_labels(data.train, len(data.info.classes)))


@pytest.mark.parametrize("guard", few(("none", "median", "trimmed"), "krum"))
def test_a_site_with_flipped_labels_is_what_it_is_in_a_simulation(paths, tmp_path, guard):
    more = {"rounds": 2, "guard": guard, "buffers": "average", "classifier": "shared", **GUARDS.get(guard, {})}
    sites = make_sites(paths, tmp_path / "sites")
    node = 101 + [*paths].index(ATTACKER)
    sites[node] = Site(ATTACKER, tmp_path / "sites" / ATTACKER, Flipped(ATTACKER, paths[ATTACKER], "cpu"))
    over_messages(paths, tmp_path, make_recipe(paths, "fedavg", **more), sites)
    hostile = make_recipe(paths, "fedavg", **more, attack="labels", attackers=[ATTACKER])
    SingleRun(hostile, simulated(hostile), tmp_path / "simulated", Quiet()).execute()
    compare(tmp_path / "simulated", tmp_path / "real")
