"""Model files: what is written comes back; what was tampered with does not."""

import json

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save_file

from fedaction.models.files import KEY, ModelFileError, clip_card, load_model, read_card, save_model
from fedaction.models.resnet3d import ResNet3D
from tests.models.common import filled

CARD = clip_card(classes=("wave", "walk", "sit"), frames=8, resize=40, crop=32, provenance={"configuration": "ab12"})


def model(**options):
    return filled(ResNet3D(18, **{"classes": 3, "width": 2, **options})).eval()


def test_a_model_comes_back(tmp_path):
    path = tmp_path / "new" / "student.safetensors"
    for options in ({}, {"shortcut": "A", "mean": (1.0, 2.0, 3.0), "eps": 1e-3}, {"depth": 22, "pool": False}):
        network = filled(ResNet3D(**{"depth": 18, "classes": 3, "width": 2, **options})).eval()
        save_model(path, network, CARD)
        other, card = load_model(path)
        assert card == CARD and other.arguments == network.arguments and not other.training
        assert read_card(path) == (CARD, network.arguments)
        x = torch.zeros(1, 8, 32, 32, 3, dtype=torch.uint8)
        assert torch.equal(other(x), network(x))
        assert [file.name for file in path.parent.iterdir()] == ["student.safetensors"]


def test_a_network_without_a_classifier_comes_back(tmp_path):
    path = tmp_path / "bare.safetensors"
    save_model(path, model(classes=0), clip_card(classes=(), frames=8, resize=40, crop=32))
    network, card = load_model(path)
    assert network.classifier is None and card.classes == ()


def test_cards_are_checked():
    for wrong, words in (
        ({"classes": ("a", "a")}, "one name"),
        ({"frames": 0}, "greater than 0"),
        ({"crop": 64}, "does not fit into frames of 40"),
        ({"stride": 1.5}, "integer"),
    ):
        with pytest.raises(ValidationError, match=words):
            clip_card(**{"classes": ("a", "b"), "frames": 8, "resize": 40, "crop": 32, **wrong})


def test_files_of_the_first_format_are_read(tmp_path):
    """They were about clips alone, whose sizes stood in the card itself."""
    path = tampered(tmp_path)
    _, arguments = read_card(path)
    card = {"classes": ["wave", "walk", "sit"], "frames": 8, "resize": 40, "crop": 32, "provenance": {"a": 1}}
    said = {"format": 1, "architecture": "resnet3d", "arguments": arguments, "card": card}
    save_file(load_file(path), path, {KEY: json.dumps(said)})
    assert load_model(path)[1] == clip_card(**{**card, "classes": tuple(card["classes"])})
    del card["frames"]
    save_file(load_file(path), path, {KEY: json.dumps(said)})
    with pytest.raises(ModelFileError, match=r"card\.input\.shape"):
        load_model(path)


def test_what_cannot_be_used_later_is_not_written(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(ModelFileError, match="the network has 2 classes, the card names 3"):
        save_model(path, model(classes=2), CARD)
    broken = model()
    broken.bn1.weight.data[0] = torch.nan
    with pytest.raises(ModelFileError, match=r"'bn1.weight' has values that are not finite"):
        save_model(path, broken, CARD)
    assert not list(tmp_path.iterdir())


def tampered(tmp_path, change=None, spoil=None):
    """A model file with changed metadata or tensors."""
    path = tmp_path / "model.safetensors"
    save_model(path, model(), CARD)
    values = load_file(path)
    card, arguments = read_card(path)
    said = {"format": 2, "architecture": "resnet3d", "arguments": arguments, "card": card.model_dump()}
    for key, value in (change or {}).items():
        place = said
        *way, last = key.split(".")
        for step in way:
            place = place[step]
        place[last] = value
    if spoil:
        spoil(values)
    save_file(values, path, {KEY: json.dumps(said)})
    return path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 3}, "has format 3; this version reads 1 and 2"),
        ({"architecture": "os.system"}, "architecture 'os.system'; known are"),
        ({"arguments.depth": 20}, "cannot be built: there is no 3D ResNet of depth 20"),
        ({"arguments.depth": "18"}, "arguments.depth"),
        ({"arguments.width": 10**9}, "'conv1.weight' is F32|cannot be built"),
        ({"arguments.frame_strides": [1, 2, 2, 0]}, "must be positive"),
        ({"arguments.std": [1, 0, 1]}, "must be positive"),
        ({"arguments.extra": 1}, "arguments.extra: Extra inputs"),
        ({"card.classes": ["a", "b"]}, "the network has 3 classes, the card names 2"),
        ({"card.input.shape": [-1, 32, 32, 3]}, "card.input.shape"),
        ({"card.size": 3}, "card.size: Extra inputs"),
        ({"card": None}, "card"),
    ],
)
def test_metadata_is_checked(tmp_path, change, words):
    with pytest.raises(ModelFileError, match=words):
        load_model(tampered(tmp_path, change))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda v: v.pop("conv1.weight"), r"lacks conv1.weight"),
        (lambda v: v.update(more=torch.zeros(2)), "has unknown more"),
        (lambda v: v.update({"bn1.weight": torch.zeros(3)}), r"'bn1.weight' is F32 \(3,\), needed are floats \(2,\)"),
        (lambda v: v.update({"bn1.weight": torch.zeros(2, dtype=torch.int32)}), "'bn1.weight' is I32"),
        (lambda v: v["bn1.weight"].fill_(torch.inf), "'bn1.weight' has values that are not finite"),
        (lambda v: v["bn1.running_var"].fill_(-1.0), "a variance, has values below 0"),
    ],
)
def test_tensors_are_checked(tmp_path, spoil, words):
    with pytest.raises(ModelFileError, match=words):
        load_model(tampered(tmp_path, spoil=spoil))


def test_half_precision_files_are_read(tmp_path):
    path = tampered(tmp_path, spoil=lambda v: v.update({n: t.half() for n, t in v.items()}))
    assert load_model(path)[0].conv1.weight.dtype == torch.float32


def test_other_files_are_refused(tmp_path):
    save_file({"a": torch.zeros(2)}, tmp_path / "other.safetensors")
    save_file({"a": torch.zeros(2)}, tmp_path / "text.safetensors", {KEY: "{"})
    (tmp_path / "noise.safetensors").write_bytes(b"\x00" * 100)
    for name, words in {
        "other": "not a model file; of a run.s checkpoint, use the run.s directory",
        "text": "not valid JSON",
        "noise": "is not a .safetensors file",
        "missing": "cannot be read: ",
    }.items():
        for read in (load_model, read_card):
            with pytest.raises(ModelFileError, match=words):
                read(tmp_path / f"{name}.safetensors")
