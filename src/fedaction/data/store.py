"""Skeleton stores: what may go into one, and clients made from them. The files are `store_file`'s."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from fedaction.data import partition
from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.dataset import Issue, Kind, StoredDataset, count_issues
from fedaction.data.files import to_float32
from fedaction.data.layout import Layout
from fedaction.data.preprocess import mend, prepare
from fedaction.data.samples import Examples
from fedaction.data.store_file import StoreWriter, is_store, load, parse_layout, refuse_existing, save
from fedaction.federation.seeds import derive

__all__ = [
    "Issue",
    "Kind",
    "StoreWriter",
    "StoredDataset",
    "accept",
    "clients_from_store",
    "count_issues",
    "is_store",
    "load",
    "parse_layout",
    "refuse_existing",
    "save",
]


def accept(
    array: npt.NDArray[Any], layout: Layout | None, where: str, scale: float = 1.0
) -> tuple[npt.NDArray[np.float32] | None, list[Issue]]:
    """A recording as a store holds it, or none where it is unusable; and what was wrong with it.

    Args:
        array: (M, T, V, C) numbers; missing values are NaN or infinite.
        layout: what it should be; None: any number of joints.
        where: what issues call it.
        scale: factor to metres.

    Returns:
        (M, T, V, C) float32 and finite, with missing values filled in by `mend`; and the issues.
    """
    length, joints = array.shape[1:3]
    if layout is not None and joints != len(layout):
        detail = f"{joints} joints, layout {layout.name!r} has {len(layout)}"
        return None, [Issue(kind="joint_count", where=where, detail=detail)]
    sequence, mended = mend(to_float32(array * scale if scale != 1 else array))
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
    split: float | Sequence[str] = 0.3,
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
) -> list[ClientData]:
    """Clients from one or more stores, prepared for training.

    Each store is divided by itself; clients of different stores may have different layouts and classes.

    Args:
        paths: one store or several.
        split: share of each client's samples kept for test, or the names of the people kept for test.
        protocol: one of the stores' own splits, e.g. "cross_subject", in place of `split`. Samples that it leaves
            out are left out here.
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
        align: turn every frame so that the shoulders lie along x.

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
        sides = _sides(item, protocol) if protocol else None
        used = np.arange(len(item)) if sides is None else np.flatnonzero(sides != "")
        x, report = prepare([item.sequences[i] for i in used], item.layout, frames, align)
        kept = used[list(report.kept)]
        labels = item.labels[kept]
        people = np.array(item.subjects)[kept] if item.subjects else None
        own = derive(seed, item.name)
        if by == "dataset":
            shares, names = [np.arange(len(labels))], [item.name]
        else:
            shares, given = partition.divide(
                labels, people, by=by, clients=clients, alpha=alpha, shards=shards, seed=own
            )
            names = [f"{item.name}-{name}" for name in given.clients]
        if sides is None:
            tested = partition.choose_test(labels, people, shares, test=split, cross_subject=cross_subject, seed=own)
        else:
            tested = sides[kept] == "test"
        for share, name in zip(shares, names, strict=True):
            held = range(len(item.classes)) if shared_classes else np.unique(labels[share]).tolist()
            halves = []
            for side, mask in (("training", ~tested[share]), ("test", tested[share])):
                chosen = share[mask]
                if not len(chosen):
                    raise ValueError(
                        f"client {name!r} has no {side} sample among its {len(share)}: use fewer clients, "
                        "another split, or cross_subject=False"
                    )
                y = torch.from_numpy(np.searchsorted(np.array(held), labels[chosen]))
                who = tuple(people[chosen].tolist()) if people is not None else ()
                halves.append(Examples(x[torch.from_numpy(chosen)], y, who))
            classes = tuple(item.classes[label] for label in held)
            info = ClientInfo(name, "skeleton", len(halves[0]), classes, tuple(x.shape[1:]), item.layout)
            made.append(ClientData(info, halves[0], halves[1]))
    twice = [name for name, count in Counter(client.info.id for client in made).items() if count > 1]
    if twice:
        raise ValueError(f"more than one client would be called {twice[0]!r}: give the stores' folders unlike names")
    return made


def _sides(item: StoredDataset, protocol: str) -> npt.NDArray[np.str_]:
    """Which side each sample of a store is on: "train", "test", or "" for neither."""
    if protocol not in item.splits:
        has = ", ".join(item.splits) or "none: give a share or test people as `split`"
        raise ValueError(f"store {item.name!r} has no split called {protocol!r}; it has {has}")
    return np.array(item.splits[protocol])
