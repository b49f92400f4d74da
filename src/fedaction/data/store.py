"""Skeleton stores: a dataset of recordings on disk, and clients made from it.

A store is a folder with two files:

- `dataset.json`: format version, layout, classes, rate, and for each sample its name, label, subject and
  length;
- `frames.npy`: the frames of all samples end to end, float32 (total frames, bodies M, joints V, coordinates
  C).

One `.npy` rather than one file per sample or a safetensors file, because NumPy maps it into memory: a store
larger than memory can be opened, and samples are views of the file. It needs no pickle, and its header says
shape and type, so that a damaged or foreign file is refused before any of it is used.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedaction.data import partition
from fedaction.data.client import ClientData, ClientInfo, Examples
from fedaction.data.layout import LAYOUTS, Layout
from fedaction.data.preprocess import prepare
from fedaction.federation.seeds import derive

FORMAT = "fedaction-skeletons"
VERSION = 1
_HEADER, _FRAMES = "dataset.json", "frames.npy"
_MOST_HEADER_BYTES = 256 * 2**20
_CHECK_FRAMES = 65536  # frames checked for finiteness at a time, so that a check never needs the whole file


Kind = Literal["nan_frames", "zero_frames", "empty", "joint_count", "unreadable"]


class Issue(BaseModel):
    """One thing that was wrong with a recording, and where.

    Attributes:
        kind: what was wrong. "nan_frames" were filled in; "zero_frames" are kept and left out by `prepare`;
            samples with the other kinds were skipped.
        where: file name, or position in the array.
        count: frames concerned, or 1 for a whole sample.
        detail: what was found, where that needs words.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    where: str
    count: int = Field(default=1, ge=1)
    detail: str = ""


@dataclass(frozen=True)
class StoredDataset:
    """Recordings with what they mean.

    Attributes:
        name: the store's folder name.
        layout: joints of every recording.
        sequences: N arrays (M, T_i, V, C) float32, finite; read-only views of the file when loaded from disk.
        labels: (N,) int64, indices into classes.
        classes: action names.
        names: where each sample came from.
        subjects: who performed each sample; empty when not known.
        rate_hz: frames a second, where known.
        issues: what was skipped or mended when the recordings were imported.
    """

    name: str
    layout: Layout
    sequences: list[npt.NDArray[np.float32]] = field(repr=False)
    labels: npt.NDArray[np.int64] = field(repr=False)
    classes: tuple[str, ...]
    names: tuple[str, ...] = field(repr=False)
    subjects: tuple[str, ...] = field(default=(), repr=False)
    rate_hz: float | None = None
    issues: tuple[Issue, ...] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.sequences)


class _Header(BaseModel):
    """The contents of dataset.json."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["fedaction-skeletons"]
    version: int
    layout: dict[str, Any]
    classes: list[str]
    rate_hz: float | None = Field(gt=0, allow_inf_nan=False)
    labels: list[int]
    subjects: list[str] | None
    lengths: list[int]
    names: list[str]
    skipped: dict[str, int]
    issues: list[Issue]


def count_issues(issues: Sequence[Issue]) -> dict[str, int]:
    """Total count of each kind of issue, by kind."""
    total: Counter[str] = Counter()
    for issue in issues:
        total[issue.kind] += issue.count
    return dict(sorted(total.items()))


def save(dataset: StoredDataset, out: str | Path, *, overwrite: bool = False) -> None:
    """Writes a store, whole or not at all: it is written under another name, then renamed.

    Args:
        dataset: what to write; its name is not written, a store is called after its folder.
        out: folder to create. One that exists is refused, unless `overwrite` is set and it is a store.
        overwrite: replace an existing store.
    """
    out = Path(out).absolute()
    if not len(dataset):
        raise ValueError(f"there is no usable sample to write to {out.name!r}")
    refuse_existing(out, overwrite)
    if len({item.shape[2:] for item in dataset.sequences}) > 1:
        raise ValueError("recordings differ in their number of joints or coordinates: store them apart")
    lengths = [item.shape[1] for item in dataset.sequences]
    bodies = max(item.shape[0] for item in dataset.sequences)
    header = _Header(
        format=FORMAT,
        version=VERSION,
        layout=dataset.layout.to_dict(),
        classes=list(dataset.classes),
        rate_hz=dataset.rate_hz,
        labels=dataset.labels.tolist(),
        subjects=list(dataset.subjects) or None,
        lengths=lengths,
        names=list(dataset.names),
        skipped=count_issues(dataset.issues),
        issues=list(dataset.issues),
    )
    _check_header(header, out)
    out.parent.mkdir(parents=True, exist_ok=True)
    new = out.with_name(f".{out.name}.{uuid.uuid4().hex}")
    try:
        new.mkdir()
        shape = (sum(lengths), bodies, *dataset.sequences[0].shape[2:])
        frames = np.lib.format.open_memmap(new / _FRAMES, mode="w+", dtype=np.float32, shape=shape)
        frames[:] = 0  # bodies that a sequence lacks
        first = 0
        for item in dataset.sequences:
            frames[first : first + item.shape[1], : item.shape[0]] = item.transpose(1, 0, 2, 3)
            first += item.shape[1]
        frames.flush()
        del frames
        text = json.dumps(header.model_dump(mode="json"), ensure_ascii=False, separators=(",", ":"))
        (new / _HEADER).write_text(text, encoding="utf-8")
        _check_frames(new / _FRAMES, header)
        _move_into_place(new, out)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def refuse_existing(out: Path, overwrite: bool) -> None:
    """Refuses to write over anything but a store, and over a store unless told to."""
    if not out.exists():
        return
    if not overwrite:
        raise FileExistsError(f"{out} exists already: choose another folder, or ask to overwrite it")
    if not is_store(out):
        raise FileExistsError(f"{out} is not a skeleton store, so it is not overwritten: choose another folder")


def is_store(path: Path) -> bool:
    """Whether a path looks like a skeleton store."""
    return (path / _HEADER).is_file() and (path / _FRAMES).is_file()


def load(path: str | Path) -> StoredDataset:
    """Opens a store. The frames stay on disk until used; everything is checked first, all values included."""
    path = Path(path).absolute()
    if not is_store(path):
        raise FileNotFoundError(
            f"{path} is not a skeleton store: it needs {_HEADER} and {_FRAMES}. Make one out of recordings "
            "with `fedaction data import`"
        )
    size = (path / _HEADER).stat().st_size
    if size > _MOST_HEADER_BYTES:
        raise ValueError(f"{path / _HEADER} has {size} bytes, more than the {_MOST_HEADER_BYTES} allowed")
    try:
        header = _Header.model_validate_json((path / _HEADER).read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ValueError(f"{path / _HEADER} is not a valid store header: {place}: {first['msg']}") from None
    layout = _check_header(header, path)
    frames = _check_frames(path / _FRAMES, header)
    stops = np.cumsum(header.lengths)
    return StoredDataset(
        name=path.name,
        layout=layout,
        sequences=[
            frames[stop - length : stop].transpose(1, 0, 2, 3)
            for stop, length in zip(stops, header.lengths, strict=True)
        ],
        labels=np.array(header.labels, dtype=np.int64),
        classes=tuple(header.classes),
        names=tuple(header.names),
        subjects=tuple(header.subjects or ()),
        rate_hz=header.rate_hz,
        issues=tuple(header.issues),
    )


def clients_from_store(
    paths: str | Path | Sequence[str | Path],
    *,
    split: float | Sequence[str] = 0.3,
    by: Literal["dataset", "subject", "dirichlet", "shards", "iid"] = "dataset",
    clients: int | None = None,
    alpha: float = 0.5,
    shards: int = 2,
    frames: int = 50,
    seed: int = 0,
    cross_subject: bool = True,
    shared_classes: bool = False,
) -> list[ClientData]:
    """Clients from one or more stores, prepared for training.

    Each store is divided by itself; clients of different stores may have different layouts and classes.

    Args:
        paths: one store or several.
        split: share of each client's samples kept for test, or the names of the people kept for test.
        by: "dataset" makes one client of each store; the others divide each store (see
            `fedaction.data.partition`).
        clients: clients per store. Needed unless by "dataset" or "subject" (then: one client per person).
        alpha: concentration of the Dirichlet division.
        shards: class shards per client.
        frames: frames of each prepared sequence.
        seed: run seed.
        cross_subject: with a share as `split` and people known, keep test people out of training: the same
            people in all clients of a store. A client of one person, and a store without subjects, is split
            by class.
        shared_classes: give all clients of a store its whole class list. Otherwise a client's classes are
            those it has samples of, and its labels count from 0 among them.

    Returns:
        Clients with x (N, M, frames, V, C), in the order of the stores.
    """
    stores = [load(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    layouts = {item.layout.name: item.layout for item in stores}
    for item in stores:
        if layouts[item.layout.name] != item.layout:
            raise ValueError(f"two stores use different layouts that are both called {item.layout.name!r}")
    if not isinstance(split, int | float):
        unknown = sorted(set(split) - {name for item in stores for name in item.subjects})
        if unknown:
            raise ValueError(f"no sample of {', '.join(item.name for item in stores)} is by {', '.join(unknown)}")
    made: list[ClientData] = []
    for item in stores:
        x, report = prepare(item.sequences, item.layout, frames)
        kept = np.array(report.kept, dtype=np.int64)
        labels = item.labels[kept]
        people = np.array(item.subjects)[kept] if item.subjects else None
        own = derive(seed, item.name)
        if by == "dataset":
            parts, names = [np.arange(len(labels))], [item.name]
        else:
            parts, given = partition.divide(
                labels, people, by=by, clients=clients, alpha=alpha, shards=shards, seed=own
            )
            names = [f"{item.name}-{name}" for name in given.clients]
        tested = partition.choose_test(labels, people, parts, test=split, cross_subject=cross_subject, seed=own)
        for part, name in zip(parts, names, strict=True):
            held = range(len(item.classes)) if shared_classes else np.unique(labels[part]).tolist()
            sides = []
            for side, mask in (("training", ~tested[part]), ("test", tested[part])):
                chosen = part[mask]
                if not len(chosen):
                    raise ValueError(
                        f"client {name!r} has no {side} sample among its {len(part)}: use fewer clients, "
                        "another split, or cross_subject=False"
                    )
                y = torch.from_numpy(np.searchsorted(np.array(held), labels[chosen]))
                who = tuple(people[chosen].tolist()) if people is not None else ()
                sides.append(Examples(x[torch.from_numpy(chosen)], y, who))
            classes = tuple(item.classes[label] for label in held)
            info = ClientInfo(name, "skeleton", len(sides[0]), classes, tuple(x.shape[1:]), item.layout)
            made.append(ClientData(info, sides[0], sides[1]))
    twice = [name for name, count in Counter(client.info.id for client in made).items() if count > 1]
    if twice:
        raise ValueError(f"more than one client would be called {twice[0]!r}: give the stores' folders unlike names")
    return made


def known_layout(spec: dict[str, object], where: str) -> Layout:
    """A layout from its description; one that takes a built-in layout's name must be that layout."""
    try:
        layout = Layout.from_dict(spec)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None
    if LAYOUTS.get(layout.name, layout) != layout:
        raise ValueError(
            f"{where}: the layout is called {layout.name!r} but differs from the built-in one: rename it"
        )
    return layout


def _check_header(header: _Header, path: Path) -> Layout:
    """Refuses a header whose parts do not fit together; returns its layout."""
    where = f"{path}: {_HEADER}"
    if header.version != VERSION:
        raise ValueError(f"{where} has format version {header.version}; this release reads version {VERSION}")
    layout = known_layout(header.layout, where)
    count = len(header.lengths)
    for what, values in (("labels", header.labels), ("names", header.names), ("subjects", header.subjects)):
        if values is not None and len(values) != count:
            raise ValueError(f"{where} has {len(values)} {what} for {count} samples")
    if min(header.lengths, default=0) < 1:
        raise ValueError(f"{where} must list at least one sample, each with at least one frame")
    if len(set(header.classes)) != len(header.classes):
        raise ValueError(f"{where} names a class twice")
    wrong = [label for label in header.labels if not 0 <= label < len(header.classes)]
    if wrong:
        raise ValueError(f"{where} has label {wrong[0]}, but only {len(header.classes)} classes")
    if header.skipped != count_issues(header.issues):
        raise ValueError(f"{where}: the counts of what was skipped do not agree with the list of issues")
    return layout


def _check_frames(path: Path, header: _Header) -> npt.NDArray[np.float32]:
    """Maps the frames into memory after checking type, shape, size and values."""
    try:
        frames = np.lib.format.open_memmap(path, mode="r")  # unlike np.load: no pickle, and no zip either
    except (ValueError, OSError, EOFError, SyntaxError) as error:
        raise ValueError(f"{path} is damaged or is not a NumPy file: {error}") from None
    joints, total = len(header.layout["joints"]), sum(header.lengths)
    if frames.dtype != np.dtype("<f4"):
        raise ValueError(f"{path} holds {frames.dtype}; a store holds float32")
    if frames.ndim != 4 or frames.shape[2] != joints or frames.shape[1] < 1 or frames.shape[3] not in (2, 3):
        raise ValueError(f"{path} has shape {frames.shape}; expected (frames, bodies, {joints} joints, 2 or 3)")
    if len(frames) != total:
        raise ValueError(f"{path} has {len(frames)} frames; {_HEADER} says {total}")
    for first in range(0, total, _CHECK_FRAMES):
        finite = np.isfinite(frames[first : first + _CHECK_FRAMES]).all(axis=(1, 2, 3))
        if not finite.all():
            raise ValueError(f"{path}: frame {first + int(np.argmin(finite))} has a value that is not finite")
    return frames


def _move_into_place(new: Path, out: Path) -> None:
    """Renames a finished folder to its place; a store that was there goes only once the new one stands."""
    if not out.exists():
        os.rename(new, out)
        return
    old = out.with_name(f".{out.name}.{uuid.uuid4().hex}")
    os.rename(out, old)
    try:
        os.rename(new, out)
    except OSError:
        os.rename(old, out)
        raise
    shutil.rmtree(old)
