"""Recordings as they lie on disks, and as the samples that a model takes.

    list_recordings(path, given)     what a file, a store or a folder holds, read one at a time
    cut_windows(array, given)        a recording as samples: resized, mended, cut into windows

What is arithmetic (centring, scaling) is not done here: it stands in front of the network (`models.steps`).
"""

# NumPy's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fedaction.data import store
from fedaction.data.clips.videos import SUFFIXES as VIDEO_SUFFIXES
from fedaction.data.features.extract import EXTRACTORS, Extractor, Recording, built_in
from fedaction.data.features.recordings import SENSORS, read_wave
from fedaction.data.features.store import MODALITIES, Modality, is_feature_store, load_features
from fedaction.data.files import open_npy, read_npz, to_float32
from fedaction.data.inputs import Input
from fedaction.data.preprocess import check_sequence, mend, prepare
from fedaction.data.public.base import files_below
from fedaction.data.public.readers import READERS
from fedaction.data.signals.store import is_signal_store, load_signals
from fedaction.data.signals.times import check_length
from fedaction.serve.tables import read_columns

Array = npt.NDArray[Any]
_MOST_BODIES = 8  # that one recording may have; only the first of them are looked at
_TEXT = (".csv", ".txt", ".tsv")


@dataclass(frozen=True)
class Unread:
    """One recording, before it is read."""

    name: str
    """Where it comes from."""
    read: Callable[[], tuple[Array | Path, float | None]] = field(repr=False)
    """The recording (of video, its file) and its rate in hertz, where known; a ValueError says what is wrong."""
    label: str | None = None
    """The action, where its place says so: a store's label, or the folder that the file lies in."""


@dataclass(frozen=True)
class Windows:
    """A recording as samples."""

    x: Array = field(repr=False)
    """(n, *given.shape): float32, of clips uint8."""
    starts: tuple[int, ...]
    """Where each begins, in readings (or rows, or frames) of the recording as the model takes it."""
    rate_hz: float | None = None
    """Readings a second, where known."""


def list_recordings(path: str | Path, given: Input, form: str = "") -> Iterator[Unread]:
    """What lies at a path.

    Args:
        path: a file; a store of skeletons, signals or features; or a folder, whose files are taken at any depth, by
            name.
        given: what the model takes.
        form: how a file is to be read: the name of a public dataset's reader; empty: by its suffix.
    """
    path = Path(path)
    check_form(form)
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}")
    if store.is_store(path):
        yield from _from_store(path, given)
    elif is_feature_store(path):
        yield from _from_features(path, given)
    elif is_signal_store(path):
        yield from _from_signals(path, given)
    elif path.is_dir():
        some = False
        for file in files_below(path):
            if not any(part.startswith(".") for part in file.relative_to(path).parts):
                some = True
                yield from _from_file(file, given, form, file.parent.name)
        if not some:
            raise ValueError(f"{path} holds no files")
    else:
        yield from _from_file(path, given, form, None)


def check_form(form: str) -> None:
    """Refuses a name that is no public dataset's reader; "": by a file's suffix."""
    if form and form not in {**READERS, **SENSORS}:
        raise ValueError(f"no reader is called {form!r}; there are {', '.join([*READERS, *SENSORS])}")


def _from_store(path: Path, given: Input) -> Iterator[Unread]:
    item = store.load(path)
    if given.kind == "skeleton" and item.layout.joints != given.joints.joints:
        raise ValueError(
            f"{path} has skeletons of layout {item.layout.name!r} ({len(item.layout)} joints), the model takes "
            f"{given.joints.name!r} ({len(given.joints)} joints)"
        )
    for name, sequence, label in zip(item.names, item.sequences, item.labels.tolist(), strict=True):
        yield Unread(f"{path}: {name}", partial(_held, sequence, item.rate_hz), item.classes[label])


def _from_features(path: Path, given: Input) -> Iterator[Unread]:
    item = load_features(path)
    for name, row, label in zip(item.names, item.x, item.labels.tolist(), strict=True):
        yield Unread(f"{path}: {name}", partial(_held, row, None), item.classes[label])


def _from_signals(path: Path, given: Input) -> Iterator[Unread]:
    item = load_signals(path)
    if given.kind == "signals" and given.channels and item.channels != given.channels:
        raise ValueError(
            f"{path} has the channels {', '.join(item.channels)}, the model takes {', '.join(given.channels)}"
        )
    for name, recording, label in zip(item.names, item.recordings, item.labels.tolist(), strict=True):
        yield Unread(f"{path}: {name}", partial(_held, recording, item.rate_hz), item.classes[label])


def _held(array: Array, rate_hz: float | None) -> tuple[Array, float | None]:
    return array, rate_hz


def _from_file(path: Path, given: Input, form: str, label: str | None) -> Iterator[Unread]:
    suffix, name = path.suffix.lower(), str(path)
    if given.kind == "video":
        yield Unread(name, partial(_video, path), label)
        return
    axes = len(given.shape)
    if form or suffix not in (".npy", ".npz"):
        yield Unread(name, partial(_read, path, given, form), label)
        return
    try:
        array, labels = _arrays_of(path)
    except (ValueError, OSError) as error:
        yield Unread(name, partial(_fail, str(error)), label)
        return
    if labels is not None:
        for row, own in enumerate(labels):
            yield Unread(f"{name}[{row}]", partial(_held, array[row], None), own)
        return
    if array.ndim == axes + 1 and (given.kind == "skeleton" or array.shape[1:] == given.shape):
        for row in range(len(array)):  # many samples in one file
            yield Unread(f"{name}[{row}]", partial(_held, array[row], None), label)
    else:
        yield Unread(name, partial(_held, array, None), label)


def _video(path: Path) -> tuple[Path, None]:
    if path.suffix.lower() not in VIDEO_SUFFIXES:
        raise ValueError(f"{path} is no video by its suffix; known are {' '.join(sorted(VIDEO_SUFFIXES))}")
    return path, None


def _fail(reason: str) -> tuple[Array, None]:
    raise ValueError(reason)


def _array(path: Path) -> Array:
    if path.suffix.lower() == ".npy":
        return open_npy(path)
    arrays, others = read_npz(path, ("x",))
    if "x" not in arrays:
        raise ValueError(f"{path} has no array `x`; it has {', '.join(others) or 'none'}")
    return arrays["x"]


def _arrays_of(path: Path) -> tuple[Array, list[str] | None]:
    """An array and, of an .npz file with `y` (and `classes`) beside `x`, the label of every sample in it."""
    if path.suffix.lower() != ".npz":
        return _array(path), None
    arrays, _ = read_npz(path, ("x", "y", "classes"))
    if "x" not in arrays or "y" not in arrays:
        return _array(path), None
    x, y = arrays["x"], arrays["y"]
    if y.shape != x.shape[:1] or y.dtype.kind not in "iuU":
        raise ValueError(f"{path}: y must be a whole number or a name for each of {x.shape[:1]} samples")
    names = [str(item) for item in arrays["classes"].reshape(-1)] if "classes" in arrays else []
    if y.dtype.kind != "U" and names and not (y.min() >= 0 and y.max() < len(names)):
        raise ValueError(f"{path}: y goes from {y.min()} to {y.max()}, for {len(names)} class names")
    return x, [names[int(item)] if names and y.dtype.kind != "U" else str(item) for item in y]


def _read(path: Path, given: Input, form: str) -> tuple[Array, float | None]:
    """A file by a public reader, or by its suffix."""
    suffix = path.suffix.lower()
    if form:
        reader = READERS.get(form) or SENSORS[form]
        return reader.read(path), reader.rate_hz
    if suffix in (".npy", ".npz"):
        return _array(path), None
    if suffix == ".skeleton" and given.kind == "skeleton":
        return READERS["ntu60"].read(path), READERS["ntu60"].rate_hz
    if suffix == ".wav" and given.kind == "features":
        sound = read_wave(path)
        return sound.array, sound.rate_hz
    if suffix in _TEXT:
        return _table(path, given)
    kinds = {"skeleton": ".npy .npz .csv .txt .skeleton", "features": ".npy .npz .csv .wav"}
    raise ValueError(
        f"{path} cannot be read as {given.kind}; known are {kinds.get(given.kind, '.npy .npz .csv .txt')}, stores, "
        "and the formats of public datasets by --format NAME"
    )


def _table(path: Path, given: Input) -> tuple[Array, float | None]:
    if given.kind == "skeleton":
        joints, coordinates = given.shape[2:]
        rows = read_columns(path, joints * coordinates, what=f"{joints} joints times {coordinates}")[0]
        return rows.reshape(1, len(rows), joints, coordinates), None
    if given.kind == "signals":
        return read_columns(path, given.shape[1], given.channels, f"{given.shape[1]} channels")
    if given.kind == "features":
        return read_columns(path, given.shape[0], what=f"{given.shape[0]} features")
    return read_columns(path, given.shape[-1], what=f"samples of {given.shape}")


def cut_windows(recording: Any, given: Input, rate_hz: float | None = None) -> Windows:
    """A recording, in memory, as the samples that a model takes.

    Args:
        recording: skeletons (T, V, C) or (M, T, V, C); signals (T, C); features (F,) or (N, F), or a recording that
            the features' own extractor takes; clips (T, H, W, 3) uint8; arrays of the model's shape, one or several.
            Anything that NumPy makes an array of, a torch tensor too.
        given: what the model takes.
        rate_hz: of signals, readings a second; where the model's is another, they are resampled to it.
    """
    array = np.asarray(recording)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"a recording is numbers, not {array.dtype}")
    if not array.size:
        raise ValueError(f"the recording is empty: shape {array.shape}")
    how = {"skeleton": _joints, "signals": _signals, "features": _features}.get(given.kind, _arrays)
    return how(array, given, rate_hz)


def _joints(array: Array, given: Input, rate_hz: float | None) -> Windows:
    bodies, frames, joints, coordinates = given.shape
    array = array[None] if array.ndim == 3 else array
    if array.ndim != 4 or array.shape[2:] != (joints, coordinates):
        raise ValueError(
            f"the recording is {array.shape}, the model takes (frames, {joints} joints, {coordinates}) or (bodies, "
            f"frames, {joints}, {coordinates}) of layout {given.joints.name!r}"
        )
    if len(array) > max(bodies, _MOST_BODIES):
        raise ValueError(
            f"the recording is {array.shape}, {len(array)} bodies; many recordings are (N, bodies, frames, joints, "
            "coordinates), or an .npz file with `x` and `y`"
        )
    sequence = check_sequence(array[:bodies], given.joints, "the recording")
    x, report = prepare([sequence], given.joints, frames, align=False)
    if report.empty:
        raise ValueError("the recording has no frame with a joint in it")
    if x.shape[1] < bodies:
        x = np.concatenate([x.numpy(), np.zeros((1, bodies - x.shape[1], *x.shape[2:]), np.float32)], 1)
    return Windows(np.asarray(x), (0,), given.rate_hz or rate_hz)


def _signals(array: Array, given: Input, rate_hz: float | None) -> Windows:
    length, channels = given.shape
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] != channels:
        named = f" ({', '.join(given.channels)})" if given.channels else ""
        raise ValueError(f"the recording is {array.shape}, the model takes (readings, {channels} channels){named}")
    values = to_float32(array)
    if not np.isfinite(values).all(axis=1).any():
        raise ValueError("the recording has no reading without a missing value")
    values = mend(values[None, :, None])[0][0, :, 0]
    rate = given.rate_hz or rate_hz
    if rate_hz and given.rate_hz and abs(rate_hz - given.rate_hz) > 1e-6 * given.rate_hz:
        values = _resample(values, rate_hz, given.rate_hz)
    hop = given.hop or length
    if len(values) < length:  # what there is, over again
        values = values[np.arange(length) % len(values)]
    starts = tuple(range(0, len(values) - length + 1, hop))
    x = np.lib.stride_tricks.sliding_window_view(values, length, axis=0)[::hop].transpose(0, 2, 1)  # no copy is made
    return Windows(x, starts, rate)


def _resample(values: npt.NDArray[np.float32], have: float, want: float) -> npt.NDArray[np.float32]:
    """(T, C) readings at another rate, by linear interpolation."""
    count = max(1, round(len(values) * want / have))
    check_length(count, values, want)
    place = np.arange(count) * (have / want)
    there = np.arange(len(values))
    return np.stack([np.interp(place, there, column) for column in values.T], 1).astype(np.float32)


def _features(array: Array, given: Input, rate_hz: float | None) -> Windows:
    width = given.shape[0]
    if array.ndim in (1, 2) and array.shape[-1] == width:
        rows = to_float32(np.atleast_2d(array))
    else:
        extractor = _extractor(array, given)
        rows = extractor([Recording(array, rate_hz)])
        if rows.shape[1] != width:
            raise ValueError(f"the extractor gives {rows.shape[1]} features, the model takes {width}")
    if not np.isfinite(rows).all():
        raise ValueError("the features have a value that is not finite")
    return Windows(rows, tuple(range(len(rows))))


def _extractor(array: Array, given: Input) -> Extractor:
    """The built-in extractor that a model's features were made with, for a recording that is no feature vector."""
    about = given.extractor or {}
    name, modality = about.get("name"), about.get("modality")
    takes = f"the recording is {array.shape}, the model takes {given.shape[0]} features"
    if name not in EXTRACTORS or modality not in MODALITIES or modality == "skeleton":
        made = f", made by {name!r}: make them with it first (`fedaction features`)" if name else ""
        raise ValueError(f"{takes}{made}")
    parameters: dict[str, Any] = about.get("parameters") or {}
    try:
        fit = cast("Modality", modality)
        made = built_in(fit, str(name), width=parameters.get("width", 0), seed=parameters.get("seed", 0))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{takes}, and their extractor cannot be made: {error}") from None
    if made.version != about.get("version"):
        raise ValueError(f"{takes} of version {about.get('version')} of {name!r}; this release has {made.version}")
    return made


def _arrays(array: Array, given: Input, rate_hz: float | None) -> Windows:
    shape = given.shape
    if array.shape == shape:
        array = array[None]
    if array.shape[1:] != shape:
        raise ValueError(f"the recording is {array.shape}, the model takes {shape}, or several of them")
    if given.kind == "video":
        return Windows(array.astype(np.uint8, copy=False), tuple(range(len(array))))
    values = to_float32(array)
    if not np.isfinite(values).all():
        raise ValueError("the recording has a value that is not finite")
    return Windows(values, tuple(range(len(array))))
