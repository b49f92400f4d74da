"""Networks as data: what is recorded gives what the network gives, and nothing else can be made to run."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from fedaction.data.graph import disentangled, partition
from fedaction.data.inputs import Input, skeleton_input
from fedaction.data.layout import FLORENCE_15, KINECT_V2
from fedaction.data.preprocess import normalise
from fedaction.models.ctrgcn import CTRGCN
from fedaction.models.encoders import PerceptronEncoder
from fedaction.models.fdarn import FDARNNetwork
from fedaction.models.files import Card, ModelFileError, load_model, save_model
from fedaction.models.mlp import MLP
from fedaction.models.msg3d import MSG3D
from fedaction.models.mstgcn import MSTGCN
from fedaction.models.perceptron import Perceptron
from fedaction.models.program import Graph, Program, ProgramError, record
from fedaction.models.resnet3d import ResNet3D
from fedaction.models.steps import Steps
from fedaction.models.stgcn import STGCN
from tests.models.common import filled, samples

BODY = FLORENCE_15


class Recurrent(nn.Module):
    """A person's own network: a recurrent layer, then its last step."""

    def __init__(self, kind, **options):
        super().__init__()
        self.body = kind(6, 8, batch_first=True, **options)
        self.head = nn.LazyLinear(3)
        self.head(self.body(torch.zeros(1, 5, 6))[0][:, -1])

    def forward(self, x):
        return self.head(self.body(x)[0][:, -1])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.enter, self.body, self.head = nn.Linear(6, 8), nn.TransformerEncoder(layer, 2), nn.Linear(8, 3)
        self.token = nn.Parameter(torch.randn(1, 1, 8))

    def forward(self, x):
        x = torch.cat([self.token.expand(len(x), -1, -1), self.enter(x)], 1)
        return self.head(self.body(x)[:, 0])


class Writing(nn.Module):
    """Writes into tensors, as people do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(30, 3)

    def forward(self, x):
        y = torch.zeros(x.shape[0], 5, 6)
        y[:, 1:] = x[:, 1:]
        y[:, 0] += torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        return self.layer(y.flatten(1).relu_())


def convolutions():
    return nn.Sequential(
        nn.Conv1d(5, 8, 3, padding="same"), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.MaxPool1d(2), nn.Dropout(),
        nn.Flatten(), nn.Linear(24, 3), nn.LayerNorm(3), nn.SiLU(),
    )  # fmt: skip


def fdarn(**options):
    encoders = [PerceptronEncoder(12, 8, 8) for _ in range(2)]
    return FDARNNetwork(*encoders, classes=4, modalities=2, features=8, hidden=8, sphere=4, **options)


JOINTS = (2, 12, len(BODY), 3)
CASES = {
    "stgcn": (lambda: STGCN(partition(BODY, "spatial_full"), classes=4, width=4, dropout=0.5), JOINTS),
    "fsar": (lambda: STGCN(partition(BODY, "spatial_full"), classes=4, width=4, adaptive=True), JOINTS),
    "ctrgcn": (
        lambda: CTRGCN(partition(BODY, "inward_outward_by_source"), classes=4, width=16, bodies=2, adaptive=True),
        JOINTS,
    ),
    "mstgcn": (lambda: MSTGCN(partition(BODY, "inward_outward"), classes=4, width=28, bodies=2), JOINTS),
    "msg3d": (
        lambda: MSG3D(disentangled(BODY, 2), scales=(2, 2), classes=4, width=12, bodies=2, adaptive=True),
        JOINTS,
    ),
    "perceptron": (
        lambda: Perceptron(PerceptronEncoder(12, 8, 8, norm=True), features=8, hidden=8, classes=4),
        (12,),
    ),
    "fdarn": (fdarn, (12,)),
    "fdarn_asks_one": (lambda: fdarn(predicts="shared"), (12,)),
    "mlp": (lambda: MLP(30, (8,), 4), (5, 6)),
    "resnet": (lambda: ResNet3D(depth=18, width=2, classes=4), (4, 16, 16, 3)),
    "gru": (lambda: Recurrent(nn.GRU, num_layers=2, bidirectional=True, dropout=0.5), (5, 6)),
    "lstm": (lambda: Recurrent(nn.LSTM), (5, 6)),
    "rnn": (lambda: Recurrent(nn.RNN), (5, 6)),
    "transformer": (Attention, (5, 6)),
    "convolutions": (convolutions, (5, 6)),
    "writing": (Writing, (5, 6)),
}


def make(name):
    build, shape = CASES[name]
    network = build()
    ours = not isinstance(network, Recurrent | Attention | Writing | nn.Sequential)
    return (filled(network) if ours else network), shape


@pytest.mark.parametrize("name", CASES)
def test_a_program_gives_what_its_network_gives(name):
    """Whatever the number of samples, through JSON, with the network's own names for its tensors."""
    network, shape = make(name)
    network.train()
    graph, tensors = record(network, samples(2, *shape))
    assert all(part.training for part in network.modules())  # it is left as it was
    program = Program(Graph.from_json(graph.to_json()), tensors)
    network.eval()
    with torch.no_grad():
        for count in (1, 3, 7):
            x = samples(count, *shape, seed=count)
            torch.testing.assert_close(program(x), network(x), rtol=1e-4, atol=1e-5)
    own = {n for n, _ in (*network.named_parameters(), *network.named_buffers())}
    assert {n for n in program.state_dict() if not n.startswith("constant.")} <= own
    assert program.check_size(shape) == tuple(network(samples(1, *shape)).shape[1:])


def test_a_program_with_other_tensors_is_the_network_with_those():
    """One recording serves every client of an architecture."""
    network, shape = make("fsar")
    graph, _ = record(network, samples(2, *shape))
    other = filled(CASES["fsar"][0](), seed=5).eval()
    x = samples(4, *shape)
    program = Program(graph, {**dict(other.named_parameters()), **dict(other.named_buffers())})
    torch.testing.assert_close(program(x), other(x), rtol=1e-4, atol=1e-5)


def test_what_cannot_be_written_names_the_operation_and_the_layer():
    class Drawing(nn.Module):
        def forward(self, x):
            return x + torch.rand(x.shape[0], 1)

    class Choosing(nn.Module):
        def forward(self, x):
            return x[x[:, 0] > 0][:1].expand(x.shape[0], -1)

    for layer, words in ((Drawing(), "rand.default in 0"), (Choosing(), "0 chooses by the values")):
        with pytest.raises(ProgramError, match=words):
            record(nn.Sequential(layer, nn.Linear(6, 3)), torch.randn(2, 6))
    with pytest.raises(ProgramError, match="gives tuple, not one tensor"):
        record(nn.GRU(6, 3, batch_first=True), torch.randn(2, 5, 6))
    with pytest.raises(ProgramError, match="training = True"):  # answers would depend on the other samples
        record(nn.BatchNorm1d(6, track_running_stats=False), torch.randn(2, 6))


def simple():
    network = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    graph, tensors = record(network, torch.randn(2, 4))
    return json.loads(graph.to_json()), tensors


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (["from_file.default", ["/etc/passwd", False, 10]], "may not use"),
        (["rand.default", [[2, 2]]], "may not use"),
        (["empty.memory_format", [[2, 2]]], "may not use"),
        (["add_.Tensor", [{"v": 0}, {"v": 0}]], "may not use"),
        (["__class__.x", []], "may not use"),
        (["relu.default", [{"v": 9}]], "an argument that cannot be used"),
        (["relu.default", [{"v": -1}]], "an argument that cannot be used"),
        (["relu.default", [{"dtype": {}}]], "an argument that cannot be used"),
        (["relu.default", [{"dtype": "os"}]], "an argument that cannot be used"),
        (["relu.default", [[[[[[[1]]]]]]]], "an argument that cannot be used"),
        (["relu.default", [10**30]], "an argument that cannot be used"),
        (["gru.input", [{"v": 0}, {"v": 0}, [], True, 1, 0.5, True, False, False]], "train = True"),
        (["zeros_like.default", [{"v": 0}], {"device": "cuda"}], "names a device"),
        (["relu.default", 3], "not a name and its arguments"),
        (["relu.default"], "not a list of operations"),
    ],
)
def test_programs_of_others_are_checked(node, words):
    values, _ = simple()
    with pytest.raises(ProgramError, match=words):
        Graph.from_json(json.dumps({**values, "nodes": [*values["nodes"], node]}))


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (["zeros.default", [[1, 2**20, 2**10]]], "more than the 268,435,456 that are allowed"),
        (["expand.default", [{"v": 0}, [2**30, 1, 4]]], "that are allowed"),
        (["reshape.default", [{"v": 0}, [7, 7]]], "cannot be run on samples"),
        (["relu.default", [{"t": "nothing"}]], "'nothing', which is not there"),
        (["relu.default", ["text"]], "cannot be run on samples"),
        (["sum.default", [{"v": 0}]], "one result for every sample"),
    ],
)
def test_programs_of_others_are_tried_without_memory(node, words):
    values, tensors = simple()
    nodes = [*values["nodes"], node]
    graph = Graph.from_json(json.dumps({"nodes": nodes, "output": len(nodes)}))
    with pytest.raises(ProgramError, match=words):
        Program(graph, tensors).check_size((4,))


def test_a_file_of_any_network_comes_back(tmp_path):
    network, shape = make("gru")
    card = Card(classes=("a", "b", "c"), input=Input(kind="arrays", shape=shape), provenance={"client": "x/y"})
    save_model(tmp_path / "m.safetensors", network, card)
    other, said = load_model(tmp_path / "m.safetensors")
    x = samples(4, *shape)
    torch.testing.assert_close(other(x), network.eval()(x))
    assert said == card
    save_model(tmp_path / "again.safetensors", other, said)  # a program is written as it is
    torch.testing.assert_close(load_model(tmp_path / "again.safetensors")[0](x), other(x))
    wrong = Card(classes=("a", "b"), input=card.input)
    with pytest.raises(ModelFileError, match=r"gives \(3,\) for a sample, its card names 2"):
        save_model(tmp_path / "m.safetensors", network, wrong)
        load_model(tmp_path / "m.safetensors")


@pytest.mark.parametrize("align", [True, False])
def test_steps_prepare_skeletons_as_training_did(align):
    x = samples(4, 1, 10, len(KINECT_V2), 3)
    given = skeleton_input(KINECT_V2, tuple(x.shape[1:]), align)
    torch.testing.assert_close(Steps(given)(x), normalise(x, KINECT_V2, align), rtol=1e-5, atol=1e-5)
    assert Input.model_validate_json(given.model_dump_json()) == given
