"""Every kind of data at sites of their own, without a network: video, features, arrays; and what is sent once."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedaction.data.holdings import look_at
from fedaction.engines.flower.envelope import Envelope, Front, open_envelope
from fedaction.engines.flower.install import Install, make_install
from fedaction.engines.flower.limits import LimitError, Limits
from fedaction.engines.flower.site import Site
from fedaction.engines.messages import MOST_BYTES, MessageError, unpack
from fedaction.federation.progress import Quiet
from fedaction.federation.scope import Scope
from fedaction.federation.state import Job, Update
from fedaction.federation.tree import tree_bytes
from fedaction.runs.metrics import read_rows
from fedaction.runs.recipe import load_recipe
from fedaction.runs.remote import Roll, carry_out, open_run
from fedaction.runs.single import SingleRun
from fedaction.runs.sites import SiteWorkshop, check_real, recipe_for_sites
from fedaction.serve.network import load_network
from tests.engines.flower.places import (
    HousePost,
    make_feature_recipe,
    make_features,
    make_model,
    make_recipe,
    make_sites,
    make_stores,
    make_video_recipe,
    make_videos,
    simulated,
)
from tests.engines.flower.test_contract import compare


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    return make_videos(tmp_path_factory.mktemp("places"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"))


def run_both(recipe, paths, folder):
    """A run simulated and over messages, which are the same; the post that carried them."""
    SingleRun(recipe, simulated(recipe), folder / "simulated", Quiet()).execute()
    open_run(recipe, folder / "real", Roll(count=len(paths)))
    post = HousePost(make_sites(paths, folder / "sites"))
    carry_out(post, folder / "real")
    compare(folder / "simulated", folder / "real")
    return post


def own_model(folder, name):
    return folder / "sites" / name / Roll.read(folder / "real").run / "model.safetensors"


def test_fedvssl_over_messages_is_the_simulated_run(videos, tmp_path):
    run_both(make_video_recipe(videos, "fedvssl"), videos, tmp_path)
    shared = load_file(tmp_path / "simulated" / "model.safetensors")  # the backbone; heads stay at the sites
    for path in (own_model(tmp_path, "hall"), tmp_path / "real" / "model.safetensors"):
        own = load_file(path)
        assert own.keys() == shared.keys() and all(torch.equal(own[n], t) for n, t in shared.items())


def test_frozen_tensors_are_sent_once_and_bytes_are_those_that_a_simulation_counts(videos, model, tmp_path):
    """Client by client and round by round; what else is in the messages is names and shapes."""
    more = {"pretrained": model, "model_frozen": 3, "classifier": "local", "buffers": "local"}
    recipe = make_video_recipe(videos, "fedavg", **more)
    post = run_both(recipe, videos, tmp_path)
    infos = {client.info.id: client.info for client in simulated(recipe).values()}
    method = recipe.kinds["fedavg"](infos.values(), recipe.methods["fedavg"])
    rows = read_rows(tmp_path / "real" / "metrics.jsonl")
    counted = {way: {row.round: row.value for row in rows if row.name == f"bytes_{way}"} for way in ("down", "up")}
    down, up, kept = {1: 0, 2: 0}, {1: 0, 2: 0}, 0
    for _, kind, question, answer in post.seen:
        asked = open_envelope(question, MOST_BYTES)
        if kind == "train":
            job, update = unpack(Job, asked.parts[0]), unpack(Update, open_envelope(answer, MOST_BYTES).parts[0])
            assert tree_bytes(job.payload) == tree_bytes(update.tree) == method.plan(infos[job.client]).traffic
            down[job.round] += tree_bytes(job.payload)
            up[job.round] += tree_bytes(update.tree)
        elif kind == "begin":
            tensors, scopes = Install.unpack(asked.parts[1]).tensors, method.plan(infos[asked.header.client]).scopes
            frozen = tree_bytes({name: t for name, t in tensors.items() if scopes[name] is Scope.FROZEN})
            assert frozen == method.plan(infos[asked.header.client]).frozen_bytes > 0
            down[1] += frozen
            kept += tree_bytes(tensors) - frozen  # what sites keep, where the model file says how it starts
    assert (down, up) == (counted["down"], counted["up"])

    wire = json.loads((tmp_path / "real" / "wire.json").read_text())
    each = 4096 + 300 * len(method.plan(infos["hall"]).leaves)
    sent = wire["sent"]["train"] + wire["sent"]["begin"] - kept
    assert sum(down.values()) <= sent <= sum(down.values()) + 6 * each  # messages that begin, and two rounds of two
    assert sum(up.values()) <= wire["received"]["train"] <= sum(up.values()) + 4 * each
    texts = b"".join(content for _, _, question, answer in post.seen for content in (question, answer))
    assert model.encode() not in texts and str(videos["hall"]).encode() not in texts

    again = HousePost(make_sites(videos, tmp_path / "sites"))  # started anew: they have it on their disks
    for name in ("result.json", "evidence.json"):
        (tmp_path / "real" / name).unlink()
    carry_out(again, tmp_path / "real")
    begun = [question for _, kind, question, _ in again.seen if kind == "begin"]
    assert len(begun) == 2 and all(len(question) < 10_000 for question in begun)
    own, given = load_file(own_model(tmp_path, "hall")), load_file(model)
    assert all(torch.equal(own[n], given[n]) for n in own if n.startswith(("conv1", "bn1", "layer1", "layer2")))
    assert load_network(own_model(tmp_path, "yard")).classes == ("down", "still")


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [6, 2])
@pytest.mark.parametrize("fresh", [True, False])  # clips drawn anew, or once: then frozen stages see each once
def test_frozen_stages_over_messages_are_the_simulated_run(videos, model, tmp_path, frozen, fresh):
    more = {"pretrained": model, "model_frozen": frozen, "buffers": "average"}
    run_both(make_video_recipe(videos, "fedavg", video_fresh=fresh, rounds=3, **more), videos, tmp_path)


@pytest.mark.slow
def test_edge_takes_answers_as_they_come_from_sites_with_frozen_stages(videos, model, tmp_path):
    recipe = make_video_recipe(videos, "edge", rounds=3, pretrained=model, model_frozen=6, buffers="average")
    open_run(recipe, tmp_path / "real", Roll(count=len(videos)))
    carry_out(HousePost(make_sites(videos, tmp_path / "sites")), tmp_path / "real")
    rows = read_rows(tmp_path / "real" / "metrics.jsonl")
    assert [row.value for row in rows if row.name == "participants"] == [2, 2, 2]
    own, given = load_file(own_model(tmp_path, "hall")), load_file(model)
    stages = [name for name in own if name in given and not name.startswith("classifier")]
    assert stages and all(torch.equal(own[name], given[name]) for name in stages)


def test_features_and_people_for_validation_over_messages_are_those_of_the_simulation(tmp_path):
    paths = make_features(tmp_path)
    run_both(make_feature_recipe(paths, "fdarn", validation=0.3), paths, tmp_path)
    assert any(row.split == "validation" for row in read_rows(tmp_path / "real" / "metrics.jsonl"))


def test_clips_as_arrays_are_a_site_too(tmp_path):
    folder, rng = tmp_path / "shop", np.random.default_rng(0)
    folder.mkdir()
    for side, count in (("train", 6), ("test", 3)):
        np.save(folder / f"{side}_clips.npy", rng.integers(0, 256, (count, 4, 16, 16, 3), dtype=np.uint8))
        np.save(folder / f"{side}_labels.npy", np.arange(count) % 2)
    (folder / "classes.json").write_text('["in", "out"]')
    recipe = make_video_recipe({"shop": folder}, "fedavg")
    values = {k: v for k, v in recipe.flat().items() if k not in type(recipe.source).model_fields}
    told = {**values, "data": "arrays", "arrays": "each site's own"}
    client = SiteWorkshop("shop", folder, "cpu").load(told)
    assert (client.info.id, client.info.samples, client.info.classes) == ("shop", 6, ("in", "out"))


def test_what_is_sent_once_is_checked(videos, model):
    recipe = make_video_recipe(videos, "edge", pretrained=model, model_frozen=3)
    infos = [client.info for client in simulated(recipe).values()]
    method = recipe.kinds["edge"](infos, recipe.methods["edge"])
    plan, sound = method.plan(infos[0]), make_install(method, infos[0], 4)
    again = Install.unpack(sound.pack())
    again.check(plan)
    assert again.model == sound.model and again.pack() == sound.pack()
    name, shared = "conv1.weight", plan.shared[0]
    for reason, tensors in {
        "was not sent": {n: t for n, t in sound.tensors.items() if n != name},
        "is not what a site is sent once": {**sound.tensors, shared: torch.zeros(plan.leaves[shared].shape)},
        "expected torch.float32": {**sound.tensors, name: torch.zeros(3)},
        "NaN or infinite": {**sound.tensors, name: sound.tensors[name] * float("inf")},
    }.items():
        with pytest.raises(MessageError, match=reason):
            replace(sound, tensors=tensors).check(plan)
    assert any(plan.scopes[n] is Scope.LOCAL for n in sound.tensors)  # which only a model file gives
    with pytest.raises(MessageError, match="not what a site is sent once"):
        replace(sound, model="").check(plan)
    for content in (b"x" * 40, sound.pack()[:-1]):
        with pytest.raises(MessageError):
            Install.unpack(content)
    for text in ("{", "{}", sound.model.replace('"width": 2', '"width": -1')):
        with pytest.raises(ValueError, match=r"server's model"):
            replace(sound, model=text).write_model(None)


def test_a_site_refuses_more_than_its_owner_allows(tmp_path):
    paths = make_stores(tmp_path)
    recipe = make_recipe(paths, "fsar", batch_size=8, local_epochs=3)
    told = recipe_for_sites(recipe)
    for limits, reason in (
        (Limits(batch=4), "batch_size = 8 is over the 4 samples that this site's owner allows"),
        (Limits(epochs=2), "3 epochs in a job are over the 2"),
        (Limits(parameters=1000), "more than the 1,000 parameters"),
    ):
        with pytest.raises(LimitError, match=reason):
            SiteWorkshop("gym", paths["gym"], "cpu", limits).load(told)
    for keys in ({"model_width": 1 << 40}, {"model_width": 100_000}):
        with pytest.raises(LimitError, match=r"parameters|memory"):
            SiteWorkshop("gym", paths["gym"], "cpu").load({**told, **keys})
    # What a site refuses is what the server's owner reads, and who is left goes on.
    sites = make_sites(paths, tmp_path / "sites")
    strict = SiteWorkshop("clinic", paths["clinic"], "cpu", Limits(parameters=1000))
    sites[101] = Site("clinic", tmp_path / "sites" / "clinic", strict)
    recipe = make_recipe(paths, "fedavg", rounds=1)
    open_run(recipe, tmp_path / "real", Roll(count=2))
    carry_out(HousePost(sites), tmp_path / "real")
    news = (tmp_path / "real" / "news.jsonl").read_text()
    assert "it cannot join: the network has more than the 1,000 parameters" in news


def test_memory_that_runs_out_is_a_refusal_that_says_so(tmp_path):
    class Hungry(SiteWorkshop):
        def load(self, recipe):
            torch.empty(1 << 60)

    site = Site("clinic", tmp_path, Hungry("clinic", tmp_path, "cpu"), limits=Limits(memory=2.0))
    hello = Envelope(Front(kind="hello", run="0" * 32, nonce="1" * 32), (b"{}",)).seal()
    said = open_envelope(site.answer(hello), 9999)
    assert said.header.text == "this needs more memory than this site has or allows (2.0 GiB)"


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux bounds a process's memory so")
def test_a_process_is_bound_to_its_memory():
    code = (
        "import torch; from fedaction.engines.flower.limits import Limits; Limits(memory=1.0).bound_memory()"
        "\ntry: torch.ones(1 << 28)\nexcept RuntimeError: print('refused')\ntorch.ones(1 << 20); print('goes on')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["refused", "goes on"]


def test_simulations_are_refused_with_what_to_do(tmp_path):
    for data, instead in (
        ("stage", "data stage --out"),
        ("stage_video", "--kind video"),
        ("stage_features", "--kind features"),
    ):
        recipe = tmp_path / f"{data}.toml"
        recipe.write_text(f'method = "fedavg"\ndata = "{data}"\n')
        with pytest.raises(ValueError, match=instead):
            check_real(load_recipe(recipe))


def test_a_folder_says_what_it_holds(videos, tmp_path):
    hall = look_at(videos["hall"])
    assert (hall.suits, hall.recordings, hall.classes) == (("video",), 8, ("down", "right"))
    features = look_at(make_features(tmp_path)["audio"])
    assert (features.suits, features.people, features.what) == (("features", "signals"), 6, "audio")
    (tmp_path / "empty").mkdir()
    broken = tmp_path / "broken" / "wave" / "1.mp4"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no video")
    (broken.parent / "2.mp4").write_bytes(b"none")
    for path, reason in ((tmp_path / "empty", "no videos"), (tmp_path / "broken", "can be read")):
        with pytest.raises(ValueError, match=reason):
            look_at(path)
    with pytest.raises(ValueError, match="this site has data for video"):
        SiteWorkshop("hall", videos["hall"], "cpu").read({"method": "fedavg", "data": "store"})
