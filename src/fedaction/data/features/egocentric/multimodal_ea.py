"""Multimodal Egocentric Activity: 20 activities, 10 clips of 15 s each (Song et al., CVPR Workshops 2016).

Clips are called act<activity>seq<clip>, both of two digits from 01: sensor/act01seq01.csv, video/act01seq01.mp4. A
sensor file has no header: 150 rows (10 a second) of 19 numbers, the phone's sensors in Android's axes and units. The
dataset does not say who is who. Videos are listed here; `collect` reads them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedaction.data.dataset import Issue
from fedaction.data.features.egocentric.tables import Floats, Rows, Signals, read_each
from fedaction.data.files import check_finite, to_float32
from fedaction.data.public.base import files_below
from fedaction.data.text import parse_number
from fedaction.federation.outside import check_size

CLASSES = (
    *("walking", "walking upstairs", "walking downstairs", "riding elevator up", "riding elevator down"),
    *("riding escalator up", "riding escalator down", "sitting", "eating", "drinking", "texting"),
    *("making phone calls", "working at PC", "reading", "writing sentences", "organizing files", "running"),
    *("doing push-ups", "doing sit-ups", "cycling"),
)
CLIPS = 10
RATE_HZ = 10.0
SAMPLES = 150
CHANNELS = (
    *("acceleration_x", "acceleration_y", "acceleration_z", "gravity_x", "gravity_y", "gravity_z"),
    *("gyroscope_x", "gyroscope_y", "gyroscope_z", "linear_x", "linear_y", "linear_z"),
    *("magnetic_x", "magnetic_y", "magnetic_z", "rotation_x", "rotation_y", "rotation_z", "rotation_scalar"),
)
_CLIP = re.compile(r"(?P<name>act(?P<activity>\d{2})seq(?P<clip>\d{2}))\.(?P<kind>csv|txt|mp4|avi|mov)")
_MOST_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Clip:
    """One clip of an activity. A file that is not there is None."""

    name: str
    label: int
    sensor: Path | None = None
    video: Path | None = None


def find(root: str | Path) -> Rows[Clip]:
    """The clips of a folder, files called act<activity>seq<clip> at any depth; and what of the 200 is missing."""
    root = Path(root)
    files: dict[tuple[str, str], Path] = {}
    issues: list[Issue] = []
    for path in files_below(root):
        match = _CLIP.fullmatch(path.name.lower())
        if not match:
            continue
        name, kind = match["name"], "sensor" if match["kind"] in ("csv", "txt") else "video"
        if not 1 <= int(match["activity"]) <= len(CLASSES) or not 1 <= int(match["clip"]) <= CLIPS:
            issues.append(Issue(kind="unreadable", where=path.name, detail="not one of 20 activities and 10 clips"))
        elif (name, kind) in files:
            raise ValueError(f"{root} holds the {kind} of {name} twice: {files[name, kind]} and {path}; keep one")
        else:
            files[name, kind] = path
    if not files:
        raise ValueError(f"{root} holds none of the expected files: sensor/act01seq01.csv, video/act01seq01.mp4, ...")
    clips: list[Clip] = []
    for label in range(len(CLASSES)):
        for number in range(1, CLIPS + 1):
            name = f"act{label + 1:02d}seq{number:02d}"
            clip = Clip(name, label, files.get((name, "sensor")), files.get((name, "video")))
            if clip.sensor or clip.video:
                clips.append(clip)
            else:
                issues.append(Issue(kind="unreadable", where=name, detail="neither its sensor file nor its video"))
    return Rows(clips, issues)


def read(path: Path, samples: int | None = SAMPLES) -> Floats:
    """One sensor file, numbers separated by commas or blanks and no header, as (samples, 19) float32.

    It must have so many samples; None: any number from 2.
    """
    check_size(path, _MOST_BYTES)
    text = path.read_bytes().decode("latin-1").removeprefix("ï»¿")  # a byte-order mark
    lines = [re.split(r"\s*,\s*|\s+", line.strip().rstrip(",")) for line in text.splitlines() if line.strip()]
    if not lines or {len(line) for line in lines} != {len(CHANNELS)}:
        widths = sorted({len(line) for line in lines})
        raise ValueError(f"{path} has rows of {widths} numbers; expected {len(CHANNELS)}: {', '.join(CHANNELS)}")
    if len(lines) < 2 or (samples is not None and len(lines) != samples):
        raise ValueError(f"{path} has {len(lines)} rows; expected {samples or 'at least 2'}, {RATE_HZ:g} a second")
    try:
        values = to_float32(np.array([[parse_number(cell) for cell in line] for line in lines]))
    except ValueError as error:
        raise ValueError(f"{path} is not a table of numbers: {error}") from None
    check_finite(values, path)
    return values


def read_all(root: str | Path, samples: int | None = SAMPLES) -> Signals:
    """The sensor signals of all clips; clips without one are reported and left out."""
    clips = find(root)

    def read_sensor(clip: Clip) -> Floats:
        if clip.sensor is None:
            raise ValueError("it has a video, but no sensor file")
        return read(clip.sensor, samples)

    kept, arrays, issues = read_each(clips, read_sensor)
    return Signals(
        modality="inertial",
        arrays=tuple(arrays),
        channels=CHANNELS,
        rate_hz=RATE_HZ,
        labels=np.array([clip.label for clip in kept], dtype=np.int64),
        classes=CLASSES,
        names=tuple(clip.name for clip in kept),
        issues=(*clips.issues, *issues),
    )
