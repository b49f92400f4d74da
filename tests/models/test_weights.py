"""Public checkpoints: four families of names, what is reported, what is refused, and code that must not run."""

import collections
import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedaction.federation.seeds import generator
from fedaction.models.resnet3d import ResNet3D
from fedaction.models.weights import WeightsError, load_weights, own_name, read_tensors
from tests.models.common import started

WIDTH = 4


class Public(nn.Module):
    """A 3D ResNet-18 with tensors named as one of the public codes names them, channels first."""

    def __init__(self, style, classes=5, kernel=3):
        super().__init__()
        self.style = style
        eps = 1e-3 if style == "ctp" else 1e-5

        def conv(a, b, size, stride, padding):
            return nn.Conv3d(a, b, size, stride, padding, bias=False)

        def norm(features):
            return nn.BatchNorm3d(features, eps=eps)

        def named(layer):
            return nn.Sequential(collections.OrderedDict(conv=layer)) if style == "ctp" else layer

        stem = conv(3, WIDTH, (kernel, 7, 7), (1, 2, 2), (kernel // 2, 3, 3))
        if style == "torchvision":
            self.stem = nn.Sequential(stem, norm(WIDTH), nn.ReLU())
        elif style == "ctp":
            self.stem = nn.Sequential(collections.OrderedDict(conv=stem, bn=norm(WIDTH), relu=nn.ReLU()))
        else:
            self.conv1, self.bn1 = stem, norm(WIDTH)
        inputs = WIDTH
        for stage in range(4):
            blocks = nn.Sequential()
            outputs = WIDTH * 2**stage
            for i in range(2):
                stride = 2 if stage and i == 0 else 1
                block = nn.Module()
                first, second = conv(inputs, outputs, 3, stride, 1), conv(outputs, outputs, 3, 1, 1)
                if style == "torchvision":
                    block.conv1 = nn.Sequential(first, norm(outputs), nn.ReLU())
                    block.conv2 = nn.Sequential(second, norm(outputs))
                else:
                    block.conv1, block.bn1, block.conv2, block.bn2 = (
                        named(first),
                        norm(outputs),
                        named(second),
                        norm(outputs),
                    )
                if stride == 2 and style == "ctp":
                    block.downsample, block.downsample_bn = named(conv(inputs, outputs, 1, 2, 0)), norm(outputs)
                elif stride == 2 and style != "hara-a":
                    block.downsample = nn.Sequential(conv(inputs, outputs, 1, 2, 0), norm(outputs))
                blocks.append(block)
                inputs = outputs
            self.add_module(f"layer{stage + 1}", blocks)
        if style != "ctp":
            self.fc = nn.Linear(inputs, classes)
        for name, tensor in self.state_dict().items():
            if tensor.is_floating_point():
                random = torch.randn(tensor.shape, generator=generator(4, name)) * 0.3
                tensor.copy_(random.abs() + 0.5 if name.endswith("running_var") else random)

    def forward(self, x):
        x = self.stem(x) if hasattr(self, "stem") else self.bn1(self.conv1(x)).relu()
        if self.style.startswith("hara"):
            x = nn.functional.max_pool3d(x, 3, 2, 1)
        for stage in range(1, 5):
            for block in self.get_submodule(f"layer{stage}"):
                if self.style == "torchvision":
                    y, short = block.conv2(block.conv1(x)), block.downsample(x) if "downsample" in dir(block) else x
                else:
                    y = block.bn2(block.conv2(block.bn1(block.conv1(x)).relu()))
                    short = x
                    if hasattr(block, "downsample"):
                        short = block.downsample(x)
                        short = block.downsample_bn(short) if self.style == "ctp" else short
                    elif y.shape != x.shape:
                        short = torch.cat([x[:, :, ::2, ::2, ::2], torch.zeros_like(x[:, :, ::2, ::2, ::2])], 1)
                x = (y + short).relu()
        pooled = x.mean((2, 3, 4))
        return self.fc(pooled) if hasattr(self, "fc") else pooled


def network(style, classes=5):
    if style.startswith("hara"):
        return started(ResNet3D(18, classes, WIDTH, "A" if style == "hara-a" else "B"))
    options = {"eps": 1e-3} if style == "ctp" else {}
    return started(ResNet3D(18, 0 if style == "ctp" else classes, WIDTH, stem_frames=3, pool=False, **options))


def written(tmp_path, style, kind, **options):
    """A file as its code writes it."""
    public = Public(style, kernel=7 if style.startswith("hara") else 3, **options)
    values = public.state_dict()
    if kind == "safetensors":
        path = tmp_path / "weights.safetensors"
        save_file({n: t.contiguous() for n, t in values.items()}, path)
        return public.eval(), path
    path = tmp_path / "weights.pth"
    prefix = {"hara": "module.", "hara-a": "module.", "ctp": "backbone."}.get(style, "")
    named = collections.OrderedDict((prefix + n, t) for n, t in values.items())
    optimiser = torch.optim.SGD(public.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [50, 100])
    rest = {
        "epoch": 200,
        "arch": "resnet-18",
        "optimizer": optimiser.state_dict(),
        "scheduler": schedule.state_dict(),
    }
    torch.save(named if style == "torchvision" else {**rest, "state_dict": named}, path)
    return public.eval(), path


@pytest.mark.parametrize("kind", ["pth", "safetensors"])
@pytest.mark.parametrize("style", ["hara", "hara-a", "torchvision", "ctp"])
def test_public_checkpoints_give_the_same_network(tmp_path, style, kind):
    """Not only the same names: the same outputs as the network that the file was written from."""
    public, path = written(tmp_path, style, kind)
    model = network(style).eval()
    report = load_weights(model, path)
    assert set(report.loaded) == set(model.state_dict()) and report.initial == ()
    assert report.ignored and all(name.endswith("num_batches_tracked") for name in report.ignored)
    x = torch.randint(0, 256, (2, 8, 32, 32, 3), generator=generator(0, "x"), dtype=torch.uint8)
    pixels = ((x - model.mean) / model.std).permute(0, 4, 1, 2, 3)
    with torch.no_grad():
        y = model(x, output="pooled" if style == "ctp" else "logits")
        torch.testing.assert_close(y, public(pixels), atol=1e-4, rtol=1e-4)


def test_names():
    for theirs, ours in {
        "module.conv1.weight": "conv1.weight",
        "module.layer2.0.downsample.1.running_mean": "layer2.0.downsample.1.running_mean",
        "module.fc.bias": "classifier.bias",
        "stem.0.weight": "conv1.weight",
        "stem.1.running_var": "bn1.running_var",
        "layer3.1.conv2.1.weight": "layer3.1.bn2.weight",
        "layer3.1.conv2.0.weight": "layer3.1.conv2.weight",
        "module.backbone.stem.conv.weight": "conv1.weight",
        "backbone.stem.bn.bias": "bn1.bias",
        "backbone.layer4.0.conv1.conv.weight": "layer4.0.conv1.weight",
        "backbone.layer4.0.downsample.conv.weight": "layer4.0.downsample.0.weight",
        "backbone.layer4.0.downsample_bn.bias": "layer4.0.downsample.1.bias",
        "cls_head.fc_cls.weight": "classifier.weight",
        "layer1.0.conv1.weight": "layer1.0.conv1.weight",
    }.items():
        assert own_name(theirs) == ours


def test_a_classifier_of_ones_own_is_asked_for(tmp_path):
    _, path = written(tmp_path, "hara", "pth")
    model = network("hara", classes=3)
    before = {n: t.clone() for n, t in model.state_dict().items()}
    with pytest.raises(WeightsError, match=r"classifier.bias is \(5,\) in the file and \(3,\).*skip=\(.classifier"):
        load_weights(model, path)
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())
    report = load_weights(model, path, skip=("classifier",))
    assert report.initial == ("classifier.weight", "classifier.bias")
    assert {"module.fc.weight", "module.fc.bias"} < set(report.ignored)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]) is name.startswith("classifier"), name


def test_what_does_not_fit_is_named(tmp_path):
    _, path = written(tmp_path, "hara-a", "pth")
    with pytest.raises(WeightsError, match=r"layer2.0.downsample.0.weight is not in the file.*shortcut=.A"):
        load_weights(network("hara"), path)
    _, path = written(tmp_path, "hara", "pth")
    with pytest.raises(WeightsError, match=r"downsample.0.weight is not in the network.*shortcut=.B"):
        load_weights(network("hara-a"), path)
    with pytest.raises(WeightsError, match=r"conv1.weight is .*stem_frames=7 and width=4"):
        load_weights(network("torchvision"), path)
    with pytest.raises(WeightsError, match=r"and \d+ more"):
        load_weights(started(ResNet3D(18, 5, 2)), path)
    with pytest.raises(WeightsError, match=r"layer2.2.bn1.bias is not in the file"):
        load_weights(started(ResNet3D(26, 5, WIDTH)), path)


@pytest.mark.parametrize(
    ("name", "spoil", "words"),
    [
        ("bn1.bias", lambda t: t.fill_(torch.nan), "not finite"),
        ("fc.weight", lambda t: t.fill_(torch.inf), "classifier.weight has values that are not finite"),
        ("layer1.0.bn1.running_var", lambda t: t.neg_(), "a variance, has values below 0"),
        ("bn1.weight", lambda t: t.long(), "torch.int64 .*not plain floating-point"),
        ("bn1.weight", lambda t: t.to_sparse(), "not plain floating-point"),
        ("bn1.weight", lambda t: t[:2], r"\(2,\) in the file and \(4,\)"),
        ("head.bias", lambda t: t, "head.bias is not in the network"),
        ("module.bn1.bias", lambda t: t, "two tensors for 'bn1.bias'"),
    ],
)
def test_spoilt_values_are_refused_and_nothing_is_changed(tmp_path, name, spoil, words):
    values = Public("hara", kernel=7).state_dict()
    values[name] = spoil(values.get(name, torch.zeros(4)).clone())
    torch.save(values, tmp_path / "spoilt.pth")
    model = network("hara")
    before = {n: t.clone() for n, t in model.state_dict().items()}
    with pytest.raises(WeightsError, match=words):
        load_weights(model, tmp_path / "spoilt.pth")
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())


def test_other_heads_can_be_skipped_by_the_files_names(tmp_path):
    values = {f"backbone.{n}": t for n, t in Public("ctp").state_dict().items()}
    values["ssl_head.fc.weight"] = torch.zeros(2, 2)
    torch.save({"state_dict": values}, tmp_path / "ssl.pth")
    with pytest.raises(WeightsError, match="ssl_head"):
        load_weights(network("ctp"), tmp_path / "ssl.pth")
    assert "ssl_head.fc.weight" in load_weights(network("ctp"), tmp_path / "ssl.pth", skip=("ssl_head",)).ignored


class _Bomb:
    """Pickles to a call that makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_code_in_a_checkpoint_is_never_run(tmp_path):
    mark = tmp_path / "executed"
    values = Public("hara", kernel=7).state_dict()
    pickle.loads(pickle.dumps(_Bomb(mark))).close()
    assert mark.exists()  # the bomb works where it is let
    mark.unlink()
    for number, content in enumerate(({"state_dict": values, "opt": _Bomb(mark)}, _Bomb(mark))):
        for zipped in (True, False):
            path = tmp_path / f"bomb-{number}-{zipped}.pth"
            torch.save(content, path, _use_new_zipfile_serialization=zipped)
            with pytest.raises(WeightsError, match="could execute code, so it was not read"):
                load_weights(network("hara"), path)
    (tmp_path / "plain.pt").write_bytes(pickle.dumps({"state_dict": _Bomb(mark)}))
    with pytest.raises(WeightsError):
        load_weights(network("hara"), tmp_path / "plain.pt")
    assert not mark.exists()


def test_files_that_are_no_checkpoints(tmp_path):
    (tmp_path / "noise.pth").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "noise.safetensors").write_bytes(b"\xff" * 400)
    (tmp_path / "empty.pt").write_bytes(b"")
    (tmp_path / "model.bin").write_bytes(b"")
    torch.save([torch.zeros(3)], tmp_path / "list.pth")
    torch.save({"state_dict": {"a": 3}}, tmp_path / "number.pth")
    for name, words in {
        "noise.pth": "noise.pth",
        "noise.safetensors": "is not a .safetensors file",
        "empty.pt": "is not a torch file",
        "missing.pth": "cannot be read: ",
        "model.bin": "checkpoint files end in",
        "list.pth": "no named tensors",
        "number.pth": "'a' is no tensor but int",
    }.items():
        with pytest.raises(WeightsError, match=words):
            read_tensors(tmp_path / name)
    whole = tmp_path / "whole.pth"
    torch.save(Public("hara", kernel=7).state_dict(), whole)
    (tmp_path / "half.pth").write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    with pytest.raises(WeightsError, match="is not a torch file"):
        read_tensors(tmp_path / "half.pth")
