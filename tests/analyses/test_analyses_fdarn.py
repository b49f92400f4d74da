"""Analyses of FDARN runs: what they compute, and where they do not apply."""

import json
import shutil
import statistics
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import torch

from fedaction.analyses import Analysed, analyse, modalities
from fedaction.analyses.study import NotApplicable, Study
from fedaction.data.features import clients_from_features
from fedaction.evaluation.probe import principal, probe_accuracy
from fedaction.methods.start import fresh, initial_state
from fedaction.runs import parse_recipe, run_study
from fedaction.runs.metrics import read_rows
from tests.data.features.test_feature_clients import SETS

NAMES = ["subspaces", "discriminator"]
STAGE: dict[str, Any] = {
    "method": "fdarn",
    "rounds": 2,
    "workers": 1,
    "device": "cpu",
    "data": "stage_features",
    "stage_modalities": ["skeleton", "inertial"],
    "stage_clients": 2,
    "stage_people": 2,
    "stage_train": 16,
    "stage_test": 12,
    "stage_actions": 3,
    "frames": 16,
    "feature_width": 16,
    "batch_size": 8,
    "report_samples": 1,
    "controls": [],
    "augment": False,
    "backbone": "perceptron",
    "classifier": "shared",
    "model_features": 6,
    "model_hidden": 8,
    "fdarn_sphere": 4,
}
CLIENTS = ["inertial-0", "inertial-1", "skeleton-0", "skeleton-1"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("features")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    return trained(tmp_path_factory.mktemp("fdarn") / "run", cache, seeds=[0, 1], baselines=["fedavg"])


@pytest.fixture(scope="module")
def done(run: Path) -> Analysed:
    return analyse(run, NAMES)


def trained(folder: Path, cache: Path, **settings: Any) -> Path:
    run_study(parse_recipe({**STAGE, "feature_cache": str(cache), **settings}), folder)
    return folder


def values(run: Path, name: str) -> dict[str, Any]:
    return json.loads((run / "analyses" / f"{name}.json").read_text())["values"]


def test_both_leave_a_table_and_a_picture_that_are_the_same_each_time(run, done, tmp_path):
    assert list(done.records) == NAMES and not done.left_out
    copy = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(copy / "analyses")
    analyse(copy, NAMES)
    for name, found in done.records.items():
        assert all(len(row) == len(found["table"]["columns"]) for row in found["table"]["rows"])
        assert ElementTree.fromstring(done.pictures[name].read_bytes()).tag.endswith("svg")
        for kind in ("json", "svg"):
            path = Path("analyses") / f"{name}.{kind}"
            assert (copy / path).read_bytes() == (run / path).read_bytes(), path


def test_probes_read_the_clients_own_features_of_their_test_samples(run, done):
    fdarn = Study(run).trained("fdarn")
    found = values(run, "subspaces")
    assert found["clients"] == CLIENTS and found["samples"] == 48
    seen = {}
    for subspace in ("altruistic", "egocentric"):
        features = []
        for client in CLIENTS:
            module = fresh(fdarn.method, fdarn.clients[client].info, 9)
            module.load_state_dict(dict(fdarn.tensors(client)))
            with torch.no_grad():
                features.append(module.eval()(fdarn.clients[client].test.x, part=subspace))
        pooled = seen[subspace] = torch.cat(features)
        modality = torch.tensor([0] * 24 + [1] * 24)
        activity = torch.cat([fdarn.clients[client].test.y for client in CLIENTS])
        own = found["subspaces"][subspace]
        assert own["modality"]["accuracy"] == pytest.approx(probe_accuracy(pooled, modality), abs=1e-5)
        assert own["activity"]["accuracy"] == pytest.approx(probe_accuracy(pooled, activity), abs=1e-5)
        assert own["modality"]["chance"] == 0.5
        assert own["activity"]["chance"] == pytest.approx(int(activity.bincount().max()) / 48, abs=1e-5)
        assert own["variance"] == pytest.approx(principal(pooled)[1].tolist(), abs=1e-4)
    assert found["subspaces"]["altruistic"] != found["subspaces"]["egocentric"]
    names = [row[0] for row in done.records["subspaces"]["table"]["rows"]]
    assert names == [*seen, *(f"{subspace}, untrained" for subspace in seen)]
    text = "".join(ElementTree.fromstring(done.pictures["subspaces"].read_bytes()).itertext())
    for words in (
        "altruistic, by modality",
        "egocentric, by activity",
        "skeleton",
        fdarn.clients[CLIENTS[0]].info.classes[0],
    ):
        assert words in text


def test_the_control_is_the_network_that_training_started_from(run, done):
    fdarn = Study(run).trained("fdarn")
    start = initial_state(fdarn.method, 0)
    features = []
    for client in CLIENTS:
        info = fdarn.clients[client].info
        module = fresh(fdarn.method, info, 9)
        module.load_state_dict({**module.state_dict(), **fdarn.method.served(start, info)})
        with torch.no_grad():
            features.append(module.eval()(fdarn.clients[client].test.x, part="altruistic"))
    pooled, modality = torch.cat(features), torch.tensor([0] * 24 + [1] * 24)
    own = values(run, "subspaces")["subspaces"]["altruistic, untrained"]
    assert own["modality"]["accuracy"] == pytest.approx(probe_accuracy(pooled, modality), abs=1e-5)
    assert own["variance"] == pytest.approx(principal(pooled)[1].tolist(), abs=1e-4)


def test_a_recording_that_several_clients_are_tested_on_counts_once():
    shared = {c.info.id: c for c in clients_from_features(SETS, deal="all", hold_out=2)}
    rows = modalities._each_once(shared)
    for modality in ("skeleton", "inertial"):
        own = {name: client for name, client in shared.items() if client.info.group == modality}
        tests = {len(client.test) for client in own.values()}
        assert len(own) == 4 and len(tests) == 1
        assert sorted(row for name in own for row in rows[name]) == list(range(tests.pop()))
    apart = {c.info.id: c for c in clients_from_features(SETS)}
    assert all(len(own) == len(apart[name].test) for name, own in modalities._each_once(apart).items())


def test_the_servers_discriminator_is_asked_about_test_samples(run, done):
    fdarn, found = Study(run).trained("fdarn"), values(run, "discriminator")["averaged"]
    place = {"inertial": 0, "skeleton": 1}
    for subspace in ("altruistic", "egocentric"):
        shares: dict[str, list[float]] = {"inertial": [], "skeleton": []}
        for client in CLIENTS:
            module, own = fresh(fdarn.method, fdarn.clients[client].info, 9), fdarn.clients[client]
            module.load_state_dict(dict(fdarn.tensors(client)))
            with torch.no_grad():
                point = module.eval()(module(own.test.x, part=subspace), part="sphere")
                nearest = (point @ torch.nn.functional.normalize(module.discriminator.W, dim=0)).argmax(-1)
            shares[own.info.group].append(float((nearest == place[own.info.group]).float().mean()))
        assert found[subspace] == pytest.approx({m: statistics.fmean(s) for m, s in shares.items()}, abs=1e-4)
    rows = done.records["discriminator"]["table"]["rows"]
    assert [row[0].partition(",")[0] for row in rows[-2:]] == ["recognised after averaging"] * 2
    for client in fdarn.assembly.clients.values():
        client.train.x.fill_(torch.nan)  # it must not be asked about these
    for subspace, own in modalities._averaged(fdarn).items():
        assert {m: share for m, share in own.items() if m} == pytest.approx(found[subspace], abs=1e-4)


def test_the_discriminators_curves_are_means_over_clients_and_seeds(run, done):
    found = values(run, "discriminator")
    tables = [read_rows(home / "metrics.jsonl") for home in (run, run / "seeds" / "1")]

    def mean(name: str, round: int, group: str = "") -> float:
        return statistics.fmean(
            statistics.fmean(
                row.value
                for row in rows
                if (row.split, row.name, row.round) == ("train", name, round) and group in ("", row.group)
            )
            for rows in tables
        )

    assert list(found["curves"]) == [
        "seen_altruistic",
        "seen_egocentric",
        "margin_altruistic",
        "margin_egocentric",
        "spread",
    ]
    for name, curve in found["curves"].items():
        assert curve["rounds"] == [1, 2]
        assert curve["values"] == pytest.approx([mean(name, 1), mean(name, 2)], rel=1e-4)
        assert found["last"][name] == curve["values"][-1]
        for modality in ("inertial", "skeleton"):
            assert found["modalities"][modality][name] == pytest.approx(mean(name, 2, modality), rel=1e-4)
    assert found["chance"] == 0.5 and found["seeds"] == 2
    assert done.records["discriminator"]["table"]["rows"][0][2] == f"{100 * mean('seen_altruistic', 2):.1f}"


def test_many_samples_and_activities_are_thinned_out_in_the_picture_only(run, done, tmp_path, monkeypatch):
    copy = shutil.copytree(run, tmp_path / "run")
    monkeypatch.setattr(modalities, "_DRAWN", 10)
    monkeypatch.setattr(modalities, "_NAMED", 2)
    thin = analyse(copy, ["subspaces"])
    assert thin.records["subspaces"]["values"] == done.records["subspaces"]["values"]
    assert thin.records["subspaces"]["notes"][2:] == (
        "Drawn: 10 of 48 samples, at random.",
        "Activities are not named: there are 3.",
    )
    assert len(thin.pictures["subspaces"].read_bytes()) < len(done.pictures["subspaces"].read_bytes())


def test_a_run_of_another_method_says_so(run, done, tmp_path):
    copy = shutil.copytree(run / "baselines" / "fedavg", tmp_path / "fedavg")
    found = analyse(copy, NAMES)
    assert not found.records and found.left_out == {
        "subspaces": "FedAvg has one kind of features; FDARN has altruistic and egocentric ones",
        "discriminator": "FedAvg has no modality discriminator; FDARN has one",
    }


def test_what_an_ablation_leaves_is_looked_at_even_as_a_baseline(cache, tmp_path):
    found = analyse(trained(tmp_path, cache, method="fedavg", baselines=["fdarn"], fdarn_without="phi_a"), NAMES)
    assert [row[0] for row in found.records["subspaces"]["table"]["rows"]] == ["egocentric", "egocentric, untrained"]
    assert found.left_out == {"discriminator": "FDARN was trained without its modality discriminator here"}


def test_a_plain_cross_entropy_has_no_spread_out_term(cache, tmp_path):
    found = analyse(trained(tmp_path, cache, fdarn_loss="cross_entropy", rounds=1), ["discriminator"])
    rows = [row[0] for row in found.records["discriminator"]["table"]["rows"]]
    assert len(rows) == 6 and "spread-out term" not in rows


def test_one_modality_cannot_be_told_from_others(cache, tmp_path):
    found = analyse(trained(tmp_path, cache, stage_modalities=["inertial"], rounds=1), ["subspaces"])
    assert found.left_out == {"subspaces": "the tested clients have no two modalities that could be told apart"}


@pytest.fixture(scope="module")
def personal(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A run of the methods whose clients change their network before a test."""
    folder = tmp_path_factory.mktemp("personal") / "run"
    keys = {"method": "metahar", "baselines": ["perfedavg", "pfedme"], "perfedavg_alpha": 0.5, "pfedme_lr": 0.02}
    common = {key: value for key, value in STAGE.items() if not key.startswith("fdarn")}
    run_study(parse_recipe({**common, **keys, "lr": 0.02, "feature_cache": str(cache)}), folder)
    return folder


@pytest.mark.parametrize("method", ["metahar", "perfedavg", "pfedme"])
def test_a_clients_network_is_the_one_that_its_run_tested(personal, method):
    """With what the method adapts to the client's training samples first."""
    study = Study(personal)
    federation = study.trained(method)
    rows = read_rows(study.homes[method] / "metrics.jsonl")
    last = {(r.client, r.name): r.value for r in rows if (r.split, r.round) == ("test", 2)}
    assert {client for client, _ in last} == set(CLIENTS) == set(federation.clients)
    otherwise = []
    for client in CLIENTS:
        test = federation.clients[client].test
        module = fresh(federation.method, federation.clients[client].info, 9).eval()
        module.load_state_dict(dict(federation.tensors(client)))  # as it is without that
        with torch.no_grad():
            logits, plain = federation.net(client)(test.x), module(test.x)
        accuracy = int((logits.argmax(-1) == test.y).sum()) / len(test)
        assert accuracy == pytest.approx(last[client, "accuracy"], abs=1e-12)
        loss = float(torch.nn.functional.cross_entropy(logits.double(), test.y))
        assert loss == pytest.approx(last[client, "loss"], rel=1e-5)
        otherwise.append(abs(float(torch.nn.functional.cross_entropy(plain.double(), test.y)) - loss))
    assert min(otherwise) > 1e-4


def test_a_run_that_diverged_says_so(run):
    study = Study(run)
    study.states["fdarn"].server.groups["skeleton"]["egocentric.enter.weight"].fill_(torch.nan)
    with pytest.raises(NotApplicable, match="egocentric features are not finite: training has diverged"):
        modalities.subspaces(study)
