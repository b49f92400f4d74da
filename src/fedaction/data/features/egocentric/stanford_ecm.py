"""Stanford-ECM: 31 hours of egocentric video with acceleration and heart rate (Nakamura et al., CVPR 2017).

No file of it could be looked at when this was written; its layout is read by rule. For each video there is a CSV of
acceleration, one of heart rate and one of labels. Which is which stands in the file's name, or else in its folder's:
`<video>_acc.csv`, `<video>/acceleration.csv` and `acc/<video>.csv` are all understood, with acc, accel, acceleration
or accelerometer; hr, heart, heartrate; label, labels, activity, activities, annotation, annotations.

Acceleration: a time column and x, y, z. Heart rate: a time column and hr, heart rate or bpm. Labels: columns that
begin with start, with stop or end, and with label or activity. Times are seconds of one clock, the video's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedaction.data.dataset import Issue
from fedaction.data.features.egocentric.tables import (
    AXES,
    Floats,
    Rows,
    Signals,
    parse_rows,
    read_series,
    seconds,
    text_rows,
)
from fedaction.data.public.base import files_below
from fedaction.federation.outside import shorten

BACKGROUND = "background"
_KINDS = {
    **dict.fromkeys(("acc", "accel", "acceleration", "accelerometer"), "acceleration"),
    **dict.fromkeys(("hr", "heart", "heartrate"), "heart"),
    **dict.fromkeys(("label", "labels", "activity", "activities", "annotation", "annotations"), "labels"),
}
_EXPECTED = "<video>_acc.csv, <video>_hr.csv and <video>_labels.csv, or the same in a folder per video or per signal"
_HEART_HOLE_S = 15.0  # a chest strap reports every second, a watch every few


@dataclass(frozen=True)
class VideoSignals:
    """The files of one video. Those that are not there are None."""

    name: str
    acceleration: Path | None = None
    heart: Path | None = None
    labels: Path | None = None


@dataclass(frozen=True)
class Activity:
    """A labelled piece of a video, in seconds."""

    label: str
    start_s: float
    stop_s: float


def find(root: str | Path) -> Rows[VideoSignals]:
    """The videos of a folder with acceleration and labels, by the names of CSV files; and what is left out."""
    root = Path(root)
    files: dict[str, dict[str, Path]] = {}
    issues: list[Issue] = []
    for path in files_below(root):
        if path.suffix.lower() != ".csv":
            continue
        name, kind = _name(path.relative_to(root))
        if not kind:
            fault = "neither its name nor its folder's says which signal it is"
            issues.append(Issue(kind="unreadable", where=path.name, detail=fault))
        else:
            if kind in files.setdefault(name, {}):
                raise ValueError(f"{root} holds the {kind} of {name} twice: {files[name][kind]} and {path}; keep one")
            files[name][kind] = path
    kept: list[VideoSignals] = []
    for name, parts in sorted(files.items()):
        missing = [kind for kind in ("acceleration", "labels") if kind not in parts]
        if missing:
            issues.append(Issue(kind="unreadable", where=name, detail=f"there is no file of its {missing[0]}"))
        else:
            kept.append(VideoSignals(name, **parts))
    if not kept:
        raise ValueError(f"{root} holds no video with acceleration and labels: expected {_EXPECTED}")
    return Rows(kept, issues)


def read_labels(path: Path) -> Rows[Activity]:
    """The labelled pieces of one video. A row that does not hold together is left out and reported."""
    header = next(text_rows(path), (1, []))[1]
    columns: list[str] = []
    for rule in ("start", "stop|end", "label|activity"):
        fitting = [name for name in header if re.match(rule, name.strip().lower())]
        if len(fitting) != 1:
            raise ValueError(
                f"{path} must have one column each that begins with start, with stop or end, and with label or "
                f"activity; it has {shorten(', '.join(header[:20])) or 'no header'}"
            )
        columns += fitting
    start, stop, label = columns

    def activity(row: Mapping[str, str]) -> Activity:
        piece = Activity(" ".join(row[label].lower().split()), seconds(row[start]), seconds(row[stop]))
        if not piece.label or not piece.start_s < piece.stop_s:
            raise ValueError(f"{row[label][:40]!r} from {piece.start_s} to {piece.stop_s} s is no labelled piece")
        return piece

    return parse_rows(path, columns, activity)


def name_piece(video: str, piece: Activity) -> str:
    """What a piece of a video is called: "v1:0-20.5"."""
    return f"{video}:{piece.start_s:g}-{piece.stop_s:g}"


def read(recording: VideoSignals, rate_hz: float = 30.0, heart: bool = True) -> Rows[tuple[Activity, Floats]]:
    """The labelled pieces of one video with their signals; arguments as for `read_all`."""
    if recording.acceleration is None or recording.labels is None:
        raise ValueError(f"{recording.name} lacks its acceleration or its labels: expected {_EXPECTED}")
    if heart and recording.heart is None:
        raise ValueError(f"{recording.name} has no heart rate: ask for the acceleration only, with heart=False")
    activities = read_labels(recording.labels)
    acceleration = read_series(recording.acceleration, AXES)
    rate = (
        read_series(recording.heart, {"heart rate": "hr|heart|heartrate|bpm"}) if heart and recording.heart else None
    )
    pieces: list[tuple[Activity, Floats]] = []
    issues = list(activities.issues)
    for piece in activities:
        if piece.label == BACKGROUND:
            continue
        try:
            signal = acceleration.cut(piece.start_s, piece.stop_s, rate_hz)
            if rate is not None:
                signal = np.hstack([signal, rate.cut(piece.start_s, piece.stop_s, rate_hz, _HEART_HOLE_S)])
            pieces.append((piece, signal))
        except ValueError as error:
            where = name_piece(recording.name, piece)
            issues.append(Issue(kind="unreadable", where=where, detail=str(error)))
    return Rows(pieces, issues)


def read_all(root: str | Path, rate_hz: float = 30.0, heart: bool = True) -> Signals:
    """One signal for each labelled piece of all videos, without the background, at `rate_hz` samples a second.

    Linear between the files' samples. With `heart`, the heart rate is a fourth channel, and a video without one
    left out.
    """
    recordings = find(root)
    kept: list[tuple[str, Activity, Floats]] = []
    issues = list(recordings.issues)
    for recording in recordings:
        try:
            rows = read(recording, rate_hz, heart)
        except (ValueError, OSError) as error:
            issues.append(Issue(kind="unreadable", where=recording.name, detail=str(error)))
            continue
        issues += rows.issues
        kept += [(name_piece(recording.name, piece), piece, signal) for piece, signal in rows]
    classes = tuple(sorted({piece.label for _, piece, _ in kept}))
    return Signals(
        modality="inertial",
        arrays=tuple(signal for _, _, signal in kept),
        channels=("acceleration_x", "acceleration_y", "acceleration_z", *(("heart_rate",) if heart else ())),
        rate_hz=rate_hz,
        labels=np.array([classes.index(piece.label) for _, piece, _ in kept], dtype=np.int64),
        classes=classes,
        names=tuple(name for name, _, _ in kept),
        issues=tuple(issues),
    )


def _name(path: Path) -> tuple[str, str]:
    """The video and the kind of a file, from its name and its folder's; kind "" where neither says."""
    words = [word for word in re.split(r"[_\-. ]+", path.stem) if word]
    kinds = {_KINDS[word.lower()] for word in words if word.lower() in _KINDS}
    if len(kinds) == 1:
        rest = "_".join(word for word in words if word.lower() not in {*_KINDS, "rate"})
        return rest or path.parent.name or "recording", kinds.pop()
    folder = _KINDS.get(path.parent.name.lower().replace("_", "").replace("-", ""), "")
    return path.stem, "" if kinds else folder
