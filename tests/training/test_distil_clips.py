"""Clips for distillation: where they come from, how they are cut and scored, and what a teacher makes of them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaction.data.clips.clips import check_clips, digest_of
from fedaction.data.clips.window import Cut, Window
from fedaction.data.samples import in_memory
from fedaction.evaluation.accuracy import accuracy_of
from fedaction.models.files import read_card
from fedaction.runs.recipe import parse_recipe
from fedaction.training.distil import run_distil
from fedaction.training.distil_recipe import parse_distil_recipe
from fedaction.training.teacher import keep_logits
from tests.training.distilling import recipe_of, write_arrays


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_arrays(tmp_path_factory.mktemp("clips") / "arrays")


# Kept logits


def test_kept_logits_are_computed_again_when_anything_about_them_is_another(tmp_path):
    path, made = tmp_path / "logits.npy", list[int]()

    def compute() -> Any:
        made.append(1)
        return np.full((4, 3), len(made), np.float32)

    def logits(teacher: str = "a", shape: tuple[int, int] = (4, 3)) -> Any:
        return keep_logits(path, {"teacher": teacher}, shape, compute)

    assert isinstance(logits(), np.memmap) and len(made) == 1
    assert logits()[0, 0] == 1 and len(made) == 1
    assert logits("b")[0, 0] == 2
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    assert logits("b")[0, 0] == 3
    path.with_suffix(".json").write_text("{")
    assert logits("b")[0, 0] == 4 and logits("b")[0, 0] == 4
    with pytest.raises(ValueError, match="are not finite float32 numbers"):
        keep_logits(path, {"teacher": "c"}, (4, 3), lambda: np.full((4, 3), np.nan, np.float32))


# Windows and scores


def test_windows_are_cut_where_they_were_drawn():
    clips = torch.arange(2 * 1 * 5 * 6 * 3, dtype=torch.int32).remainder(251).to(torch.uint8).view(2, 1, 5, 6, 3)
    window = Window((3, 4), (5, 6), pad=1, flip=True)
    cut = Cut(torch.tensor([-1, 2]), torch.tensor([3, 0]), torch.tensor([False, True]))
    found = window.cut(clips, cut)
    for n, (top, left, mirrored) in enumerate(zip(*(part.tolist() for part in cut), strict=True)):
        for row in range(3):
            for column in range(4):
                across = left + (3 - column if mirrored else column)
                expected = clips[n, 0, min(max(top + row, 0), 4), min(max(across, 0), 5)]
                assert torch.equal(found[n, 0, row, column], expected)
    assert torch.equal(window.centre(clips), clips[:, :, 1:4, 1:5])
    drawn = window.draw(4000, torch.Generator().manual_seed(1))
    assert set(drawn.top.tolist()) == {-1, 0, 1, 2, 3} and set(drawn.left.tolist()) == {-1, 0, 1, 2, 3}
    assert 0.45 < drawn.mirrored.double().mean() < 0.55
    assert not Window((3, 4), (5, 6)).draw(50, torch.Generator().manual_seed(1)).mirrored.any()


def test_a_recordings_score_is_the_mean_of_its_clips(arrays):
    clips = recipe_of(arrays).source.pool(0).test
    logits = torch.nn.functional.one_hot(clips.labels, 3).float()
    assert accuracy_of(logits, clips)[:2] == (1.0, 1.0)
    wrong = clips.labels[0].add(1).remainder(3)
    logits[0] = 0.1 * torch.nn.functional.one_hot(wrong, 3)  # one clip is unsure, its recording's other one is not
    assert accuracy_of(logits, clips)[:2] == (11 / 12, 1.0)
    logits[0] = 9.0 * torch.nn.functional.one_hot(wrong, 3)
    assert accuracy_of(logits, clips)[:2] == (11 / 12, 5 / 6)


def test_clips_that_cannot_be_used_are_refused_with_what_is_wrong(arrays, tmp_path):
    def spoilt(**files: Any) -> str:
        shutil.rmtree(tmp_path / "bad", ignore_errors=True)
        shutil.copytree(arrays, tmp_path / "bad")
        for name, value in files.items():
            if value is None:
                (tmp_path / "bad" / f"{name}.npy").unlink()
            else:
                np.save(tmp_path / "bad" / f"{name}.npy", value, allow_pickle=True)
        with pytest.raises(ValueError) as caught:
            check_clips(recipe_of(tmp_path / "bad").source.pool(0), "data")
        return str(caught.value)

    clips = np.load(arrays / "test_clips.npy")
    assert "test_clips.npy is missing" in spoilt(test_clips=None)
    assert "must be (N, T, H, W, 3) uint8, these are (12, 8, 16, 16, 3) float32" in spoilt(
        test_clips=np.float32(clips)
    )
    assert "test_labels.npy: 12 clips need as many numbers, got (5,)" in spoilt(test_labels=np.zeros(5, int))
    assert "labels run from 0 to 3, but there are 3 classes" in spoilt(test_labels=np.arange(12) // 2 % 4)
    assert "numbers must be whole" in spoilt(test_labels=np.zeros(12))
    assert "clips of one recording have different labels" in spoilt(test_recordings=np.zeros(12, int))
    assert "differ in shape" in spoilt(test_clips=clips[:, :4])
    assert "there are no clips" in spoilt(
        test_clips=clips[:0], test_labels=np.zeros(0, int), test_recordings=np.zeros(0, int)
    )
    assert "Python objects" in spoilt(test_labels=np.array([{}] * 12, dtype=object))


def test_every_pixel_and_label_is_in_the_hash(arrays):
    load = lambda: recipe_of(arrays).source.pool(0)  # noqa: E731
    hashes = {digest_of(load()), digest_of(load())}
    for change in ("x", "y", "recording"):
        data = load()
        test = in_memory(data.test)
        getattr(test, change).view(-1)[-1] += 1
        hashes.add(digest_of(replace(data, test=test)))
    assert len(hashes) == 4


def test_what_is_filmed_at_all_cameras_is_put_together(tmp_path):
    small = {"stage_domain": "home", "stage_clients": 2, "stage_train": 2, "stage_test": 1, "stage_clips": 2}
    small |= {"stage_size": 16, "frames": 2, "stage_cache": str(tmp_path), "stage_workers": 1}
    recipe = parse_distil_recipe(small)
    data = recipe.source.pool(0)
    check_clips(data, "stage_video")
    assert data.train.shape == (2, 16, 16, 3) and len(data.train) == 4 * len(data.info.classes)
    assert len(data.train.recording.unique()) == len(data.train) // 2
    assert not {*data.train.subjects} & {*data.test.subjects}
    assert recipe.source.clip == (9, 16)  # 0.3 s at 30 frames a second
    clients = recipe.source.load(0)
    assert sum(len(client.train) for client in clients) == len(data.train)
    assert torch.equal(clients[0].train.x, data.train.x[: len(clients[0].train)])


def test_a_folder_of_videos(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDACTION_CACHE", str(tmp_path / "cache"))
    for number, name in enumerate(("left", "right")):
        (tmp_path / "videos" / name).mkdir(parents=True)
        for take in range(4):
            write_video(tmp_path / "videos" / name / f"{take}.avi", 100 * number)
    (tmp_path / "videos" / "left" / "broken.avi").write_bytes(b"no video")
    values = {"data": "video", "video_root": str(tmp_path / "videos"), "video_side": 16, "video_stride": 2}
    recipe = parse_distil_recipe(values | {"frames": 4, "crop": 12, "chain": [18], "width": 4, "epochs": 1})
    with pytest.warns(UserWarning, match=r"left/broken\.avi.*left out"):
        data = recipe.source.pool(0)
    check_clips(data, "video")
    assert data.info.classes == ("left", "right") and data.train.shape == (4, 16, 16, 3) and data.train.fresh
    recordings = data.test.recording
    assert len(recordings) == 3 * len(recordings.unique())  # 24 frames are three clips of 8
    run_distil(recipe, tmp_path / "run", data=data)
    card, _ = read_card(tmp_path / "run" / "stage-1-resnet18" / "model.safetensors")
    assert (card.frames, card.stride, card.resize, card.crop) == (4, 2, 16, 12)


def test_clips_as_arrays_are_dealt_to_clients_and_cut_like_videos(arrays):
    values = {"method": "fedavg", "data": "arrays", "arrays": str(arrays), "video_by": "equal", "video_clients": 2}
    source = parse_recipe(values).source
    clients, everything = source.load(0), source.pool(0)
    assert [client.info.id for client in clients] == ["arrays-0", "arrays-1"]
    for client in clients:
        numbers, counts = client.train.recording.unique(return_counts=True)
        assert len(numbers) == 4 and counts.tolist() == [2] * 4 and not client.train.fresh  # recordings are whole
    taken = torch.cat([client.train.recording for client in clients]).sort().values
    assert torch.equal(taken, everything.train.recording) and everything.train.shape == (8, 16, 16, 3)
    assert torch.equal(in_memory(everything.test).x, torch.from_numpy(np.load(arrays / "test_clips.npy")))
    short = parse_recipe(values | {"frames": 3, "video_stride": 2, "video_test_clips": 2}).source.pool(0)
    assert short.train.fresh and short.train.shape == (3, 16, 16, 3) and len(short.test) == 24
    whole = np.load(arrays / "test_clips.npy")
    assert np.array_equal(in_memory(short.test).x[:2], np.stack([whole[0, :5:2], whole[0, 3::2]]))
    with pytest.raises(ValueError, match="does not say the camera of each video"):
        parse_recipe(values | {"video_by": "camera"}).source.load(0)


def write_video(path: Path, brightness: int) -> None:
    """24 frames of 32 x 24 pixels."""
    av = pytest.importorskip("av")
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=24)
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
        for number in range(24):
            picture = np.full((24, 32, 3), brightness + number, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
