"""Signal stores on disk: recordings of one worn device, which windows are cut from when they are used.

A store is a folder with two files:

- `signals.json`: format version, device, channels, rate, classes, and for each recording its length, label, subject
  and name; the window and hop that it was imported with; what was faulty; provenance;
- `signals.npy`: the recordings end to end, float32 (readings, channels C), mapped into memory when opened.

A recording is an unbroken stretch by one person, with one label and at one rate. Whole recordings are kept rather
than windows: windows overlap, and another window is another cut of the same store. Values are as they were read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, JsonValue, ValidationError

from fedaction.data import files
from fedaction.data.dataset import Issue
from fedaction.data.folders import NewFolder
from fedaction.federation.outside import shorten

HEADER, VALUES = "signals.json", "signals.npy"


@dataclass(frozen=True)
class SignalSet:
    """Recordings of one device, with what they mean."""

    name: str  # the store's folder name
    device: str  # what recorded them, such as "watch"; "": it has no name of its own
    channels: tuple[str, ...]  # what is measured, in the order of the columns
    rate_hz: float | None  # readings a second, where known
    units: str  # what accelerations were taken for, in words
    window: int  # readings of a window; 0: a recording is one sample, whatever its length
    hop: int  # readings from one window's beginning to the next's; 0 with window 0
    # N arrays (T_i, C) float32, finite; read-only views of the file when loaded from disk
    recordings: list[npt.NDArray[np.float32]] = field(repr=False)
    labels: npt.NDArray[np.int64] = field(repr=False)  # (N,) int64, indices into classes
    classes: tuple[str, ...]
    names: tuple[str, ...] = field(repr=False)  # where each recording came from
    subjects: tuple[str, ...] = field(default=(), repr=False)  # who was recorded; empty when not known
    issues: tuple[Issue, ...] = field(default=(), repr=False)  # what was faulty when they were imported
    notes: tuple[str, ...] = field(default=(), repr=False)  # what they were taken for then
    provenance: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    modality: ClassVar[Literal["inertial"]] = "inertial"
    """The kind of device."""

    def __len__(self) -> int:
        return len(self.recordings)


class _SignalHeader(files.Header):
    """The contents of signals.json."""

    current: ClassVar[int] = 1
    remedy: ClassVar[str] = ". Import the recordings again with `fedaction data import --kind inertial`"

    format: Literal["fedaction-signals"]
    kind: Literal["inertial"]
    device: str
    channels: list[str] = Field(min_length=1)
    rate_hz: float | None = Field(gt=0, allow_inf_nan=False)
    units: str
    window: int = Field(ge=0)
    hop: int = Field(ge=0)
    classes: list[str]
    labels: list[int]
    subjects: list[str]
    names: list[str]
    lengths: list[int]
    issues: list[Issue]
    notes: list[str]
    provenance: dict[str, JsonValue]


class SignalWriter:
    """Writes a store recording by recording, holding one of them at a time; whole or not at all.

    The store is written under another name and renamed by `finish`; a `with` block that ends before leaves nothing.
    """

    def __init__(self, out: str | Path, *, overwrite: bool = False) -> None:
        """Starts a store; a folder that exists is refused, unless `overwrite` is set and it is a signal store."""
        self._out = Path(out).absolute()
        files.refuse_existing(self._out, overwrite, is_signal_store(self._out), "signal store")
        self._new = NewFolder(self._out)
        self._file = self._new.open(VALUES)
        self._file.write(bytes(files.NPY_HEADER_BYTES))
        self._lengths: list[int] = []
        self._labels: list[str] = []
        self._subjects: list[str] = []
        self._names: list[str] = []

    def __enter__(self) -> SignalWriter:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._file.close()
        finally:  # a full disk says so once more
            self._new.remove()

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, values: npt.NDArray[np.float32], *, label: str, name: str, subject: str = "") -> None:
        """Appends one recording (T, C), finite."""
        if not np.isfinite(values).all():
            raise ValueError(f"{name!r} has a value that is not finite")
        self._lengths.append(len(values))
        self._labels.append(label)
        self._subjects.append(subject)
        self._names.append(name)
        self._file.write(np.ascontiguousarray(values, dtype="<f4").data)

    def finish(
        self,
        *,
        channels: Sequence[str],
        rate_hz: float | None,
        device: str = "",
        units: str = "",
        window: int = 0,
        hop: int = 0,
        issues: Sequence[Issue] = (),
        notes: Sequence[str] = (),
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        """Checks the store and puts it in its place."""
        if not len(self):
            raise ValueError(f"there is no usable recording to write to {self._out.name!r}")
        classes = sorted(set(self._labels))
        try:
            header = _SignalHeader(
                format="fedaction-signals",
                version=_SignalHeader.current,
                kind="inertial",
                device=device,
                channels=list(channels),
                rate_hz=rate_hz,
                units=units,
                window=window,
                hop=hop,
                classes=classes,
                labels=[classes.index(label) for label in self._labels],
                subjects=self._subjects if all(self._subjects) else [],
                names=self._names,
                lengths=self._lengths,
                issues=list(issues),
                notes=list(notes),
                provenance=dict(provenance or {}),
            )
        except ValidationError as error:
            raise ValueError(f"{self._out.name} cannot be written: {files.first_fault(error)}") from None
        self._file.seek(0)
        self._file.write(files.npy_header((sum(self._lengths), len(channels))))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        files.write_header(self._new.path / HEADER, header)
        load_signals(self._new.path)
        self._new.put_in_place()


def is_signal_store(path: Path) -> bool:
    """Whether a path looks like a signal store."""
    return (path / HEADER).is_file() and (path / VALUES).is_file()


def load_signals(path: str | Path) -> SignalSet:
    """Opens a store. The readings stay on disk until used; everything is checked first, all values included."""
    path = Path(path).absolute()
    if not is_signal_store(path):
        raise FileNotFoundError(
            f"{path} is not a signal store: it needs {HEADER} and {VALUES}. Make one out of recordings with "
            f"`fedaction data import SOURCE --kind inertial --out {path.name}`"
        )
    where = path / HEADER
    header = files.read_header(where, _SignalHeader, "signal store header")
    columns = {"labels": header.labels, "names": header.names, "subjects": header.subjects or None}
    files.check_columns(where, len(header.lengths), columns)
    files.check_labels(header.labels, header.classes, where)
    if min(header.lengths, default=0) < 1:
        raise ValueError(f"{where} must list at least one recording, each with at least one reading")
    if len(set(header.channels)) != len(header.channels):
        raise ValueError(f"{where} names a channel twice")
    if bool(header.window) != bool(header.hop) or header.hop > header.window:
        raise ValueError(f"{where}: a window of {header.window} readings does not go with a hop of {header.hop}")
    values = _check_values(path / VALUES, header)
    ends = np.cumsum(header.lengths).tolist()
    return SignalSet(
        name=path.name,
        device=header.device,
        channels=tuple(header.channels),
        rate_hz=header.rate_hz,
        units=header.units,
        window=header.window,
        hop=header.hop,
        recordings=[values[end - length : end] for end, length in zip(ends, header.lengths, strict=True)],
        labels=np.array(header.labels, dtype=np.int64),
        classes=tuple(header.classes),
        names=tuple(header.names),
        subjects=tuple(header.subjects),
        issues=tuple(header.issues),
        notes=tuple(header.notes),
        provenance=header.provenance,
    )


def _check_values(path: Path, header: _SignalHeader) -> npt.NDArray[np.float32]:
    """Maps the readings into memory after checking type, shape and values."""
    values = files.open_npy(path)
    if values.dtype != np.dtype("<f4"):
        raise ValueError(f"{path} holds {values.dtype}; a signal store holds float32")
    expected = (sum(header.lengths), len(header.channels))
    if values.shape != expected:
        raise ValueError(f"{path} has shape {values.shape}; {HEADER} says {shorten(expected)}")
    files.check_finite(values, path)
    return values
