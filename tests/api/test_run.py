"""`import fedaction as fa`: a network or method of one's own, trained, looked at, resumed, saved and used."""

import json
import subprocess
import sys
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import fedaction as fa
from fedaction.federation.progress import Quiet
from fedaction.federation.settings import RecipeError
from fedaction.methods.given import BASELINES

N = 90
Y = np.arange(N) % 3
X = (np.random.default_rng(0).normal(size=(N, 12, 4)) + 2 * Y[:, None, None]).astype(np.float32)
WHO = np.repeat(["anna", "ben", "clinic"], 30)
QUICK = {"rounds": 2, "lr": 0.05, "batch_size": 8, "controls": [], "device": "cpu", "progress": Quiet()}


class Recurrent(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.rnn, self.drop, self.out = nn.GRU(4, 8, batch_first=True), nn.Dropout(0.2), nn.Linear(8, classes)

    def forward(self, x):
        return self.out(self.drop(self.rnn(x)[0][:, -1]))


class Convolved(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(4, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1))
        self.out = nn.Linear(8, classes)

    def forward(self, x):
        return self.out(self.body(x.transpose(1, 2)).mean(2))


class Inner(nn.Module):
    """Draws dropout inside torch's own LSTM, where no layer of ours can be put."""

    def __init__(self, classes):
        super().__init__()
        self.rnn, self.out = nn.LSTM(4, 6, 2, dropout=0.3, batch_first=True), nn.Linear(6, classes)

    def forward(self, x):
        return self.out(self.rnn(x)[0].mean(1))


class Attentive(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.out = nn.Linear(8, classes)

    def forward(self, x):
        return self.out(self.layer(self.up(x)).mean(1))


class Mine(fa.Method):
    def build(self, client):
        return Recurrent(len(client.classes))


@pytest.fixture(scope="module")
def sites():
    return fa.clients(X, Y, by=WHO, holdout=0.3)


@pytest.fixture(scope="module")
def mine(sites, tmp_path_factory):
    keys = {**QUICK, "controls": ["majority", "local"], "rounds": 6, "lr": 0.1}
    return fa.run(Mine, sites, baselines=["fedavg"], out=tmp_path_factory.mktemp("mine") / "run", **keys)


def test_the_names_are_few_and_come_when_asked_for():
    assert len(fa.__all__) == 15 and all(getattr(fa, name) is not None for name in fa.__all__)
    text = "import sys, fedaction; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0
    with pytest.raises(AttributeError, match="has no attribute 'clinets'"):
        fa.clinets  # noqa: B018


def test_a_method_of_ones_own_beside_baselines(mine, sites):
    assert mine.done and {*mine.accuracy} == {"anna", "ben", "clinic"} and mine.mean > 0.5
    assert {*mine.baselines} == {"fedavg", "local"} and mine.report.exists()
    lines = mine.table().splitlines()
    assert lines[0].split() == ["mine", "fedavg", "local", "commonest", "class"] and len(lines) == 5
    assert lines[-1].split()[1:3] == [f"{100 * mine.mean:.1f}"] * 2  # the same network, averaged in the same way
    rounds, clients, values = mine.metrics()
    assert rounds.tolist() == [1, 2, 3, 4, 5, 6] and values.shape == (6, 3) and clients == ["anna", "ben", "clinic"]
    np.testing.assert_allclose(values[-1], [mine.accuracy[name] for name in clients])
    matrix, classes = mine.confusion("ben")
    assert matrix.sum() == len(sites[1].test) and classes == ["0", "1", "2"]
    assert json.loads((mine.folder / "environment.json").read_text())["engine"] == "sequential"
    with pytest.raises(KeyError, match="did you mean 'accuracy"):
        mine.metrics("acuracy")


def test_what_was_trained_is_saved_and_used(mine, sites, tmp_path):
    net = mine.network("clinic")
    net.save(tmp_path / "clinic.safetensors")
    test = sites[2].test
    said = [fa.predict(tmp_path / "clinic.safetensors", x).label for x in test.x.numpy()]
    right = np.mean([a == test_class for a, test_class in zip(said, [str(y) for y in test.y.tolist()], strict=True)])
    assert right == pytest.approx(mine.accuracy["clinic"])
    assert (
        fa.predict(mine.folder, X[0]).label == fa.load_network(mine.folder / "model.safetensors").predict(X[0]).label
    )


def test_a_run_is_read_while_it_goes_on_and_resumed_to_the_same_bytes(sites, tmp_path, mine):
    class Stop:
        seen: ClassVar[list] = []

        def on_start(self, method, seed, folder):
            self.folder = folder

        def on_round(self, rows):
            self.seen.append((rows[0].round, fa.load_run(self.folder).metrics()[0].tolist()))
            if len(self.seen) == 3:
                raise KeyboardInterrupt

    keys = {**QUICK, "rounds": 6, "lr": 0.1}
    with pytest.raises(KeyboardInterrupt):
        fa.run(Mine, sites, out=tmp_path / "run", callbacks=[Stop()], **keys)
    assert Stop.seen == [(1, [1]), (2, [1, 2]), (3, [1, 2, 3])]
    assert not fa.load_run(tmp_path / "run").done and "not done" in repr(fa.load_run(tmp_path / "run"))
    resumed = fa.run(Mine, sites, out=tmp_path / "run", **keys)
    assert (resumed.folder / "metrics.jsonl").read_bytes() == (mine.folder / "metrics.jsonl").read_bytes()
    other = fa.clients(X + 1, Y, by=WHO, holdout=0.3)
    with pytest.raises(ValueError, match=r"was begun with other data than there are now \(the program's clients\)"):
        fa.run(Mine, other, out=tmp_path / "run", **keys)
    with pytest.raises(ValueError, match=r"rounds = 6, now they are 7: .* rounds=7, extended=\[6\]\) makes"):
        fa.run(Mine, sites, out=tmp_path / "run", **{**keys, "rounds": 7})
    longer = fa.run(Mine, sites, out=tmp_path / "run", **{**keys, "rounds": 7, "extended": [6]})
    assert longer.result["rounds"] == 7 and longer.result["extended"] == [6]


@pytest.mark.parametrize("kind", [Convolved, Inner, Attentive])
def test_any_layer_trains_the_same_whatever_the_cores(kind, sites, tmp_path):
    before = torch.random.get_rng_state()
    runs = [fa.run(kind, sites, out=tmp_path / f"{n}", workers=n, **QUICK) for n in (1, 3)]
    assert torch.equal(before, torch.random.get_rng_state())  # the global generator is as it was
    assert (runs[0].folder / "metrics.jsonl").read_bytes() == (runs[1].folder / "metrics.jsonl").read_bytes()
    assert runs[0].result["method"] == kind.__name__.lower()


@pytest.mark.parametrize("kind", [Convolved, Recurrent])
def test_both_engines_give_the_same(kind, sites, tmp_path):
    runs = [fa.run(kind, sites, engine=e, out=tmp_path / e, **QUICK) for e in ("sequential", "vectorised")]
    losses = [run.metrics("loss", "train")[2] for run in runs]
    np.testing.assert_allclose(losses[0], losses[1], atol=1e-4)


def test_a_layer_that_cannot_be_stacked_is_named_and_auto_takes_the_other_engine(sites, tmp_path):
    with pytest.raises(
        ValueError, match=r"layer 'rnn', a LSTM, cannot be stacked .*; say engine = 'sequential' or 'auto'"
    ):
        fa.run(Inner, sites, engine="vectorised", out=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()
    run = fa.run(Inner, sites, engine="auto", out=tmp_path / "run", **QUICK)
    assert run.result["engine"] == "sequential"


def test_initial_values_are_the_networks_own(sites, tmp_path):
    class Set(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(4, 3)
            nn.init.constant_(self.out.weight, 0.25)

        def forward(self, x):
            return self.out(x.mean(1))

    run = fa.run(Set, sites, **{**QUICK, "rounds": 1, "lr": 1e-9}, out=tmp_path / "run")
    weights = run.network().module.state_dict()["out.weight"]
    torch.testing.assert_close(weights, torch.full((3, 4), 0.25))
    biases = [
        fa.run(Set, sites, **{**QUICK, "rounds": 1, "lr": 1e-9}, seeds=[s], out=tmp_path / f"{s}").network().module
        for s in (0, 1)
    ]
    first, second = (module.state_dict()["out.bias"] for module in biases)
    torch.testing.assert_close(first, run.network().module.state_dict()["out.bias"])
    assert not torch.allclose(first, second)  # what is drawn follows from the seed


def test_clients_with_classes_of_their_own_share_what_they_can(sites, tmp_path):
    from dataclasses import replace

    few = replace(sites[0], info=replace(sites[0].info, classes=("0", "1", "2", "jump")))
    run = fa.run(lambda client: Convolved(len(client.classes)), [few, *sites[1:]], out=tmp_path / "run", **QUICK)
    assert not (run.folder / "model.safetensors").exists()
    shapes = {name: run.network(name).module.state_dict()["out.weight"].shape[0] for name in run.accuracy}
    assert shapes == {"anna": 4, "ben": 3, "clinic": 3}


def test_built_in_methods_and_data_from_python(tmp_path, sites):
    keys = {
        "stage_clients": 2,
        "stage_train": [8],
        "stage_test": 4,
        "stage_actions": [3],
        "frames": 8,
        "model_units": [1, 1, 1],
    }
    run = fa.run("fsar", data="stage", model_width=4, model_last=0, out=tmp_path / "stage", **keys, **QUICK)
    assert run.result["method"] == "fsar" and len(run.accuracy) == 2
    vectors = fa.clients(X.mean(1), Y, by=WHO)
    run = fa.run(
        "fedavg", vectors, backbone="perceptron", model_features=8, model_hidden=8, out=tmp_path / "v", **QUICK
    )
    assert {*run.accuracy} == {"anna", "ben", "clinic"}


def test_every_baseline_trains_a_network_of_ones_own(sites, tmp_path):
    run = fa.run(Convolved, sites, baselines=BASELINES, out=tmp_path / "run", **{**QUICK, "rounds": 1})
    assert {*run.baselines} == {*BASELINES}
    for baseline in run.baselines.values():
        if baseline.result["method"] != "central":  # whose network is everybody's
            assert "body.0.weight" in baseline.network("ben").module.state_dict()
    stacked = {**QUICK, "rounds": 1, "engine": "vectorised"}
    fa.run(Convolved, sites, baselines=["fedbn", "pfedme", "fedema"], out=tmp_path / "stacked", **stacked)


class Wrong(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(5, 3)

    def forward(self, x):
        return self.out(x)


class Random(Wrong):
    def __init__(self):
        super().__init__()
        self.out.bias.data += float(np.random.default_rng().normal())  # not torch's generator


class Shape(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(x)


class Two(nn.Module):
    def __init__(self, width, classes):
        super().__init__()


@pytest.mark.parametrize(
    ("method", "keys", "words"),
    [
        (Wrong, {}, "Wrong cannot take the samples of client 'anna': a batch of 2 is .2, 12, 4. float32"),
        (Random, {}, "Random is built with other values of 'out.bias' each time"),
        (Shape, {}, r"Shape gives \(2, 12, 3\) for 2 samples of client 'anna'; expected are logits \(2, 3\)"),
        (Two, {}, "Two needs width, classes; give a function instead"),
        (Wrong(), {}, "give the network's class"),
        (int, {}, "neither a fedaction.Method nor a torch.nn.Module"),
        (3, {}, "3 is neither a method"),
        ("fedagv", {}, "method = 'fedagv' is unknown; did you mean 'fedavg'"),
        (Convolved, {"rouns": 3}, "there is no key 'rouns'; did you mean 'rounds'"),
        (
            Convolved,
            {"backbone": "stgcn"},
            "backbone is a key of this package's networks, and convolved builds its own",
        ),
        (Convolved, {"baselines": ["fsar"]}, "baselines: 'fsar' does not train a network of your own"),
        (Convolved, {"data": "stage"}, "give one of them"),
    ],
)
def test_what_cannot_be_run_is_said_and_leaves_nothing(method, keys, words, sites, tmp_path):
    with pytest.raises((RecipeError, ValueError), match=words):
        fa.run(method, sites, out=tmp_path / "run", **{**QUICK, **keys})
    assert not (tmp_path / "run").exists()


def test_a_programs_run_is_read_by_commands_and_resumed_by_the_program(mine):
    from typer.testing import CliRunner

    from fedaction.cli import app

    shown = CliRunner().invoke(app, ["compare", str(mine.folder)])
    assert shown.exit_code == 0 and "mine" in shown.stdout
    again = CliRunner().invoke(app, ["resume", str(mine.folder)])
    assert again.exit_code == 2 and "given by a program" in again.stderr


def test_tensorboard_is_told_of_every_round(sites, tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    told = fa.callbacks.TensorBoard()
    run = fa.run(Convolved, sites, out=tmp_path / "run", callbacks=[told], **QUICK)
    log = events.EventAccumulator(str(run.folder / "tensorboard"))
    log.Reload()
    points = {event.step: event.value for event in log.Scalars("test/accuracy/ben")}
    assert [*points] == [1, 2] and points[2] == pytest.approx(run.accuracy["ben"])
