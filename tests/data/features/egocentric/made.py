"""Segments and CSV files for the egocentric tests."""

from __future__ import annotations

import csv
from pathlib import Path

from fedaction.data.features.egocentric.epic import Segment

COLUMNS = (
    *("narration_id", "participant_id", "video_id", "narration_timestamp", "start_timestamp", "stop_timestamp"),
    *("start_frame", "stop_frame", "narration", "verb", "verb_class", "noun", "noun_class", "all_nouns"),
    "all_noun_classes",
)
ROW = (
    *("P01_101_0", "P01", "P01_101", "", "00:00:01.00", "00:01:02.50", "50", "3125", "take plate", "take", "0"),
    *("plate", "2", "['plate']", "[2]"),
)


def write_rows(path: Path, *changes: dict[str, str], columns: tuple[str, ...] = COLUMNS) -> Path:
    """A segments file: the row above with some columns changed, once for each mapping."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        for change in changes:
            writer.writerow({**dict(zip(COLUMNS, ROW, strict=True)), **change})
    return path


def segment(video: str = "P01_101", number: int = 0, start: float = 1.0, stop: float = 3.0, verb: int = 0) -> Segment:
    """A segment that says where it is and little else."""
    name = f"{video}_{number}"
    return Segment(name, video[:3], video, start, stop, 1, 2, "take plate", verb, ("plate",), (2,))
