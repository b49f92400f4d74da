"""Segments and CSV files for the egocentric tests."""

from __future__ import annotations

import csv
import wave
from pathlib import Path

import numpy as np

from fedaction.data.features.egocentric.epic import Segment
from fedaction.data.features.egocentric.given import Piece

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


def pieces(segments: list[Segment]) -> list[Piece]:
    """What features made elsewhere are looked for by."""
    return [Piece(item.name, item.video, item.verb, item.participant) for item in segments]


def write_inertial(root: Path, video: str, seconds: float = 10.0, **changes: str) -> None:
    """Accelerometer at 200 Hz and gyroscope at 400 Hz, straight lines whose slope and start tell the axis."""
    folder = root / video[:3] / "meta_data"
    folder.mkdir(parents=True, exist_ok=True)
    for kind, name, rate, sign in (("accl", "Accl", 200, 1), ("gyro", "Gyro", 400, -1)):
        times = np.arange(0, seconds, 1 / rate)
        rows = [f"{1000 * t!r},{sign * t!r},{sign * (t + 10)!r},{sign * (t + 20)!r}" for t in times.tolist()]
        header = changes.get(kind, f"Milliseconds,{name}X,{name}Y,{name}Z")
        (folder / f"{video}-{kind}.csv").write_text("\n".join([header, *rows]) + "\n")


def write_sound(path: Path, values: np.ndarray, rate: int = 16000, width: int = 2) -> None:
    """Sound (samples, channels), in integers of a width of so many bytes."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(values.shape[1])
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(values.tobytes())
