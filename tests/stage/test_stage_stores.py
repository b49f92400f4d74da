"""Folders of synthetic places, as sites of a federation would have them."""

import pytest

from fedaction.data.holdings import look_at
from fedaction.data.sources.features import FeatureSource
from fedaction.data.sources.video import VideoSource
from fedaction.stage.stores import write_stage_features, write_stage_videos


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDACTION_CACHE", str(tmp_path / "cache"))


def test_filmed_places_are_clients_of_a_simulation_and_folders_of_sites(tmp_path):
    pytest.importorskip("av")
    paths = write_stage_videos(tmp_path / "places", names=("a", "b"), recordings=2, actions=2, frames=6, size=32)
    held = {name: look_at(path) for name, path in paths.items()}
    assert all(each.suits == ("video",) and each.classes for each in held.values())
    source = VideoSource(video_paths=tuple(map(str, paths.values())), frames=4, video_side=32, video_cache="none")
    clients = source.load(seed=0)
    assert [client.info.id for client in clients] == ["a", "b"]
    assert {client.info.shape for client in clients} == {(4, 32, 32, 3)}
    for client in clients:  # whole recordings: none is on both sides
        assert not {*client.train.recording.tolist()} & {*client.test.recording.tolist()}
        assert len(client.train) + client.test.recording.unique().numel() == held[client.info.id].recordings
    with pytest.raises(ValueError, match="nothing was written"):
        write_stage_videos(tmp_path / "places", names=("a",))
    with pytest.raises(ValueError, match="leave out video_root"):
        VideoSource(video_paths=("a", "b"), video_root="c")
    with pytest.raises(ValueError, match="have one name"):
        VideoSource(video_paths=("x/a", "y/a"))
    with pytest.raises(ValueError, match="say video_root"):
        source.pool(seed=0)


def test_devices_of_three_places_have_a_store_each(tmp_path):
    paths = write_stage_features(tmp_path / "places", recordings=12, actions=3)
    source = FeatureSource(feature_paths=tuple(map(str, paths.values())), feature_by="dataset", feature_deal="all")
    clients = source.load(seed=0)
    assert [client.info.id for client in clients] == [client.info.group for client in clients] == list(paths)
    assert all(client.info.samples + len(client.test) == 12 for client in clients)
