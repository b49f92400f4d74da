import json

import numpy as np
import pytest
import torch

from fedaction.stage import NAMES, footage
from fedaction.stage.footage import deal_footage, stage_footage, stage_video
from fedaction.stage.footage_file import CLIPS, HEADER, load_footage
from fedaction.stage.scene import DOMAINS, Variety

SMALL = {
    "actions": ("wave", "jump", "bow"),
    "recordings": 6,
    "test_recordings": 2,
    "people": 4,
    "test_people": 2,
    "frames": 3,
    "size": 16,
    "workers": 1,
}
TINY = {**SMALL, "people": 2, "test_people": 1, "recordings": 2, "test_recordings": 1}
FEW = {**SMALL, "people": 2, "test_people": 1, "recordings": 8, "test_recordings": 4}  # at each of several clients


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def test_the_domains_differ_and_some_actions_are_only_in_the_small_ones():
    wide, home, hall = (set(DOMAINS[name].actions) for name in ("wide", "home", "hall"))
    assert wide | home | hall == set(NAMES)
    assert len(home - wide) >= 3
    assert len(hall - wide) >= 3
    assert len(home & wide) >= 6
    assert len(hall & wide) >= 6
    assert not home & hall


def test_footage_says_what_its_clips_are(cache):
    made = stage_footage(**SMALL, clips=2, cache=cache)
    assert made.clips.shape == (48, 3, 16, 16, 3)
    assert made.clips.dtype == np.uint8
    assert made.classes == SMALL["actions"]
    assert np.bincount(made.labels[~made.test]).tolist() == [12, 12, 12]
    assert np.bincount(made.labels[made.test]).tolist() == [4, 4, 4]
    np.testing.assert_array_equal(np.bincount(made.recording), 2)
    trained, tested = ({made.people[i] for i in made.person[rows]} for rows in (~made.test, made.test))
    assert trained
    assert tested
    assert not trained & tested
    # Two clips of a recording are of one performance at two times: alike, not equal.
    first, second, other = made.clips[0].astype(int), made.clips[1].astype(int), made.clips[2].astype(int)
    assert 0 < np.abs(first - second).mean() < np.abs(first - other).mean()


def test_the_number_of_workers_makes_no_difference(cache, tmp_path):
    seen = []
    few = {**TINY, "recordings": 8, "test_recordings": 2, "workers": 2}
    one = stage_footage(**{**few, "workers": 1}, cache=cache)
    two = stage_footage(**few, cache=tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert one.clips.tobytes() == two.clips.tobytes()
    assert seen[-1] == (30, 30)
    assert len(seen) == 2


def test_what_is_in_the_cache_is_used_and_what_is_damaged_is_made_again(tmp_path, monkeypatch):
    first = stage_footage(**TINY, cache=tmp_path)
    pixels = first.clips.copy()
    first.clips[:] = 0  # changes memory only
    (place,) = (path for path in (tmp_path / "footage").iterdir() if path.is_dir())
    with monkeypatch.context() as patch:
        patch.setattr(footage, "film_takes", None)
        again = stage_footage(**TINY, cache=tmp_path)
    assert again.clips.tobytes() == pixels.tobytes()

    header = json.loads((place / HEADER).read_text())
    data = bytearray((place / CLIPS).read_bytes())
    data[-7] ^= 1
    broken = [
        (CLIPS, bytes(data), "checksum"),
        (CLIPS, bytes(data[:-7]), "damaged"),
        (HEADER, b"{}", "settings"),
        (HEADER, json.dumps({**header, "labels": [9] * len(first)}).encode(), "only 3"),
        (HEADER, json.dumps({**header, "person": []}).encode(), "0 person for 9"),
        (HEADER, json.dumps({**header, "version": 2}).encode(), "version 2"),
        (HEADER, json.dumps({**header, "settings": {}}).encode(), "other settings"),
    ]
    for name, content, why in broken:
        (place / name).write_bytes(content)
        with pytest.warns(UserWarning, match=why):
            made = stage_footage(**TINY, cache=tmp_path)
        assert made.clips.tobytes() == pixels.tobytes()
    load_footage(place)


def test_work_that_is_interrupted_leaves_nothing_behind(tmp_path):
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stage_footage(**TINY, cache=tmp_path, progress=stop)
    assert [path for path in (tmp_path / "footage").iterdir() if path.is_dir()] == []
    (lock,) = (tmp_path / "footage").iterdir()
    killed = lock.with_name(f"{lock.name.removesuffix('.lock')}.0123")  # as a process that was killed would
    killed.mkdir()
    (killed / CLIPS).write_bytes(b"half")
    assert len(stage_footage(**TINY, cache=tmp_path)) == 9
    assert not killed.exists()


def test_settings_change_the_clips(cache):
    usual = stage_footage(**TINY, cache=cache)
    others = [{"seed": 1}, {"variety": 0.0}, {"stride": 0.1}, {"domain": "hall"}, {"variety": Variety(light=0.0)}]
    for other in others:
        made = stage_footage(**TINY, **other, cache=cache)
        assert not np.array_equal(made.clips, usual.clips)


def test_every_client_has_its_own_people_and_all_clips_are_dealt_once(cache):
    clients = stage_video(**FEW, clients=3, clips=2, shares=(2, 1, 1), cache=cache)
    assert [client.info.id for client in clients] == ["home-0", "home-1", "home-2"]
    assert [len(client.train) for client in clients] == [24, 12, 12]
    assert [len(client.test) for client in clients] == [12, 6, 6]
    everyone = [{*client.train.subjects} | {*client.test.subjects} for client in clients]
    assert len(set.union(*everyone)) == sum(map(len, everyone))
    for client in clients:
        assert client.info.group == "video"
        assert client.info.shape == (3, 16, 16, 3)
        assert client.info.samples == len(client.train)
        assert client.train.x.dtype == torch.uint8
        assert client.train.recording.dtype == torch.int64
        assert not set(client.train.subjects) & set(client.test.subjects)
        assert not set(client.train.recording.tolist()) & set(client.test.recording.tolist())
    numbers = torch.cat([part.recording for client in clients for part in (client.train, client.test)])
    assert torch.bincount(numbers).tolist() == [2] * 36


def test_an_iid_deal_mixes_the_same_recordings(cache):
    apart = stage_video(**FEW, clients=3, clips=2, cache=cache)
    mixed = stage_video(**FEW, clients=3, clips=2, iid=True, cache=cache)
    for one, other in zip(apart, mixed, strict=True):
        assert len(one.train) == len(other.train)
        assert len(one.test) == len(other.test)
        assert set(torch.bincount(other.train.recording).tolist()) <= {0, 2}  # recordings stay whole
    together = [torch.cat([c.train.x for c in clients]).flatten(1).sum(1) for clients in (apart, mixed)]
    assert together[0].sort().values.tolist() == together[1].sort().values.tolist()
    assert len({*mixed[0].train.subjects}) > len({*apart[0].train.subjects})
    assert not {s for c in mixed for s in c.train.subjects} & {s for c in mixed for s in c.test.subjects}


def test_clients_differ_as_much_as_they_are_asked_to(cache):
    def spread(heterogeneity: float, **more) -> tuple[float, float]:
        """Of the walls' colour inside clients relative to all, and of the classes' shares over clients."""
        clients = stage_video(
            **{**FEW, "recordings": 24}, clients=4, heterogeneity=heterogeneity, cache=cache, **more
        )
        walls = [client.train.x[:, :, :3].float().mean((1, 2, 3)) for client in clients]
        mix = torch.stack([torch.bincount(c.train.y, minlength=3) / len(c.train) for c in clients])
        inside = torch.stack([wall.std(0) for wall in walls]).mean() / torch.cat(walls).std(0).mean()
        return float(inside), float(mix.std(0).mean())

    same, other = spread(0.0), spread(1.0)
    assert other[0] < 0.7 < same[0]
    assert same[1] < 0.01 < other[1]


def test_test_people_can_be_recorded_elsewhere(cache):
    def gap(elsewhere: bool) -> float:
        clients = stage_video(**FEW, clients=6, heterogeneity=1.0, elsewhere=elsewhere, seed=3, cache=cache)
        walls = [[part.x[:, :, :3].float().mean((0, 1, 2, 3)) for part in (c.train, c.test)] for c in clients]
        return float(np.mean([(train - test).abs().mean() for train, test in walls]))

    assert gap(True) > 1.5 * gap(False)


def test_any_deal_can_be_made_of_footage(cache):
    made = stage_footage(**SMALL, clips=2, cache=cache)
    rows = np.array([5, 1, 9])
    (client,) = deal_footage(made, [rows], [np.empty(0, np.int64)])
    np.testing.assert_array_equal(client.train.x.numpy(), made.clips[rows])
    np.testing.assert_array_equal(client.train.y.numpy(), made.labels[rows])
    assert len(client.test) == 0
    assert client.test.x.shape == (0, 3, 16, 16, 3)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"domain": "moon"}, "wide, home, hall"),
        ({"actions": ("wave", "fly")}, "no action is called 'fly'"),
        ({"actions": ("wave", "wave")}, "different actions"),
        ({"recordings": 0}, "recordings=0"),
        ({"size": 8}, "size=8"),
        ({"stride": 0.0}, "stride"),
        ({"heterogeneity": 1.5}, "heterogeneity"),
        ({"places": 5}, "each of 5 places needs a person"),
        ({"places": 2, "shares": (1.0,)}, "share for each of 2"),
        ({"places": 2, "shares": (1.0, 0.001)}, "place 1 would have none"),
    ],
)
def test_settings_that_make_no_footage_are_refused(wrong, why, tmp_path):
    with pytest.raises((ValueError, KeyError), match=why):
        stage_footage(**{**SMALL, **wrong}, cache=tmp_path)
