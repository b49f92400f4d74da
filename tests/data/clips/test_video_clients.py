import numpy as np
import pytest
import torch

from fedaction.data.clips import decode
from fedaction.data.clips.cache import ClipCache
from fedaction.data.clips.clients import clients_from_videos
from fedaction.data.clips.datasets import airtlab, utd_depth, video_folders
from fedaction.data.clips.decode import read_clips
from fedaction.data.clips.load import load_clips
from fedaction.data.clips.spec import ClipSpec
from fedaction.data.clips.videos import VideoSample, VideoSet
from fedaction.federation.seeds import generator
from tests.conftest import recordings
from tests.data.clips.made import number_of, numbers, write_sound, write_video

X264 = {"preset": "ultrafast", "crf": "18"}
SPEC = ClipSpec(frames=4, stride=2, short_side=40, crop=32)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Sixteen short videos: 2 classes, 4 people, 2 cameras; lengths differ."""
    root = tmp_path_factory.mktemp("videos")
    samples = []
    for label in range(2):
        for person in range(4):
            for camera in range(2):
                name = f"c{label}/p{person}_{camera}.mp4"
                path = write_video(root / name, 12 + 3 * person, options=X264)
                split = "test" if person == 3 else "train"
                samples.append(
                    VideoSample(path, name, label, split, f"p{person}", f"{label}{person}", f"cam{camera}")
                )
    return VideoSet("made", ("a", "b"), tuple(samples))


def equal(one, other):
    return all(
        a.info == b.info
        and all(
            torch.equal(x.x, y.x) and torch.equal(x.y, y.y) and torch.equal(x.recording, y.recording)
            for x, y in ((a.train, b.train), (a.test, b.test))
        )
        for a, b in zip(one, other, strict=True)
    )


def test_one_client_for_each_camera(made):
    told = []
    clients, skipped = clients_from_videos(made, SPEC, by="camera", train_clips=3, progress=lambda *a: told.append(a))
    assert [client.info.id for client in clients] == ["made-cam0", "made-cam1"] and not skipped
    assert told == [(n, 16) for n in range(1, 17)]
    for number, client in enumerate(clients):
        info = client.info
        assert (info.group, info.shape, info.classes, info.samples) == ("video", (4, 32, 32, 3), ("a", "b"), 18)
        assert client.train.x.dtype == torch.uint8 and client.train.x.shape == (18, 4, 32, 32, 3)
        # 21 frames have two clips of 4 frames with stride 2 that do not overlap
        assert len(client.test) == 4 and client.test.recording.tolist() == [6 + number] * 2 + [14 + number] * 2
        for side in (client.train, client.test):
            for y, recording, who in zip(side.y.tolist(), side.recording.tolist(), side.subjects, strict=True):
                sample = made.samples[recording]
                assert (sample.label, sample.person, sample.camera) == (y, who, f"cam{number}")
        assert {made.samples[r].split for r in client.train.recording.tolist()} == {"train"}


def test_clips_are_those_of_the_videos(made):
    clients, _ = clients_from_videos(
        made, ClipSpec(4, 2, None, None), by="equal", clients=1, train_clips="all", test=2
    )
    (client,) = clients
    assert client.info.id == "made-0"
    assert [numbers(clip.numpy()) for clip in client.test.x[:2]] == [[0, 2, 4, 6], [14, 16, 18, 20]]
    first = client.train.recording == 4  # 18 frames: 0 to 6, 8 to 14
    assert [numbers(clip.numpy()) for clip in client.train.x[first]] == [[0, 2, 4, 6], [8, 10, 12, 14]]


def test_clients_do_not_depend_on_workers_nor_on_the_cache(made, tmp_path):
    spec = ClipSpec(4, 1, 40, 32, "random")
    keys = {"by": "equal", "clients": 2, "train_clips": 2, "test": 1, "seed": 5}
    one, _ = clients_from_videos(made, spec, workers=1, **keys)
    for workers in (2, 7):
        assert equal(one, clients_from_videos(made, spec, workers=workers, **keys)[0])
    cache = ClipCache(tmp_path / "cache")
    assert equal(one, clients_from_videos(made, spec, cache=cache, **keys)[0])
    assert len(list(cache.folder.iterdir())) == 16
    original, decode.opened = decode.opened, None  # nothing is decoded any more
    try:
        assert equal(one, clients_from_videos(made, spec, cache=cache, **keys)[0])
    finally:
        decode.opened = original
    other, _ = clients_from_videos(made, spec, **(keys | {"seed": 6}))
    assert not equal(one, other)


def test_divisions(made):
    shared, _ = clients_from_videos(made, SPEC, by="person", test_on="set", test=1)
    assert [c.info.id for c in shared] == ["made-p0", "made-p1", "made-p2"]
    assert all(c.test is shared[0].test for c in shared) and len(shared[0].test) == 4
    two, _ = clients_from_videos(made, SPEC, by="person", clients=2, test_on="set", test=1)
    assert sorted(len(c.train) for c in two) == [4, 8]
    four, _ = clients_from_videos(made, SPEC, by="equal", clients=4, test=1)
    assert [(len(c.train), len(c.test)) for c in four] == [(3, 1)] * 4
    assert len({r for c in four for side in (c.train, c.test) for r in side.recording.tolist()}) == 16
    skewed, _ = clients_from_videos(made, SPEC, by="shards", clients=2, shards=1, test_on="set", test=1)
    assert [set(c.train.y.tolist()) for c in skewed] in ([{0}, {1}], [{1}, {0}])
    drawn, _ = clients_from_videos(made, SPEC, by="dirichlet", clients=2, alpha=10.0, test_on="set", test=1)
    assert sum(len(c.train) for c in drawn) == 12


def test_divisions_that_cannot_be(made):
    message = r"3 of 4 clients \(by person\) of made have no videos to test on: p0, p1, p2; .*test_on=\"set\""
    with pytest.raises(ValueError, match=r"1 of 4 clients \(by person\) of made have no videos to train on: p3"):
        clients_from_videos(made, SPEC, by="person")
    some_trained = VideoSet(
        "made",
        made.classes,
        tuple(VideoSample(**{**vars(s), "split": "train"}) if i == 6 else s for i, s in enumerate(made.samples)),
    )
    with pytest.raises(ValueError, match=message):
        clients_from_videos(some_trained, SPEC, by="person")
    with pytest.raises(ValueError, match="say how many clients"):
        clients_from_videos(made, SPEC, by="equal")
    with pytest.raises(ValueError, match="cannot be divided by 'colour'"):
        clients_from_videos(made, SPEC, by="colour", clients=2)
    nobody = VideoSet("made", made.classes, tuple(VideoSample(**{**vars(s), "camera": ""}) for s in made.samples))
    with pytest.raises(ValueError, match="does not say the camera of each video"):
        clients_from_videos(nobody, SPEC, by="camera")
    with pytest.raises(ValueError, match="12 videos for train and 0 videos for test: it needs both"):
        clients_from_videos(VideoSet("made", made.classes, made.of("train")), SPEC, by="camera")
    for wrong in ({"train_clips": 0}, {"test": -1}, {"test": "some"}):
        with pytest.raises(ValueError, match='must be "all" or at least 1'):
            clients_from_videos(made, SPEC, by="camera", **wrong)
    with pytest.raises(ValueError, match='"own" or "set"'):
        clients_from_videos(made, SPEC, by="camera", test_on="all")


def test_broken_files_are_reported_and_the_work_goes_on(made, tmp_path):
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "text.mp4").write_text("no video" * 100)
    write_sound(tmp_path / "sound.mp4")
    write_video(tmp_path / "one.mp4", 1, options=X264)
    whole = write_video(tmp_path / "whole.mp4", 20, options=X264).read_bytes()
    (tmp_path / "cut.mp4").write_bytes(whole[:300])
    bad = ("empty", "text", "sound", "cut", "gone", "one")
    extra = tuple(VideoSample(tmp_path / f"{n}.mp4", n, 0, "train", "p0", "g", "cam0") for n in bad)
    videos = VideoSet("made", made.classes, made.samples[:8] + extra)
    clients, skipped = clients_from_videos(videos, SPEC, by="camera", train_clips=1, test=1)
    assert {issue.where: issue.kind for issue in skipped} == dict.fromkeys(bad[:5], "unreadable")
    told = {issue.where: issue.detail for issue in skipped}
    assert "is empty" in told["empty"] and "only audio" in told["sound"] and "not a file" in told["gone"]
    assert "cannot be opened" in told["text"] and "cannot be opened" in told["cut"]
    assert clients[0].train.recording.tolist() == [0, 2, 4, 13]  # one frame, looped
    assert len(set(map(number_of, clients[0].train.x[3].numpy()))) == 1


def test_a_client_with_nothing_left_is_left_out_and_reported(made, tmp_path):
    (tmp_path / "empty.mp4").touch()
    broken = [VideoSample(tmp_path / "empty.mp4", f"e{s}", 0, s, "x", "g", "cam9") for s in ("train", "test")]
    clients, skipped = clients_from_videos(VideoSet("made", ("a", "b"), (*made.samples, *broken)), SPEC, by="camera")
    assert [c.info.id for c in clients] == ["made-cam0", "made-cam1"]
    assert (skipped[-1].kind, skipped[-1].where) == ("empty", "made-cam9")
    with pytest.raises(ValueError, match=r"no video of made can be used; 2 issues:\n  etrain: .* is empty"):
        clients_from_videos(VideoSet("made", ("a", "b"), tuple(broken)), SPEC, by="camera")


def test_any_fault_of_a_decoder_is_only_that_files_fault(made, monkeypatch):
    def fail(path, *a):
        if path.name == "p1_0.mp4":
            raise IndexError("strange")
        return load_clips(path, *a)

    monkeypatch.setattr("fedaction.data.clips.clients.load_clips", fail)
    clients, skipped = clients_from_videos(made, SPEC, by="camera", test=1)
    assert [issue.detail for issue in skipped] == ["IndexError: strange"] * 2 and len(clients) == 2


def test_clips_of_one_size_are_needed(made, tmp_path):
    wide = write_video(tmp_path / "wide.mp4", 12, size=(48, 96), options=X264)
    videos = VideoSet("made", made.classes, (*made.samples, VideoSample(wide, "wide", 0, "train", "p0", "g", "cam0")))
    with pytest.raises(ValueError, match=r"different sizes: 48 x 64 in .*, 48 x 96 in wide; cut a square"):
        clients_from_videos(videos, ClipSpec(4, 1, None, None), by="camera")


def test_a_length_that_was_counted_wrongly_is_counted_again(made, monkeypatch):
    path = made.samples[0].path  # 12 frames
    spec = ClipSpec(4, 1, None, None)
    expected = load_clips(path, spec, 5, generator(3))
    monkeypatch.setattr("fedaction.data.clips.load.count_packets", lambda _: 1000)
    found = load_clips(path, spec, 5, generator(3))
    assert np.array_equal(found, expected)
    assert all(n < 9 for n in map(number_of, found[:, 0]))


def test_random_squares(made):
    path = made.samples[0].path
    spec = ClipSpec(2, 1, None, 20, "random")
    a, b, c = (load_clips(path, spec, 6, generator(seed)) for seed in (0, 0, 1))
    assert np.array_equal(a, b) and not np.array_equal(a, c)
    evenly = load_clips(path, spec, 2)
    assert np.array_equal(evenly, read_clips(path, [0, 10], 2, crop=20))


def test_real_recordings_become_clients():
    cameras = airtlab(recordings("airtlab_violence_small"), task="action")
    keep = {s.name for s in cameras.samples[::8]} | {s.name for s in cameras.of("test")[::8]}
    few = VideoSet(cameras.name, cameras.classes, tuple(s for s in cameras.samples if s.name in keep))
    clients, skipped = clients_from_videos(few, ClipSpec(8, 2, 64, 56), by="camera", test=2)
    assert [c.info.id for c in clients] == ["airtlab-cam1", "airtlab-cam2"] and not skipped
    assert clients[0].train.x.float().std() > 10 and not torch.equal(clients[0].train.x[0], clients[0].train.x[1])
    adl, skipped = clients_from_videos(
        video_folders(recordings("assist_iot_adl_videos_small") / "videos"),
        ClipSpec(8, 4, 32, 32),
        by="equal",
        clients=2,
        test=1,
    )
    assert [len(c.train) + len(c.test) for c in adl] == [11, 11] and not skipped


def test_real_depth_recordings_become_clients():
    depth = utd_depth(recordings("utd_mhad"), split="share")
    few = VideoSet(depth.name, depth.classes, tuple(s for s in depth.samples if s.label in (2, 12)))
    clients, skipped = clients_from_videos(few, ClipSpec(8, 4, 64, 56), by="equal", clients=2, test=1)
    assert not skipped and sum(len(c.train) + len(c.test) for c in clients) == 12
    assert clients[0].info.shape == (8, 56, 56, 3) and set(clients[0].train.subjects) <= {
        f"s0{i}" for i in range(1, 7)
    }
