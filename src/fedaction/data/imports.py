"""Bring your own skeletons: from arrays or folders to a skeleton store, with every fault counted.

Two sources: an `.npz` file of padded arrays, and a folder with one file per recording, whose labels are its folders,
in its file names or in a table. Nothing is unpickled. Recordings with missing values are mended, unusable ones are
skipped, and both are named. Units and axes are read off the body, and said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedaction.data import store
from fedaction.data.axes import Up, guess_body, turn_up
from fedaction.data.dataset import Issue, StoredDataset, count_issues
from fedaction.data.files import read_npz, refuse_existing
from fedaction.data.labelled import list_labelled
from fedaction.data.layout import LAYOUTS, Layout
from fedaction.data.poses import SUFFIXES, read_pose
from fedaction.federation.outside import MOST_SETTINGS, parse_json, read_text

_ARRAYS = ("x", "y", "lengths", "subjects", "classes")
_NAMED = 10  # file names that a printed summary lists for each kind of issue; `Summary.issues` has all


@dataclass(frozen=True)
class Summary:
    """What a dataset holds and what is wrong with it."""

    source: str  # what was looked at
    layout: str | None  # name of the layout, or None when none was given
    joints: dict[int, int]  # joint counts found among the recordings, with the number of recordings of each
    samples: int  # usable recordings
    classes: dict[str, int]  # usable recordings of each class
    subjects: dict[str, int]  # usable recordings of each person; empty when not known
    lengths: tuple[int, ...] = field(repr=False)  # frames of each usable recording
    # Everything that was mended or skipped, by file or position
    issues: tuple[Issue, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()  # what was left aside without being a fault of a recording
    # For each protocol of the dataset, its numbers of training and test samples
    splits: dict[str, tuple[int, int]] = field(default_factory=dict)
    body: str = ""  # what coordinates are measured in and which axis is up, and what was done about it

    @property
    def counts(self) -> dict[str, int]:
        """Frames (or recordings) concerned by each kind of issue."""
        return count_issues(self.issues)

    def __str__(self) -> str:
        lines = [f"{self.source}: {self.samples} usable recordings, {len(self.classes)} classes"]
        lines.append(f"  layout    {self.layout or 'not given'}; joints {list_counts(self.joints)}")
        if self.layout is None:
            fitting = [name for name, item in LAYOUTS.items() if len(item) in self.joints]
            lines.append(f"            built-in layouts with as many: {', '.join(fitting) or 'none'}")
        lines += [f"  body      {self.body}"] if self.body else []
        lines.append(f"  classes   {list_counts(self.classes)}")
        lines.append(f"  subjects  {list_counts(self.subjects) if self.subjects else 'not known'}")
        if self.lengths:
            low, middle, high = np.percentile(self.lengths, (0, 50, 100))
            lines.append(f"  frames    {low:.0f} to {high:.0f}, median {middle:g}")
        lines += [f"  {name}: {train} to train, {test} to test" for name, (train, test) in self.splits.items()]
        return "\n".join([*lines, *list_issues(self.issues), *(f"  note: {note}" for note in self.notes)])


@dataclass(frozen=True)
class _Recording:
    """A recording as read: an array (M, T, V, C), or the reason why there is none."""

    where: str
    label: str
    subject: str | None
    array: npt.NDArray[Any] | None
    fault: str = ""


@dataclass(frozen=True)
class _Source:
    """What a file or folder offers; recordings may be read only as they are asked for."""

    path: Path
    recordings: Iterable[_Recording]
    classes: list[str]
    notes: tuple[str, ...]


def import_recordings(
    source: str | Path,
    out: str | Path,
    *,
    layout: str | Path | Layout,
    classes: Sequence[str] | None = None,
    labels: str | Path | None = None,
    label_pattern: str | None = None,
    subject: str | None = None,
    coordinates: int = 3,
    rate_hz: float | None = None,
    scale: float | Literal["auto"] = "auto",
    up: Up | Literal["auto"] = "auto",
    strict: bool = False,
    overwrite: bool = False,
) -> Summary:
    """Imports an `.npz` file, or a folder of recordings, into a store.

    Args:
        source: a file with `x` (N, T, V, C) or (N, M, T, V, C), padded at the end with zeros or NaN, and `y`
            (N,) integers or strings; optionally `lengths` (N,), `subjects` (N,) and `classes`. Or a folder with a
            file per recording: `.npy` (T, V, C) or (M, T, V, C); `.csv` and `.txt` with a frame per row, x y z of the
            first joint, then of the next, with columns named after joints (`left_wrist_x`) in any order, or with a
            joint per row; `.json` with a list of frames of joints, in the layout's order or by name. Its class is the
            folder that it lies in, if neither of the next two says it.
        out: store to write.
        layout: built-in name, JSON file with joints and edges, or a Layout.
        classes: files: class names, over those in the file; integer labels are positions in them. Without names,
            classes are called after their labels.
        labels: folders: a table with the columns file and label, and perhaps subject.
        label_pattern: folders: regular expression searched in file names, else in paths below the source; its first
            group (or whole match) is the class, e.g. `"^([a-z]+)_"`. A name without it is an error.
        subject: folders: the same for the person, e.g. `"_s([0-9]+)_"`.
        coordinates: folders: numbers per joint in text files.
        rate_hz: frames a second.
        scale: factor to metres, e.g. 0.001 for millimetres; "auto": from how tall bodies are, see `axes`.
        up: the axis that points up, which becomes y; "auto": the one from feet to head, if one does.
        strict: make any issue an error, and write nothing.
        overwrite: replace a store at `out`.
    """
    if scale != "auto" and not (scale > 0 and np.isfinite(scale)):
        raise ValueError(f"scale must be a positive number, got {scale}")
    source, out = Path(source), Path(out)
    body = read_layout(layout)
    if source.is_dir():
        table = Path(labels) if labels else None
        offered = _read_folder(source, coordinates, body, table, label_pattern, subject)
    else:
        offered = _read_arrays(source, classes)
    refuse_existing(out.absolute(), overwrite, store.is_store(out), "skeleton store")
    item, joints = _collect(offered, body)
    item, words = _set_upright(item, scale, up)
    summary = replace(_summarise(str(source), item, joints), notes=offered.notes, body=words)
    if not len(item) or (strict and item.issues):
        raise ValueError(f"nothing was imported from {source}:\n{summary}")
    store.save(replace(item, rate_hz=rate_hz), out, overwrite=overwrite)
    return summary


def inspect(
    path: str | Path,
    *,
    layout: str | Path | Layout | None = None,
    labels: str | Path | None = None,
    label_pattern: str | None = None,
    subject: str | None = None,
    coordinates: int = 3,
) -> Summary:
    """What a store, an `.npz` file or a folder holds, and what is wrong with it. Writes nothing.

    Of what is not a store, `layout` is what the recordings should be; without it joint counts are reported and
    none is wrong. For the others see `import_recordings`.
    """
    path = Path(path)
    if store.is_store(path):
        item = store.load(path)
        summary = _summarise(str(path), item, {len(item.layout): len(item)})
        return replace(summary, body=str(guess_body(item.sequences, item.layout)))
    body = read_layout(layout) if layout is not None else None
    if path.is_dir():
        table = Path(labels) if labels else None
        offered = _read_folder(path, coordinates, body, table, label_pattern, subject)
    else:
        offered = _read_arrays(path, None)
    item, joints = _collect(offered, body)
    words = "" if body is None else str(guess_body(item.sequences, body))
    summary = _summarise(str(path), item, joints)
    return replace(summary, layout=body.name if body else None, notes=offered.notes, body=words)


def read_layout(layout: str | Path | Layout) -> Layout:
    """A layout from a built-in name or a JSON file with joints, edges and optionally name and centre."""
    if isinstance(layout, Layout):
        return layout
    if str(layout) in LAYOUTS:
        return LAYOUTS[str(layout)]
    path = Path(layout)
    if not path.is_file():
        raise ValueError(f"{str(layout)!r} is neither a layout ({', '.join(LAYOUTS)}) nor a JSON file")
    spec = parse_json(read_text(path, MOST_SETTINGS), path)
    if not isinstance(spec, dict):
        raise ValueError(f'{path} must hold an object with "joints" and "edges", not a {type(spec).__name__}')
    return store.parse_layout({"name": path.stem, **spec}, str(path))


def _set_upright(
    item: StoredDataset, scale: float | Literal["auto"], up: Up | Literal["auto"]
) -> tuple[StoredDataset, str]:
    """Recordings in metres with y up, and what was found and done, in words."""
    guess = guess_body(item.sequences, item.layout)
    factor = guess.scale if scale == "auto" else scale
    axis: Up = (guess.up or "y") if up == "auto" else up
    words = str(guess)
    if factor != 1:
        words += f"; multiplied by {factor:.4g} to be metres" + (" (--scale 1 keeps them)" if scale == "auto" else "")
    if axis != "y":
        words += f"; turned so that y is up, where {axis} was" + (" (--up y keeps the axes)" if up == "auto" else "")
    if factor == 1 and axis == "y":
        return item, words
    return replace(item, sequences=[turn_up(own * np.float32(factor), axis) for own in item.sequences]), words


def _collect(source: _Source, layout: Layout | None) -> tuple[StoredDataset, dict[int, int]]:
    """Usable recordings, mended, with every issue noted; and how many recordings have how many joints."""
    kept: list[tuple[_Recording, npt.NDArray[np.float32]]] = []
    issues: list[Issue] = []
    joints: Counter[int] = Counter()
    for record in source.recordings:
        if record.array is None:
            issues.append(Issue(kind="unreadable", where=record.where, detail=record.fault))
            continue
        joints[record.array.shape[2]] += 1
        sequence, faults = store.accept(record.array, layout, record.where)
        issues += faults
        if sequence is not None and sequence.shape[1] == 1:
            issues.append(Issue(kind="one_frame", where=record.where, detail="one frame, which cannot move; kept"))
        if sequence is not None:
            kept.append((record, sequence))
    item = StoredDataset(
        name=source.path.name,
        layout=layout or Layout("unknown", ("joint",), (), 0),
        sequences=[sequence for _, sequence in kept],
        labels=np.array([source.classes.index(record.label) for record, _ in kept], dtype=np.int64),
        classes=tuple(source.classes),
        names=tuple(record.where for record, _ in kept),
        subjects=tuple(record.subject for record, _ in kept if record.subject is not None),
        issues=tuple(issues),
    )
    return item, dict(sorted(joints.items()))


def _summarise(source: str, item: StoredDataset, joints: dict[int, int]) -> Summary:
    per_class = Counter(item.labels.tolist())
    return Summary(
        source=source,
        layout=item.layout.name,
        joints=joints,
        samples=len(item),
        classes={name: per_class[label] for label, name in enumerate(item.classes)},
        subjects=dict(sorted(Counter(item.subjects).items())),
        lengths=tuple(sequence.shape[1] for sequence in item.sequences),
        issues=item.issues,
        splits={name: (sides.count("train"), sides.count("test")) for name, sides in item.splits.items()},
    )


def _read_arrays(path: Path, classes: Sequence[str] | None) -> _Source:
    """The recordings of an .npz file. What concerns the whole file is an error."""
    arrays, others = read_npz(path, _ARRAYS)
    notes = tuple(f"array {name!r} was not read" for name in others)
    if "x" not in arrays or "y" not in arrays:
        raise ValueError(f"{path} needs arrays `x` and `y`; it has {', '.join(arrays) or 'neither'}")
    x = arrays["x"][:, None] if arrays["x"].ndim == 4 else arrays["x"]
    if x.ndim != 5 or x.dtype.kind not in "fiu" or x.shape[4] not in (2, 3) or x.shape[1] < 1:
        form = f"{x.dtype} {arrays['x'].shape}"
        raise ValueError(f"{path}: x is {form}, not numbers (N, T, V, C) or (N, M, T, V, C) with C 2 or 3")
    for name in ("y", "lengths", "subjects"):
        if name in arrays and arrays[name].shape != (len(x),):
            raise ValueError(f"{path}: {name} must have one value for each of {len(x)} samples")
    labels, names = _labels(path, arrays["y"], classes if classes is not None else arrays.get("classes"))
    lengths, subjects = arrays.get("lengths"), arrays.get("subjects")
    if lengths is not None and not np.isin(lengths, range(x.shape[2] + 1)).all():
        raise ValueError(f"{path}: lengths must be integers from 0 to {x.shape[2]}")
    if subjects is not None and subjects.dtype.kind not in "iuU":
        raise ValueError(f"{path}: subjects must be integers or strings, not {subjects.dtype}")
    recordings = []
    for i, label in enumerate(labels):
        length = _without_padding(x[i]) if lengths is None else int(lengths[i])
        who = None if subjects is None else str(subjects[i])
        recordings.append(_Recording(f"{path.name}[{i}]", label, who, x[i, :, :length]))
    return _Source(path, recordings, names, notes)


def _without_padding(sequence: npt.NDArray[Any]) -> int:
    """Frames up to the last one that is neither all zero nor all NaN."""
    used = np.flatnonzero(((sequence != 0) & ~np.isnan(sequence)).any(axis=(0, 2, 3)))
    return int(used[-1]) + 1 if len(used) else 0


def _labels(
    path: Path, y: npt.NDArray[Any], classes: Sequence[str] | npt.NDArray[Any] | None
) -> tuple[list[str], list[str]]:
    """The class name of each sample, and all class names in label order."""
    if y.dtype.kind not in "iuU":
        raise ValueError(f"{path}: y must be integers or strings, not {y.dtype}")
    if classes is None:
        return [str(value) for value in y], [str(value) for value in np.unique(y)]
    names = [str(name) for name in np.asarray(classes).reshape(-1)]
    if y.dtype.kind == "U":
        unknown = sorted(set(y.tolist()) - set(names))
        if unknown:
            raise ValueError(f"{path}: y has {unknown[0]!r}, which is not one of the {len(names)} classes")
        return y.tolist(), names
    if len(y) and not (y.min() >= 0 and y.max() < len(names)):
        raise ValueError(f"{path}: y goes from {y.min()} to {y.max()}, for {len(names)} class names")
    return [names[int(value)] for value in y], names


def _read_folder(
    source: Path,
    coordinates: int,
    layout: Layout | None,
    labels: Path | None,
    label_pattern: str | None,
    subject: str | None,
) -> _Source:
    """The recordings of a folder, one in each file."""
    if not source.is_dir():
        raise ValueError(f"{source} is neither a skeleton store nor a folder of recordings")
    if coordinates not in (2, 3):
        raise ValueError(f"coordinates must be 2 or 3, got {coordinates}")
    listing = list_labelled(source, SUFFIXES, labels=labels, label_pattern=label_pattern, subject=subject)

    def read() -> Iterator[_Recording]:
        for name, why in listing.missing:
            yield _Recording(name, "", None, None, why)
        for item in listing.files:
            label = item.label or ""
            try:
                yield _Recording(item.where, label, item.subject, read_pose(item.path, coordinates, layout))
            except (ValueError, OSError, EOFError) as error:
                yield _Recording(item.where, label, item.subject, None, str(error))

    return _Source(source, read(), sorted({item.label or "" for item in listing.files}), listing.notes)


def list_counts(counts: dict[Any, int]) -> str:
    """'a (3), b (2)' of the first twelve, with the number of the rest."""
    shown = ", ".join(f"{name} ({count})" for name, count in list(counts.items())[:12])
    return shown + (f" and {len(counts) - 12} more" if len(counts) > 12 else "")


def list_issues(issues: Sequence[Issue]) -> list[str]:
    """Lines of a summary: each kind of issue with its number, and the first places that have it."""
    lines: list[str] = []
    for kind, count in count_issues(issues).items():
        own = [issue for issue in issues if issue.kind == kind]
        lines.append(f"  {kind}: {count} in {len(own)} places")
        lines += [f"    {issue.where}: {issue.detail}" for issue in own[:_NAMED]]
        lines += [f"    and {len(own) - _NAMED} more"] if len(own) > _NAMED else []
    return lines
