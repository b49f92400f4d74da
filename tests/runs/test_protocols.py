"""Every method through a whole run; the unseen-client protocol; snapshots."""

import pytest
import torch
from safetensors.torch import load_file

from fedaction.evaluation.neighbours import unseen_features
from fedaction.federation.files import read_json
from fedaction.federation.scope import Scope
from fedaction.federation.tree import tensors_of
from fedaction.methods.start import fresh, initial_state
from fedaction.models.layers import BatchNorm
from fedaction.runs.metrics import read_rows
from fedaction.runs.recipe import parse_recipe
from fedaction.runs.snapshots import snapshot_rounds
from fedaction.runs.study import run_study
from tests.conftest import CROSS_MODAL, LABELLED, TINY, make_method, mixed_clients

SMALL = {
    **TINY,
    "data": "stage",
    "stage_clients": 3,
    "stage_layouts": ["kinect_v2", "openni_15"],
    "stage_train": [9, 12],
    "stage_test": 6,
    "stage_actions": [3],
    "frames": 8,
    "rounds": 2,
    "batch_size": 4,
    "report_samples": 0,
    "controls": [],
}


def recipe(**values):
    return parse_recipe({**SMALL, "method": "fsar", **values})


# That the engines agree is tested for every method, so a few are enough for the second one here.
@pytest.mark.parametrize(
    ("engine", "names"),
    [
        ("sequential", [name for name in LABELLED if name not in ("fsar", *CROSS_MODAL)]),
        ("vectorised", ["local", "fedbn", "moon"]),
    ],
    ids=["sequential", "vectorised"],
)
def test_every_method_runs_from_a_recipe(tmp_path, engine, names):
    result = run_study(recipe(baselines=names, rounds=1, engine=engine), tmp_path / "run")
    clients = set(result["clients"])
    assert len(clients) == 3
    for name in names:
        found = result["baselines"][name]
        assert set(found["clients"]) == clients and found["complete"], name
        assert (found["bytes_up"] == 0) is (name == "local"), name


def test_an_unseen_client_never_trains_and_is_tested_by_its_neighbours(tmp_path):
    names = sorted(run_study(recipe(rounds=1), tmp_path / "all")["clients"])
    result = run_study(recipe(unseen=names[0], baselines=["fedavg"]), tmp_path / "run")
    assert sorted(result["clients"]) == names
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert {row.client for row in rows if row.split == "train"} == set(names[1:])
    found = [row for row in rows if row.client == names[0]]
    scores = ("knn", "balanced_accuracy", "macro_f1")
    assert [(row.round, row.split, row.name) for row in found] == [(n, "test", s) for n in (1, 2) for s in scores]
    assert result["clients"][names[0]] == found[-3].value
    assert all(result["n"][name] > 0 for name in names)
    own = read_json(tmp_path / "run" / "evidence.json")["confusion"][names[0]]["matrix"]
    assert sum(map(sum, own)) == result["n"][names[0]]
    assert sum(row[i] for i, row in enumerate(own)) / sum(map(sum, own)) == pytest.approx(found[-3].value)
    rest = [row.value for row in rows if (row.round, row.name) == (2, "balanced_accuracy") and row.client != names[0]]
    assert result["balanced_accuracy"] == pytest.approx(sum(rest) / len(rest))
    seen = [result["clients"][name] for name in names[1:]]
    assert result["mean"] == pytest.approx(sum(seen) / len(seen))


def test_the_unseen_clients_features_are_the_servers_with_statistics_of_its_own(double):
    clients = mixed_clients()
    method = make_method("fsar", clients)
    info = clients["client-3"].info
    server = initial_state(method, 5)
    train, test = unseen_features(method, method.served(server, info), clients["client-3"], 9, torch.device("cpu"))
    # By hand: the server's tensors over a fresh network, one pass in training mode with momentum 1, then test mode.
    module = fresh(method, info, 9)
    with torch.no_grad():
        for name, tensor in tensors_of(module).items():
            if method.scopes_of("client-3")[name] is Scope.GLOBAL:
                tensor.copy_(method.served(server, info)[name])
        for layer in module.modules():
            if isinstance(layer, BatchNorm):
                layer.momentum = 1.0
        module.train()(clients["client-3"].train.x, unique=False)
        module.eval()
        for x, found in ((clients["client-3"].train.x, train), (clients["client-3"].test.x, test)):
            torch.testing.assert_close(module(x, unique=False, output="pooled"), found)


def test_statistics_that_the_server_averages_are_used_as_they_are():
    clients = mixed_clients()
    method = make_method("fedavg", clients, buffers="average")
    client = clients["client-3"]
    server = initial_state(method, 5)
    served = dict(method.served(server, client.info))
    served["units.2.temporal_norm.running_mean"] = served["units.2.temporal_norm.running_mean"] + 3
    device = torch.device("cpu")
    one = unseen_features(method, method.served(server, client.info), client, 9, device)[1]
    two = unseen_features(method, served, client, 9, device)[1]
    assert not torch.allclose(one, two)


@pytest.mark.parametrize(
    ("values", "words"), [({"unseen": "nobody"}, "nobody"), ({"unseen": "x", "baselines": ["central"]}, "unseen")]
)
def test_an_unseen_client_must_exist(tmp_path, values, words):
    with pytest.raises(ValueError, match=words):
        run_study(recipe(**values), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_snapshots_hold_the_topologies_after_local_training(tmp_path):
    run_study(recipe(rounds=3, baselines=["fedavg"]), tmp_path / "run")
    files = sorted(path.name for path in (tmp_path / "run" / "snapshots").iterdir())
    assert files == [f"round-{r:06d}.safetensors" for r in (1, 2, 3)]
    held = load_file(tmp_path / "run" / "snapshots" / files[0])
    names = {name.partition("|")[2] for name in held}
    assert names == {f"topology.{n}" for n in ("I", "U", "alpha", "beta", "gamma")}
    own = [tensor for name, tensor in held.items() if name.endswith("topology.I") and tensor.shape[1] == 25]
    assert len(own) == 2 and not torch.equal(*own)  # before they are averaged
    assert not (tmp_path / "run" / "baselines" / "fedavg" / "snapshots").exists()


def test_snapshots_are_taken_first_at_the_quarters_and_last():
    assert snapshot_rounds(300) == {1, 75, 150, 225, 300}
    assert snapshot_rounds(1) == {1}


def test_late_clients_join_in_their_round(tmp_path):
    names = sorted(run_study(recipe(rounds=1), tmp_path / "all")["clients"])
    result = run_study(recipe(rounds=3, late=[names[1]], late_round=3), tmp_path / "run")
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    trained = {r: {row.client for row in rows if row.split == "train" and row.round == r} for r in (1, 2, 3)}
    assert trained == {1: {names[0], names[2]}, 2: {names[0], names[2]}, 3: set(names)}
    assert set(result["clients"]) == set(names)
    with pytest.raises(ValueError, match="no client is called 'nobody'"):
        run_study(recipe(late=["nobody"]), tmp_path / "other")
