import shutil
from collections import Counter

import numpy as np
import pytest

from fedaction.data.clips.datasets import (
    DATASETS,
    airtlab,
    hmdb51,
    kinetics400,
    ucf101,
    utd_depth,
    video_folders,
    video_set,
)
from fedaction.data.clips.depth import DEPTH_RANGE, read_depth
from fedaction.data.clips.recordings import read_spans, read_whole
from tests.conftest import recordings
from tests.data.public.formats import write_mat


def touch(root, *names):
    """Files that are only listed, not read."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    return root


@pytest.fixture
def ucf(tmp_path):
    root = touch(
        tmp_path / "UCF-101",
        *[
            f"{action}/v_{action}_g{group:02d}_c0{clip}.avi"
            for action in ("Archery", "Bowling")
            for group in (1, 8, 9)
            for clip in (1, 2)
        ],
    )
    lists = root / "ucfTrainTestlist"
    lists.mkdir()
    (lists / "classInd.txt").write_bytes(b"1 Archery\r\n2 Bowling\r\n")
    names = {g: [f"{a}/v_{a}_g{g:02d}_c0{c}.avi" for a in ("Archery", "Bowling") for c in (1, 2)] for g in (1, 8, 9)}
    (lists / "testlist01.txt").write_bytes("".join(f"{name}\r\n" for name in names[1]).encode())
    train = [f"{name} {1 if 'Archery' in name else 2}\r\n" for g in (8, 9) for name in names[g]]
    (lists / "trainlist01.txt").write_bytes("".join(train).encode())
    return root


def test_ucf101(ucf):
    found = ucf101(ucf)
    assert found.classes == ("Archery", "Bowling") and len(found.of("train")) == 8 and len(found.of("test")) == 4
    first = found.of("train")[0]
    assert (first.name, first.label) == ("Archery/v_Archery_g08_c01.avi", 0)
    assert first.person == first.group == "Archery-g08" and first.path.is_file()
    assert {s.person for s in found.of("test")} == {"Archery-g01", "Bowling-g01"}
    assert video_set("ucf101", ucf, fold=1) == found


def test_a_list_that_names_what_is_not_there(ucf):
    for name in ("v_Archery_g08_c01.avi", "v_Archery_g08_c02.avi", "v_Archery_g09_c01.avi", "v_Archery_g01_c01.avi"):
        (ucf / "Archery" / name).unlink()
    message = (
        r"4 of 12 videos that trainlist01.txt and testlist01.txt name are not in .*: Archery/v_Archery_g08_c01.avi, "
        r"Archery/v_Archery_g08_c02.avi, Archery/v_Archery_g09_c01.avi and 1 more; complete the folder, or leave"
    )
    with pytest.raises(ValueError, match=message):
        ucf101(ucf)
    found = ucf101(ucf, missing="skip")
    assert len(found) == 8 and [issue.kind for issue in found.issues] == ["split"] * 4
    assert found.issues[3].where == "Archery/v_Archery_g01_c01.avi"
    with pytest.raises(ValueError, match='"error" or "skip"'):
        ucf101(ucf, missing="ignore")


def test_ucf101_with_lists_that_do_not_fit(ucf, tmp_path):
    lists = ucf / "ucfTrainTestlist"
    with pytest.raises(ValueError, match=r"12 of 12 videos .* is this the folder that holds the videos"):
        ucf101(touch(tmp_path / "other", "a/b.avi"), lists=lists)
    with pytest.raises(ValueError, match=r"no trainlist02.txt and .* in .* say with `lists`"):
        ucf101(ucf, fold=2)
    with pytest.raises(NotADirectoryError, match="a folder of videos per class"):
        ucf101(tmp_path / "nowhere")
    (lists / "classInd.txt").write_text("1 Archery\n")
    with pytest.raises(ValueError, match=r"'Bowling/v_Bowling_g08_c01.avi 2' is of no class that classInd.txt lists"):
        ucf101(ucf)
    (lists / "classInd.txt").write_text("2 Archery\n")
    with pytest.raises(ValueError, match="expected '1 <class>', found '2 Archery'"):
        ucf101(ucf)
    (lists / "classInd.txt").unlink()
    with pytest.raises(ValueError, match=r"lacks classInd.txt"):
        ucf101(ucf)


def test_real_ucf101_lists_and_clips(tmp_path):
    clips, lists = recordings("video_clips_torchvision") / "videos", recordings("split_files") / "ucf101_splits"
    found = ucf101(clips, lists=lists, missing="skip")  # also where clips lie in one folder
    assert len(found.classes) == 101 and found.classes[83] == "SoccerJuggling"
    assert [(s.person, s.split, s.label) for s in found.samples] == [
        ("SoccerJuggling-g23", "train", 83),
        ("SoccerJuggling-g24", "train", 83),
    ]
    assert len(found.issues) == 9537 + 3783 - 2


def test_hmdb51(tmp_path):
    root = touch(
        tmp_path,
        "wave/MovieA_wave_f_nm_np1_fr_med_1.avi",
        "wave/MovieA_wave_f_nm_np1_fr_med_2.avi",
        "wave/With Blank_wave_u_nm_np1_fr_med_0.avi",
        "brush_hair/April_09_brush_hair_u_nm_np1_ba_goo_0.avi",
        "brush_hair/unused_brush_hair_u_nm_np1_ba_goo_1.avi",
    )
    splits = root / "testTrainMulti_7030_splits"
    splits.mkdir()
    (splits / "class_list.txt").write_text("not a split")
    (splits / "wave_test_split1.txt").write_text(
        "MovieA_wave_f_nm_np1_fr_med_1.avi 1 \nMovieA_wave_f_nm_np1_fr_med_2.avi 1 \n"
        "With Blank_wave_u_nm_np1_fr_med_0.avi 2 \n"
    )
    (splits / "brush_hair_test_split1.txt").write_text(
        "April_09_brush_hair_u_nm_np1_ba_goo_0.avi 2 \nunused_brush_hair_u_nm_np1_ba_goo_1.avi 0 \n"
    )
    found = hmdb51(root)
    assert found.classes == ("brush_hair", "wave")
    assert [(s.label, s.split, s.group) for s in found.samples] == [
        (0, "test", "April_09"),
        (1, "train", "MovieA"),
        (1, "train", "MovieA"),
        (1, "test", "With Blank"),
    ]
    (splits / "wave_test_split1.txt").write_text("MovieA_wave_f_nm_np1_fr_med_1.avi 3\n")
    with pytest.raises(ValueError, match="does not end in 0, 1 or 2"):
        hmdb51(root)
    with pytest.raises(ValueError, match=r"<action>_test_split2.txt"):
        hmdb51(root, fold=2)


def test_real_hmdb51_lists_and_clips(tmp_path):
    clips, lists = recordings("video_clips_torchvision") / "videos", recordings("split_files") / "hmdb51_splits"
    for path in clips.glob("*.avi"):
        action = next((name for name in ("wave", "cartwheel") if f"_{name}_" in path.name), None)
        if action:
            (tmp_path / action).mkdir(exist_ok=True)
            (tmp_path / action / path.name.removeprefix("hmdb51_")).symlink_to(path)
    found = hmdb51(tmp_path, lists=lists, missing="skip")
    assert len(found.classes) == 51
    assert len(found) + len(found.issues) == 3570 + 1530
    assert {found.classes[s.label] for s in found.samples} <= {"wave", "cartwheel"} and len(found) >= 3
    assert "TrumanShow" in {s.group for s in found.samples}


HEAD = "label,youtube_id,time_start,time_end,split\n"


def test_kinetics400_by_lists(tmp_path):
    root = touch(
        tmp_path,
        "train/air drumming/-abc_DEF-12_000010_000020.mp4",
        "train/archery/xyz.mp4",
        "val/archery/vvv_000000_000010.mp4",
        "test/archery/ttt_000000_000010.mp4",
    )
    (root / "annotations").mkdir()
    (root / "annotations" / "train.csv").write_text(
        f'{HEAD}air drumming,-abc_DEF-12,10,20,train\n"archery",xyz,5,15,train\n'
        "archery,gone,1,11,train\narchery,xyz,5,15,train\n"
    )
    (root / "annotations" / "validate.csv").write_text(HEAD + "archery,vvv,0,10,validate\n")
    (root / "annotations" / "test.csv").write_text(HEAD + "archery,ttt,0,10,test\n")
    (root / "annotations" / "unlabelled.csv").write_text("youtube_id,split\nttt,test\n")
    found = kinetics400(root)
    assert found.classes == ("air drumming", "archery")
    assert [(s.path.stem, s.label, s.split, s.group) for s in found.samples if s.split == "train"] == [
        ("-abc_DEF-12_000010_000020", 0, "train", "-abc_DEF-12"),
        ("xyz", 1, "train", "xyz"),
    ]
    assert [s.path.stem for s in found.of("test")] == ["vvv_000000_000010"]
    assert [(issue.kind, issue.where) for issue in found.issues] == [
        ("duplicate", "train/archery/xyz.mp4"),
        ("split", "gone_000001_000011"),
    ]
    with pytest.raises(ValueError, match=r"1 of 5 videos that .* name are not in"):
        kinetics400(root, missing="error")
    only = kinetics400(root, lists=[root / "annotations" / "train.csv", root / "annotations" / "test.csv"])
    assert [s.path.stem for s in only.of("test")] == ["ttt_000000_000010"]


def test_kinetics400_lists_that_are_wrong(tmp_path):
    root = touch(tmp_path, "a.mp4")
    for text, message in (
        ("youtube_id,split\n", "no column label, time_start, time_end"),
        (HEAD + "archery,a,0,10,practice\n", "line 2: no label, or a split"),
        (HEAD + "archery,a,zero,10,train\n", "line 2: time_start and time_end must be seconds"),
        (
            HEAD + "archery,a,0,10,train\nbowling,b,0,10,val\n",
            "1 classes are only in the lists for validation or test",
        ),
    ):
        (root / "list.csv").write_text(text)
        with pytest.raises(ValueError, match=message):
            kinetics400(root, lists=[root / "list.csv"])
    with pytest.raises(FileNotFoundError, match="there is no list"):
        kinetics400(root, lists=[root / "none.csv"])


def test_kinetics400_by_folders(tmp_path):
    root = touch(tmp_path, "train/a/1.mp4", "train/b/2.mp4", "val/a/3.mp4", "test/b/4.mp4")
    found = kinetics400(root)
    assert found.name == "kinetics400" and found.classes == ("a", "b")
    assert [(s.name, s.split) for s in found.samples] == [
        ("train/a/1.mp4", "train"),
        ("train/b/2.mp4", "train"),
        ("val/a/3.mp4", "test"),
    ]
    with pytest.raises(ValueError, match="1 classes have videos for test but none to train on: c"):
        kinetics400(touch(tmp_path, "val/c/5.mp4"))
    with pytest.raises(ValueError, match="neither lists nor the folders train and val"):
        kinetics400(touch(tmp_path / "other", "a/1.mp4"))


def test_a_folder_per_class(tmp_path):
    names = [
        f"{action}/deep/p{person}_{n}.{kind}"
        for action in "xyz"
        for person in (1, 2)
        for n, kind in enumerate(("avi", "MP4", "mkv", "webm"))
    ]
    root = touch(tmp_path, *names, "x/notes.txt", "x/.hidden.mp4", "loose.mp4")
    found = video_folders(root, test=0.25, person=r"p(\d)_", seed=3)
    assert found.classes == ("x", "y", "z") and len(found) == 24 and {s.person for s in found.samples} == {"1", "2"}
    assert Counter(s.label for s in found.of("test")) == {0: 2, 1: 2, 2: 2}
    assert video_folders(root, test=0.25, person=r"p(\d)_", seed=3) == found
    other = video_folders(root, test=0.25, seed=4)
    assert [s.split for s in other.samples] != [s.split for s in found.samples]
    assert len(video_folders(root, test=0.5).of("test")) == 12
    with pytest.raises(ValueError, match="finds no person"):
        video_folders(root, person=r"q(\d)_")
    with pytest.raises(ValueError, match="between 0 and 1"):
        video_folders(root, test=1.0)
    shutil.rmtree(tmp_path / "x")
    with pytest.raises(ValueError, match=r"holds no videos; expected .*/<class>/<video>, with a suffix of .*\.mp4"):
        video_folders(touch(tmp_path / "none", "a/readme.txt"))


def test_folders_that_say_what_is_for_test(tmp_path):
    found = video_folders(touch(tmp_path / "mine", "train/a/1.mp4", "train/b/1.mp4", "test/a/1.mp4"))
    assert (
        found.name == "mine"
        and found.classes == ("a", "b")
        and [s.name for s in found.of("test")] == ["test/a/1.mp4"]
    )


def test_real_folders_of_daily_activities():
    found = video_folders(recordings("assist_iot_adl_videos_small") / "videos")
    assert found.classes == ("adl", "fall", "imm") and len(found) == 22 and 4 <= len(found.of("test")) <= 7


@pytest.fixture
def violence(tmp_path):
    home = tmp_path / "violence-detection-dataset"
    for kind, count in (("violent", 6), ("non-violent", 4)):
        touch(home, *[f"{kind}/cam{camera}/{n}.mp4" for camera in (1, 2) for n in range(1, count + 1)])
    (home / "violent-action-classes.csv").write_text(
        "FILE; ACTION CLASSES\n1.mp4;slap\n2.mp4;slap\n3.mp4;slap,kick\n4.mp4;club\n5.mp4;club\n6.mp4;stab\n"
        "7.mp4;stab\n"
    )
    (home / "nonviolent-action-classes.csv").write_text(
        "FILE; ACTION CLASSES\n1.mp4;hug\n2.mp4;friendly punch\n3.mp4;hug\n"
    )
    return tmp_path


def test_airtlab_by_folder(violence):
    found = airtlab(violence, test=0.3)
    assert found.classes == ("non-violent", "violent") and len(found) == 20
    assert {s.camera for s in found.samples} == {"cam1", "cam2"}
    sides = {s.group: set() for s in found.samples}
    for s in found.samples:
        sides[s.group].add(s.split)
    assert len(sides) == 10 and all(len(side) == 1 for side in sides.values())  # both views on one side
    assert len(found.of("test")) == 6
    inner = airtlab(violence / "violence-detection-dataset", test=0.3)
    assert [s.split for s in inner.samples] == [s.split for s in found.samples]


def test_airtlab_by_action(violence):
    found = airtlab(violence, task="action", test=0.4)
    assert found.classes == ("club", "hug", "slap")
    assert Counter(found.classes[s.label] for s in found.samples) == {"club": 4, "hug": 4, "slap": 4}
    told = Counter(issue.detail for issue in found.issues)
    assert told == {
        "'stab' is performed 1 times, fewer than 2": 2,
        "'friendly punch' is performed 1 times, fewer than 2": 2,
        "nonviolent-action-classes.csv does not say what it shows": 2,
    }
    assert "stab" in airtlab(violence, task="action", fewest=1).classes
    with pytest.raises(ValueError, match="tasks of AIRTLab"):
        airtlab(violence, task="faces")
    with pytest.raises(ValueError, match="this is not AIRTLab"):
        airtlab(touch(violence / "other", "a/b.mp4"))
    (violence / "violence-detection-dataset" / "violent-action-classes.csv").unlink()
    with pytest.raises(ValueError, match="which says what the clips show"):
        airtlab(violence, task="action")


def test_real_airtlab():
    root = recordings("airtlab_violence_small")
    found = airtlab(root)
    assert len(found) == 301 and Counter(s.camera for s in found.samples).keys() == {"cam1", "cam2"}
    assert len(found.of("test")) / 301 == pytest.approx(0.25, abs=0.03)
    every = airtlab(root, task="action", fewest=1)
    counts = Counter(every.classes[s.label] for s in every.samples)
    assert sum(counts.values()) == 168 and counts["greet"] == 32 and counts["friendly punch"] == 2
    assert len(airtlab(root, task="action").classes) == 11


def depth_file(path, frames=6, person=2500.0):
    depth = np.zeros((24, 32, frames))
    for t in range(frames):
        depth[4:20, 4 + t : 12 + t, t] = person
    return write_mat(path, "d_depth", depth)


def test_depth_clips(tmp_path):
    for action in (1, 2, 27):
        for who in (1, 2, 3):
            depth_file(tmp_path / "Depth" / f"a{action}_s{who}_t1_depth.mat")
    touch(tmp_path, "Depth/a99_s1_t1_depth.mat")
    found = utd_depth(tmp_path)
    assert (
        len(found.classes) == 27
        and len(found) == 9
        and found.issues[0].detail == "action 99 is not one of the dataset's 27"
    )
    assert {s.person: s.split for s in found.samples} == {"s01": "train", "s02": "test", "s03": "train"}
    assert {s.label for s in found.samples} == {0, 1, 26}
    share = utd_depth(tmp_path, split="share", test=0.34)
    assert Counter(s.label for s in share.of("test")) == {0: 1, 1: 1, 26: 1}
    with pytest.raises(ValueError, match='"people" or "share"'):
        utd_depth(tmp_path, split="odd")
    with pytest.raises(ValueError, match="holds none of the expected files"):
        utd_depth(touch(tmp_path / "none", "a"))


def test_depth_becomes_brightness(tmp_path):
    near, far = DEPTH_RANGE
    path = depth_file(tmp_path / "a.mat", person=2500.0)
    pictures = read_depth(path)
    assert pictures.shape == (6, 24, 32, 3) and pictures.dtype == np.uint8
    bright = round(1 + 254 * (far - 2500) / (far - near))
    assert set(np.unique(pictures)) == {0, bright} and (pictures[..., 0] == pictures[..., 2]).all()
    assert [int(np.flatnonzero(p[10, :, 0])[0]) for p in pictures] == [4, 5, 6, 7, 8, 9]
    assert set(np.unique(read_depth(depth_file(tmp_path / "b.mat", person=900)))) == {0, 255}
    assert set(np.unique(read_depth(depth_file(tmp_path / "c.mat", person=9000)))) == {0, 1}
    one = write_mat(tmp_path / "one.mat", "d_depth", np.full((4, 4), 2500.0))
    assert read_depth(one).shape == (1, 4, 4, 3)
    for wrong in (np.full((2, 2, 2), -1.0), np.full((2, 2, 2), np.nan), np.full((2, 2, 2), 1e6)):
        with pytest.raises(ValueError, match="no distances"):
            read_depth(write_mat(tmp_path / "wrong.mat", "d_depth", wrong))
    with pytest.raises(ValueError, match="has shape"):
        read_depth(write_mat(tmp_path / "wrong.mat", "d_depth", np.zeros((2, 2, 2, 2))))


def test_clips_of_depth_files_are_cut_scaled_and_looped_like_videos(tmp_path):
    path = depth_file(tmp_path / "a.mat", frames=6)
    whole = read_whole(path, 24, 24)
    assert np.array_equal(whole, read_depth(path)[:, :, 4:28])
    found = read_spans(path, [0, 3, 9], 4, 2, 24, 24)  # the last would begin after the end
    assert np.array_equal(found, whole[np.array([[0, 2, 4, 0], [3, 5, 3, 5], [0, 2, 4, 0]])])
    assert read_spans(path, [0, 1], 2, 1, 12, 10).shape == (2, 2, 10, 10, 3)


def test_real_depth_clips():
    found = utd_depth(recordings("utd_mhad"))
    assert (
        len(found) == 162
        and len(found.of("test")) == 81
        and {s.person for s in found.samples} == {f"s0{i}" for i in range(1, 7)}
    )
    (clip,) = read_spans(found.samples[0].path, [10], 8, 4, 64, 56)
    seen = clip[clip > 0]
    assert clip.shape == (8, 56, 56, 3) and 0.03 < len(seen) / clip.size < 0.5 and seen.std() > 10
    assert np.abs(np.diff(clip.astype(int), axis=0)).mean() > 0.1


def test_datasets_by_name(tmp_path):
    assert set(DATASETS) == {"ucf101", "hmdb51", "kinetics400", "airtlab", "utd_depth", "folders"}
    with pytest.raises(ValueError, match="no video dataset is called 'imagenet'; there are ucf101, "):
        video_set("imagenet", tmp_path)
