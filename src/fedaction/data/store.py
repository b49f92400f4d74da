"""Skeleton stores: datasets of recordings that are opened without being read into memory, and clients made from them.

A store is a folder with two files:

- `dataset.json`: format version, layout, classes, rate, and for each sample its name, label, subject, bodies, length
  and side in the dataset's own splits;
- `frames.npy`: the samples end to end, each with its bodies one after another, float32 (rows, joints V, coordinates
  C). A row is one body in one frame.

One `.npy` rather than one file per sample or a safetensors file, because NumPy maps it into memory: a store larger
than memory can be written and opened, and samples are views of the file. It needs no pickle, and its header says
shape and type, so that a damaged or foreign file is refused before any of it is used.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field

from fedaction.data import files, partition
from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.dataset import Issue, Kind, StoredDataset, count_issues
from fedaction.data.folders import NewFolder
from fedaction.data.holdout import HoldOut, choose_held_out
from fedaction.data.inputs import skeleton_input
from fedaction.data.layout import LAYOUTS, Layout
from fedaction.data.preprocess import mend, prepare
from fedaction.data.samples import Examples
from fedaction.federation.outside import refuse_damage
from fedaction.federation.seeds import derive

VERSION = 2
HEADER, FRAMES = "dataset.json", "frames.npy"


class _StoreHeader(files.Header):
    """The contents of dataset.json."""

    current: ClassVar[int] = VERSION
    remedy: ClassVar[str] = ". Import or prepare the data again"

    format: Literal["fedaction-skeletons"]
    layout: dict[str, Any]
    classes: list[str]
    rate_hz: float | None = Field(gt=0, allow_inf_nan=False)
    labels: list[int]
    subjects: list[str] | None
    lengths: list[int]
    names: list[str]
    skipped: dict[str, int]
    issues: list[Issue]
    bodies: list[int]
    splits: dict[str, list[Literal["train", "test", ""]]]


class StoreWriter:
    """Writes a store sample by sample, holding one of them at a time; whole or not at all.

    The store is written under another name and renamed by `finish`; a `with` block that ends before leaves nothing.

        with StoreWriter("mine", layout=KINECT_V2, classes=("sit", "wave")) as writer:
            writer.add(sequence, label=0, name="first")
            writer.finish()
    """

    def __init__(
        self,
        out: str | Path,
        *,
        layout: Layout,
        classes: Sequence[str],
        rate_hz: float | None = None,
        overwrite: bool = False,
    ) -> None:
        """Starts a store of recordings with one layout, at `rate_hz` frames a second where that is known.

        A folder that exists is refused, unless `overwrite` is set and it is a store.
        """
        self._out = Path(out).absolute()
        files.refuse_existing(self._out, overwrite, is_store(self._out), "skeleton store")
        fixed = {"format": "fedaction-skeletons", "version": VERSION, "layout": layout.to_dict(), "rate_hz": rate_hz}
        empty = {name: [] for name in ("labels", "subjects", "lengths", "names", "issues", "bodies")}
        self._header = _StoreHeader.model_validate(
            {**fixed, **empty, "classes": list(classes), "skipped": {}, "splits": {}}
        )
        self._joints = len(layout)
        self._coordinates = 0  # not known before the first sample
        self._new = NewFolder(self._out)
        self._file = self._new.open(FRAMES)
        self._file.write(bytes(files.NPY_HEADER_BYTES))

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._file.close()
        finally:  # a full disk says so once more
            self._new.remove()

    def __len__(self) -> int:
        return len(self._header.lengths)

    def add(
        self,
        sequence: npt.NDArray[np.float32],
        *,
        label: int,
        name: str,
        subject: str = "",
        splits: Mapping[str, str] | None = None,
    ) -> None:
        """Appends one sample (M, T, V, C), finite; `label` is an index into the classes.

        `splits` has "train", "test" or "" for each protocol; a protocol that is not named here is "".
        """
        bodies, length, joints, coordinates = sequence.shape
        if joints != self._joints or coordinates != (self._coordinates or coordinates):
            raise ValueError("recordings differ in their number of joints or coordinates: store them apart")
        if not np.isfinite(sequence).all():
            raise ValueError(f"{name!r} has a value that is not finite")
        header, self._coordinates = self._header, coordinates
        for protocol in splits or {}:
            header.splits.setdefault(protocol, [""] * len(self))
        for protocol, sides in header.splits.items():
            sides.append((splits or {}).get(protocol, ""))  # type: ignore[arg-type]  # checked by `finish`
        header.labels.append(label)
        header.names.append(name)
        header.bodies.append(bodies)
        header.lengths.append(length)
        assert header.subjects is not None
        header.subjects.append(subject)
        self._file.write(np.ascontiguousarray(sequence, dtype="<f4").data)

    def finish(self, issues: Sequence[Issue] = ()) -> None:
        """Checks the store and puts it in its place, with the issues of what was skipped or mended on the way."""
        header = self._header
        if not len(self):
            raise ValueError(f"there is no usable sample to write to {self._out.name!r}")
        header.issues, header.skipped = list(issues), count_issues(issues)
        if not any(header.subjects or ()):
            header.subjects = None
        self._file.seek(0)
        self._file.write(files.npy_header((_rows(header), self._joints, self._coordinates)))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        files.write_header(self._new.path / HEADER, header)
        load(self._new.path)
        self._new.put_in_place()


def save(dataset: StoredDataset, out: str | Path, *, overwrite: bool = False) -> None:
    """Writes a store, whole or not at all; it is called after its folder, not by the dataset's name.

    A folder that exists is refused, unless `overwrite` is set and it is a store.
    """
    with StoreWriter(
        out, layout=dataset.layout, classes=dataset.classes, rate_hz=dataset.rate_hz, overwrite=overwrite
    ) as writer:
        for i, sequence in enumerate(dataset.sequences):
            writer.add(
                sequence,
                label=int(dataset.labels[i]),
                name=dataset.names[i],
                subject=dataset.subjects[i] if dataset.subjects else "",
                splits={protocol: sides[i] for protocol, sides in dataset.splits.items()},
            )
        writer.finish(dataset.issues)


def is_store(path: Path) -> bool:
    """Whether a path looks like a skeleton store."""
    return (path / HEADER).is_file() and (path / FRAMES).is_file()


def load(path: str | Path) -> StoredDataset:
    """Opens a store. The frames stay on disk until used; everything is checked first, all values included."""
    path = Path(path).absolute()
    if not is_store(path):
        raise FileNotFoundError(
            f"{path} is not a skeleton store: it needs {HEADER} and {FRAMES}. Make one out of recordings "
            "with `fedaction data import`, or of a public dataset with `fedaction data prepare`"
        )
    with refuse_damage(path, "a skeleton store"):
        header = files.read_header(path / HEADER, _StoreHeader, "store header")
        layout = _check_header(header, path / HEADER)
        frames = _check_frames(path / FRAMES, header)
    return StoredDataset(
        name=path.name,
        layout=layout,
        sequences=_sequences(frames, header),
        labels=np.array(header.labels, dtype=np.int64),
        classes=tuple(header.classes),
        names=tuple(header.names),
        subjects=tuple(header.subjects or ()),
        rate_hz=header.rate_hz,
        issues=tuple(header.issues),
        splits={protocol: tuple(sides) for protocol, sides in header.splits.items()},
    )


def parse_layout(spec: dict[str, object], where: str) -> Layout:
    """A layout from its description; one that takes a built-in layout's name must be that layout."""
    with refuse_damage(where, "a layout"):
        layout = Layout.from_dict(spec)
    if LAYOUTS.get(layout.name, layout) != layout:
        raise ValueError(
            f"{where}: the layout is called {layout.name!r} but differs from the built-in one: rename it"
        )
    return layout


def _rows(header: _StoreHeader) -> int:
    """First dimension of frames.npy."""
    return sum(bodies * length for bodies, length in zip(header.bodies, header.lengths, strict=True))


def _sequences(frames: npt.NDArray[np.float32], header: _StoreHeader) -> list[npt.NDArray[np.float32]]:
    """Views (M, T, V, C) of the mapped frames."""
    views: list[npt.NDArray[np.float32]] = []
    first = 0
    for bodies, length in zip(header.bodies, header.lengths, strict=True):
        views.append(frames[first : first + bodies * length].reshape(bodies, length, *frames.shape[1:]))
        first += bodies * length
    return views


def _check_header(header: _StoreHeader, where: Path) -> Layout:
    """Refuses a header whose parts do not fit together; returns its layout."""
    layout = parse_layout(header.layout, str(where))
    columns = {name: getattr(header, name) for name in ("labels", "names", "subjects", "bodies")}
    splits = {f"{protocol!r} splits": sides for protocol, sides in header.splits.items()}
    files.check_columns(where, len(header.lengths), columns | splits)
    if min(header.lengths, default=0) < 1 or min(header.bodies, default=1) < 1:
        raise ValueError(f"{where} must list at least one sample, each with at least one body and one frame")
    files.check_labels(header.labels, header.classes, where)
    if header.skipped != count_issues(header.issues):
        raise ValueError(f"{where}: the counts of what was skipped do not agree with the list of issues")
    return layout


def _check_frames(path: Path, header: _StoreHeader) -> npt.NDArray[np.float32]:
    """Maps the frames into memory after checking type, shape, size and values."""
    frames = files.open_npy(path)
    joints, total = len(header.layout["joints"]), _rows(header)
    if frames.dtype != np.dtype("<f4"):
        raise ValueError(f"{path} holds {frames.dtype}; a store holds float32")
    if frames.ndim != 3 or frames.shape[1] != joints or frames.shape[2] not in (2, 3) or not frames.size:
        raise ValueError(f"{path} has shape {frames.shape}; expected (bodies times frames, {joints} joints, 2 or 3)")
    if len(frames) != total:
        raise ValueError(f"{path} has {len(frames)} rows; {HEADER} says {total}")
    files.check_finite(frames, path)
    return frames


def accept(
    array: npt.NDArray[Any], layout: Layout | None, where: str, scale: float = 1.0
) -> tuple[npt.NDArray[np.float32] | None, list[Issue]]:
    """A recording (M, T, V, C) as a store holds it, or none where it is unusable; and what was wrong with it.

    Missing values, NaN or infinite, are filled in by `mend`; the result is float32 and finite. `layout` is what
    it should be (None: any number of joints), `where` what issues call it, and `scale` the factor to metres.
    """
    length, joints = array.shape[1:3]
    if layout is not None and joints != len(layout):
        detail = f"{joints} joints, layout {layout.name!r} has {len(layout)}"
        return None, [Issue(kind="joint_count", where=where, detail=detail)]
    sequence, mended = mend(files.to_float32(array * scale if scale != 1 else array))
    absent = length - int((sequence != 0).any(axis=(0, 2, 3)).sum())
    if absent == length:
        return None, [Issue(kind="empty", where=where, detail=f"none of its {length} frames is usable")]
    faults: list[tuple[Kind, int]] = [("nan_frames", mended), ("zero_frames", absent)]
    return sequence, [
        Issue(kind=kind, where=where, count=count, detail=f"{count} of {length} frames")
        for kind, count in faults
        if count
    ]


def clients_from_store(
    paths: str | Path | Sequence[str | Path],
    *,
    split: float = 0.3,
    hold_out: HoldOut = 0,
    protocol: str = "",
    by: Literal["dataset", "subject", "dirichlet", "shards", "iid"] = "dataset",
    clients: int | None = None,
    alpha: float = 0.5,
    shards: int = 2,
    frames: int = 50,
    seed: int = 0,
    cross_subject: bool = True,
    shared_classes: bool = False,
    align: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> list[ClientData]:
    """Clients from one or more stores, prepared for training.

    Each store is divided by itself; clients of different stores may have different layouts and classes.

    Args:
        paths: one store or several.
        split: share of each client's samples kept for test, where nobody is held out.
        hold_out: hold-out subjects, see `holdout`: every client of a store is tested on all that it has of them, and
            has all classes of the store. People of one name in two stores are two people.
        protocol: one of the stores' own splits, e.g. "cross_subject", in place of both. Samples that it leaves out
            are left out here.
        by: "dataset" makes one client of each store; the others divide each store (see `partition`).
        clients: clients per store. Needed unless by "dataset" or "subject" (then: one client per person).
        alpha: concentration of the Dirichlet division.
        shards: class shards per client.
        frames: frames of each prepared sequence.
        seed: run seed.
        cross_subject: with a share as `split` and people known, keep test people out of training: the same people in
            all clients of a store. A client of one person, and a store without subjects, is split by class.
        shared_classes: give all clients of a store its whole class list. Otherwise a client's classes are
            those it has samples of, and its labels count from 0 among them.
        align: turn every frame so that the shoulders lie along x.
        progress: called with the recordings of a store prepared and the recordings there are, store by store.

    Returns:
        Clients with x (N, M, frames, V, C), in the order of the stores.
    """
    stores = [load(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    layouts = {item.layout.name: item.layout for item in stores}
    for item in stores:
        if layouts[item.layout.name] != item.layout:
            raise ValueError(f"two stores use different layouts that are both called {item.layout.name!r}")
    twice = [name for name, count in Counter(item.name for item in stores).items() if count > 1]
    if twice:
        raise ValueError(f"more than one store is called {twice[0]!r}: give their folders unlike names")
    held_out = choose_held_out(hold_out, {item.name: item.subjects for item in stores})
    made: list[ClientData] = []
    for item in stores:
        sides = _sides(item, protocol) if protocol else None
        used = np.arange(len(item)) if sides is None else np.flatnonzero(sides != "")
        x, report = prepare([item.sequences[i] for i in used], item.layout, frames, align, progress)
        kept = used[list(report.kept)]
        labels = item.labels[kept]
        people = np.array(item.subjects)[kept] if item.subjects else None
        own = derive(seed, item.name)
        unseen = np.isin(people, held_out[item.name]) if held_out[item.name] and people is not None else None
        rows = np.arange(len(labels)) if unseen is None else np.flatnonzero(~unseen)
        if by == "dataset":
            shares, names = [rows], [item.name]
        else:
            parts, given = partition.divide(
                labels[rows],
                None if people is None else people[rows],
                by=by,
                clients=clients,
                alpha=alpha,
                shards=shards,
                seed=own,
            )
            shares, names = [rows[part] for part in parts], [f"{item.name}-{name}" for name in given.clients]
        if sides is not None:
            tested = sides[kept] == "test"
        elif unseen is not None:
            tested, shares = unseen, [np.union1d(share, np.flatnonzero(unseen)) for share in shares]
        else:
            tested = partition.choose_test(labels, people, shares, test=split, cross_subject=cross_subject, seed=own)
        for share, name in zip(shares, names, strict=True):
            whole = range(len(item.classes)) if shared_classes else np.unique(labels).tolist()
            held = whole if shared_classes or unseen is not None else np.unique(labels[share]).tolist()
            halves = []
            for side, mask in (("training", ~tested[share]), ("test", tested[share])):
                chosen = share[mask]
                if not len(chosen):
                    raise ValueError(
                        f"client {name!r} has no {side} sample among its {len(share)}: use fewer clients, another "
                        "test_share, or people whom all are tested on (hold_out)"
                    )
                y = torch.from_numpy(np.searchsorted(np.array(held), labels[chosen]))
                who = tuple(people[chosen].tolist()) if people is not None else ()
                halves.append(Examples(x[torch.from_numpy(chosen)], y, who))
            classes = tuple(item.classes[label] for label in held)
            info = ClientInfo(name, "skeleton", len(halves[0]), classes, tuple(x.shape[1:]), item.layout)
            given = skeleton_input(item.layout, info.shape, align, item.rate_hz)
            made.append(ClientData(info, halves[0], halves[1], input=given))
    return made


def _sides(item: StoredDataset, protocol: str) -> npt.NDArray[np.str_]:
    """Which side each sample of a store is on: "train", "test", or "" for neither."""
    if protocol not in item.splits:
        has = ", ".join(item.splits) or "none: give a share (test_share) or people (hold_out)"
        raise ValueError(f"store {item.name!r} has no split called {protocol!r}; it has {has}")
    return np.array(item.splits[protocol])
