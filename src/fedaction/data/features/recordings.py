"""What features can be taken of: skeleton stores, public datasets, and folders of files."""

from __future__ import annotations

import sys
import warnings
import wave
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedaction.data import store
from fedaction.data.features.extract import Recording
from fedaction.data.features.store import Modality
from fedaction.data.files import fingerprint, open_npy, to_float32
from fedaction.data.labelled import subject_of
from fedaction.data.preprocess import mend
from fedaction.data.public import utd_inertial
from fedaction.data.public.cache import prepare_public
from fedaction.data.public.files import NumberedFiles
from fedaction.data.public.readers import READERS
from fedaction.data.signals.store import HEADER as SIGNALS_HEADER
from fedaction.data.signals.store import VALUES as SIGNALS_VALUES
from fedaction.data.signals.store import load_signals
from fedaction.federation.outside import check_amount, check_size, refuse_damage

SENSORS: Mapping[str, NumberedFiles] = {utd_inertial.READER.name: utd_inertial.READER}
"""Readers of public datasets of sensor signals, by name. Readers of skeletons are in `READERS`."""

_AXES: dict[Modality, tuple[str, ...]] = {
    "inertial": ("samples", "channels"),
    "video": ("frames", "height", "width", "3 or 1"),
    "flow": ("frames", "height", "width", "2"),
    "image": ("height", "width", "3 or 1"),
}
_MOST_SOUND_BYTES = 2**30


@dataclass(frozen=True)
class Collection:
    """Labelled recordings of one modality, read one at a time."""

    modality: Modality  # what was recorded
    names: tuple[str, ...] = field(repr=False)  # where each comes from
    labels: tuple[str, ...] = field(repr=False)  # the class of each, by name
    subjects: tuple[str, ...] = field(repr=False)  # who performed each; empty when not known
    classes: tuple[str, ...]  # all class names, in label order
    # The recording of a number. One that cannot be used is a ValueError that says where and why.
    read: Callable[[int], Recording] = field(repr=False)
    source: Mapping[str, Any]  # what provenance says of it, with a fingerprint of its files
    bodies: int = 1  # skeletons: the most bodies in any recording
    skip: bool = False  # leave out, with a warning, recordings that cannot be used
    device: str = ""  # what recorded them, such as "watch"; "": it has no name of its own

    def __len__(self) -> int:
        return len(self.names)


def warn_left_out(faults: Sequence[str]) -> None:
    """Says how many samples cannot be used as they are, if any, and what is wrong with the first."""
    if faults:
        samples = "1 sample is" if len(faults) == 1 else f"{len(faults)} samples are"
        warnings.warn(f"{samples} left out, or cut where the file ends; the first: {faults[0]}", stacklevel=2)


def from_store(path: str | Path) -> Collection:
    """The recordings of a skeleton store."""
    item = store.load(path)
    folder = Path(path).absolute()
    return Collection(
        modality="skeleton",
        names=item.names,
        labels=tuple(item.classes[label] for label in item.labels),
        subjects=item.subjects,
        classes=item.classes,
        read=lambda i: Recording(item.sequences[i], item.rate_hz, item.layout),
        source={
            "kind": "skeleton store",
            "name": folder.name,
            "layout": item.layout.name,
            "fingerprint": fingerprint(folder, [folder / store.HEADER, folder / store.FRAMES]),
        },
        bodies=max(len(sequence) for sequence in item.sequences),
    )


def from_signals(path: str | Path) -> Collection:
    """The samples of a signal store: its windows, side by side, so that no two have a reading in common."""
    item = load_signals(path)
    folder = Path(path).absolute()
    spans = [
        (i, first, first + (item.window or len(own)))
        for i, own in enumerate(item.recordings)
        for first in (range(0, len(own) - item.window + 1, item.window) if item.window else (0,))
    ]
    return Collection(
        modality="inertial",
        names=tuple(f"{item.names[i]}@{first}" for i, first, _ in spans),
        labels=tuple(item.classes[item.labels[i]] for i, _, _ in spans),
        subjects=tuple(item.subjects[i] for i, _, _ in spans) if item.subjects else (),
        classes=item.classes,
        read=lambda n: Recording(item.recordings[spans[n][0]][spans[n][1] : spans[n][2]], item.rate_hz),
        source={
            "kind": "signal store",
            "name": folder.name,
            "fingerprint": fingerprint(folder, [folder / SIGNALS_HEADER, folder / SIGNALS_VALUES]),
        },
        device=item.device,
    )


def from_public(
    name: str,
    root: str | Path,
    *,
    cache: str | Path | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Collection:
    """A public dataset, by the name of its reader. Skeletons go through the cache of `prepare_public`."""
    if name in READERS:
        return from_store(prepare_public(name, root, cache=cache, progress=progress))
    if name not in SENSORS:
        raise ValueError(f"no public dataset is called {name!r}; there are {', '.join([*READERS, *SENSORS])}")
    reader, root = SENSORS[name], Path(root).absolute()
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is not a folder; {name} is read from one: {reader.about}")
    listing = reader.find(root)
    pairs = [(source.path, sample) for source in listing.sources for sample in source.samples]
    if not pairs:
        raise ValueError(f"{root} holds no usable sample of {name}")
    return Collection(
        modality="inertial",
        names=tuple(sample.name for _, sample in pairs),
        labels=tuple(sample.label for _, sample in pairs),
        subjects=tuple(sample.subject for _, sample in pairs),
        classes=listing.classes,
        read=lambda i: Recording(_whole(reader.read(pairs[i][0]), str(pairs[i][0])), reader.rate_hz),
        source={
            "kind": "public dataset",
            "name": name,
            "reader": reader.version,
            "fingerprint": fingerprint(root, (path for path, _ in pairs)),
        },
    )


def from_folder(path: str | Path, modality: Modality, *, subject: str | None = None) -> Collection:
    """A folder of folders named after classes, with `.wav` files of sounds, or `.npy` files of anything else.

    Args:
        path: the folder.
        modality: what the files are: inertial (T, C), video (T, H, W, 3 or 1), flow (T, H, W, 2), image
            (H, W, 3 or 1); sounds are uncompressed wave files.
        subject: regular expression searched in file names; its first group (or whole match) names the person.
    """
    root = Path(path).absolute()
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is neither a skeleton store, nor a folder with a folder for each class")
    if modality == "skeleton":
        raise ValueError(
            f"{root} is not a skeleton store: import the recordings first with `fedaction data import`, which asks "
            "for their layout"
        )
    suffix = ".wav" if modality == "audio" else ".npy"
    folders = sorted(item for item in root.iterdir() if item.is_dir() and not item.name.startswith("."))
    files = [item for folder in folders for item in sorted(folder.iterdir()) if item.suffix.lower() == suffix]
    if not files:
        raise ValueError(f"{root} has no folder for a class with {suffix} files in it, as {modality} needs")
    read = read_wave if modality == "audio" else lambda item: _read_array(item, modality)
    return Collection(
        modality=modality,
        names=tuple(item.relative_to(root).as_posix() for item in files),
        labels=tuple(item.parent.name for item in files),
        subjects=tuple(subject_of(item.name, subject) or "" for item in files) if subject else (),
        classes=tuple(sorted({item.parent.name for item in files})),
        read=lambda i: read(files[i]),
        source={
            "kind": "folder",
            "name": root.name,
            "subject": subject or "",
            "fingerprint": fingerprint(root, files),
        },
        skip=True,
    )


def read_wave(path: Path, span: tuple[float, float] | None = None) -> Recording:
    """An uncompressed wave file, its channels averaged: (S,) in [-1, 1].

    A span in seconds, from its beginning to its end, must be there as a whole; None: all that is there.
    """
    check_size(path, sys.maxsize)  # of any size, but a file
    with refuse_damage(path, "an uncompressed (PCM) wave file"), wave.open(str(path), "rb") as file:
        channels, size, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
        frames = file.getnframes()
        first, stop = (0, frames) if span is None else (round(span[0] * rate), round(span[1] * rate))
        if span is not None and not 0 <= first < stop <= frames:
            raise ValueError(
                f"{path.name} has {frames / rate:.2f} s; it has no piece from {span[0]:.2f} to {span[1]:.2f} s"
            )
        check_amount((stop - first) * channels * size, _MOST_SOUND_BYTES, path, "has")
        file.setpos(first)
        data = file.readframes(stop - first)
    if span is not None and len(data) != (stop - first) * channels * size:
        raise ValueError(f"{path} ends before {span[1]:.2f} s, though its header says otherwise")
    data = data[: len(data) - len(data) % (channels * size)]
    if not data or size not in (1, 2, 3, 4) or rate < 1:
        raise ValueError(f"{path} has no samples of 8, 16, 24 or 32 bits")
    if size == 1:  # the only width that is written without a sign
        values = (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128
    elif size == 3:
        parts = np.frombuffer(data, np.uint8).reshape(-1, 3)
        whole = np.concatenate([np.zeros((len(parts), 1), np.uint8), parts], axis=1).view("<i4")[:, 0]
        values = whole.astype(np.float32) / 2**31
    else:
        values = np.frombuffer(data, f"<i{size}").astype(np.float32) / 2 ** (8 * size - 1)
    return Recording(values.reshape(-1, channels).mean(axis=1), float(rate))


def _read_array(path: Path, modality: Modality) -> Recording:
    array = open_npy(path)
    axes = _AXES[modality]
    if modality == "inertial" and array.ndim == 1:
        array = array[:, None]
    last = axes[-1].split(" or ")
    fits = array.ndim == len(axes) and (modality == "inertial" or str(array.shape[-1]) in last)
    if not fits or not array.size or array.dtype.kind not in "fiu":
        raise ValueError(f"{path} holds {array.dtype} {array.shape}; {modality} is numbers ({', '.join(axes)})")
    if modality == "inertial":
        return Recording(_whole(array, str(path)))
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{path} has a value that is not finite")
    return Recording(array)


def _whole(series: npt.NDArray[Any], where: str) -> npt.NDArray[np.float32]:
    """A series (T, C) with missing samples filled in from those around them; none at all is an error."""
    values = to_float32(series)
    if not np.isfinite(values).all(axis=1).any():
        raise ValueError(f"{where} has no sample without a missing value")
    return mend(values[None, :, None])[0][0, :, 0]
