"""Every run ends with model files, and they answer as the run itself did."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedaction.data.samples import in_memory
from fedaction.models.files import load_model
from fedaction.runs.deploy import INDEX, client_file, describe_models
from fedaction.runs.metrics import read_rows
from fedaction.runs.recipe import parse_recipe
from fedaction.runs.study import list_runs, load_clients, resume_study, run_study
from fedaction.serve.network import Network, load_network
from tests.conftest import few

BASE = {"rounds": 2, "device": "cpu", "workers": 1, "controls": []}
SKELETONS = {
    **BASE, "data": "stage", "stage_clients": 2, "stage_train": [8], "stage_test": 8, "stage_actions": [4, 3],
    "frames": 8, "stage_layouts": ["kinect_v2", "florence_15"], "model_width": 2, "model_units": [1, 1, 1],
    "method": "fsar",
}  # fmt: skip
FEATURES = {
    **BASE, "data": "stage_features", "stage_modalities": ["inertial", "audio"], "stage_clients": 1,
    "stage_people": 2, "stage_train": 8, "stage_test": 8, "stage_actions": 3, "feature_width": 16, "model_hidden": 8,
    "model_features": 8, "method": "fdarn",
}  # fmt: skip
PERCEPTRON = {**FEATURES, "method": "fedavg", "backbone": "perceptron", "stage_modalities": ["inertial"]}
VIDEO = {
    **BASE, "data": "stage_video", "stage_clients": 2, "stage_actions": 3, "stage_train": 3, "stage_test": 2,
    "stage_size": 16, "frames": 4, "backbone": "resnet3d", "model_width": 2, "batch_size": 4, "lr": 0.01,
    "method": "edge",
}  # fmt: skip
ADAPTED = {"baselines": ["metahar", "perfedavg", "pfedme", "fedema"], "meta_head": 2, "meta_adapt": 1}
CASES = {
    "skeletons": {**SKELETONS, "baselines": ["local", "central"]},
    "adapted": {**SKELETONS, **ADAPTED, "method": "fedavg", "perfedavg_alpha": 0.5, "rounds": 1},
    "vectorised": {**SKELETONS, "engine": "vectorised"},
    "reestimate": {**SKELETONS, "method": "fedavg", "statistics": "reestimate"},
    "validation": {**SKELETONS, "validation": 0.3, "lr": 0.5},
    "fdarn": FEATURES,
    "features": PERCEPTRON,
    "unit": {**PERCEPTRON, "feature_scale": "unit", "classifier": "shared"},
    "frozen": {**VIDEO, "classifier": "shared", "model_frozen": 5},
    "video": {**VIDEO, "baselines": ["fedavg"]},
}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Footage is made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDACTION_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def run(tmp_path, values):
    recipe = parse_recipe(values, "test")
    result = run_study(recipe, tmp_path / "run")
    return load_clients(recipe), result, tmp_path / "run"


@pytest.mark.parametrize("case", few(CASES, "skeletons", "reestimate", "fdarn", "unit", "video"))
def test_model_files_answer_as_the_run_did(case, tmp_path):
    """Accuracy and loss of every client's file on its test samples are the run's own, after whatever it adapts."""
    clients, _, folder = run(tmp_path, CASES[case])
    for method, _, home in list_runs(parse_recipe(CASES[case], "test"), folder):
        index = json.loads((home / INDEX).read_text())
        chosen = json.loads((home / "result.json").read_text())["chosen"]
        rows = [r for r in read_rows(home / "metrics.jsonl") if r.split == "test" and r.round == chosen]
        said = {(row.client, row.name): row.value for row in rows}
        assert set(index["clients"]) == set(clients) and index["left_out"] == ""
        for name, client in clients.items():
            network = load_network(home / index["clients"][name])
            card, test = network.card, in_memory(client.test)
            if card.input.body is None:
                logits = network(test.x)
            else:  # samples lie on their own bodies still: the last of the steps puts them on the common one
                given = card.input.model_copy(update={"align": False})
                other = Network(card.model_copy(update={"input": given}), network.module)
                logits = torch.from_numpy(other.logits(test.x.numpy()))
            accuracy = float((logits.argmax(1) == test.y).double().mean())
            assert accuracy == pytest.approx(said[name, "accuracy"]), (method, name)
            loss = float(F.cross_entropy(logits.double(), test.y))
            assert loss == pytest.approx(said[name, "loss"], rel=1e-3, abs=1e-4), (method, name)
            assert card.classes == client.info.classes and card.input.shape == client.info.shape
            assert card.provenance["client"] == name and card.provenance["round"] == chosen


def test_the_server_has_a_file_where_all_is_shared(tmp_path):
    values = {**VIDEO, "method": "fedavg", "classifier": "shared", "buffers": "average"}
    clients, result, folder = run(tmp_path, values)
    network, card = load_model(folder / "model.safetensors")
    for name, client in clients.items():
        test = in_memory(client.test)
        accuracy = float((network(test.x).argmax(1) == test.y).double().mean())
        assert accuracy == pytest.approx(result["clients"][name])
    assert card.input.kind == "video" and card.provenance["client"] is None
    apart = run_study(parse_recipe({**values, "buffers": "local"}, "test"), tmp_path / "apart")
    assert not (tmp_path / "apart" / "model.safetensors").exists() and apart["complete"]
    assert "which all clients share; 2 clients' own" in describe_models(folder)
    assert "2 clients' own in" in (said := describe_models(tmp_path / "apart")) and "share no whole network" in said


def test_raw_recordings_give_what_prepared_samples_give(tmp_path):
    """Centring, turning, scaling: as at training."""
    clients, _, folder = run(tmp_path, CASES["features"])
    name, client = next(iter(clients.items()))
    network = load_network(folder / client_file(name))
    given = network.card.input
    prepared = in_memory(client.test).x
    raw = prepared.numpy() / np.maximum(np.array(given.factor), 1e-9) + np.array(given.mean)  # what is cut stays cut
    inside = np.abs(prepared.numpy()).max(1) < 9.9
    torch.testing.assert_close(
        torch.from_numpy(network.logits(raw.astype(np.float32)))[inside],
        network(prepared)[inside],
        rtol=1e-3,
        atol=1e-3,
    )


def test_missing_files_are_made_again_and_keys_bound_them(tmp_path):
    clients, _, folder = run(tmp_path, SKELETONS)
    path = folder / client_file(sorted(clients)[0])
    before = load_model(path)[0].state_dict()
    path.unlink()
    resume_study(folder)
    after = load_model(path)[0].state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    run_study(parse_recipe({**SKELETONS, "client_models": "none"}, "test"), tmp_path / "none")
    assert not (tmp_path / "none" / "models" / "clients").exists()


def test_odd_names_make_file_names():
    assert client_file("clinic-1") == "models/clients/clinic-1.safetensors"
    odd = ["a/b", "a b", "..", "", "ä", "[/x]", "a" * 300, "\ud800"]
    files = {client_file(name) for name in odd}
    assert len(files) == len(odd)
    assert all("/" not in file.removeprefix("models/clients/") and len(file) < 150 for file in files)
