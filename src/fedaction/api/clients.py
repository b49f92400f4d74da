"""Clients from arrays that a program has."""

# torch's type stubs are partial, and what a program gives may be anything.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.features.clients import split
from fedaction.data.imports import read_layout
from fedaction.data.inputs import Input
from fedaction.data.layout import Layout
from fedaction.data.preprocess import prepare
from fedaction.data.samples import Examples
from fedaction.federation.seeds import derive, numpy_generator

Holdout = float | Sequence[str] | Mapping[str, Sequence[str]]
"""A share of each client's samples (of its people, where they are known); or the names of people."""


@dataclass(frozen=True)
class _Given:
    """What one client was given: samples, labels as they came, people ("" where they are not known)."""

    x: Any
    y: npt.NDArray[Any]
    people: npt.NDArray[Any] | None


def clients(
    x: Any,
    y: Any = None,
    *,
    by: Any = None,
    subjects: Any = None,
    holdout: Holdout = 0.3,
    classes: Sequence[str] | None = None,
    layout: str | Layout | None = None,
    frames: int = 50,
    groups: Mapping[str, str] | None = None,
    rate_hz: float | None = None,
    channels: Sequence[str] = (),
    seed: int = 0,
) -> list[ClientData]:
    """Clients for `fedaction.run`, from NumPy arrays or torch tensors.

    Args:
        x: (N, *shape) samples of all clients; or a mapping from a client's name to its (x, y) or (x, y, subjects).
            Skeletons (with `layout`) may be a list of recordings (bodies, frames, joints, coordinates) of any length.
        y: (N,) labels, whole numbers or names; not with a mapping.
        by: (N,) which client each sample is of: a person, a site, a device. Without it all samples are one client's.
        subjects: (N,) who performed each sample, where clients are not people.
        holdout: what is kept for test. A share: of each client's people where `subjects` are known and there are
            several, else of its samples, class by class. Or names of people: where clients are people (`by` without
            `subjects`) those are nobody's client, and everybody is tested on all of their samples; else each client
            is tested on its samples of them.
        classes: names of the classes, in the order of whole-number labels; default: the labels themselves. All
            clients name all classes.
        layout: of skeletons: a built-in layout's name, a JSON file or a `Layout`. Sequences are then mended, centred,
            aligned and resized to `frames`.
        frames: of a skeleton sequence.
        groups: the group of each client (its modality or device), by name; default: one group.
        rate_hz: of signals (T, channels): readings a second, which model files then say.
        channels: of signals: what is measured, in the order of the last axis; a recording may then be longer than a
            window when the trained network is used.
        seed: of the split.

    Returns:
        The clients, in the order of their names.
    """
    parts = _parts(x, y, by, subjects)
    everyone = _apart(parts, holdout) if by is not None and subjects is None else None
    names, places = _classes([part.y for part in parts.values()], classes)
    given = None if layout is None else read_layout(layout)
    made: list[ClientData] = []
    for name in sorted(parts):
        if everyone is not None and name in everyone:
            continue
        part = parts[name]
        if everyone is None:
            tested = _hold_out(name, part, holdout, seed)
            train, test = _pick(part, ~tested), _pick(part, tested)
        else:
            train, test = (_join({who: parts[who] for who in some}) for some in ([name], sorted(everyone)))
        halves = [_examples(f"client {name!r}", half, places, given, frames) for half in (train, test)]
        info = ClientInfo(
            name,
            (groups or {}).get(name, "skeleton" if given else "arrays"),
            len(halves[0]),
            names,
            halves[0].shape,
            given,
        )
        made.append(ClientData(info, halves[0], halves[1], input=_input(info, rate_hz, channels)))
    if not made:
        raise ValueError("there are no clients left to train: everybody is held out")
    return made


def _parts(x: Any, y: Any, by: Any, subjects: Any) -> dict[str, _Given]:
    if isinstance(x, Mapping):
        if y is not None or by is not None or subjects is not None:
            raise ValueError("x names the clients and holds their labels, so y, by and subjects must not be given")
        parts: dict[str, _Given] = {}
        for name, own in x.items():
            if not isinstance(own, tuple | list) or len(own) not in (2, 3):
                raise ValueError(f"client {name!r}: give (x, y) or (x, y, subjects)")
            people = _column(own[2], len(own[0]), f"client {name!r}: subjects") if len(own) == 3 else None
            parts[str(name)] = _Given(own[0], _column(own[1], len(own[0]), f"client {name!r}: y"), people)
        return parts
    if y is None:
        raise ValueError("y is missing: one label for each sample")
    labels = _column(y, len(x), "y")
    people = None if subjects is None else _column(subjects, len(x), "subjects")
    if by is None:
        return {"everyone": _Given(x, labels, people)}
    owners = _column(by, len(x), "by")
    parts = {}
    order = np.argsort(owners, kind="stable")
    names, firsts = np.unique(owners[order], return_index=True)
    for name, rows in zip(names, np.split(order, firsts[1:]), strict=True):
        parts[str(name)] = _Given(_rows(x, rows), labels[rows], None if people is None else people[rows])
    return parts


def _column(values: Any, count: int, what: str) -> npt.NDArray[Any]:
    """(N,) whole numbers or names."""
    column = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if column.shape != (count,):
        raise ValueError(f"{what}: {count} samples need as many values, these are {column.shape}")
    if column.dtype.kind == "f" and (column == np.round(column)).all():
        column = column.astype(np.int64)
    if column.dtype.kind not in "iuU":
        column = np.array([str(value) for value in column.tolist()]) if column.dtype.kind == "O" else column
        if column.dtype.kind != "U":
            raise ValueError(f"{what}: whole numbers or names are needed, these are {column.dtype}")
    return column


def _apart(parts: Mapping[str, _Given], holdout: Holdout) -> set[str] | None:
    """Of clients that are people, those who are held out; None where a share of everybody's samples is."""
    if isinstance(holdout, int | float):
        return None
    if isinstance(holdout, Mapping):
        raise ValueError("holdout: clients are people here, so give one list of names for all")
    wanted = {str(name) for name in holdout}
    unknown = sorted(wanted - parts.keys())
    if unknown:
        raise ValueError(f"holdout: nobody is called {unknown[0]!r}; there are {', '.join(sorted(parts))}")
    return wanted


def _hold_out(name: str, part: _Given, holdout: Holdout, seed: int) -> npt.NDArray[np.bool_]:
    """Which of a client's samples are for test, (N,)."""
    if isinstance(holdout, int | float):
        if not 0 < holdout < 1:
            raise ValueError(f"holdout: a share between 0 and 1, or names of people; not {holdout}")
        if part.people is not None and len(everybody := np.unique(part.people)) > 1:
            order = numpy_generator(seed, "holdout", name).permutation(everybody)
            count = min(max(1, round(holdout * len(order))), len(order) - 1)
            return np.isin(part.people, order[:count])
        labels = np.unique(part.y, return_inverse=True)[1].astype(np.int64)
        return split(labels, holdout, derive(seed, "holdout", name))
    if part.people is None:
        raise ValueError(f"client {name!r}: who performed its samples is not known, so give holdout as a share")
    wanted = holdout.get(name, ()) if isinstance(holdout, Mapping) else holdout
    tested = np.isin(part.people.astype(str), [str(person) for person in wanted])
    if tested.all() or not tested.any():
        who = ", ".join(np.unique(part.people).astype(str).tolist())
        raise ValueError(
            f"client {name!r}: holdout leaves nothing to {'train' if tested.all() else 'test'} on; it has "
            f"samples of {who}"
        )
    return tested


def _rows(x: Any, rows: npt.NDArray[np.int64]) -> Any:
    if isinstance(x, list):
        return [x[row] for row in rows]
    return x[torch.from_numpy(rows)] if isinstance(x, Tensor) else np.asarray(x)[rows]


def _pick(part: _Given, chosen: npt.NDArray[np.bool_]) -> _Given:
    rows = np.flatnonzero(chosen)
    return _Given(_rows(part.x, rows), part.y[rows], None if part.people is None else part.people[rows])


def _join(parts: Mapping[str, _Given]) -> _Given:
    """The samples of some people, by name, who they are of included."""
    held = [part.x for part in parts.values()]
    y = np.concatenate([part.y for part in parts.values()])
    people = np.repeat([*parts], [len(part.y) for part in parts.values()])
    if isinstance(held[0], list):
        return _Given([one for own in held for one in own], y, people)
    return _Given(torch.cat(held) if isinstance(held[0], Tensor) else np.concatenate(held), y, people)


def _classes(
    labels: Iterable[npt.NDArray[Any]], classes: Sequence[str] | None
) -> tuple[tuple[str, ...], dict[Any, int]]:
    """Names of all classes, and the place of every label among them."""
    used = set[Any]().union(*(column.tolist() for column in labels))
    numbers = all(isinstance(label, int) for label in used)
    if classes is None:
        ordered = sorted(used) if numbers else sorted(used, key=str)
        return tuple(map(str, ordered)), {label: place for place, label in enumerate(ordered)}
    names = tuple(map(str, classes))
    if len(set(names)) != len(names):
        raise ValueError("classes: a name is given twice")
    known = [label for label in used if (0 <= label < len(names) if isinstance(label, int) else label in names)]
    places = {label: label if isinstance(label, int) else names.index(label) for label in known}
    unknown = sorted(map(str, used - places.keys()))
    if unknown:
        raise ValueError(f"y has the label {unknown[0]!r}, which is none of the {len(names)} classes")
    return names, places


def _examples(where: str, part: _Given, places: Mapping[Any, int], layout: Layout | None, frames: int) -> Examples:
    labels = torch.tensor([places[label] for label in part.y.tolist()], dtype=torch.int64)
    people = tuple(map(str, part.people.tolist())) if part.people is not None else ()
    if layout is not None:
        x, report = prepare([one[None] if np.ndim(one) == 3 else one for one in part.x], layout, frames)
        kept = list(report.kept)
        return Examples(x, labels[kept], tuple(people[i] for i in kept) if people else ())
    given = part.x.detach().cpu().numpy() if isinstance(part.x, Tensor) else np.array(part.x)
    if given.dtype.kind not in "fiu" or given.ndim < 2:
        raise ValueError(f"{where}: samples must be numbers (N, *shape), these are {given.dtype} {given.shape}")
    x = torch.from_numpy(given.astype(np.float32))
    if not torch.isfinite(x).all():
        bad = int((~torch.isfinite(x)).flatten(1).any(1).sum())
        raise ValueError(
            f"{where}: {bad} of {len(x)} samples have values that are NaN or infinite; fill or drop them"
        )
    return Examples(x, labels, people)


def _input(info: ClientInfo, rate_hz: float | None, channels: Sequence[str]) -> Input:
    """What model files say of the recordings."""
    if info.layout is not None:
        return Input(kind="skeleton", shape=info.shape, layout=info.layout.to_dict(), align=True, rate_hz=rate_hz)
    if rate_hz or channels:
        if len(info.shape) != 2 or (channels and len(channels) != info.shape[1]):
            raise ValueError(
                f"rate_hz and channels are of signals (T, channels); samples are {info.shape}, and {len(channels)} "
                "channels are named"
            )
        return Input(kind="signals", shape=info.shape, rate_hz=rate_hz, channels=tuple(channels), hop=info.shape[0])
    return Input(kind="arrays", shape=info.shape)
