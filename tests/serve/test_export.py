"""Exported models: what they give, what they say of themselves, and what is never written."""

import hashlib
import io
import json
import sys

import onnxruntime
import pytest
import torch
import typer
from typer.testing import CliRunner

from fedaction.cli.export import export
from fedaction.federation.seeds import generator
from fedaction.models.files import KEY, clip_card, load_model, save_model
from fedaction.models.resnet3d import ResNet3D
from fedaction.serve.export import TOLERANCE, ExportError, export_model
from tests.models.common import filled

CARD = clip_card(classes=("wave", "walk", "sit"), frames=8, resize=36, crop=32, provenance={"recipe": "edge/demo"})


def network(kind=ResNet3D):
    return filled(kind(18, 3, 2))


def clips(count):
    return torch.randint(0, 256, (count, 8, 32, 32, 3), generator=generator(7, count), dtype=torch.uint8)


@pytest.fixture(scope="module")
def command():
    app = typer.Typer()
    app.command()(export)
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def exported(tmp_path_factory, command):
    """Both formats of one model, by the command."""
    folder = tmp_path_factory.mktemp("export")
    save_model(folder / "student.v1.safetensors", network(), CARD)
    result = command(folder / "student.v1.safetensors", "--json")
    assert result.exit_code == 0, result.output
    return folder, json.loads(result.stdout)


def test_both_formats_are_written_with_what_they_are(exported):
    folder, said = exported
    assert said["classes"] == ["wave", "walk", "sit"]
    expected = {"student.v1.safetensors"} | {
        f"student.v1{end}{j}" for end in (".onnx", ".pt2") for j in ("", ".json")
    }
    assert {path.name for path in folder.iterdir()} == expected
    for name, end in (("onnx", ".onnx"), ("torch", ".pt2")):
        path = folder / f"student.v1{end}"
        blob = path.read_bytes()
        beside = json.loads(path.with_name(path.name + ".json").read_text())
        assert beside["sha256"] == said["exported"][name]["sha256"] == hashlib.sha256(blob).hexdigest()
        assert beside["bytes"] == len(blob) and beside["file"] == path.name
        assert beside["card"] == json.loads(CARD.model_dump_json())
        assert beside["input"] == {"name": "clips", "shape": ["clips", 8, 32, 32, 3], "type": "uint8"}
        assert beside["output"]["shape"] == ["clips", 3]
        assert 0 <= beside["difference"] <= beside["tolerance"] == TOLERANCE
        assert len(beside["configuration"]) == 64 and beside["arguments"]["width"] == 2
        for secret in (b"site-packages", b"fedaction/models", str(folder).encode()):
            assert secret not in blob, "folders of the machine that exported are nobody's business"


def test_onnx_gives_what_the_network_gives(exported):
    folder, _ = exported
    model, _ = load_model(folder / "student.v1.safetensors")
    session = onnxruntime.InferenceSession(folder / "student.v1.onnx", providers=["CPUExecutionProvider"])
    for count in (1, 2, 5):
        found = torch.from_numpy(session.run(None, {"clips": clips(count).numpy()})[0])
        torch.testing.assert_close(found, model(clips(count)).detach(), atol=1e-4, rtol=1e-4)
    said = json.loads(session.get_modelmeta().custom_metadata_map[KEY])
    assert said["card"]["classes"] == ["wave", "walk", "sit"] and said["card"]["provenance"] == CARD.provenance


def test_torch_export_gives_what_the_network_gives(exported):
    folder, _ = exported
    model, _ = load_model(folder / "student.v1.safetensors")
    extra = {f"{KEY}.json": ""}
    program = torch.export.load(io.BytesIO((folder / "student.v1.pt2").read_bytes()), extra_files=extra)
    for count in (1, 2, 5):
        found = program.module()(clips(count))
        torch.testing.assert_close(found, model(clips(count)).detach(), atol=1e-4, rtol=1e-4)
    assert json.loads(extra[f"{KEY}.json"])["card"]["input"]["shape"][0] == 8


class _Other(ResNet3D):
    """A network that does more than what is exported of it."""

    def forward(self, *arguments, **options):
        return super().forward(*arguments, **options) * 1.01


def test_what_differs_from_the_network_is_not_written(tmp_path):
    model = network(_Other).train()
    with pytest.raises(ExportError, match=r"torch: what was exported differs .* nothing was written"):
        export_model(model, CARD, tmp_path / "new" / "m", ("torch",))
    model = network()
    model.classifier.bias.data[0] = torch.nan
    with pytest.raises(ExportError, match="differs from the network by nan"):
        export_model(model, CARD, tmp_path / "new" / "m", ("torch",))
    assert not list(tmp_path.iterdir()) and model.training


def test_without_onnx_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match=r"needs onnxscript: pip install 'fedaction\[export\]'"):
        export_model(network(), CARD, tmp_path / "m", ("onnx",))
    assert not list(tmp_path.iterdir())


def test_wrong_wishes(tmp_path, command):
    with pytest.raises(ExportError, match="format tflite: known are onnx, torch"):
        export_model(network(), CARD, tmp_path / "m", ("onnx", "tflite"))
    with pytest.raises(ExportError, match="2 classes, its card 3"):
        export_model(filled(ResNet3D(18, 2, 2)), CARD, tmp_path / "m")
    (tmp_path / "noise.safetensors").write_bytes(b"noise")
    result = command(tmp_path / "noise.safetensors")
    assert result.exit_code == 2 and "is not a .safetensors file" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["noise.safetensors"]
