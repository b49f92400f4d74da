"""3D ResNets: sizes, a literal version, stages, frozen stages, and one client at a time against many at once."""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, vmap

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.samples import Examples
from fedaction.engines.base import Training
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.evaluation.site import Question
from fedaction.federation.scope import GLOBAL, LOCAL, Rule, ScopeTable
from fedaction.federation.seeds import generator
from fedaction.federation.state import Job
from fedaction.methods import METHODS
from fedaction.methods.start import initial_state
from fedaction.models.heads import Classifier
from fedaction.models.layers import BatchNorm, use_stacked_form
from fedaction.models.resnet3d import BLOCKS, MEAN, STD, Conv3d, ResNet3D
from tests.models.common import close, count, filled, normalised, started

SIZES = {  # depth: parameters with 400 classes, shortcuts of type B and A; type B without the classifier
    18: (33_409_104, 33_235_280, 33_203_904),
    22: (37_834_320, 37_660_496, 37_629_120),
    24: (41_374_288, 41_200_464, 41_169_088),
    26: (55_532_112, 55_358_288, 55_326_912),
    28: (55_753_552, 55_579_728, 55_548_352),
    30: (59_293_520, 59_119_696, 59_088_320),
    34: (63_718_736, 63_544_912, 63_513_536),
}


def clips(*shape, seed=2):
    return torch.randint(0, 256, (*shape, 3), generator=generator(seed, "clips"), dtype=torch.uint8)


def on_meta(*arguments, **options):
    with torch.device("meta"):
        return ResNet3D(*arguments, **options)


@pytest.mark.parametrize("depth", SIZES)
def test_sizes(depth):
    b, a, features = SIZES[depth]
    assert depth == 2 * sum(BLOCKS[depth]) + 2
    assert count(on_meta(depth)) == b
    assert count(on_meta(depth, shortcut="A")) == a
    assert count(on_meta(depth), without="classifier") == count(on_meta(depth, classes=0)) == features
    for classes in (51, 101):
        assert count(on_meta(depth, classes)) == features + 513 * classes


def test_known_sizes_with_few_classes():
    assert count(on_meta(18, 51)) == 33_230_067
    assert count(on_meta(18, 101)) == 33_255_717


@pytest.mark.parametrize("strides", [{}, {"frame_strides": (1, 2, 2, 2), "image_strides": (1, 2, 2, 1)}])
def test_fedvssls_network(strides):
    model = on_meta(18, 0, stem_frames=3, pool=False, eps=1e-3, **strides)
    assert count(model) == 33_166_272
    assert count(model.layer1) == 442_880 and count(model.layer4) == 24_908_800
    assert count(on_meta(18, 400, stem_frames=3, pool=False)) == 33_371_472
    size = 14 if strides else 7
    x = torch.empty(2, 16, 112, 112, 3, device="meta")
    assert model(x, leave=5).shape == (2, 2, size, size, 512)


def test_each_network_contains_the_next_smaller_one():
    names = [set(on_meta(depth).state_dict()) for depth in BLOCKS]
    for smaller, larger in itertools.pairwise(names):
        assert smaller < larger


MILLIONS = {18: 4_359, 22: 4_879, 24: 5_053, 26: 5_279, 28: 5_974, 30: 6_147, 34: 6_668}


@pytest.mark.parametrize(
    ("depth", "frames", "millions"), [*((depth, 8, known) for depth, known in MILLIONS.items()), (18, 16, 8_319)]
)
def test_operations_of_a_clip(depth, frames, millions):
    """Multiply-adds, counted where they happen; a normalisation is two per entry."""
    model, found = on_meta(depth), []

    def spent(layer, _, y):
        found.append(y.numel() * (2 if isinstance(layer, BatchNorm) else layer.weight[0].numel()))

    for layer in model.modules():
        if isinstance(layer, Conv3d | BatchNorm | Classifier):
            layer.register_forward_hook(spent)
    model(torch.empty(1, frames, 112, 112, 3, device="meta"))
    assert sum(found) / 1e6 == pytest.approx(millions, abs=1)


def test_tensors_have_haras_names():
    names = set(on_meta(18).state_dict())
    assert {"conv1.weight", "bn1.running_var", "layer1.0.conv1.weight", "layer1.1.bn2.bias"} < names
    assert {"layer2.0.downsample.0.weight", "layer2.0.downsample.1.running_mean", "classifier.weight"} < names
    assert not any("downsample" in name for name in names if name.startswith("layer1"))
    assert not any("downsample" in name for name in on_meta(18, shortcut="A").state_dict())
    assert on_meta(18).layer3[0].conv1.weight.shape == (256, 128, 3, 3, 3)
    assert on_meta(18).conv1.weight.shape == (64, 3, 7, 7, 7)


@pytest.mark.parametrize("shortcut", ["A", "B"])
def test_against_torchs_own_layers(double, shortcut):
    """The whole network written once more, channels first."""
    model, x = filled(ResNet3D(22, 5, 4, shortcut)), clips(2, 9, 33, 41)
    w = dict(model.named_parameters())

    def norm(h, name):
        return normalised(h, model.get_submodule(name))

    h = (x.double() - torch.tensor(MEAN)) / torch.tensor(STD)
    h = F.conv3d(h.permute(0, 4, 1, 2, 3), w["conv1.weight"], stride=(1, 2, 2), padding=3)
    h = F.max_pool3d(norm(h, "bn1").relu(), 3, 2, 1)
    for stage, blocks in enumerate((2, 3, 3, 2), 1):
        for i in range(blocks):
            name, stride = f"layer{stage}.{i}", 2 if stage > 1 and i == 0 else 1
            y = norm(F.conv3d(h, w[f"{name}.conv1.weight"], stride=stride, padding=1), f"{name}.bn1").relu()
            y = norm(F.conv3d(y, w[f"{name}.conv2.weight"], padding=1), f"{name}.bn2")
            if stride == 2 and shortcut == "B":
                h = norm(F.conv3d(h, w[f"{name}.downsample.0.weight"], stride=2), f"{name}.downsample.1")
            elif stride == 2:
                h = F.avg_pool3d(h, 1, 2)
                h = torch.cat([h, torch.zeros_like(h)], 1)
            h = (y + h).relu()
    pooled = F.adaptive_avg_pool3d(h, 1).flatten(1)
    close(model(x, output="pooled"), pooled)
    close(model(x), pooled @ w["classifier.weight"].T + w["classifier.bias"])


def test_bytes_and_numbers_are_the_same_and_layouts_do_not_matter(double):
    model, x = filled(ResNet3D(18, 5, 2)).eval(), clips(2, 8, 32, 32)
    expected = model(x)
    close(model(x.double()), expected)
    close(model(x.transpose(0, 2).contiguous().transpose(0, 2)), expected)
    close(model.to(memory_format=torch.channels_last_3d)(x), expected)


def test_initial_values():
    model = started(ResNet3D(18, 5, 16))
    weight = model.layer4[1].conv2.weight
    assert weight.std().item() == pytest.approx((2 / (128 * 27)) ** 0.5, rel=0.02)
    for name, tensor in model.state_dict().items():
        if ".bn" in name or "downsample.1" in name or name.startswith("bn"):
            value = 1.0 if name.endswith(("weight", "running_var")) else 0.0
            assert (tensor == value).all(), name
    assert torch.equal(model.mean, torch.tensor(MEAN)) and torch.equal(model.std, torch.tensor(STD))
    assert not {"mean", "std"} & set(model.state_dict())


def test_any_stretch_of_stages():
    model, x = filled(ResNet3D(18, 5, 1)).eval(), clips(1, 8, 112, 112)
    expected, y = model(x), x
    shapes = [(4, 28, 28, 1), (4, 28, 28, 1), (2, 14, 14, 2), (1, 7, 7, 4), (1, 4, 4, 8), (8,), (5,)]
    for stage, shape in enumerate(shapes):
        y = model(y, enter=stage, leave=stage + 1)
        assert y.shape == (1, *shape)
        torch.testing.assert_close(model(y, enter=stage + 1), expected)
        assert torch.equal(model(x, leave=stage + 1), y)
    assert torch.equal(model(x, leave=6), model(x, output="pooled"))
    for enter, leave in ((3, 2), (0, 8), (-1, 2)):
        with pytest.raises(ValueError, match="no stretch"):
            model(x, enter, leave)


def test_wrong_arguments_and_samples_are_refused():
    for options, words in (
        ({"depth": 20}, "depth 20; depths are 18, 22"),
        ({"width": 0}, "width 0"),
        ({"stem_frames": 4}, "odd"),
        ({"shortcut": "C"}, "not A or B"),
        ({"frozen": 7}, "not a stage"),
    ):
        with pytest.raises(ValueError, match=words):
            on_meta(**options)
    with pytest.raises(ValueError, match=r"\(N, T, H, W, 3\), not \(2, 3, 8, 32, 32\)"):
        ResNet3D(18, 5, 2)(torch.zeros(2, 3, 8, 32, 32))
    with pytest.raises(ValueError, match='built without a classifier; ask for output="pooled"'):
        ResNet3D(18, 0, 2)(clips(1, 8, 32, 32))


@pytest.mark.parametrize("frozen", [0, 1, 3, 5, 6])
def test_frozen_stages_never_move(frozen):
    model = started(ResNet3D(18, 3, 2, frozen=frozen)).train()
    before = copy.deepcopy(model.state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        F.cross_entropy(model(clips(4, 8, 32, 32, seed=step)), torch.tensor([0, 1, 2, 0])).backward()
        optimiser.step()
        model.eval()
        model.train()
    stages = {"conv1": 0, "bn1": 0, "layer1": 1, "layer2": 2, "layer3": 3, "layer4": 4, "classifier": 6}
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]) is (stages[name.split(".")[0]] < frozen), name
    assert model.classifier.training and model.training


def test_clients_one_at_a_time_and_at_once_agree(double):
    """Values, gradients and statistics, for shared and for frozen stages."""
    y = torch.tensor([0, 2])
    for options in ({}, {"shortcut": "A", "frozen": 2}):
        plain = started(ResNet3D(18, 3, 2, **options))
        stacked = use_stacked_form(copy.deepcopy(plain))
        clients = []
        for seed in range(3):
            net = filled(copy.deepcopy(plain), seed=seed)
            parameters = {n: p.detach().clone().requires_grad_() for n, p in net.named_parameters()}
            buffers = {n: b.clone() for n, b in net.named_buffers() if "running" in n}
            clients.append((parameters, buffers, clips(2, 8, 32, 32, seed=seed)))

        def loss(network, values, others, x):
            return F.cross_entropy(functional_call(network, {**values, **others}, (x,)), y)

        together = {n: torch.stack([c[0][n].detach() for c in clients]).requires_grad_() for n in clients[0][0]}
        statistics = {n: torch.stack([c[1][n] for c in clients]) for n in clients[0][1]}
        xs = torch.stack([c[2] for c in clients])
        losses = vmap(lambda p, b, x: loss(stacked, p, b, x))(together, statistics, xs)  # noqa: B023
        losses.sum().backward()
        for i, (parameters, buffers, x) in enumerate(clients):
            one = loss(plain, parameters, buffers, x)
            one.backward()
            close(losses[i], one)
            for n, p in parameters.items():
                assert (p.grad is None) is (together[n].grad is None), n
                if p.grad is not None:
                    torch.testing.assert_close(together[n].grad[i], p.grad, atol=1e-9, rtol=1e-9)
            for n, b in buffers.items():
                close(statistics[n][i], b, n)


class _Video(METHODS["fedavg"]):
    """Federated averaging of this network."""

    def build(self, client):
        return ResNet3D(18, len(client.classes), 2)

    def scopes(self):
        return ScopeTable((Rule("classifier", LOCAL), Rule("**", GLOBAL)))


def test_both_engines_train_it_alike(double):
    """A round of local steps on bytes; clients have unequal amounts and classes."""
    clients = {}
    for number, (amount, classes) in enumerate(((6, 3), (4, 2), (6, 3))):
        y = torch.arange(amount) % classes
        x = clips(amount, 8, 24, 24, seed=number)
        names = tuple(f"action-{c}" for c in range(classes))
        info = ClientInfo(f"client-{number}", "video", amount, names, (8, 24, 24, 3))
        clients[info.id] = ClientData(info, Examples(x, y), Examples(x, y))
    kind = METHODS["fedavg"]
    method = _Video([client.info for client in clients.values()], kind.settings_type())
    server = initial_state(method, 3)
    jobs = [Job(name, "video", 0, 1, method.payload(server, client.info)) for name, client in clients.items()]
    training = Training(seed=3, batch_size=2, local_epochs=1, lr=0.01)
    cpu = torch.device("cpu")
    one = SequentialEngine(method, clients, training, cpu)
    other = VectorisedEngine(method, clients, training, cpu)
    for a, b in zip(one.train(jobs), other.train(jobs), strict=True):
        assert a.client == b.client
        keeps = [engine.store.pending(a.client) for engine in (one, other)]
        assert set(keeps[0]) == {"classifier.weight", "classifier.bias"}
        for mine, theirs in ((a.tree, b.tree), keeps):
            assert mine.keys() == theirs.keys()
            for n in mine:
                torch.testing.assert_close(mine[n], theirs[n], atol=1e-9, rtol=1e-9, msg=f"{a.client} {n}")
        assert not torch.equal(a.tree["conv1.weight"], server.shared["conv1.weight"])
    question = Question(evidence=("confusion",))
    for a, b in zip(one.evaluate(jobs, question), other.evaluate(jobs, question), strict=True):
        assert a.client == b.client and a.evidence == b.evidence and "matrix" in a.evidence["confusion"]
        assert a.metrics.keys() == b.metrics.keys() == {"accuracy", "balanced_accuracy", "macro_f1", "loss"}
        assert a.metrics["loss"] == pytest.approx(b.metrics["loss"], abs=1e-9)
    one.close()
