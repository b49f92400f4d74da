"""A site whose files change while a run goes on: noticed before its next job, undone by putting them back."""

import os
import shutil

import pytest

from fedaction.data.files import look_over
from fedaction.runs.metrics import read_rows
from fedaction.runs.remote import Roll, carry_out, open_run
from tests.engines.flower.places import (
    HousePost,
    make_feature_recipe,
    make_features,
    make_sites,
    make_stores,
    make_video_recipe,
    make_videos,
)
from tests.engines.flower.test_contract import House

CHANGED = "the data of this site are not those that it joined with"


def flip(path):
    """Changes a byte near the end of a file, whose size and first frames stay."""
    with path.open("r+b") as file:
        file.seek(-40, os.SEEK_END)
        byte = file.read(1)
        file.seek(-40, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))


def test_a_site_refuses_jobs_while_its_data_are_others_and_tells_both_sides(tmp_path):
    paths, said, notes = make_stores(tmp_path), [], {}
    house = House(paths, tmp_path / "sites", log=said.append, note=lambda **changes: notes.update(changes))
    assert not any(update.fault for update in house.train())
    frames, kept = paths["gym"] / "frames.npy", tmp_path / "frames.npy"
    shutil.copy(frames, kept)

    flip(frames)
    clinic, gym = house.train("clinic", "gym")
    assert not clinic.fault and CHANGED in gym.fault and not gym.tree
    assert any(CHANGED in line for line in said)
    (report,) = house.engine.evaluate([house.job("gym")])
    assert not report.metrics and CHANGED in house.warnings[-1] and CHANGED in notes["left_out"]

    shutil.copy(kept, frames)  # another time, the same data
    assert not house.train("gym")[0].fault and notes["left_out"] == ""
    frames.unlink()
    assert house.train("gym")[0].fault


def test_a_server_that_starts_again_is_told_of_other_data(tmp_path):
    paths = make_stores(tmp_path)
    house = House(paths, tmp_path / "sites")
    flip(paths["gym"] / "frames.npy")
    house.exchange._forget_node("gym")  # greeted again by a server that was started anew; the site's process was not
    house.clock.time += 5
    assert house.train("gym")[0].fault and "the data of 'gym' are not those" in " ".join(house.warnings)


def change_between(recipe, paths, folder, path):
    """A run in which a file of its first site changes after round 1; the post, and the rows of training."""
    open_run(recipe, folder / "real", Roll(count=len(paths)))
    post = HousePost(make_sites(paths, folder / "sites"))

    def change(node, kind, answer):
        if (node, kind) == (101, "train") and sum(seen[:2] == (101, "train") for seen in post.seen) == 1:
            flip(path)
        return answer

    post.change = change
    carry_out(post, folder / "real")
    rows = read_rows(folder / "real" / "metrics.jsonl")
    return [(row.round, row.value) for row in rows if row.name == "participants"]


def test_streamed_video_that_changes_in_a_run_is_noticed(tmp_path):
    paths = make_videos(tmp_path)
    recipe = make_video_recipe(paths, "fedavg", video_memory=0, quorum=0.5)
    path = sorted(paths["hall"].rglob("*.mp4"))[0]
    assert change_between(recipe, paths, tmp_path, path) == [(1, 2), (2, 1)]
    assert CHANGED in (tmp_path / "real" / "news.jsonl").read_text()


def test_features_that_change_in_a_run_are_noticed(tmp_path):
    paths = make_features(tmp_path)
    recipe = make_feature_recipe(paths, "fdarn", rounds=2, quorum=0.5)
    path = max(paths["skeleton"].glob("*.npy"), key=lambda file: file.stat().st_size)
    assert change_between(recipe, paths, tmp_path, path) == [(1, 2), (2, 1)]


def test_a_look_sees_names_sizes_times_and_places_and_follows_links(tmp_path):
    folder = tmp_path / "data"
    (folder / "wave").mkdir(parents=True)
    (folder / "wave" / "1.mp4").write_bytes(b"one")
    (folder / "again").symlink_to(folder)  # round and round
    (folder / "nothing").symlink_to(tmp_path / "nowhere")
    seen = [look_over(folder), look_over(folder)]
    assert seen[0] == seen[1]
    for change in (
        lambda: (folder / "wave" / "2.mp4").write_bytes(b""),
        lambda: os.utime(folder / "wave" / "1.mp4", ns=(0, 0)),
        lambda: (folder / "wave" / "1.mp4").write_bytes(b"three"),
        lambda: (folder / "wave" / "1.mp4").rename(folder / "wave" / "3.mp4"),
    ):
        change()
        seen.append(look_over(folder))
    assert len(set(seen)) == 5
    with pytest.raises(FileNotFoundError):
        look_over(tmp_path / "nowhere")
