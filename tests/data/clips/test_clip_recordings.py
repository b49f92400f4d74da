"""Clips of recordings: where they lie, how they are read from memory and from files, and how they are changed."""

from __future__ import annotations

import shutil
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaction.data.clips.augment import Augmentation
from fedaction.data.clips.batches import Clips
from fedaction.data.clips.files import clips_of, recordings_of
from fedaction.data.clips.recordings import Held, Spans, Streamed, read_spans, read_whole
from fedaction.data.clips.spec import ClipSpec, even_starts
from fedaction.data.samples import Examples
from fedaction.federation.seeds import generator, numpy_generator
from fedaction.training.distil import run_distil
from fedaction.training.distil_recipe import parse_distil_recipe
from fedaction.training.evaluate import run_evaluate
from fedaction.training.evaluate_recipe import parse_evaluate_recipe
from tests.data.public.formats import write_mat

CPU = torch.device("cpu")


def held(*lengths: int, resident: bool = True) -> Held:
    """Recordings whose pixels say which recording and which frame they are of."""
    frames = [(number, frame) for number, length in enumerate(lengths) for frame in range(length)]
    pixels = torch.tensor([[number, frame, 0] for number, frame in frames], dtype=torch.uint8)
    y = torch.arange(len(lengths))
    return Held(pixels[:, None, None].expand(-1, 2, 3, -1), torch.tensor(lengths), y, None, CPU, resident)


def seen(clips: torch.Tensor) -> list[tuple[int, list[int]]]:
    """Recording and frames of each clip."""
    return [(int(clip[0, 0, 0, 0]), clip[:, 0, 0, 1].tolist()) for clip in clips]


# Where clips lie


def test_clips_are_spread_from_the_beginning_to_the_end():
    source = held(40, 25, 17, 16, 5)
    clips = Clips.spread(source, 16, 1, 10)
    starts = {row: clips.spans.start[clips.spans.row == row].tolist() for row in range(5)}
    for row, length in enumerate((40, 25)):
        expected = even_starts(length, ClipSpec(16), 10)
        assert all(abs(one - other) <= 1 for one, other in zip(starts[row], expected, strict=True))
        assert starts[row][0] == 0 and starts[row][-1] == length - 16 and len({*starts[row]}) == 10
    assert (starts[2], starts[3], starts[4]) == ([0, 1], [0], [0])  # no room for more different ones
    assert Clips.spread(source, 16, 1, 1).spans.start.tolist() == [12, 4, 0, 0, 0]
    assert clips.recordings == 5 and len(clips) == 24 and clips.y.tolist() == clips.recording.tolist()
    # A stride that does not fit becomes the largest that does.
    assert Clips.spread(source, 16, 2, 1).spans.stride.tolist() == [2, 1, 1, 1, 1]
    assert Clips.spread(source, 1, 2, 1).spans.stride.tolist() == [2, 2, 2, 2, 2]


def test_training_clips_are_drawn_anew_from_anywhere():
    clips = Clips.anywhere(held(9, 4), 3, 2)
    index = torch.arange(2).repeat(300)
    spans = clips.at(index, generator(0, "one"))
    assert {*spans.start[::2].tolist()} == {0, 1, 2, 3, 4} and {*spans.start[1::2].tolist()} == {0, 1}
    assert spans.stride[:2].tolist() == [2, 1]
    again, other = clips.at(index, generator(0, "one")), clips.at(index, generator(0, "two"))
    assert torch.equal(spans.start, again.start) and not torch.equal(spans.start, other.start)
    fixed = Clips.spread(held(9, 4), 3, 2, 1)
    assert torch.equal(fixed.at(index, generator(0)).start, fixed.spans.start[index])


# Reading


@pytest.mark.parametrize("resident", [True, False])
def test_clips_of_held_recordings_are_windows_into_them(resident):
    source = held(9, 5, resident=resident)
    spans = Spans(torch.tensor([0, 1, 0, 1, 1]), torch.tensor([2, 1, 8, 0, 7]), torch.tensor([3, 1, 1, 2, 1]))
    batches = list(source.clips(spans, 3, 2, keep=True))
    assert [tuple(batch.shape) for batch in batches] == [(2, 3, 2, 3, 3), (2, 3, 2, 3, 3), (1, 3, 2, 3, 3)]
    # The third has one frame alone, and repeats it; the last would begin after the end.
    assert seen(torch.cat(batches)) == [
        (0, [2, 5, 8]),
        (1, [1, 2, 3]),
        (0, [8, 8, 8]),
        (1, [0, 2, 4]),
        (1, [2, 3, 4]),
    ]


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
    small = {"data": "videos", "video_root": str(videos), "video_side": 16, "clip_frames": 6, "clips": 3, "width": 2}
    return parse_evaluate_recipe(small | {"device": "cpu", "probe_epochs": 2, "finetune_epochs": 2} | values)


@pytest.mark.filterwarnings("ignore:.*broken:UserWarning")
def test_what_is_read_from_files_is_what_is_held(videos):
    both: list[list[torch.Tensor]] = []
    said: list[str] = []
    for memory in (1, 0):
        data = evaluating(videos, video_memory=memory).source.load(0)
        train, test = recordings_of(data, CPU, said.append)
        assert isinstance(train, Streamed if memory == 0 else Held)
        clips = [Clips.spread(test, 6, 2, 4), Clips.anywhere(train, 6, 2)]
        spans = clips[1].at(torch.arange(len(clips[1])).repeat(3), generator(3))
        both.append([torch.cat(list(clips[0].batches(5))), torch.cat(list(clips[1].batches(4, spans)))])
    assert all(torch.equal(one, other) for one, other in zip(*both, strict=True))
    assert len(both[0][1]) == 21 and said == [
        "0.0 GiB of video are not held in memory: each batch is read from the files"
    ]


@pytest.mark.filterwarnings("ignore:.*broken:UserWarning")
def test_networks_learn_the_same_whether_or_not_videos_are_held(videos, tmp_path):
    results = [run_evaluate("random", evaluating(videos, video_memory=memory)) for memory in (1, 0)]
    assert results[0]["seeds"] == results[1]["seeds"]
    assert results[0]["data"] == results[1]["data"]
    keys = {"data": "videos", "video_root": str(videos), "video_side": 16, "frames": 4, "video_train_clips": 2}
    keys |= {"chain": [18], "width": 2, "epochs": 1, "device": "cpu", "video_stride": 2, "batch_size": 3}
    accuracy: list[Any] = []
    for memory in (1, 0):
        recipe = parse_distil_recipe(keys | {"video_memory": memory})
        train, _ = clips_of(recipe.source.load(0), CPU, lambda _: None)
        assert isinstance(train.source, Streamed if memory == 0 else Held)
        run_distil(recipe, tmp_path / f"run-{memory}")
        accuracy.append((tmp_path / f"run-{memory}" / "stage-1-resnet18" / "metrics.jsonl").read_text())
    assert accuracy[0] == accuracy[1]


@pytest.mark.parametrize("kept", [True, False])
def test_memory_stays_flat_however_many_clips_are_read(videos, kept):
    data = evaluating(videos, video_cache=kept, video_memory=0, video_side=64).source
    with pytest.warns(UserWarning, match="broken"):
        source = recordings_of(data.load(0), CPU, lambda _: None)[0]
    clips = Clips.spread(source, 8, 1, 4)
    spans = Spans(*(part.repeat(12) for part in clips.spans))
    size = 8 * 64 * 64 * 3
    peaks: list[int] = []
    tracemalloc.start()
    try:
        for number, batch in enumerate(source.clips(spans, 8, 4, keep=kept)):
            assert batch.shape == (4, 8, 64, 64, 3)
            if number in (10, 70):
                peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    # The batch in use and those ahead of it, once as parts and once as a whole; not the 300 clips that were read.
    assert len(spans.row) == 300 and peaks[1] < 40 * size and peaks[1] < peaks[0] + 8 * size


def test_a_loader_that_is_left_early_ends_its_threads(videos):
    with pytest.warns(UserWarning, match="broken"):
        data = evaluating(videos, video_memory=0).source.load(0)
    source = recordings_of(data, CPU, lambda _: None)[0]
    batches = Clips.spread(source, 6, 1, 3).batches(2)
    assert next(batches).shape[0] == 2
    batches.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("clips")]


@pytest.mark.filterwarnings("ignore:.*broken:UserWarning")
def test_files_are_known_by_what_is_in_them(videos, tmp_path):
    first = evaluating(videos).source.load(0).digest
    shutil.copytree(videos, tmp_path / "copy")
    assert evaluating(tmp_path / "copy").source.load(0).digest == first
    write_video(tmp_path / "copy" / "dark" / "0.avi", 90, 12)
    assert evaluating(tmp_path / "copy").source.load(0).digest != first
    assert evaluating(videos, video_side=20).source.load(0).digest != first
    for path in (tmp_path / "copy").rglob("*.avi"):
        path.write_bytes(b"no video")
    with pytest.raises(ValueError, match=r"no videos for train that can be used; 11 issues:\n  dark/0\.avi: "):
        evaluating(tmp_path / "copy").source.load(0)


def test_depth_files_are_recordings_too(tmp_path):
    depth = numpy_generator(0, "depth").integers(2000, 3500, (24, 32, 7)).astype(np.float64)
    path = write_mat(tmp_path / "a1_s1_t1_depth.mat", "d_depth", depth)
    whole = read_whole(path, 16)
    assert whole.shape == (7, 16, 16, 3) and whole.std() > 10
    found = read_spans(path, [0, 3, 9], 4, 2, 16)
    assert np.array_equal(found, whole[np.array([[0, 2, 4, 6], [3, 5, 3, 5], [0, 2, 4, 6]])])


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
    source = Held.of(Examples(x, torch.tensor([1, 0]), recording=torch.tensor([7, 3])), CPU, True)
    clips = Clips.whole(source)
    assert torch.equal(next(clips.batches(2)), x) and clips.frames == 5 and clips.recording.tolist() == [1, 0]
