"""What the egocentric readers share: tables read row by row, time-stamped series, and labelled signals."""

from __future__ import annotations

import csv
import hashlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from fedaction.data.dataset import Issue
from fedaction.data.features.extract import Recording
from fedaction.data.features.recordings import Collection
from fedaction.data.features.store import Modality
from fedaction.data.text import read_csv
from fedaction.federation.outside import check_size, refuse_damage

T = TypeVar("T")
N = TypeVar("N", bound="Named")
Floats = npt.NDArray[np.float32]

KIND = "egocentric dataset"
"""What the provenance of features calls the kind of their source."""

_MOST_TABLE_BYTES = 64 * 2**20
_MOST_SERIES_BYTES = 512 * 2**20
_TIME = re.compile(r"(?:(?P<hours>\d{1,3}):)?(?P<minutes>\d{1,2}):(?P<seconds>\d{1,2}(?:\.\d{1,9})?)")
_SENSOR = "(?:a|acc|accl|accel|acceleration|accelerometer|g|gyr|gyro|gyroscope)?"
_TIMES = {"time", "times", "timestamp", "t", "s", "sec", "seconds", "timesec", "timeseconds"}
_MILLISECONDS = {"milliseconds", "ms", "timems", "timestampms", "timemilliseconds"}
_PACKET_S = 1.0  # cameras write their sensors in packets of about a second, whose clocks may overlap


class Rows(tuple[T, ...]):
    """The usable rows of a table, and the `issues` of the others."""

    issues: tuple[Issue, ...]

    def __new__(cls, items: Iterable[T] = (), issues: Iterable[Issue] = ()) -> Rows[T]:
        """Takes both in order."""
        rows = super().__new__(cls, items)
        rows.issues = tuple(issues)
        return rows


@dataclass(frozen=True)
class Signals:
    """Labelled signals of one modality."""

    modality: Modality  # "inertial" or "audio", as `fedaction.data.features` calls them
    arrays: tuple[Floats, ...] = field(repr=False)  # N arrays float32, finite: (T_i, C), of audio (S_i,) in [-1, 1]
    channels: tuple[str, ...]  # C names
    rate_hz: float  # samples a second
    labels: npt.NDArray[np.int64] = field(repr=False)  # (N,) int64, indices into classes
    classes: tuple[str, ...] = field(repr=False)  # activity names
    names: tuple[str, ...] = field(repr=False)  # what each signal is of, unique
    # Who is heard or measured; empty where the dataset does not say
    subjects: tuple[str, ...] = field(default=(), repr=False)
    issues: tuple[Issue, ...] = field(default=(), repr=False)  # what was left out, and why

    def __len__(self) -> int:
        return len(self.arrays)

    def collection(self, dataset: str) -> Collection:
        """The signals as what features are taken of, with a fingerprint of their values and names."""
        digest = hashlib.sha256("\n".join(self.names).encode())
        for array in self.arrays:
            digest.update(np.ascontiguousarray(array).tobytes())
        source = {"kind": KIND, "name": dataset, "fingerprint": digest.hexdigest()}
        return Collection(
            modality=self.modality,
            names=self.names,
            labels=tuple(self.classes[label] for label in self.labels),
            subjects=self.subjects,
            classes=self.classes,
            read=lambda i: Recording(self.arrays[i], self.rate_hz),
            source=source,
        )


class Named(Protocol):
    """What issues can name."""

    @property
    def name(self) -> str:
        """See the class."""
        ...


def read_each(items: Iterable[N], read: Callable[[N], Floats]) -> tuple[list[N], list[Floats], list[Issue]]:
    """Items that can be read, what was read of them, and an issue for each of the others."""
    kept: list[N] = []
    arrays: list[Floats] = []
    issues: list[Issue] = []
    for item in items:
        try:
            arrays.append(read(item))
            kept.append(item)
        except (ValueError, OSError) as error:
            issues.append(Issue(kind="unreadable", where=item.name, detail=str(error)))
    return kept, arrays, issues


def seconds(text: str) -> float:
    """Seconds of "HH:MM:SS.xx", "MM:SS.xx" or a plain number of seconds."""
    match = _TIME.fullmatch(text.strip())
    if match:
        minutes, rest = int(match["minutes"]), float(match["seconds"])
        if minutes < 60 and rest < 60:
            return int(match["hours"] or 0) * 3600 + minutes * 60 + rest
    elif re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", text.strip()):
        return float(text)
    raise ValueError(f"time {text[:40]!r} is not HH:MM:SS.xx")


def whole(text: str, what: str, least: int, most: int) -> int:
    """A whole number within bounds, both included."""
    if not re.fullmatch(r"\d{1,9}", text) or not least <= int(text) <= most:
        raise ValueError(f"{what} {text[:40]!r} is not a whole number from {least} to {most}")
    return int(text)


def text_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file, each with the number of its first line. The first row is the header."""
    return read_csv(path, _MOST_TABLE_BYTES)


def parse_rows(
    path: str | Path, columns: Sequence[str], parse: Callable[[Mapping[str, str]], T], hint: str = ""
) -> Rows[T]:
    """Reads a CSV table whose header must have `columns`, and may have others.

    A row that `parse` refuses with a ValueError becomes an issue. `hint` is said where a column is missing.
    """
    path = Path(path)
    rows = text_rows(path)
    header = next(rows, (1, []))[1]
    missing = [name for name in columns if header.count(name) != 1]
    if missing:
        raise ValueError(
            f"{path} must have each of the columns {', '.join(columns)} once; "
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not so{'. ' + hint if hint else ''}"
        )
    items: list[T] = []
    issues: list[Issue] = []
    for line, row in rows:
        try:
            if len(row) != len(header):
                raise ValueError(f"{len(row)} fields for {len(header)} columns")
            items.append(parse(dict(zip(header, row, strict=True))))
        except ValueError as error:
            issues.append(Issue(kind="unreadable", where=f"{path.name}, line {line}", detail=str(error)))
    return Rows(items, issues)


@dataclass(frozen=True)
class Series:
    """A time-stamped series."""

    path: Path  # where it comes from, for messages
    times: npt.NDArray[np.float64] = field(repr=False)  # (T,) float64, seconds, not decreasing
    values: npt.NDArray[np.float64] = field(repr=False)  # (T, C) float64

    def cut(self, start_s: float, stop_s: float, rate_hz: float, hole_s: float = 1.0) -> Floats:
        """The series from start to stop, linear between its samples: (round((stop - start) * rate), C).

        A ValueError says so where there is no sample for more than `hole_s` seconds, or a value is not finite.
        """
        count = round((stop_s - start_s) * rate_hz)
        if count < 1:
            raise ValueError(f"{stop_s - start_s:.3f} s is less than one sample at {rate_hz:g} Hz")
        first = max(int(np.searchsorted(self.times, start_s, side="right")) - 1, 0)
        last = int(np.searchsorted(self.times, stop_s, side="left")) + 1
        times, values = self.times[first:last], self.values[first:last]
        marks = np.concatenate([[start_s], times[(times > start_s) & (times < stop_s)], [stop_s]])
        hole = float(np.diff(marks).max())
        if hole > hole_s or not len(times):
            raise ValueError(
                f"{self.path.name} has no sample for {hole:.2f} s between {start_s:.2f} and {stop_s:.2f} s; "
                f"its times run from {self.times[0]:.2f} to {self.times[-1]:.2f} s"
            )
        if not np.isfinite(values).all():
            raise ValueError(f"{self.path.name} has values that are not finite from {start_s:.2f} to {stop_s:.2f} s")
        grid = start_s + np.arange(count) / rate_hz
        return np.stack([np.interp(grid, times, column) for column in values.T], axis=1).astype(np.float32)


def read_series(path: Path, wanted: Mapping[str, str]) -> Series:
    """Reads a CSV of a time column and channels, found by their names in the header.

    Args:
        path: a header, then a sample per row. The time column is called Milliseconds or ms, or time, timestamp or
            seconds (then in seconds).
        wanted: for each channel what it is, and a regular expression of its column's name in lower case, without
            blanks, signs and units in brackets. It must fit exactly one column.
    """
    check_size(path, _MOST_SERIES_BYTES)
    what = "a table of times and readings"
    with refuse_damage(path, what), path.open(encoding="utf-8-sig", newline="") as file:
        header = next(csv.reader([file.readline()]), [])
        names = [re.sub(r"[^a-z0-9]", "", re.sub(r"[\[(].*", "", name).lower()) for name in header]
        clocks = [i for i, name in enumerate(names) if name in _TIMES | _MILLISECONDS]
        fitting = [[i for i, name in enumerate(names) if re.fullmatch(rule, name)] for rule in wanted.values()]
        if len(clocks) != 1 or any(len(columns) != 1 for columns in fitting):
            raise ValueError(
                "expected a header with one time column (Milliseconds, or time in seconds) and one column each "
                f"for {', '.join(wanted)}; it has {', '.join(header[:20]) or 'no header'}"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy warns of an empty table, which is refused below
            used = [clocks[0], *(columns[0] for columns in fitting)]
            table = np.loadtxt(file, delimiter=",", usecols=used, ndmin=2, comments=None, quotechar='"')
    times = table[:, 0] * (1e-3 if names[clocks[0]] in _MILLISECONDS else 1.0)
    if not len(times) or not np.isfinite(times).all():
        raise ValueError(f"{path} has no samples, or times that are not finite")
    back = float(-np.diff(times, prepend=times[0]).min())
    if back > _PACKET_S:
        raise ValueError(f"{path}: its clock goes back by {back:.2f} s")
    order = np.argsort(times, kind="stable")
    return Series(path, times[order], table[order, 1:])


AXES = {axis: f"{_SENSOR}{axis}|{axis}{_SENSOR}" for axis in "xyz"}
"""Three axes as `read_series` wants them: x, AcclX, gyro_y, acceleration z, ..."""
