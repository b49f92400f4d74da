from dataclasses import replace

import pytest
import torch

from fedaction.data.client import ClientData
from fedaction.data.clips import decode, pool
from fedaction.data.clips.cache import ClipCache
from fedaction.data.clips.clients import divide_videos
from fedaction.data.clips.clips import Clips, digest_of, join
from fedaction.data.clips.datasets import airtlab, utd_depth, video_folders
from fedaction.data.clips.pool import Choice, pool_videos
from fedaction.data.clips.recordings import Held, Streamed
from fedaction.data.clips.spec import ClipSpec
from fedaction.data.clips.videos import VideoSample, VideoSet
from fedaction.data.dataset import Issue
from fedaction.data.samples import in_memory
from fedaction.federation.seeds import generator
from tests.conftest import recordings
from tests.data.clips.made import number_of, numbers, write_sound, write_video

X264 = {"preset": "ultrafast", "crf": "18"}
SPEC = ClipSpec(frames=4, stride=2, side=40, crop=32)


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


def clients_of(videos, spec=SPEC, train_clips=1, fresh=False, test_clips=0, seed=0, keep=None, **how):
    """Clients, and what was skipped; `keep`: arguments of `pool_videos`."""
    division = divide_videos(videos, seed=seed, **how)
    choice = Choice(train_clips, fresh, test_clips, seed=seed)
    everything, issues = pool_videos(videos, spec, choice, **(keep or {}))
    clients, empty = division.deal(everything)
    return clients, [*issues, *empty]


def x_of(clips):
    return in_memory(clips).x


def equal(one: list[ClientData], other: list[ClientData]) -> bool:
    return all(
        a.info == b.info
        and all(
            torch.equal(x_of(x), x_of(y))
            and torch.equal(x.labels, y.labels)
            and torch.equal(x.recording, y.recording)
            for x, y in ((a.train, b.train), (a.test, b.test))
        )
        for a, b in zip(one, other, strict=True)
    )


def test_one_client_for_each_camera(made):
    told = []
    keep = {"progress": lambda *a: told.append(a)}
    clients, skipped = clients_of(made, by="camera", train_clips=3, keep=keep)
    assert [client.info.id for client in clients] == ["made-cam0", "made-cam1"] and not skipped
    assert told[:16] == [(n, 32) for n in range(1, 17)] and told == sorted(told) and told[-1] == (32, 32)
    for number, client in enumerate(clients):
        info = client.info
        assert (info.group, info.shape, info.classes, info.samples) == ("video", (4, 32, 32, 3), ("a", "b"), 18)
        x = x_of(client.train)
        assert x.dtype == torch.uint8 and x.shape == (18, 4, 32, 32, 3)
        # 21 frames have two clips of 4 frames with stride 2 that do not overlap
        assert len(client.test) == 4 and client.test.recording.tolist() == [6 + number] * 2 + [14 + number] * 2
        for side in (client.train, client.test):
            for y, recording, who in zip(side.labels.tolist(), side.recording.tolist(), side.subjects, strict=True):
                sample = made.samples[recording]
                assert (sample.label, sample.person, sample.camera) == (y, who, f"cam{number}")
        assert {made.samples[r].split for r in client.train.recording.tolist()} == {"train"}


def shown(clips):
    """What is seen of the frames' numbers in their middle: number // 2 below 128."""
    x = x_of(clips)
    padded = torch.zeros(*x.shape[:3], 64, 3, dtype=torch.uint8)
    padded[:, :, :, 8:56] = x
    return [[number // 2 for number in numbers(clip.numpy())] for clip in padded]


def test_clips_are_those_of_the_videos(made):
    spec = ClipSpec(4, 2, 48)
    (client,), _ = clients_of(made, spec, by="equal", clients=1, train_clips=0, test_clips=2)
    assert client.info.id == "made-0"
    assert shown(client.test)[:2] == [[0, 1, 2, 3], [7, 8, 9, 10]]
    first = client.train.pick(client.train.recording == 4)  # 18 frames: 0 to 6, 8 to 14
    assert shown(first) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_clients_do_not_depend_on_workers_memory_nor_on_the_cache(made, tmp_path):
    keys = {"by": "equal", "clients": 2, "train_clips": 2, "test_clips": 1, "seed": 5}
    one, _ = clients_of(made, keep={"workers": 1}, **keys)
    assert equal(one, clients_of(made, keep={"workers": 7}, **keys)[0])
    with pytest.warns(UserWarning, match="GiB of video are not held in memory"):
        streamed = clients_of(made, keep={"memory": 0}, **keys)[0]
    assert isinstance(streamed[0].train.recordings.store, Streamed) and equal(one, streamed)
    assert isinstance(one[0].train.recordings.store, Held) and one[0].train.resident
    cache = ClipCache(tmp_path / "cache")
    assert equal(one, clients_of(made, keep={"cache": cache}, **keys)[0])
    assert len(list(cache.folder.iterdir())) == 16
    other, _ = clients_of(made, **(keys | {"seed": 6}))
    assert not equal(one, other)


@pytest.mark.filterwarnings("ignore:.*not held in memory")
def test_fixed_clips_are_not_decoded_twice(made, tmp_path, monkeypatch):
    cache = ClipCache(tmp_path / "cache")
    everything, _ = pool_videos(made, SPEC, Choice(2, fresh=False), cache=cache, memory=0)
    first = x_of(everything.train)
    monkeypatch.setattr(decode, "open_video", None)  # nothing is decoded any more
    assert torch.equal(x_of(everything.train), first)


@pytest.mark.filterwarnings("ignore:.*not held in memory")
def test_fresh_clips_are_from_anywhere_and_the_same_from_memory_and_from_files(made):
    spec = ClipSpec(4, 2, 48)
    held, streamed = (pool_videos(made, spec, Choice(2), memory=memory)[0] for memory in (2**30, 0))
    assert held.train.fresh and not held.test.fresh and held.train.subjects
    assert digest_of(held) == digest_of(streamed) and len(held.train) == 24
    rows = torch.arange(24).repeat(400).view(4, -1)
    starts = held.train.draw(rows, generator(0))
    assert torch.equal(starts, streamed.train.draw(rows, generator(0)))
    assert not torch.equal(starts, held.train.draw(rows, generator(1)))
    assert held.test.draw(torch.arange(2), generator(0)) is None
    last = [made.samples[n].path for n in held.train.recording.tolist()]
    lengths = torch.tensor([12 + 3 * int(path.name[1]) for path in last])
    for row in range(24):  # each place is drawn sooner or later, and none at which a clip would not fit
        assert {*starts[rows == row].tolist()} == {*range(int(lengths[row]) - 6)}
    some = torch.tensor([3, 17, 3])
    a, b = (clips.train.take(some, torch.tensor([2, 4, 0])) for clips in (held, streamed))
    assert torch.equal(a, b) and not torch.equal(a[0], a[2])
    assert torch.equal(held.train.take(some), streamed.train.take(some))  # without starts: always the same
    assert held.train.take(torch.arange(0)).shape == streamed.train.take(torch.arange(0)).shape == (0, 4, 48, 48, 3)


def test_a_client_has_its_own_recordings_alone(made):
    clients, _ = clients_of(made, by="camera", fresh=True, test_clips=1)
    for number, client in enumerate(clients):
        assert isinstance(client.train, Clips) and len(client.train.recordings) == 6
        assert {made.samples[n].camera for n in client.train.recordings.numbers.tolist()} == {f"cam{number}"}
    together = join([client.train for client in clients])
    assert isinstance(together, Clips) and together.fresh and len(together) == 12
    for row in range(12):
        own = clients[row // 6].train
        assert torch.equal(together.take(torch.tensor([row])), own.take(torch.tensor([row % 6])))
    tests = join([client.test for client in clients])
    mixed = join([clients[0].test, in_memory(clients[1].test)])
    assert torch.equal(x_of(mixed), x_of(tests)) and mixed.recording.tolist() == tests.recording.tolist()


def test_divisions(made):
    shared, _ = clients_of(made, by="person", test_on="set", test_clips=1)
    assert [c.info.id for c in shared] == ["made-p0", "made-p1", "made-p2"]
    assert all(c.test is shared[0].test for c in shared) and len(shared[0].test) == 4
    two, _ = clients_of(made, by="person", clients=2, test_on="set", test_clips=1)
    assert sorted(len(c.train) for c in two) == [4, 8]
    four, _ = clients_of(made, by="equal", clients=4, test_clips=1)
    assert [(len(c.train), len(c.test)) for c in four] == [(3, 1)] * 4
    assert len({r for c in four for side in (c.train, c.test) for r in side.recording.tolist()}) == 16
    skewed, _ = clients_of(made, by="shards", clients=2, shards=1, test_on="set", test_clips=1)
    assert [set(c.train.labels.tolist()) for c in skewed] in ([{0}, {1}], [{1}, {0}])
    drawn, _ = clients_of(made, by="dirichlet", clients=2, alpha=10.0, test_on="set", test_clips=1)
    assert sum(len(c.train) for c in drawn) == 12


def test_divisions_that_cannot_be(made):
    message = r"3 of 4 clients \(by person\) of made have no videos to test on: p0, p1, p2; .*video_test_on = \"set\""
    with pytest.raises(ValueError, match=r"1 of 4 clients \(by person\) of made have no videos to train on: p3"):
        divide_videos(made, by="person")
    some_trained = replace(
        made, samples=tuple(replace(s, split="train") if i == 6 else s for i, s in enumerate(made.samples))
    )
    with pytest.raises(ValueError, match=message):
        divide_videos(some_trained, by="person")
    with pytest.raises(ValueError, match="say how many clients"):
        divide_videos(made, by="equal")
    with pytest.raises(ValueError, match="cannot be divided by 'colour'"):
        divide_videos(made, by="colour", clients=2)
    nobody = replace(made, samples=tuple(replace(s, camera="") for s in made.samples))
    with pytest.raises(ValueError, match="does not say the camera of each video"):
        divide_videos(nobody, by="camera")
    with pytest.raises(ValueError, match="12 videos for train and 0 videos for test: it needs both"):
        divide_videos(VideoSet("made", made.classes, made.of("train")), by="camera")
    for wrong in ({"train_clips": -1}, {"test_clips": -1}):
        with pytest.raises(ValueError, match="must be at least 1, or 0 for all"):
            Choice(**wrong)
    with pytest.raises(ValueError, match='"own" or "set"'):
        divide_videos(made, by="camera", test_on="all")


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
    clients, skipped = clients_of(videos, by="camera", test_clips=1)
    assert {issue.where: issue.kind for issue in skipped} == dict.fromkeys(bad[:5], "unreadable")
    told = {issue.where: issue.detail for issue in skipped}
    assert "is empty" in told["empty"] and "only audio" in told["sound"] and "not a file" in told["gone"]
    assert "cannot be opened" in told["text"] and "cannot be opened" in told["cut"]
    assert clients[0].train.recording.tolist() == [0, 2, 4, 13]  # one frame, looped
    assert len(set(map(number_of, x_of(clients[0].train)[3].numpy()))) == 1


def test_a_client_with_nothing_left_is_left_out_and_reported(made, tmp_path):
    (tmp_path / "empty.mp4").touch()
    broken = [VideoSample(tmp_path / "empty.mp4", f"e{s}", 0, s, "x", "g", "cam9") for s in ("train", "test")]
    clients, skipped = clients_of(VideoSet("made", ("a", "b"), (*made.samples, *broken)), by="camera")
    assert [c.info.id for c in clients] == ["made-cam0", "made-cam1"]
    assert (skipped[-1].kind, skipped[-1].where) == ("empty", "made-cam9")
    message = r"made has no videos for train that can be used; 2 issues:\n  etrain: .* is empty"
    with pytest.raises(ValueError, match=message):
        clients_of(VideoSet("made", ("a", "b"), tuple(broken)), by="camera")


def test_any_fault_of_a_decoder_is_only_that_files_fault(made, monkeypatch):
    read = pool.read_spans

    def fail(path, *a):
        if path.name == "p1_0.mp4":
            raise IndexError("strange")
        return read(path, *a)

    monkeypatch.setattr(pool, "read_spans", fail)
    clients, skipped = clients_of(made, by="camera", test_clips=1)
    assert [issue.detail for issue in skipped] == ["IndexError: strange"] * 2 and len(clients) == 2
    assert all(isinstance(issue, Issue) for issue in skipped)


@pytest.mark.filterwarnings("ignore:.*not held in memory")
def test_a_length_that_was_counted_wrongly_does_no_harm(made, monkeypatch):
    """Packets are more than frames: clips that would begin after the end are moved, and held ones alike."""
    monkeypatch.setattr(decode, "count_packets", lambda _: 40)
    spec = ClipSpec(4, 1, 48)
    held, streamed = (pool_videos(made, spec, memory=memory)[0].train for memory in (2**30, 0))
    rows = torch.arange(12).repeat(20)
    starts = held.draw(rows, generator(0))
    assert int(starts.max()) == 36  # none of the videos has so many frames
    assert torch.equal(held.take(rows, starts), streamed.take(rows, starts))


def test_real_recordings_become_clients():
    cameras = airtlab(recordings("airtlab_violence_small"), task="action")
    keep = {s.name for s in cameras.samples[::8]} | {s.name for s in cameras.of("test")[::8]}
    few = replace(cameras, samples=tuple(s for s in cameras.samples if s.name in keep))
    clients, skipped = clients_of(few, ClipSpec(8, 2, 64, 56), by="camera", fresh=True, test_clips=2)
    assert [c.info.id for c in clients] == ["airtlab-cam1", "airtlab-cam2"] and not skipped
    x = x_of(clients[0].train)
    assert x.float().std() > 10 and not torch.equal(x[0], x[1])
    adl, skipped = clients_of(
        video_folders(recordings("assist_iot_adl_videos_small") / "videos"),
        ClipSpec(8, 4, 32),
        by="equal",
        clients=2,
        test_clips=1,
    )
    assert [len(c.train) + len(c.test) for c in adl] == [11, 11] and not skipped


def test_real_depth_recordings_become_clients():
    depth = utd_depth(recordings("utd_mhad"), split="share")
    few = replace(depth, samples=tuple(s for s in depth.samples if s.label in (2, 12)))
    clients, skipped = clients_of(few, ClipSpec(8, 4, 64, 56), by="equal", clients=2, test_clips=1)
    assert not skipped and sum(len(c.train) + len(c.test) for c in clients) == 12
    assert clients[0].info.shape == (8, 56, 56, 3) and set(clients[0].train.subjects) <= {
        f"s0{i}" for i in range(1, 7)
    }
