"""Predictions on videos: the same as by hand, in bounded memory, and past broken files."""

import itertools
import json
import sys
import time
import tracemalloc

import av
import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from fedaction.cli.predict import predict as predict_command
from fedaction.data.clips.decode import VideoError, read_all, read_clips
from fedaction.data.clips.spec import spread_clips
from fedaction.federation.seeds import numpy_generator
from fedaction.models.files import ModelFileError, clip_card, load_model, save_model
from fedaction.models.resnet3d import ResNet3D
from fedaction.serve.export import export_model
from fedaction.serve.predict import best, load_recogniser, predict, windows
from tests.conftest import recordings
from tests.models.common import filled, started

CARD = clip_card(classes=("wave", "walk", "sit"), frames=4, stride=2, resize=36, crop=32)


def record(path, frames, fps=25):
    """A short video of moving noise."""
    random = numpy_generator(frames, "video")
    pattern = random.integers(0, 256, (12, 16, 3), dtype=np.uint8).repeat(4, 0).repeat(4, 1)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=fps)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for i in range(frames):
            picture = av.VideoFrame.from_ndarray(np.roll(pattern, 2 * i, 1), format="rgb24")
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A model file, the same exported, a video of 45 frames and one of 3."""
    folder = tmp_path_factory.mktemp("predict")
    model = filled(ResNet3D(18, 3, 2))
    save_model(folder / "model.safetensors", model, CARD)
    export_model(model, CARD, folder / "model", ("onnx",))
    record(folder / "long.mp4", 45)
    record(folder / "short.mp4", 3)
    (folder / "broken.mp4").write_bytes(b"nothing" * 30)
    return folder


@pytest.fixture(scope="module")
def command():
    app = typer.Typer()
    app.command()(predict_command)
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])


def by_hand(home, clips):
    """The network itself on (N, T, H, W, 3) clips."""
    network, _ = load_model(home / "model.safetensors")
    with torch.no_grad():
        return network(torch.from_numpy(clips)).double().softmax(-1).numpy()


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("model", ["model.safetensors", "model.onnx"])
def test_clips_and_video_as_by_hand(home, model, workers):
    found = list(predict(load_recogniser(home / model), home / "long.mp4", workers=workers))
    expected = by_hand(home, read_all(home / "long.mp4", 4, 2, short_side=36, crop=32))
    assert len(found) == len(expected) == 5
    assert [clip.frame for clip in found] == [0, 8, 16, 24, 32]
    assert [clip.seconds for clip in found] == pytest.approx([0, 0.32, 0.64, 0.96, 1.28])
    for clip, row in zip(found, expected, strict=True):
        np.testing.assert_allclose(clip.scores, row, atol=1e-5)
    assert len({best(row, CARD)[0][1] for row in expected}) > 1
    order = np.argsort(-expected.mean(0))
    assert [name for name, _ in best(expected.mean(0), CARD, 9)] == [CARD.classes[i] for i in order]


def test_overlapping_clips(home):
    found = list(predict(load_recogniser(home / "model.safetensors"), home / "long.mp4", every=3))
    starts = list(range(0, 45 - 7 + 1, 3))
    assert [clip.frame for clip in found] == starts
    expected = by_hand(home, read_clips(home / "long.mp4", starts, 4, 2, short_side=36, crop=32))
    np.testing.assert_allclose([clip.scores for clip in found], expected, atol=1e-5)


def test_a_video_shorter_than_a_clip(home):
    (found,) = predict(load_recogniser(home / "model.safetensors"), home / "short.mp4")
    expected = by_hand(home, read_clips(home / "short.mp4", [0], 4, 2, short_side=36, crop=32))
    np.testing.assert_allclose(found.scores, expected[0], atol=1e-5)


@pytest.mark.parametrize(("length", "stride"), [(1, 1), (4, 1), (4, 3), (8, 2)])
@pytest.mark.parametrize("total", [1, 5, 8, 22, 23])
def test_windows_are_the_clips_of_the_test_protocol(total, length, stride):
    frames = np.arange(total, dtype=np.uint8).reshape(-1, 1, 1, 1)
    found = list(windows(iter(frames), length, stride))
    assert [start for start, _ in found] == spread_clips(torch.tensor([total]), length, stride, 0).start.tolist()
    for start, clip in found:
        there = np.arange(start, total, stride)[:length]
        assert clip.ravel().tolist() == np.resize(there, length).tolist()
    with pytest.raises(ValueError, match="at least a frame apart"):
        next(windows(iter(frames), length, stride, 0))


def test_memory_does_not_grow_with_the_stream():
    frame = np.zeros((64, 64, 3), dtype=np.uint8)

    def peak(total):
        tracemalloc.start()
        for _ in windows((frame + np.uint8(i % 7) for i in range(total)), 8, 2, 5):
            pass
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(4000) < 1.2 * peak(100) < 40 * frame.nbytes
    endless = (frame for _ in itertools.count())
    assert len(list(itertools.islice(windows(endless, 8, 2), 3))) == 3


def test_the_decoder_is_not_run_ahead(home):
    """The first clips come long before the last frames were read, and one may stop there."""
    found = predict(load_recogniser(home / "model.safetensors"), home / "long.mp4", every=1, workers=1)
    assert next(found).frame == 0
    found.close()


def test_the_command_names_actions_and_goes_past_broken_files(home, command):
    result = command(
        home / "model.safetensors", home / "long.mp4", home / "broken.mp4", home / "gone.mp4", home / "short.mp4"
    )
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert len([line for line in lines if " s  w" in line or " s  s" in line]) == 6
    assert [line.split("(")[1].split(" in")[0] for line in lines if ".mp4" in line] == ["5 windows", "1 windows"]
    assert "broken.mp4" in result.stderr and "cannot be opened as video" in result.stderr
    assert "there is no" in result.stderr
    good = command(home / "model.onnx", home / "short.mp4", "--top", 3)
    assert good.exit_code == 0 and all(name in good.stdout for name in CARD.classes)


def test_an_unknown_codec_costs_one_video_and_half_a_video_is_said_to_be_half(home, command, tmp_path):
    whole = record(tmp_path / "whole.avi", 60)
    content = whole.read_bytes()
    assert content.count(b"FMP4") == 2
    (tmp_path / "odd.avi").write_bytes(content.replace(b"FMP4", b"QQQQ"))
    (tmp_path / "half.avi").write_bytes(content[: len(content) // 2])
    result = command(home / "model.safetensors", *(tmp_path / f"{name}.avi" for name in ("odd", "half", "whole")))
    assert result.exit_code == 1 and "odd.avi is encoded in a way that is not known here" in result.stderr
    assert [name for name in ("odd", "half", "whole") if f"{name}.avi  " in result.stdout] == ["half", "whole"]
    said = " ".join(result.stderr.split())
    assert "half.avi may be cut off or damaged: its header says 60 frames," in said and "whole.avi" not in said
    assert command(home / "model.safetensors", whole).exit_code == 0


def test_the_command_prints_json_lines(home, command):
    arguments = (home / "model.onnx", home / "broken.mp4", home / "long.mp4", "--json", "--every", "16")
    result = command(*arguments, "--top", "3")
    assert result.exit_code == 1
    broken, *clips, done = map(json.loads, result.stdout.splitlines())
    assert broken["file"].endswith("broken.mp4") and "cannot be opened as video" in broken["error"]
    assert [clip["start"] for clip in clips] == [0, 16, 32] and done["windows"] == 3
    assert [clip["window"] for clip in clips] == [0, 1, 2] and clips[1]["seconds"] == pytest.approx(0.64)
    named = [{a["action"]: a["confidence"] for a in said["actions"]} for said in (*clips, done)]
    for actions in named:
        assert set(actions) == set(CARD.classes) and sum(actions.values()) == pytest.approx(1)
        assert list(actions.values()) == sorted(actions.values(), reverse=True)
    for name in CARD.classes:
        assert named[-1][name] == pytest.approx(np.mean([actions[name] for actions in named[:-1]]))
    for line in command(*arguments).stdout.splitlines()[1:]:
        assert len(json.loads(line)["actions"]) == 1


def test_models_that_cannot_be_used(home, tmp_path, command):
    (tmp_path / "noise.onnx").write_bytes(b"noise")
    (tmp_path / "model.pt").write_bytes(b"")
    changed = tmp_path / "model.onnx"
    blob = (home / "model.onnx").read_bytes()
    changed.write_bytes(blob[:-1] + bytes([blob[-1] ^ 1]))
    (tmp_path / "model.onnx.json").write_bytes((home / "model.onnx.json").read_bytes())
    for name, words in {
        "noise.onnx": "cannot be read as an ONNX model",
        "model.pt": "neither a model file",
        "gone.onnx": "cannot be read",
        "model.onnx": "is not the file that model.onnx.json describes",
    }.items():
        with pytest.raises(ModelFileError, match=words):
            load_recogniser(tmp_path / name)
    result = command(tmp_path / "noise.onnx", home / "long.mp4")
    assert result.exit_code == 2 and "cannot be read as an ONNX model" in result.stderr
    with pytest.raises(VideoError):
        next(predict(load_recogniser(home / "model.safetensors"), home / "broken.mp4"))


def test_without_onnxruntime_the_message_says_what_to_install(home, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=r"pip install 'fedaction\[export\]'"):
        load_recogniser(home / "model.onnx")


@pytest.mark.slow
def test_two_cores_are_faster_than_the_camera(tmp_path):
    """ResNet-18 in full width on 8 x 112 x 112. By time of the processor: others may use the machine too."""
    card = clip_card(classes=tuple(map(str, range(400))), frames=8, resize=128, crop=112)
    save_model(tmp_path / "full.safetensors", started(ResNet3D(18)), card)
    video = record(tmp_path / "video.mp4", 300, fps=30)
    model = load_recogniser(tmp_path / "full.safetensors")
    before = time.process_time()
    assert len(list(predict(model, video, workers=2))) == 37
    assert (time.process_time() - before) / 2 < 10 / 2, "not twice as fast as 30 frames a second"


def test_real_recordings(home):
    """Videos of three public sets, in two containers."""
    model = load_recogniser(home / "model.safetensors")
    videos = sorted(p for p in recordings("video_clips_torchvision").rglob("*") if p.suffix in (".avi", ".mp4"))[:3]
    assert videos
    for path in videos:
        found = list(predict(model, path))
        assert len(found) > 3 and all(clip.scores.sum() == pytest.approx(1) for clip in found)
        assert found[1].frame == 8 and 0 < found[1].seconds < 1
