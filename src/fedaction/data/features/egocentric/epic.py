"""EPIC-KITCHENS-100: the annotations (Damen et al., IJCV 2022), as the CSV files of its public repository give them.

A segment is a piece of a video with a verb of 97. Times are seconds from the video's start. Frames count from 1 the
images that the dataset's authors extracted: 60 a second in the videos of 2018, whatever the video's own rate is. A
video's number has three digits where it belongs to the extension of 2020, the part that comes with the camera's
accelerometer and gyroscope.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from fedaction.data.dataset import Issue
from fedaction.data.features.egocentric.tables import Rows, parse_rows, seconds, whole
from fedaction.data.public.base import files_below

VERBS = 97
NOUNS = 300
_VIDEO = re.compile(r"(?P<participant>P\d{2})_(?P<number>\d{2,3})")
_SEGMENT_FILES = ("EPIC_100_train.csv", "EPIC_100_validation.csv")
_VERB_FILE, _VIDEO_FILE = "EPIC_100_verb_classes.csv", "EPIC_100_video_info.csv"
_PARTICIPANT_FILE = "Extension_Participants.csv"
_MOST_LIST = 4096
_MOST_FRAME = 10**7
_ITEM = re.compile(r"""\s*(?:'(?P<single>[^'\\]*)'|"(?P<double>[^"\\]*)"|(?P<number>\d{1,9}))\s*(?P<end>,|\Z)""")

Kitchen = Literal["same kitchen", "changed kitchen", "new"]


@dataclass(frozen=True)
class Segment:
    """One narrated action."""

    name: str  # the dataset's narration_id, unique, e.g. "P01_11_0"
    participant: str  # e.g. "P01"
    video: str  # e.g. "P01_11"
    start_s: float  # seconds from the video's start
    stop_s: float  # end, after the start
    start_frame: int  # first extracted image, counted from 1
    stop_frame: int  # last one
    narration: str  # what was said
    verb: int  # index into the verb classes
    nouns: tuple[str, ...]  # objects named, in the order of the narration
    noun_classes: tuple[int, ...]  # their classes

    @property
    def extension(self) -> bool:
        """Whether its video belongs to the extension of 2020 and so has inertial signals."""
        return is_extension(self.video)


@dataclass(frozen=True)
class Video:
    """One video: seconds, its own frames a second, pixels."""

    name: str
    duration_s: float
    fps: float
    width: int
    height: int


@dataclass(frozen=True)
class Participant:
    """One participant of the extension of 2020. All but the new ones had filmed in 2018."""

    name: str
    kitchen: Kitchen

    @property
    def returning(self) -> bool:
        """Whether the participant had filmed before: 16 of the 21."""
        return self.kitchen != "new"


@dataclass(frozen=True)
class Annotations:
    """Everything the annotation files say."""

    segments: Rows[Segment]  # of all files, with everything that was wrong in any file
    verbs: tuple[str, ...] = field(repr=False)  # 97 class names, by id
    videos: Mapping[str, Video] = field(repr=False)  # by name
    participants: tuple[Participant, ...] = field(repr=False)  # of the extension


def is_extension(video: str) -> bool:
    """Whether a video belongs to the extension of 2020: its number has three digits."""
    return len(video.partition("_")[2]) == 3


def read(root: str | Path) -> Annotations:
    """Reads the annotation files in a folder or below it, by their public names.

    Without the file of videos, segments are not held to the videos' durations.
    """
    root = Path(root)
    files: dict[str, Path] = {}
    for path in files_below(root):
        if path.name in (*_SEGMENT_FILES, _VERB_FILE, _VIDEO_FILE, _PARTICIPANT_FILE):
            if path.name in files:
                raise ValueError(f"{root} holds {path.name} twice: {files[path.name]} and {path}; keep one of them")
            files[path.name] = path
    tables = [files[name] for name in _SEGMENT_FILES if name in files]
    if not tables or _VERB_FILE not in files:
        raise ValueError(
            f"{root} must hold {_VERB_FILE} and {' or '.join(_SEGMENT_FILES)}, as in the repository "
            f"epic-kitchens-100-annotations; it holds {', '.join(files) or 'none of its files'}"
        )
    videos = read_videos(files[_VIDEO_FILE]) if _VIDEO_FILE in files else Rows[Video]()
    people = read_participants(files[_PARTICIPANT_FILE]) if _PARTICIPANT_FILE in files else Rows[Participant]()
    by_name = {video.name: video for video in videos}
    pieces = [read_segments(path, videos=by_name if _VIDEO_FILE in files else None) for path in tables]
    joined = Rows((item for rows in pieces for item in rows), (i for rows in pieces for i in rows.issues))
    segments = _once(joined, "several files")
    issues = (*videos.issues, *people.issues, *segments.issues)
    return Annotations(Rows(segments, issues), read_verbs(files[_VERB_FILE]), by_name, people)


def read_segments(path: str | Path, *, videos: Mapping[str, Video] | None = None) -> Rows[Segment]:
    """Reads EPIC_100_train.csv or EPIC_100_validation.csv.

    A row that does not hold together is left out and reported with its line. Where the videos are given, so is one of
    an unknown video or past its end; a segment that only ends past it is cut there.
    """
    columns = (
        *("narration_id", "participant_id", "video_id", "start_timestamp", "stop_timestamp", "start_frame"),
        *("stop_frame", "narration", "verb_class", "all_nouns", "all_noun_classes"),
    )
    hint = "Test segments have no public labels: use the training or the validation file"
    rows = _once(parse_rows(path, columns, _segment, hint), Path(path).name)
    if videos is None:
        return rows
    items: list[Segment] = []
    issues = list(rows.issues)
    for item in rows:
        video = videos.get(item.video)
        if video is None:
            issues.append(Issue(kind="unreadable", where=item.name, detail=f"unknown video {item.video}"))
        elif item.start_s >= video.duration_s:
            fault = f"starts at {item.start_s} s; its video has {video.duration_s:.3f} s"
            issues.append(Issue(kind="unreadable", where=item.name, detail=fault))
        elif item.stop_s > video.duration_s:
            fault = f"ends at {item.stop_s} s; cut at its video's end, {video.duration_s:.3f} s"
            issues.append(Issue(kind="label", where=item.name, detail=fault))
            items.append(replace(item, stop_s=video.duration_s))
        else:
            items.append(item)
    return Rows(items, issues)


def read_verbs(path: str | Path) -> tuple[str, ...]:
    """Reads EPIC_100_verb_classes.csv: 97 class names by id. A list with holes or faults is refused whole."""

    def verb(row: Mapping[str, str]) -> tuple[int, str]:
        instances = python_list(row["instances"])
        if not row["key"] or not instances or not all(isinstance(name, str) for name in instances):
            raise ValueError(f"verb {row['id'][:20]!r} must have a key and a list of names")
        return whole(row["id"], "verb", 0, VERBS - 1), row["key"]

    rows = parse_rows(path, ("id", "key", "instances", "category"), verb)
    if rows.issues:
        raise ValueError(f"{path}: {rows.issues[0].where}: {rows.issues[0].detail}")
    names = dict(rows)
    if len(rows) != VERBS or sorted(names) != list(range(VERBS)) or len(set(names.values())) != VERBS:
        raise ValueError(
            f"{path} must name {VERBS} different verbs, with the ids 0 to {VERBS - 1}; it has {len(rows)}"
        )
    return tuple(names[number] for number in range(VERBS))


def read_videos(path: str | Path) -> Rows[Video]:
    """Reads EPIC_100_video_info.csv. A row that does not hold together is left out and reported."""

    def video(row: Mapping[str, str]) -> Video:
        size = re.fullmatch(r"(\d{1,5})x(\d{1,5})", row["resolution"])
        numbers = [re.fullmatch(r"\d{1,6}(?:\.\d{1,20})?", row[name]) for name in ("duration", "fps")]
        if not _VIDEO.fullmatch(row["video_id"]) or not size or not all(numbers):
            raise ValueError(f"{', '.join(row.values())[:80]!r} is not a video, its seconds, rate and resolution")
        duration, fps = float(row["duration"]), float(row["fps"])
        if not duration > 0 or not fps > 0:
            raise ValueError(f"{row['video_id']} has {duration} s at {fps} frames a second")
        return Video(row["video_id"], duration, fps, int(size[1]), int(size[2]))

    return _once(parse_rows(path, ("video_id", "duration", "fps", "resolution"), video), Path(path).name)


def read_participants(path: str | Path) -> Rows[Participant]:
    """Reads Extension_Participants.csv, whose three columns of 0 and 1 say who came back to which kitchen."""
    kinds: dict[str, Kitchen] = {
        "ReturningKitchen": "same kitchen",
        "ChangingKitchen": "changed kitchen",
        "NewParticipant": "new",
    }

    def participant(row: Mapping[str, str]) -> Participant:
        flags = [row[column] for column in kinds]
        if not re.fullmatch(r"P\d{2}", row["Participant"]) or sorted(flags) != ["0", "0", "1"]:
            raise ValueError(f"{', '.join(row.values())[:80]!r} is not a participant and one 1 among three flags")
        return Participant(row["Participant"], list(kinds.values())[flags.index("1")])

    return _once(parse_rows(path, ("Participant", *kinds), participant), Path(path).name)


def python_list(text: str) -> tuple[str | int, ...]:
    """A Python list of plain strings or whole numbers, such as "['plate', 'cup']". Nothing is evaluated."""
    inside = text.strip()
    if len(inside) > _MOST_LIST or inside[:1] != "[" or inside[-1:] != "]" or len(inside) < 2:
        raise ValueError(
            f"{text[:40]!r} is not a list of strings or whole numbers of at most {_MOST_LIST} characters"
        )
    inside = inside[1:-1].rstrip()
    items: list[str | int] = []
    at = 0
    while at < len(inside):
        match = _ITEM.match(inside, at)
        if not match:
            raise ValueError(f"{text[:40]!r} is not a list of strings or whole numbers, from character {at + 1} on")
        items.append(int(match["number"]) if match["number"] else str(match["single"] or match["double"] or ""))
        at = match.end()
    return tuple(items)


def _segment(row: Mapping[str, str]) -> Segment:
    name, video = row["narration_id"], row["video_id"]
    match = _VIDEO.fullmatch(video)
    if not match or match["participant"] != row["participant_id"] or not re.fullmatch(rf"{video}_\d{{1,6}}", name):
        raise ValueError(
            f"narration {name[:20]!r}, video {video[:20]!r} and participant {row['participant_id'][:20]!r} do not "
            "belong together"
        )
    start, stop = seconds(row["start_timestamp"]), seconds(row["stop_timestamp"])
    if not start < stop:
        raise ValueError(f"{name} starts at {start} s and stops at {stop} s")
    first = whole(row["start_frame"], "frame", 1, _MOST_FRAME)
    last = whole(row["stop_frame"], "frame", first, _MOST_FRAME)
    nouns, classes = python_list(row["all_nouns"]), python_list(row["all_noun_classes"])
    known = [number for number in classes if isinstance(number, int) and number < NOUNS]
    named = [noun for noun in nouns if isinstance(noun, str)]
    if len(nouns) != len(classes) or len(known) != len(classes) or len(named) != len(nouns):
        raise ValueError(f"{name} has {len(nouns)} nouns and {len(classes)} noun classes below {NOUNS}")
    verb = whole(row["verb_class"], "verb", 0, VERBS - 1)
    parts = (name, match["participant"], video, start, stop, first, last, row["narration"], verb)
    return Segment(*parts, nouns=tuple(named), noun_classes=tuple(known))


def _once(rows: Rows, where: str) -> Rows:
    """Rows without those whose name was there before, which are reported."""
    seen: set[str] = set()
    items: list[object] = []
    issues = list(rows.issues)
    for item in rows:
        if item.name in seen:
            issues.append(
                Issue(kind="duplicate", where=item.name, detail=f"a second time in {where}; the first is kept")
            )
        else:
            seen.add(item.name)
            items.append(item)
    return Rows(items, issues)


def returning(participants: Sequence[Participant]) -> tuple[str, ...]:
    """Names of those who filmed both in 2018 and in 2020, in order."""
    return tuple(sorted(participant.name for participant in participants if participant.returning))
