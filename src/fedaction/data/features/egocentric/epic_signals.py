"""What belongs to a segment of EPIC-KITCHENS-100: inertial signals, sound.

Each reader has `read(segment)`, whose ValueError says why there is nothing; `gather` does so for many segments and
reports what it left out. Features made elsewhere are read by `given.read_features`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedaction.data.features.egocentric.epic import Segment
from fedaction.data.features.egocentric.tables import AXES, Floats, Series, Signals, read_each, read_series
from fedaction.data.features.recordings import read_wave
from fedaction.data.features.store import Modality
from fedaction.data.public.files import find_named


class Inertial:
    """The camera's accelerometer and gyroscope: `<video>-accl.csv` and `<video>-gyro.csv`, at any depth.

    The dataset keeps them in `<participant>/meta_data/`. Columns, as public loaders of these files name them:
    Milliseconds, AcclX, AcclY, AcclZ, and likewise GyroX to GyroZ. Both are brought to one rate.
    """

    modality: Modality = "inertial"
    channels = ("accl_x", "accl_y", "accl_z", "gyro_x", "gyro_y", "gyro_z")

    def __init__(self, root: str | Path, rate_hz: float = 100.0) -> None:
        """Lists the files below `root`; signals are given at `rate_hz`, linear between the file's samples."""
        if not 0 < rate_hz <= 10000:
            raise ValueError(f"a rate lies between 0 and 10000 Hz, got {rate_hz}")
        pattern = re.compile(r"(?P<name>P\d{2}_\d{3}-(?:accl|gyro)\.csv)")
        self._files = find_named(Path(root), pattern, "P01/meta_data/P01_101-accl.csv and -gyro.csv, ...")
        self._last: dict[str, Series] = {}
        self.files = tuple(path for path, _ in self._files.values())
        self.root, self.rate_hz = Path(root), rate_hz

    def read(self, segment: Segment) -> Floats:
        """(samples, 6) float32: accelerometer and gyroscope, each x y z in the camera's axes and the file's units."""
        if not segment.extension:
            raise ValueError(f"video {segment.video} is of 2018 and has no inertial signals: those came in 2020")
        names = [f"{segment.video}-{kind}.csv" for kind in ("accl", "gyro")]
        for name in names:
            if name not in self._files:
                raise ValueError(f"{self.root} holds no {name}")
        if any(name not in self._last for name in names):  # one video at a time: together they may exceed memory
            self._last = {name: read_series(self._files[name][0], AXES) for name in names}
        parts = [self._last[name].cut(segment.start_s, segment.stop_s, self.rate_hz) for name in names]
        return np.concatenate(parts, axis=1)


class Audio:
    """A `<video>.wav` for each video, at any depth: uncompressed, channels averaged, all at one rate."""

    modality: Modality = "audio"
    channels = ("mono",)

    def __init__(self, root: str | Path, rate_hz: float = 16000.0) -> None:
        """Lists the files below `root`, which must have `rate_hz` samples a second."""
        pattern = re.compile(r"(?P<name>P\d{2}_\d{2,3}\.wav)")
        self._files = find_named(Path(root), pattern, "P01_01.wav, ..., the sound of each video")
        self.files = tuple(path for path, _ in self._files.values())
        self.root, self.rate_hz = Path(root), rate_hz

    def read(self, segment: Segment) -> Floats:
        """(samples,) float32 in [-1, 1]."""
        name = f"{segment.video}.wav"
        if name not in self._files:
            raise ValueError(f"{self.root} holds no {name}")
        sound = read_wave(self._files[name][0], (segment.start_s, segment.stop_s))
        if sound.rate_hz != self.rate_hz:
            raise ValueError(
                f"{name} has {sound.rate_hz:g} Hz; expected {self.rate_hz:g}: convert it, e.g. ffmpeg -i VIDEO -ac 1 "
                f"-ar {self.rate_hz:g} -c:a pcm_s16le {name}"
            )
        return sound.array


def gather(reader: Inertial | Audio, segments: Sequence[Segment], classes: Sequence[str]) -> Signals:
    """Signals of many segments in memory; segments without one are reported and left out."""
    kept, arrays, issues = read_each(segments, reader.read)
    return Signals(
        modality=reader.modality,
        arrays=tuple(arrays),
        channels=reader.channels,
        rate_hz=reader.rate_hz,
        labels=np.array([segment.verb for segment in kept], dtype=np.int64),
        classes=tuple(classes),
        names=tuple(segment.name for segment in kept),
        subjects=tuple(segment.participant for segment in kept),
        issues=tuple(issues),
    )
