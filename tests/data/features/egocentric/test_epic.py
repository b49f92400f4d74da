"""EPIC-KITCHENS-100's annotations: the real CSV files, and rows with every fault."""

from __future__ import annotations

import ast
import csv
from collections import Counter
from pathlib import Path

import pytest

from fedaction.data.features.egocentric import epic
from tests.conftest import recordings
from tests.data.features.egocentric.made import COLUMNS, write_rows


@pytest.fixture(scope="module")
def real() -> epic.Annotations:
    return epic.read(recordings("epic_kitchens_100_annotations"))


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    path = recordings("epic_kitchens_100_annotations") / "EPIC_100_validation.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_everything_in_the_real_files_is_read(real: epic.Annotations) -> None:
    assert (len(real.segments), len(real.verbs), len(real.videos), len(real.participants)) == (9668, 97, 700, 21)
    assert real.verbs[:3] == ("take", "put", "wash")
    assert sum(epic.is_extension(name) for name in real.videos) == 268
    # One segment ends 13 ms after its video.
    assert [(issue.kind, issue.where) for issue in real.segments.issues] == [("label", "P29_05_563")]
    cut = next(item for item in real.segments if item.name == "P29_05_563")
    assert cut.stop_s == real.videos["P29_05"].duration_s
    assert all(item.stop_s <= real.videos[item.video].duration_s for item in real.segments)


def test_real_rows_one_by_one(real: epic.Annotations, rows: list[dict[str, str]]) -> None:
    for item, row in zip(real.segments, rows, strict=True):
        hours, minutes, rest = row["start_timestamp"].split(":")
        assert item.start_s == pytest.approx(3600 * int(hours) + 60 * int(minutes) + float(rest))
        assert (item.name, item.participant, item.video) == (
            row["narration_id"],
            row["participant_id"],
            row["video_id"],
        )
        assert (item.verb, item.start_frame, item.stop_frame) == tuple(
            int(row[name]) for name in ("verb_class", "start_frame", "stop_frame")
        )
        assert list(item.nouns) == ast.literal_eval(row["all_nouns"])
        assert list(item.noun_classes) == ast.literal_eval(row["all_noun_classes"])
        # Frames are images extracted at 60 a second, also where the video itself has 30, 48 or 90.
        assert abs(item.start_frame - 60 * item.start_s) <= 1 + 1e-6
    assert len({real.videos[item.video].fps for item in real.segments}) == 4


def test_the_validation_file_has_no_segment_with_inertial_signals(real: epic.Annotations) -> None:
    assert not any(item.extension for item in real.segments)
    assert len({item.participant for item in real.segments}) == 32
    assert len({item.verb for item in real.segments}) == 78


def test_sixteen_participants_return(real: epic.Annotations) -> None:
    numbers = (1, 2, 3, 4, 6, 7, 9, 11, 12, 22, 23, 25, 26, 27, 28, 30)
    assert epic.returning(real.participants) == tuple(f"P{number:02d}" for number in numbers)
    assert Counter(person.kitchen for person in real.participants)["new"] == 5


def test_real_verb_lists_are_read_as_python_reads_them() -> None:
    path = recordings("epic_kitchens_100_annotations") / "EPIC_100_verb_classes.csv"
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            assert list(epic.python_list(row["instances"])) == ast.literal_eval(row["instances"])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"start_timestamp": "00:01:02.50"}, "starts at 62.5 s and stops at 62.5 s"),
        ({"start_timestamp": "1 s"}, "time '1 s' is not HH:MM:SS.xx"),
        ({"start_timestamp": "00:61:00.00"}, "is not HH:MM:SS.xx"),
        ({"start_frame": "0"}, "frame '0' is not a whole number from 1"),
        ({"stop_frame": "49"}, "frame '49' is not a whole number from 50"),
        ({"verb_class": "97"}, "verb '97' is not a whole number from 0 to 96"),
        ({"verb_class": "-1"}, "verb '-1'"),
        ({"all_nouns": "__import__('os').system('true')"}, "is not a list of strings"),
        ({"all_nouns": "['a' 'b']"}, "from character 1 on"),
        ({"all_nouns": "[" + "'a'," * 2000 + "]"}, "at most 4096 characters"),
        ({"all_noun_classes": "[2, 3]"}, "1 nouns and 2 noun classes"),
        ({"all_noun_classes": "[300]"}, "noun classes below 300"),
        ({"participant_id": "P02"}, "do not belong together"),
        ({"narration_id": "P01_102_0"}, "do not belong together"),
        ({"video_id": "../P01_101"}, "do not belong together"),
    ],
)
def test_a_bad_row_is_reported_with_its_line(tmp_path: Path, change: dict[str, str], why: str) -> None:
    read = epic.read_segments(write_rows(tmp_path / "s.csv", {}, {"narration_id": "P01_101_1", **change}))
    assert len(read) == 1
    assert read[0] == epic.Segment(
        *("P01_101_0", "P01", "P01_101", 1.0, 62.5, 50, 3125, "take plate", 0), nouns=("plate",), noun_classes=(2,)
    )
    assert read[0].extension
    (issue,) = read.issues
    assert issue.where == "s.csv, line 3" and why in issue.detail


def test_rows_of_other_lengths_and_repeated_ones_are_reported(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "s.csv", {}, {}, {"narration_id": "P01_101_1", "narration": "two\nlines"})
    path.write_text(path.read_text() + "a,b\n")
    read = epic.read_segments(path)
    assert [item.name for item in read] == ["P01_101_0", "P01_101_1"]
    assert [(issue.kind, issue.where) for issue in read.issues] == [
        ("unreadable", "s.csv, line 6"),
        ("duplicate", "P01_101_0"),
    ]


def test_segments_are_held_to_their_videos(tmp_path: Path) -> None:
    path = write_rows(
        tmp_path / "s.csv",
        {},
        {"narration_id": "P01_102_0", "video_id": "P01_102"},
        {"narration_id": "P01_101_1", "start_timestamp": "00:00:40.00"},
        {"narration_id": "P01_101_2", "stop_timestamp": "00:00:30.00"},
    )
    read = epic.read_segments(path, videos={"P01_101": epic.Video("P01_101", 40.0, 50.0, 1920, 1080)})
    assert [(item.name, item.stop_s) for item in read] == [("P01_101_0", 40.0), ("P01_101_2", 30.0)]
    assert {issue.where: issue.kind for issue in read.issues} == {
        "P01_101_0": "label",
        "P01_102_0": "unreadable",
        "P01_101_1": "unreadable",
    }


def test_a_file_without_labels_is_refused_in_words(tmp_path: Path) -> None:
    test_columns = tuple(name for name in COLUMNS if name != "verb_class")
    with pytest.raises(ValueError, match=r"verb_class is not so\. Test segments have no public labels"):
        epic.read_segments(write_rows(tmp_path / "s.csv", {}, columns=test_columns))


@pytest.mark.parametrize("content", [b"\x80\x04\x95pickle", b'a,b\n"open', b"a\0,b\n"])
def test_what_is_no_csv_is_refused_in_words(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"not a CSV file in UTF-8|must have each of the columns"):
        epic.read_segments(tmp_path / "s.csv")


def test_a_quote_that_never_closes_does_not_swallow_the_rest(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "s.csv", {}, {"narration_id": "P01_101_1"})
    path.write_text(path.read_text().replace("P01_101_1,", '"P01_101_1,'))
    with pytest.raises(ValueError, match="not a CSV file in UTF-8, from line 3 on"):
        epic.read_segments(path)


def test_other_tables_report_their_faults(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "video_id,duration,fps,resolution\nP01_01,10.5,50.0,1920x1080\nP01_01,9,50,1x1\nP01_02,nan,50,1x1\nP01_03,0,50,1x1\n"
    )
    videos = epic.read_videos(path)
    assert list(videos) == [epic.Video("P01_01", 10.5, 50.0, 1920, 1080)]
    assert sorted(issue.kind for issue in videos.issues) == ["duplicate", "unreadable", "unreadable"]
    path.write_text("Participant,ReturningKitchen,ChangingKitchen,NewParticipant\nP01,1,0,0\nP02,1,1,0\nX,0,0,1\n")
    people = epic.read_participants(path)
    assert list(people) == [epic.Participant("P01", "same kitchen")] and len(people.issues) == 2
    path.write_text("id,key,instances,category\n" + "".join(f"{i},v{i},['a'],c\n" for i in range(97) if i != 5))
    with pytest.raises(ValueError, match=r"97 different verbs.*it has 96"):
        epic.read_verbs(path)


def test_a_folder_without_the_files_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "EPIC_100_verb_classes.csv").touch()
    with pytest.raises(ValueError, match=r"EPIC_100_train\.csv or EPIC_100_validation\.csv.*it holds EPIC_100_verb"):
        epic.read(tmp_path)
