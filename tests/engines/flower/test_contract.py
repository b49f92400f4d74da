"""The engine and its sites without a network: the same run as a simulation, and what each side refuses."""

import json

import pytest
import torch

from fedaction.engines.flower.keep import SiteStore
from fedaction.federation.progress import Quiet
from fedaction.runs.checkpoint import latest_checkpoint
from fedaction.runs.remote import Roll, carry_out, open_run
from fedaction.runs.single import SingleRun
from tests.engines.flower.places import HousePost, make_recipe, make_sites, make_stores, simulated

TOKEN = "0123456789abcdef" * 2


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return make_stores(tmp_path_factory.mktemp("places"))


def compare(one, other):
    """Two run directories hold the same numbers and the same tensors."""
    assert (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    states = [latest_checkpoint(folder / "checkpoints", 1 << 40) for folder in (one, other)]
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
    evidence = [json.loads((tmp_path / f / "evidence.json").read_text()) for f in ("simulated", "real")]
    assert evidence[0]["confusion"] == evidence[1]["confusion"] and evidence[1]["samples"] == {}
    # The LOCAL tensors are at the sites alone, and are those of the simulation.
    assert all(tree.keys() == {"job"} for tree in there.locals.committed.values())
    for name, tree in here.locals.committed.items():
        run = Roll.read(tmp_path / "real").run
        kept = SiteStore(tmp_path / "sites" / name / run, name).read(3)
        assert kept.keys() == tree.keys() and all(torch.equal(kept[n], tree[n]) for n in kept)
    wire = b"".join(content for _, _, question, answer in post.seen for content in (question, answer))
    assert str(paths["clinic"]).encode() not in wire
