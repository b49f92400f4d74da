"""Analyses of finished runs: what they compute, what they write, what they say where they do not apply."""

import json
import math
import shutil
import statistics
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from click.testing import Result
from safetensors.torch import load_file
from typer.testing import CliRunner

from fedaction.analyses import ANALYSES, Analysed, analyse
from fedaction.analyses import landscape as landscape_module
from fedaction.analyses.draw import label
from fedaction.analyses.finding import plain
from fedaction.analyses.study import Study
from fedaction.cli.analyse import analyse as command
from fedaction.data.layout import KINECT_V2, OPENNI_15
from fedaction.data.preprocess import normalise
from fedaction.engines.sequential import SequentialEngine
from fedaction.evaluation.cka import centred_gram, gram_cka
from fedaction.evaluation.landscape import filter_axes, filter_direction
from fedaction.federation.files import read_sealed_json
from fedaction.federation.state import Job
from fedaction.methods.start import fresh
from fedaction.runs import parse_recipe, run_study
from fedaction.runs.metrics import read_rows
from tests.conftest import TINY

STAGE: dict[str, Any] = {
    "method": "fsar",
    "rounds": 3,
    "workers": 1,
    "device": "cpu",
    "stage_clients": 3,
    "stage_layouts": ["kinect_v2", "kinect_v1", "openni_15"],
    "stage_train": [8],
    "stage_test": 12,
    "stage_actions": [3],
    "frames": 16,
    "batch_size": 4,
    "report_samples": 1,
    "controls": [],
    **TINY,
}
CLIENTS = ["stage-0-kinect_v2", "stage-1-kinect_v1", "stage-2-openni_15"]

# Two are FDARN's, one is for runs with a clock, one for those that recorded distances.
OF_FSAR = [n for n in ANALYSES if n not in ("subspaces", "discriminator", "clock", "divergence")]


def trained(folder: Path, **settings: Any) -> Path:
    run_study(parse_recipe({**STAGE, **settings}), folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def small_surface() -> Iterator[None]:
    """A landscape of 5 x 5 points: its size is no part of what is tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(landscape_module, "STEPS", 5)
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("analyses") / "run", baselines=["fedavg"], seeds=[0, 1])


@pytest.fixture(scope="module")
def before(run: Path) -> dict[str, bytes]:
    """Every file of the run before it was analysed."""
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def done(run: Path, before: dict[str, bytes]) -> Analysed:
    return analyse(run)


def values(run: Path, name: str) -> dict[str, Any]:
    return json.loads((run / "analyses" / f"{name}.json").read_text())["values"]


# What is written


def test_every_analysis_leaves_a_table_and_a_picture_and_nothing_else_changes(run, before, done):
    assert list(done.records) == list(done.pictures) == OF_FSAR and set(done.left_out) == set(ANALYSES) - set(OF_FSAR)
    for name, found in done.records.items():
        kept = read_sealed_json(run / "analyses" / f"{name}.json")
        assert len(kept.pop("of")) == 64 and kept == json.loads(json.dumps(found))
        assert "Synthetic data" in found["caption"] and found["round"] == 3
        assert all(len(row) == len(found["table"]["columns"]) for row in found["table"]["rows"])
        root = ElementTree.fromstring(done.pictures[name].read_bytes())
        text = "".join(root.itertext())
        assert root.tag.endswith("svg") and "Synthetic data" in text
    after = {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"report.html"} | {f"analyses/{name}.{kind}" for name in OF_FSAR for kind in ("json", "svg")}


def test_the_same_run_gives_the_same_bytes(run, done, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(copy / "analyses")
    analyse(copy, ["curves", "landscape", "epsilon"])  # two that draw at random, and one whose lines are clipped
    made = sorted((copy / "analyses").iterdir())
    assert len(made) == 6
    for path in made:
        assert (run / "analyses" / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_report_shows_the_pictures(run, done):
    page = (run / "report.html").read_text(encoding="utf-8")
    start = page.index('id="data">') + len('id="data">')
    shown = json.loads(page[start : page.index("</script>", start)])["analyses"]
    assert [item["name"] for item in shown] == OF_FSAR
    assert all(item["picture"] for item in shown)


def test_only_what_is_named_is_made(run, done, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(copy / "analyses")
    assert list(analyse(copy, ["confusion", "curves"]).records) == ["curves", "confusion"]
    assert sorted(path.name for path in (copy / "analyses").glob("*.svg")) == ["confusion.svg", "curves.svg"]


# What is computed


def test_curves_are_means_over_clients_with_numbers_per_seed(run, done):
    found = values(run, "curves")["methods"]
    rows = [row for row in read_rows(run / "metrics.jsonl") if (row.split, row.name) == ("test", "accuracy")]
    own = [statistics.fmean(row.value or 0 for row in rows if row.round == r) for r in (1, 2, 3)]
    other = [
        statistics.fmean(row.value or 0 for row in read_rows(run / "seeds" / "1" / "metrics.jsonl")
                         if (row.split, row.name, row.round) == ("test", "accuracy", r)) for r in (1, 2, 3)
    ]  # fmt: skip
    assert found["fsar"]["rounds"] == [1, 2, 3]
    assert found["fsar"]["accuracy"] == pytest.approx(
        [(a + b) / 2 for a, b in zip(own, other, strict=True)], abs=1e-5
    )
    changes = [statistics.fmean([abs(c[1] - c[0]), abs(c[2] - c[1])]) for c in (own, other)]
    assert [seed["mean_change"] for seed in found["fsar"]["seeds"]] == pytest.approx(changes, abs=1e-5)
    assert found["fsar"]["stability"]["mean_change"] == pytest.approx(statistics.fmean(changes), abs=1e-5)
    assert list(found) == ["fsar", "fedavg"]


def test_confusion_is_the_evidence(run, done):
    evidence = json.loads((run / "evidence.json").read_text())["confusion"]
    found = values(run, "confusion")["clients"]
    assert {c: item["matrix"] for c, item in found.items()} == {c: item["matrix"] for c, item in evidence.items()}
    for item in found.values():
        right = sum(item["matrix"][i][i] for i in range(3))
        assert item["accuracy"] == pytest.approx(right / 12, abs=1e-5)


def test_coefficients_are_the_clients_own_and_drift_from_one(run, done):
    state = Study(run).states["fsar"]
    found = values(run, "coefficients")
    for client in CLIENTS:
        for name in ("alpha", "beta", "gamma"):
            value = float(state.locals.committed[client][f"topology.{name}"])
            assert found["coefficients"][client][name] == pytest.approx(value, abs=1e-5) != 1
            assert found["drift"][client][name] == pytest.approx(value - 1, abs=1e-5)


def test_topology_compares_the_snapshots_over_shared_joints(run, done):
    paths = sorted((run / "snapshots").glob("*.safetensors"))
    found = values(run, "topology")
    assert [item["round"] for item in found["U"]] == [int(path.stem.removeprefix("round-")) for path in paths]
    last = load_file(paths[-1])
    joints = [KINECT_V2.index(joint) for joint in OPENNI_15.joints]
    for name in ("I", "U"):
        a = last[f"{CLIENTS[0]}|topology.{name}"][:, joints][:, :, joints].flatten()
        b = last[f"{CLIENTS[2]}|topology.{name}"].flatten()
        expected = float(torch.nn.functional.cosine_similarity(a, b, dim=0))
        assert found[name][-1]["similarity"][0][2] == pytest.approx(expected, abs=1e-4)
        assert found[name][-1]["clients"] == CLIENTS
    # The snapshot of the last round holds what the client then keeps.
    keeps = Study(run).states["fsar"].locals.committed[CLIENTS[1]]
    assert torch.equal(last[f"{CLIENTS[1]}|topology.U"], keeps["topology.U"])


def test_cka_is_that_of_the_clients_networks_on_the_same_sequences(run, done):
    found = values(run, "cka")
    assert found["methods"]["fsar"]["clients"] == CLIENTS
    assert sum(found["sequences"].values()) == 36  # all three layouts have half of everyone's joints or more
    fsar = Study(run).trained("fsar")
    networks = fsar.train_once(CLIENTS)
    shared = "units.0.temporal.weight"  # averaged, it would be the same for all
    assert not torch.allclose(networks[CLIENTS[0]].tensors[shared], networks[CLIENTS[2]].tensors[shared])
    features: list[list[torch.Tensor]] = []
    for client, layout in ((CLIENTS[0], KINECT_V2), (CLIENTS[2], OPENNI_15)):
        module = fresh(fsar.method, fsar.clients[client].info, 9)
        module.load_state_dict(dict(networks[client].tensors))
        x = []
        for source in CLIENTS:
            data, own = fsar.clients[source].test.x, fsar.clients[source].info.layout
            assert own is not None
            columns = []
            for joint in layout.joints:
                known = [joint] if joint in own.joints else nearest(joint, own.name)
                columns.append(data[..., [own.index(name) for name in known], :].mean(-2))
            seen = torch.stack(columns, -2)
            x.append(data if own == layout else normalise(seen, layout))
        with torch.no_grad():
            features.append([module.eval()(torch.cat(x), leave=block).flatten(1) for block in (1, 2, 3)])
    for block, (one, other) in enumerate(zip(*features, strict=True)):
        expected = gram_cka(centred_gram(one), centred_gram(other))
        assert found["methods"]["fsar"]["blocks"][block][0][2] == pytest.approx(expected, abs=2e-4)
        assert 0 < expected < 0.9999


def nearest(joint: str, source: str) -> list[str]:
    """What stands in for a joint that a layout lacks, by hand, with the links of all three layouts."""
    if source == "kinect_v1":  # lacks the neck, and the ends of the hands
        return ["spine_shoulder", "head"] if joint == "neck" else [f"{joint.split('_')[0]}_hand"]
    return {
        "spine_base": ["spine_mid", "left_hip", "right_hip"],
        "spine_shoulder": ["neck", "spine_mid", "left_shoulder", "right_shoulder"],
        "left_wrist": ["left_elbow", "left_hand"],
        "right_wrist": ["right_elbow", "right_hand"],
        "left_ankle": ["left_knee", "left_foot"],
        "right_ankle": ["right_knee", "right_foot"],
        "left_hand_tip": ["left_hand"],
        "right_hand_tip": ["right_hand"],
        "left_thumb": ["left_hand"],
        "right_thumb": ["right_hand"],
    }[joint]


def test_the_landscapes_centre_is_the_loss_of_the_trained_network(run, done):
    found = values(run, "landscape")["methods"]
    fedavg = Study(run).trained("fedavg")
    losses = []
    for client in CLIENTS:
        module = fresh(fedavg.method, fedavg.clients[client].info, 9)
        module.load_state_dict(dict(fedavg.tensors(client)))
        train = fedavg.clients[client].train  # eight samples: all of them are taken
        with torch.no_grad():
            losses.append(float(torch.nn.functional.cross_entropy(module.eval()(train.x), train.y)))
        assert found["fedavg"]["clients"][client]["centre"] == pytest.approx(losses[-1], abs=1e-4)
    surface = torch.tensor(found["fedavg"]["mean"]["surface"])
    assert surface.shape == (5, 5)
    assert float(surface[2, 2]) == pytest.approx(statistics.fmean(losses), abs=1e-4)
    # Trained values may tie on some processor, but the corner's own weights give the corner's loss on all of them.
    corner = []
    for client in CLIENTS:
        weights, info = dict(fedavg.tensors(client)), fedavg.clients[client].info
        module = fresh(fedavg.method, info, 9).eval()
        for axis in (0, 1):
            for name, step in filter_direction(fedavg.tensors(client), filter_axes(module), 9, axis).items():
                weights[name] = weights[name] - step
        module.load_state_dict(weights)
        train = fedavg.clients[client].train
        with torch.no_grad():
            corner.append(float(torch.nn.functional.cross_entropy(module(train.x), train.y)))
    assert float(surface[0, 0]) == pytest.approx(statistics.fmean(corner), rel=1e-3)


def test_epsilon_compares_histograms_of_the_test_set(run, done):
    found = values(run, "epsilon")
    assert "not differential privacy and bounds nothing" in found["warning"]
    assert "not differential privacy and bounds nothing" in done.records["epsilon"]["caption"]
    fsar = Study(run).trained("fsar")
    engine = SequentialEngine(fsar.method, fsar.assembly.clients, fsar.assembly.training, fsar.device)
    engine.store.load(fsar.state.locals, fsar.device)
    infos = [fsar.method.clients[client] for client in CLIENTS]
    jobs = [Job(i.id, i.group, fsar.server.version, 3, fsar.method.served(fsar.server, i)) for i in infos]
    for client, item in zip(CLIENTS, engine._answer(jobs), strict=True):  # what the clients' tests are made from
        assert item.client.info.id == client
        counts = torch.histc(item.logits.softmax(-1).amax(-1), 10, 0, 1)
        one = found["methods"]["fsar"][client]
        assert one["D"] == pytest.approx(((counts + 1) / (12 + 10)).tolist(), abs=1e-5)
        ratios = [
            abs(math.log(a / b)) for a, b, used in zip(one["D"], one["replaced"], one["used"], strict=True) if used
        ]
        assert one["epsilon"] == pytest.approx(max(ratios, default=0), abs=1e-4)
        pair = found["pairs"][client]
        assert pair["by"] in CLIENTS and pair["by"] != client and pair["of"] == 12
    engine.close()


# Where it does not apply


def test_a_run_without_learned_graphs_says_so_and_goes_on(run, done, tmp_path):
    copy = shutil.copytree(run / "baselines" / "fedavg", tmp_path / "fedavg")
    heard: list[str] = []
    found = analyse(copy, ["topology", "coefficients", "curves"], heard.append)
    assert list(found.records) == ["curves"] and heard == ["curves", "topology", "coefficients"]
    assert found.left_out == {
        "topology": "FedAvg has no matrices I and U to look at here: it kept no snapshots of them",
        "coefficients": "FedAvg learned no alpha, beta and gamma here",
    }
    assert not (copy / "analyses" / "topology.svg").exists()


def test_one_client_has_nobody_to_be_compared_with(tmp_path):
    folder = trained(tmp_path, stage_clients=1, rounds=1)
    found = analyse(folder, ["cka", "epsilon", "topology", "curves"])
    assert list(found.records) == ["topology"]
    assert found.left_out.keys() == {"cka", "epsilon", "curves"}
    assert "only one" in found.left_out["cka"] and "two rounds" in found.left_out["curves"]


def test_central_training_has_one_network_and_an_unseen_client_takes_no_part(tmp_path):
    central = analyse(trained(tmp_path / "central", method="central", rounds=1), ["cka", "landscape", "epsilon"])
    assert list(central.records) == ["cka", "landscape", "epsilon"]
    matrices = torch.tensor(values(tmp_path / "central", "cka")["methods"]["central"]["blocks"])
    assert torch.allclose(matrices, torch.ones(3, 3, 3), atol=1e-5)
    assert list(values(tmp_path / "central", "landscape")["methods"]["central"]["clients"]) == ["everyone"]
    analyse(trained(tmp_path / "unseen", rounds=1, unseen=CLIENTS[1]), ["cka"])
    assert values(tmp_path / "unseen", "cka")["methods"]["fsar"]["clients"] == [CLIENTS[0], CLIENTS[2]]


# What is refused


def test_a_wrong_name_lists_those_there_are(run):
    with pytest.raises(
        ValueError, match=r"no analysis 'topologie'; did you mean 'topology'\?; there are curves, .*epsilon"
    ):
        analyse(run, ["topologie"])


def test_no_run_and_no_checkpoint_are_told_apart(run, tmp_path):
    with pytest.raises(ValueError, match="is not a run directory"):
        analyse(tmp_path)
    shutil.copy(run / "recipe.toml", tmp_path)
    with pytest.raises(ValueError, match="has no checkpoint to analyse; `fedaction resume"):
        analyse(tmp_path)


def test_another_recipe_than_the_one_trained_is_refused(run, done, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    text = (copy / "recipe.toml").read_text()
    (copy / "recipe.toml").write_text(text.replace("model_width = 4", "model_width = 5"))
    with pytest.raises(ValueError, match="was begun with model_width = 4, now it is 5"):
        analyse(copy, ["cka"])


def test_a_broken_snapshot_is_named(run, done, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    path = copy / "snapshots" / "round-000001.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"round-000001\.safetensors cannot be read"):
        analyse(copy, ["topology"])


# Small parts


def test_names_fit_on_pictures_and_stay_text():
    assert label("gym") == "gym"
    assert label("a" * 15 + "b" * 15, 11) == "aaaaa…bbbbb"
    assert label("a\nb\x00c") == "a b c"


def test_numbers_become_json():
    assert plain({"a": torch.tensor([1.23456789, math.nan]), 2: (True, 3)}) == {"a": [1.23457, None], "2": [True, 3]}


# The command


def call(*arguments: str | Path) -> Result:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def test_the_command_prints_tables_and_where_the_pictures_are(run, done):
    result = call(run, "coefficients", "confusion")
    assert result.exit_code == 0, result.stderr
    for words in ("Coefficients of the learned graph", "Confusion matrices", "γ", CLIENTS[2], f"report: {run}"):
        assert words in result.stdout
    assert f"picture: {run / 'analyses' / 'confusion.svg'}" in result.stdout
    assert result.stderr.split() == ["confusion", "coefficients"]


def test_the_commands_json_is_one_object(run, done, tmp_path):
    copy = shutil.copytree(run / "baselines" / "fedavg", tmp_path / "fedavg")
    result = call(copy, "coefficients", "confusion", "--json")
    assert result.exit_code == 0 and result.stdout.count("\n") == 1
    found = json.loads(result.stdout)
    assert found.keys() == {"run", "analyses", "pictures", "left_out", "report"}
    assert list(found["analyses"]) == ["confusion"] and list(found["left_out"]) == ["coefficients"]
    assert "left out: coefficients: FedAvg learned no" in result.stderr


def test_the_command_refuses_with_status_two(run):
    result = call(run, "landscapes")
    assert result.exit_code == 2 and "did you mean 'landscape'" in result.stderr.replace("\n", " ")
