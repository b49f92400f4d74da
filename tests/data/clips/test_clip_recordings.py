"""Clips of recordings: where they lie, how they are read from memory and from files, and how they are changed."""

from __future__ import annotations

import shutil
import threading
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaction.data.clips.augment import Augmentation
from fedaction.data.clips.clips import Clips, digest_of, recordings_of
from fedaction.data.clips.recordings import Held, Recordings, Streamed
from fedaction.data.clips.spec import Spans
from fedaction.data.samples import Examples, in_batches, take_each
from fedaction.federation.seeds import generator, numpy_generator
from fedaction.training.distil import run_distil
from fedaction.training.distil_recipe import parse_distil_recipe
from fedaction.training.evaluate import run_evaluate
from fedaction.training.evaluate_recipe import parse_evaluate_recipe


def held(*lengths: int) -> Recordings:
    """Recordings whose pixels say which recording and which frame they are of."""
    frames = [(number, frame) for number, length in enumerate(lengths) for frame in range(length)]
    pixels = torch.tensor([[number, frame, 0] for number, frame in frames], dtype=torch.uint8)
    store = Held(pixels[:, None, None].expand(-1, 2, 3, -1), torch.tensor(lengths))
    every = torch.arange(len(lengths))
    return Recordings(store, every, torch.tensor(lengths), every, every)


def seen(clips: torch.Tensor) -> list[tuple[int, list[int]]]:
    """Recording and frames of each clip."""
    return [(int(clip[0, 0, 0, 0]), clip[:, 0, 0, 1].tolist()) for clip in clips]


# Where clips lie


def test_training_clips_are_drawn_anew_from_anywhere():
    clips = Clips.spread(held(9, 4), 3, 2, 1, anew=True)
    rows = torch.arange(2).repeat(300)
    starts = clips.draw(rows, generator(0, "one"))
    assert {*starts[::2].tolist()} == {0, 1, 2, 3, 4} and {*starts[1::2].tolist()} == {0, 1}
    assert clips.spans.stride.tolist() == [2, 1]
    again, other = clips.draw(rows, generator(0, "one")), clips.draw(rows, generator(0, "two"))
    assert torch.equal(starts, again) and not torch.equal(starts, other)
    assert torch.equal(clips.draw(rows.view(20, 30), generator(0, "one")).flatten(), starts)
    assert Clips.spread(held(9, 4), 3, 2, 1).draw(rows, generator(0)) is None
    assert not Clips.spread(held(3, 2), 3, 2, 1, anew=True).fresh  # there is but one place


# Reading


def test_clips_of_held_recordings_are_windows_into_them():
    spans = Spans(torch.tensor([0, 1, 0, 1, 1]), torch.tensor([2, 1, 8, 0, 7]), torch.tensor([3, 1, 1, 2, 1]))
    clips = Clips(held(9, 5), spans, 3)
    # The third has one frame alone, and repeats it; the last would begin after the end.
    expected = [(0, [2, 5, 8]), (1, [1, 2, 3]), (0, [8, 8, 8]), (1, [0, 2, 4]), (1, [2, 3, 4])]
    batches = list(in_batches(clips, 2))
    assert [tuple(batch.shape) for batch in batches] == [(2, 3, 2, 3, 3), (2, 3, 2, 3, 3), (1, 3, 2, 3, 3)]
    assert seen(torch.cat(batches)) == expected and clips.labels.tolist() == clips.recording.tolist() == [
        0,
        1,
        0,
        1,
        1,
    ]
    some = clips.pick(torch.tensor([4, 1]))
    assert seen(some.take(torch.arange(2))) == [expected[4], expected[1]] and len(some.recordings) == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_recordings_are_moved_to_a_gpu_once_for_all_clients(monkeypatch):
    clips = Clips.spread(held(9, 5, 7), 3, 2, 2, anew=True)
    parts = [clips.pick(torch.tensor(rows)) for rows in ([0, 1], [2, 3, 4])]
    rows, cuda = torch.tensor([1, 0, 1]), torch.device("cuda")
    starts = parts[1].draw(rows, generator(0))
    expected = parts[1].take(rows, starts)
    there = [part.on(cuda) for part in parts]
    assert there[0].recordings.store is there[1].recordings.store and there[1].resident
    for own in (rows, rows.cuda()):
        found = there[1].take(own, starts)
        assert found.device.type == "cuda" and torch.equal(found.cpu(), expected)
    assert torch.equal(there[1].take(rows).cpu(), parts[1].take(rows))
    # Where they take more than half of its memory, each batch is copied there.
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1, 1))
    with pytest.warns(UserWarning, match="more than half of the device's memory"):
        large = Clips.spread(held(9, 5, 7), 3, 2, 2).on(cuda)
    assert not large.resident
    (batch,) = take_each(large, torch.arange(len(large))[None])
    assert batch.device.type == "cuda" and torch.equal(batch.cpu(), clips.take(torch.arange(len(large))))


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of five noisy videos of 12 to 34 frames, the last of three frames, and a file that is none."""
    root = tmp_path_factory.mktemp("videos")
    for label, name in enumerate(("dark", "light")):
        (root / name).mkdir()
        for take in range(5):
            write_video(root / name / f"{take}.avi", 60 + 120 * label, 12 + 4 * take + label if take < 4 else 3)
    (root / "dark" / "broken.avi").write_bytes(b"no video")
    return root


def write_video(path: Path, brightness: int, frames: int) -> None:
    av = pytest.importorskip("av")
    random = numpy_generator(1, path.name)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=24)
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
        for _ in range(frames):
            picture = np.clip(brightness + random.integers(-60, 60, (24, 32, 3)), 0, 255).astype(np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDACTION_CACHE", str(tmp_path / "cache"))


def evaluating(videos: Path, **values: Any) -> Any:
    small = {"data": "video", "video_root": str(videos), "video_side": 16, "clip_frames": 6, "clips": 3, "width": 2}
    return parse_evaluate_recipe(small | {"device": "cpu", "probe_epochs": 2, "finetune_epochs": 2} | values)


@pytest.mark.filterwarnings("ignore:.*broken:UserWarning")
def test_what_is_read_from_files_is_what_is_held(videos):
    both: list[list[torch.Tensor]] = []
    for memory in (1, 0):
        source = evaluating(videos, video_memory=memory).source
        if memory:
            data = source.pool(0, whole=True)
        else:
            with pytest.warns(UserWarning, match="are not held in memory: each batch is read from the files"):
                data = source.pool(0, whole=True)
        train, test = recordings_of(data.train), recordings_of(data.test)
        assert isinstance(train.store, Held if memory else Streamed)
        clips = Clips.spread(test, 6, 2, 4), Clips.spread(train, 6, 2, 1, anew=True)
        rows = torch.arange(len(clips[1])).repeat(3).view(-1, 7)
        both.append(
            [
                torch.cat(list(in_batches(clips[0], 5))),
                torch.cat(list(take_each(clips[1], rows, clips[1].draw(rows, generator(3))))),
            ]
        )
    assert all(torch.equal(one, other) for one, other in zip(*both, strict=True)) and len(both[0][1]) == 21


@pytest.mark.filterwarnings("ignore:.*broken:UserWarning", "ignore:.*not held:UserWarning")
@pytest.mark.parametrize("fresh", [True, False])
def test_networks_learn_the_same_whether_or_not_videos_are_held(videos, tmp_path, fresh):
    if fresh:
        results = [run_evaluate("random", evaluating(videos, video_memory=memory)) for memory in (1, 0)]
        assert results[0]["seeds"] == results[1]["seeds"]
        assert results[0]["data"] == results[1]["data"]
    keys = {"data": "video", "video_root": str(videos), "video_side": 16, "frames": 4, "video_train_clips": 2}
    keys |= {"chain": [18], "width": 2, "epochs": 2, "device": "cpu", "video_stride": 2, "batch_size": 3}
    losses: list[str] = []
    for memory in (1, 0):
        recipe = parse_distil_recipe(keys | {"video_memory": memory, "video_fresh": fresh})
        train = recipe.source.pool(0).train
        assert train.fresh == fresh and isinstance(train.recordings.store, Held if memory else Streamed)
        run_distil(recipe, tmp_path / f"run-{memory}")
        losses.append((tmp_path / f"run-{memory}" / "stage-1-resnet18" / "metrics.jsonl").read_text())
    assert losses[0] == losses[1]


@pytest.mark.filterwarnings("ignore:.*broken:UserWarning", "ignore:.*not held:UserWarning")
@pytest.mark.parametrize("kept", [True, False])
def test_memory_stays_flat_however_many_clips_are_read(videos, kept):
    source = evaluating(videos, video_cache="" if kept else "none", video_memory=0, video_side=64).source
    clips = Clips.spread(recordings_of(source.pool(0, whole=True).train), 8, 1, 4)
    rows = torch.arange(len(clips)).repeat(12).view(-1, 4)
    size = 8 * 64 * 64 * 3
    peaks: list[int] = []
    tracemalloc.start()
    try:
        for number, batch in enumerate(take_each(clips, rows)):
            assert batch.shape == (4, 8, 64, 64, 3)
            if number in (10, 70):
                peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    # The batch in use and those ahead of it, once as parts and once as a whole; not the 300 clips that were read.
    assert rows.numel() == 300 and peaks[1] < 40 * size and peaks[1] < peaks[0] + 16 * size


@pytest.mark.filterwarnings("ignore:.*broken:UserWarning", "ignore:.*not held:UserWarning")
def test_a_loader_that_is_left_early_ends_its_threads(videos):
    clips = evaluating(videos, video_memory=0, frames=4, video_test_clips=3).source.pool(0).test
    with closing(in_batches(clips, 2)) as batches:
        assert next(batches).shape[0] == 2
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("samples")]


@pytest.mark.filterwarnings("ignore:.*broken:UserWarning")
def test_files_are_known_by_what_is_in_them(videos, tmp_path):
    def digest(root: Path, **values: Any) -> str:
        return digest_of(evaluating(root, **values).source.pool(0, whole=True))

    first = digest(videos)
    shutil.copytree(videos, tmp_path / "copy")
    assert digest(tmp_path / "copy") == first
    write_video(tmp_path / "copy" / "dark" / "0.avi", 90, 12)
    assert digest(tmp_path / "copy") != first
    assert digest(videos, video_side=20) != first
    for path in (tmp_path / "copy").rglob("*.avi"):
        path.write_bytes(b"no video")
    with pytest.raises(ValueError, match=r"no videos for train that can be used; 11 issues:\n  dark/0\.avi: "):
        digest(tmp_path / "copy")


# Augmentation


def test_a_clip_that_nothing_is_drawn_for_stays_as_it_is():
    clips = torch.randint(0, 256, (3, 2, 14, 14, 3), generator=generator(0), dtype=torch.uint8)
    plain = Augmentation((14, 14), 14, scales=(112,), flip=0.0, chance=0.0)
    same = plain.apply(clips, plain.draw(3, generator(1)))
    torch.testing.assert_close(same, clips.float(), atol=1e-3, rtol=0)
    mirrored = Augmentation((14, 14), 14, scales=(112,), flip=1.0, chance=0.0)
    torch.testing.assert_close(
        mirrored.apply(clips, mirrored.draw(3, generator(1))), clips.flip(3).float(), atol=1e-3, rtol=0
    )


def test_changes_are_drawn_as_often_and_as_far_as_the_keys_say():
    drawn = Augmentation((64, 64), 56).draw(6000, generator(2))
    assert {*drawn["scaled"].flatten().tolist()} == {56, 64, 72}
    assert int((drawn["scaled"] - 56 - drawn["corner"]).min()) == 0 and int(drawn["corner"].max()) == 16
    assert float(drawn["flip"].double().mean()) == pytest.approx(0.35, abs=0.02)
    for name, plain, most in (("brightness", 0, 32), ("hue", 0, 12)):
        changed = drawn[name] != plain
        assert float(changed.double().mean()) == pytest.approx(0.2, abs=0.02)
        assert 0.95 * most < float(drawn[name].abs().max()) <= most
    assert float((drawn["contrast"] != 1).double().mean()) == pytest.approx(0.2, abs=0.02)
    assert float(drawn["contrast"].log().abs().max()) == pytest.approx(0.2, abs=0.01)
    wide = Augmentation((240, 320), 112, scales=((149, 112), (171, 128), (192, 144))).draw(500, generator(2))
    assert {tuple(pair) for pair in wide["scaled"].tolist()} == {(112, 149), (128, 171), (144, 192)}


def test_all_frames_of_a_clip_change_alike():
    picture = torch.randint(0, 256, (4, 1, 16, 16, 3), generator=generator(0), dtype=torch.uint8)
    changes = Augmentation((16, 16), 14, chance=1.0)
    found = changes.apply(picture.expand(-1, 3, -1, -1, -1), changes.draw(4, generator(4)))
    assert found.shape == (4, 3, 14, 14, 3) and found.min() >= 0 and found.max() <= 255
    assert torch.equal(found[:, 0], found[:, 2]) and not torch.equal(
        found[:, 0], changes.apply(picture, changes.draw(4, generator(5)))[:, 0]
    )


def test_examples_are_recordings_of_one_length():
    x = torch.arange(2 * 5 * 4 * 4 * 3).remainder(256).to(torch.uint8).view(2, 5, 4, 4, 3)
    recordings = recordings_of(Examples(x, torch.tensor([1, 0]), recording=torch.tensor([7, 3])))
    clips = Clips.spread(recordings, 5, 1, 1)
    assert torch.equal(clips.take(torch.arange(2)), x) and clips.shape == (5, 4, 4, 3)
    assert clips.recording.tolist() == [7, 3] and clips.labels.tolist() == [1, 0]
