"""What was trained is used: predict, evaluate and export, of every kind of recording, from files and from Python."""

from __future__ import annotations

import json
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from torch import nn
from typer.testing import CliRunner

from fedaction.cli.evaluate import evaluate as evaluate_command
from fedaction.cli.export import export as export_command
from fedaction.cli.predict import predict as predict_command
from fedaction.data.dataset import StoredDataset
from fedaction.data.features.extract import Recording, built_in
from fedaction.data.features.store import FeatureSet, save_features
from fedaction.data.inputs import Input, skeleton_input
from fedaction.data.layout import FLORENCE_15, KINECT_V1, KINECT_V2
from fedaction.data.preprocess import prepare
from fedaction.data.store import save
from fedaction.models.files import Card, ModelFileError
from fedaction.models.mlp import MLP
from fedaction.runs.recipe import parse_recipe
from fedaction.runs.study import run_study
from fedaction.serve.network import Network, find_model, load_network, network_of_run
from fedaction.serve.recordings import cut_windows
from tests.conftest import recordings
from tests.models.common import filled

CLASSES = ("sit", "walk", "wave")
RANDOM = np.random.default_rng(3)
EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx_numpy.py"


def make(folder, given, seed=1):
    size = int(np.prod(given.network_shape))
    network = Network(Card(classes=CLASSES, input=given), filled(MLP(size, (6,), 3), seed))
    network.save(folder / "model.safetensors")
    return load_network(folder / "model.safetensors")


def run_command(function, *arguments):
    app = typer.Typer()
    app.command()(function)
    return CliRunner().invoke(app, [str(a) for a in arguments])


def predict_lines(*arguments):
    result = run_command(predict_command, *arguments, "--json")
    return result, [json.loads(line) for line in result.stdout.splitlines()]


SIGNALS = Input(kind="signals", shape=(16, 3), hop=8, rate_hz=20.0, channels=("ax", "ay", "az"), scale="client",
                mean=(0.5, 0.0, 1.0), factor=(1.0, 2.0, 0.5))  # fmt: skip


def test_signals(tmp_path):
    """Windows, their places in seconds, columns by name, other rates, and files that are not what they should be."""
    network, x = make(tmp_path, SIGNALS), RANDOM.standard_normal((40, 3)).astype(np.float32)
    windows = np.stack([x[0:16], x[8:24], x[16:32], x[24:40]])
    steps = ((windows - SIGNALS.mean) * np.array(SIGNALS.factor)).clip(-10, 10)
    expected = network(torch.tensor(steps, dtype=torch.float32)).double().softmax(1).numpy()
    found = network.predict(torch.from_numpy(x))
    np.testing.assert_allclose([w.scores for w in found.windows], expected, atol=1e-5)
    assert [w.seconds for w in found.windows] == [0, 0.4, 0.8, 1.2]
    assert found.confidence == pytest.approx(expected.mean(0).max()) and found.scores[found.label] == found.confidence
    files = tmp_path / "files"
    files.mkdir()
    np.save(files / "a.npy", x)
    text = "\n".join(f"{i / 20},{az},{ay},{ax},{'walk'}" for i, (ax, ay, az) in enumerate(x))
    (files / "b.csv").write_text("time,AZ,ay,ax,label\n" + text)
    np.savetxt(files / "c.txt", x)
    np.save(files / "d_wrong.npy", x[:, :2])
    (files / "e.csv").write_text("time,gx,gy\n1,2,3\n")
    (files / "f.pdf").write_bytes(b"%PDF")
    result, lines = predict_lines(tmp_path / "model.safetensors", files)
    assert result.exit_code == 1
    whole = {Path(line["file"]).name: line for line in lines if "windows" in line}
    assert set(whole) == {"a.npy", "b.csv", "c.txt"} and len(lines) == 3 * 5 + 3
    for line in whole.values():
        assert line["actions"][0]["confidence"] == pytest.approx(found.confidence, abs=1e-4)
    wrong = {Path(line["file"]).name: line["error"] for line in lines if "error" in line}
    assert "(40, 2), the model takes (readings, 3 channels) (ax, ay, az)" in wrong["d_wrong.npy"]
    assert "3 columns (time, gx, gy), the model takes 3 channels: ax, ay, az" in wrong["e.csv"]
    assert "cannot be read as signals" in wrong["f.pdf"]
    slower = cut_windows(x[::2], SIGNALS, 10.0)  # half as many readings a second
    assert slower.x.shape == (4, 16, 3)
    np.testing.assert_allclose(slower.x[0, ::2], x[:16:2], atol=1e-6)
    assert len(cut_windows(x[:5], SIGNALS).x) == 1  # shorter than a window: what there is, over again
    x[3, 1] = np.nan
    assert np.isfinite(cut_windows(x, SIGNALS).x).all()


def test_skeletons(tmp_path):
    """As training prepared them, whatever their length, from arrays, text and a store; accuracy on the store."""
    given = skeleton_input(FLORENCE_15, (1, 10, 15, 3), True, 30.0)
    network = make(tmp_path, given)
    sequences = [RANDOM.standard_normal((1, frames, 15, 3)).astype(np.float32) for frames in (7, 22, 30, 9)]
    prepared, _ = prepare(sequences, FLORENCE_15, 10, True)
    expected = network(prepared).softmax(1)
    for sequence, row in zip(sequences, expected, strict=True):
        found = network.predict(sequence[0])
        assert list(found.scores.values()) == pytest.approx(sorted(row.tolist(), reverse=True), abs=1e-4)
    np.savez(tmp_path / "a.npz", x=sequences[0])
    (tmp_path / "b.csv").write_text("\n".join(",".join(map(str, frame.ravel())) for frame in sequences[1][0]))
    result, lines = predict_lines(tmp_path / "model.safetensors", tmp_path / "a.npz", tmp_path / "b.csv", "--top", 3)
    assert result.exit_code == 0, result.output
    for line, row in zip(lines, expected, strict=False):
        shares = {item["action"]: item["confidence"] for item in line["actions"]}
        assert [shares[name] for name in CLASSES] == pytest.approx(row.tolist(), abs=1e-4)
    np.savez(tmp_path / "all.npz", x=np.stack([s[0, :7] for s in sequences]), y=[2, 0, 2, 1], classes=list(CLASSES))
    result = run_command(evaluate_command, tmp_path / "model.safetensors", "--on", tmp_path / "all.npz", "--json")
    assert json.loads(result.stdout)["n"] == 4 and json.loads(result.stdout)["commonest"] == "wave"
    with pytest.raises(ValueError, match="25, 3\\), the model takes \\(frames, 15 joints"):
        network.predict(np.zeros((5, 25, 3)))

    def store(name, layout, joints, classes=("dance", "wave", "sit")):
        several = [np.resize(s, (1, s.shape[1], joints, 3)) for s in sequences]
        named = tuple(f"r{i}" for i in range(4))
        save(StoredDataset(name, layout, tuple(several), np.array([1, 2, 1, 0]), classes, named), tmp_path / name)
        return tmp_path / name

    _, lines = predict_lines(tmp_path / "model.safetensors", store("store", FLORENCE_15, 15))
    assert len(lines) == 4 and lines[2]["file"].endswith("store: r2")
    result, lines = predict_lines(tmp_path / "model.safetensors", store("other", KINECT_V2, 25))
    assert result.exit_code == 2 and "25 joints), the model takes 'florence_15' (15 joints)" in lines[0]["error"]
    on = (tmp_path / "model.safetensors", "--on", tmp_path / "store")
    result = run_command(evaluate_command, *on, "--json", "--out", tmp_path / "e")
    said = json.loads(result.stdout)
    answers = [CLASSES[i] for i in expected.argmax(1).tolist()][:3]
    right = sum(a == b for a, b in zip(answers, ["wave", "sit", "wave"], strict=True))
    assert said["n"] == 3 and said["accuracy"] == pytest.approx(right / 3) and said["unknown"] == {"dance": 1}
    assert said["majority"] == pytest.approx(2 / 3) and said["commonest"] == "wave"
    assert json.loads((tmp_path / "e" / "result.json").read_text()) == said
    table = run_command(evaluate_command, *on)
    assert "dance (1)" in table.stderr and "recall of wave" in table.stdout


def test_features_and_sounds(tmp_path):
    """Vectors, stores, and what the built-in extractor takes; a folder for each class is tested."""
    extractor = built_in("audio", width=32)
    given = Input(kind="features", shape=(32,), extractor={**extractor.describe(), "modality": "audio"}, scale="unit")
    network = make(tmp_path, given)
    sounds = tmp_path / "sounds"
    waves = RANDOM.integers(-9000, 9000, (4, 8000)).astype("<i2")
    for number, values in enumerate(waves):
        place = sounds / CLASSES[number % 3] / f"{number}.wav"
        place.parent.mkdir(parents=True, exist_ok=True)
        with wave.open(str(place), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(values.tobytes())
    x = extractor([Recording(values.astype(np.float32) / 2**15, 8000.0) for values in waves])
    scaled = torch.from_numpy(x / np.sqrt((x**2).mean(1, keepdims=True)))
    answers = [CLASSES[i] for i in network(scaled).argmax(1).tolist()]
    np.save(tmp_path / "many.npy", x)
    features = FeatureSet(
        "audio", x, np.array([0, 1, 2, 0]), CLASSES, (), tuple("abcd"), {"extractor": extractor.describe()}
    )
    save_features(features, tmp_path / "store")
    for path in (sounds / CLASSES[0] / "0.wav", tmp_path / "many.npy", tmp_path / "store"):
        _, lines = predict_lines(tmp_path / "model.safetensors", path)
        assert [line["actions"][0]["action"] for line in lines] == answers[: len(lines)], path
    labels = [CLASSES[number % 3] for number in range(4)]
    share = np.mean([a == b for a, b in zip(answers, labels, strict=True)])
    for path in (sounds, tmp_path / "store"):
        said = json.loads(
            run_command(evaluate_command, tmp_path / "model.safetensors", "--on", path, "--json").stdout
        )
        assert said["n"] == 4 and said["accuracy"] == pytest.approx(share)
    with pytest.raises(ValueError, match=r"the model takes 32 features"):
        make(tmp_path, Input(kind="features", shape=(32,))).predict(np.zeros((9, 7)))


def test_arrays_are_taken_as_they_are(tmp_path):
    class Mine(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.GRU(4, 5, batch_first=True), nn.Linear(5, 3)

        def forward(self, x):
            return self.head(self.body(x)[0].mean(1))

    module = Mine()
    network = Network(Card(classes=CLASSES, input=Input(kind="arrays", shape=(6, 4))), module)
    network.save(tmp_path / "mine.safetensors")
    x = RANDOM.standard_normal((3, 6, 4)).astype(np.float32)
    again = load_network(tmp_path / "mine.safetensors")
    torch.testing.assert_close(again(x), module(torch.from_numpy(x)).detach())
    assert again.predict(x[1]).confidence == pytest.approx(float(again(x[1:2]).softmax(1).max()), abs=1e-5)
    assert len(again.predict(x).windows) == 3
    with pytest.raises(ValueError, match=r"\(6, 3\), the model takes \(6, 4\)"):
        again.predict(x[0, :, :3])
    empty = Network(Card(classes=(), input=network.card.input), module)
    with pytest.raises(ModelFileError, match="recognises nothing"):
        empty.predict(x)


def test_exported_models_need_numpy_alone(tmp_path):
    """The example, in a process of its own, says what the network says."""
    pytest.importorskip("onnxscript")
    network, x = make(tmp_path, SIGNALS), RANDOM.standard_normal((2, 16, 3)).astype(np.float32)
    result = run_command(export_command, tmp_path / "model.safetensors", "--json")
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)["exported"]
    assert set(made) == {"onnx", "torch"} and made["onnx"]["difference"] < 1e-4
    np.save(tmp_path / "x.npy", x)
    command = [sys.executable, str(EXAMPLE), str(tmp_path / "model.onnx"), str(tmp_path / "x.npy")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    wanted = [network.predict(row) for row in x]
    assert printed == [f"{said.label}  {said.confidence:.1%}" for said in wanted]
    assert len([line for line in EXAMPLE.read_text().splitlines() if line.strip()]) <= 20
    other = load_network(tmp_path / "model.onnx")
    assert other.predict(x[0]).label == wanted[0].label
    with pytest.raises(ModelFileError, match="prepares recordings itself"):
        other(x)
    refuse_changed_networks(tmp_path)


def refuse_changed_networks(folder: Path) -> None:
    """One that fails when it is used, and one whose weights would lie in another file; in another process, too."""
    import onnx

    model = onnx.load(folder / "model.onnx")
    last, source = model.graph.node[-1], model.graph.input[0].name
    name, last.output[0] = last.output[0], "whole"
    make, whole = onnx.helper.make_node, onnx.TensorProto.INT64
    for word, values in (("none", [0]), ("odd", [7, 3])):
        model.graph.initializer.append(onnx.helper.make_tensor(word, whole, [len(values)], values))
    model.graph.node.extend(  # a shape that nothing fits, and that is known only when the network is used
        [
            make("ReduceMax", [source], ["most"], keepdims=0),
            make("Cast", ["most"], ["number"], to=whole),
            make("Mul", ["number", "none"], ["nothing"]),
            make("Add", ["nothing", "odd"], ["shape"]),
            make("Reshape", ["whole", "shape"], [name]),
        ]
    )
    (folder / "fails.onnx").write_bytes(model.SerializeToString())
    model = onnx.load(folder / "model.onnx")
    weights = model.graph.initializer[0]
    (folder / "elsewhere.bin").write_bytes(onnx.numpy_helper.to_array(weights).tobytes())
    for kind in ("raw_data", "float_data", "int64_data"):
        weights.ClearField(kind)
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="elsewhere.bin")
    (folder / "outside.onnx").write_bytes(model.SerializeToString())
    code = "from fedaction.cli import main; main()"
    for file, words in (
        ("fails.onnx", "fails on recordings of shape"),
        ("outside.onnx", "cannot be read as an ONNX"),
    ):
        command = [sys.executable, "-c", code, "predict", file, "x.npy"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 2 and done.stderr.count("error:") and "Traceback" not in done.stderr, done.stderr
        assert words in done.stderr and "\x1b" not in done.stderr, done.stderr


def test_a_run_is_used_by_its_directory(tmp_path):
    """Where clients have networks of their own the message says whose, and --client chooses."""
    recipe = parse_recipe(
        {
            "method": "fsar", "rounds": 1, "device": "cpu", "workers": 1, "controls": [], "data": "stage",
            "frames": 8, "stage_clients": 2, "stage_train": [4], "stage_test": 4, "stage_actions": [3],
            "model_width": 2, "model_units": [1, 1, 1],
        },
        "test",
    )  # fmt: skip
    run_study(recipe, tmp_path / "run")
    np.save(tmp_path / "x.npy", RANDOM.standard_normal((20, 25, 3)))
    result, _ = predict_lines(tmp_path / "run", tmp_path / "x.npy")
    assert result.exit_code == 2 and "stage-0-kinect_v2, stage-1-kinect_v2" in result.stderr
    result, lines = predict_lines(tmp_path / "run", tmp_path / "x.npy", "--client", "stage-1-kinect_v2")
    assert result.exit_code == 0 and len(lines) == 1
    network = network_of_run(tmp_path / "run", "stage-1-kinect_v2")
    assert lines[0]["actions"][0]["action"] == network.predict(tmp_path / "x.npy").label
    with pytest.raises(ValueError, match="no client 'stage-1'; did you mean"):
        find_model(tmp_path / "run", "stage-1")
    with pytest.raises(ValueError, match="has no model files"):
        find_model(tmp_path)


def test_real_recordings_of_public_datasets(tmp_path):
    """Files as their authors give them, by the reader's name or by their suffix."""
    kinect = skeleton_input(KINECT_V1, (1, 12, 20, 3), True)
    make(tmp_path, kinect)
    folder = recordings("utd_mhad") / "Skeleton"
    files = sorted(folder.rglob("*.mat"))[:3]
    result, lines = predict_lines(tmp_path / "model.safetensors", *files, "--format", "utd_mhad")
    assert result.exit_code == 0 and [line["windows"] for line in lines] == [1, 1, 1]
    sensor = Input(kind="signals", shape=(64, 6), hop=32, rate_hz=25.0)
    make(tmp_path, sensor)
    files = sorted((recordings("utd_mhad") / "Inertial").rglob("*.mat"))[:2]
    result, lines = predict_lines(tmp_path / "model.safetensors", *files, "--format", "utd_inertial")
    assert result.exit_code == 0 and all(line["windows"] >= 1 for line in lines if "windows" in line)
    ntu = sorted(recordings("ntu_rgbd_samples").rglob("*.skeleton"))[:2]
    if ntu:
        make(tmp_path, skeleton_input(KINECT_V2, (2, 12, 25, 3), True))
        result, lines = predict_lines(tmp_path / "model.safetensors", *ntu)
        assert result.exit_code == 0 and len(lines) == len(ntu), lines


def test_damaged_files_are_reported_and_the_others_done(tmp_path):
    """A file's bytes changed at random, and cut: never anything but a line that says why."""
    make(tmp_path, SIGNALS)
    files = tmp_path / "files"
    files.mkdir()
    np.save(files / "good.npy", RANDOM.standard_normal((32, 3)))
    np.savez_compressed(files / "good.npz", x=RANDOM.standard_normal((32, 3)))
    for good in (files / "good.npy", files / "good.npz"):
        blob = good.read_bytes()
        for number in range(25):
            changed = bytearray(blob)
            for place in RANDOM.integers(0, min(len(blob), 200), 3):
                changed[place] = RANDOM.integers(256)
            (files / f"bad-{number}{good.suffix}").write_bytes(changed[: int(RANDOM.integers(1, len(blob) + 1))])
    (files / "digits.csv").write_text("1,2," + "9" * 30_000 + "\n")
    (files / "bytes.csv").write_bytes(bytes(range(256)))
    result, lines = predict_lines(tmp_path / "model.safetensors", files)
    assert result.exit_code == 1 and result.exception.__class__ is SystemExit
    done = {Path(line["file"]).name for line in lines if "windows" in line or "error" in line}
    assert done == {path.name for path in files.iterdir()}
