"""Who holds what: dividing one collection of samples among clients.

Each function returns one ascending int64 index array per client and a report to print. Every sample goes to
exactly one client (but for `by_classes` with `overlapping`), and the same arguments always give the same division.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from io import StringIO

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from fedaction.federation.seeds import numpy_generator

Indices = npt.NDArray[np.int64]
Values = Sequence[str] | Sequence[int] | npt.NDArray[np.integer] | npt.NDArray[np.str_]


@dataclass(frozen=True)
class PartitionReport:
    """What each client got."""

    kind: str  # how the samples were divided, in words
    clients: tuple[str, ...]  # client names
    classes: tuple[str, ...]  # class names (or labels as text), in sorted order of the labels
    counts: npt.NDArray[np.int64]  # (clients, classes) int64, samples of each class at each client

    @property
    def sizes(self) -> tuple[int, ...]:
        """Samples of each client."""
        return tuple(int(size) for size in self.counts.sum(axis=1))

    def __rich__(self) -> Table:
        table = Table(title=f"{self.kind}: {sum(self.sizes)} samples, {len(self.clients)} clients")
        table.add_column("client")
        for heading in ("samples", "classes", "largest class"):
            table.add_column(heading, justify="right")
        for name, size, row in zip(self.clients, self.sizes, self.counts, strict=True):
            top = int(row.argmax())
            largest = f"{self.classes[top]} ({row[top] / size:.0%})" if size else "none"
            table.add_row(name, str(size), f"{int((row > 0).sum())} of {len(self.classes)}", largest)
        return table

    def __str__(self) -> str:
        text = StringIO()
        Console(file=text, width=100, color_system=None).print(self)
        return text.getvalue().rstrip()


def by_subject(
    labels: Values, subjects: Values, *, clients: int | None = None, seed: int = 0
) -> tuple[list[Indices], PartitionReport]:
    """One client per person; or, where `clients` is given, people dealt whole to that many clients.

    Dealing takes people in order of their number of samples, the largest first (ties at random, by the seed),
    and gives each to the client with the fewest samples so far.
    """
    codes, names = _encode(subjects, len(labels), "subjects")
    if clients is None:
        shares = [np.flatnonzero(codes == code) for code in range(len(names))]
        return _report("by subject", shares, labels, names)
    _check_clients(clients, len(names), "people")
    sizes = np.bincount(codes, minlength=len(names))
    order = numpy_generator(seed, "partition", "by_subject").permutation(len(names))
    order = order[np.argsort(-sizes[order], kind="stable")]
    owner = np.zeros(len(names), dtype=np.int64)
    load = np.zeros(clients, dtype=np.int64)
    for person in order:
        owner[person] = load.argmin()
        load[owner[person]] += sizes[person]
    return _report("by subject", _split_by(owner[codes], clients), labels)


def by_class_shards(
    labels: Values, *, clients: int, shards: int = 2, seed: int = 0
) -> tuple[list[Indices], PartitionReport]:
    """Samples sorted by class and cut into equal shards, `shards` of them dealt to each client at random.

    With two shards a client holds two classes or a few more (McMahan et al. 2017, the pathological split).
    """
    codes, _ = _encode(labels, len(labels), "labels")
    if shards < 1:
        raise ValueError(f"shards must be at least 1, got {shards}")
    _check_clients(clients, len(codes) // shards, f"samples for {shards} shards each")
    rng = numpy_generator(seed, "partition", "by_class_shards")
    mixed = rng.permutation(len(codes))
    pieces = np.array_split(mixed[np.argsort(codes[mixed], kind="stable")], clients * shards)
    dealt = rng.permutation(clients * shards).reshape(clients, shards)
    shares = [np.sort(np.concatenate([pieces[piece] for piece in row])) for row in dealt]
    return _report(f"{shards} class shards each", shares, labels)


def by_classes(
    labels: Values, *, clients: int, each: int, seed: int = 0, overlapping: bool = False
) -> tuple[list[Indices], PartitionReport]:
    """Every client holds samples of a few classes only.

    Args:
        labels: (N,) class of each sample.
        clients: how many.
        each: classes of each client.
        seed: which classes, and which of their samples.
        overlapping: the division that FedVSSL's authors released: clients come in pairs; pair i has the i-th smallest
            classes and their successors and as many from the largest down, and its two clients take a half each.
            Neighbouring pairs share most of their classes, so that a sample may be at many clients, or at none.
            Otherwise every sample is at exactly one.
    """
    codes, names = _encode(labels, len(labels), "labels")
    if not 1 <= each <= len(names):
        raise ValueError(f"each client can have 1 to {len(names)} classes, not {each}")
    if overlapping:
        shares = _sliding(codes, len(names), clients, each, seed)
        return _report(f"{each} classes each, overlapping", shares, labels)
    if clients * each < len(names):
        raise ValueError(f"{clients} clients with {each} classes each cannot hold all {len(names)} classes")
    order = numpy_generator(seed, "partition", "by_classes").permutation(len(names))
    owners: list[list[int]] = [[] for _ in names]
    for slot in range(clients * each):  # around the circle of classes, so that all have as many owners, or one more
        owners[order[slot % len(names)]].append(slot // each)
    pieces: list[list[Indices]] = [[] for _ in range(clients)]
    for code, own in enumerate(owners):
        rows = numpy_generator(seed, "partition", "by_classes", code).permutation(np.flatnonzero(codes == code))
        for owner, some in zip(own, np.array_split(rows, len(own)), strict=True):
            pieces[owner].append(some)
    shares = [np.sort(np.concatenate(piece)).astype(np.int64) for piece in pieces]
    if not all(len(share) for share in shares):
        raise ValueError(
            f"some classes have too few samples for {clients} clients with {each} classes each: use fewer"
        )
    return _report(f"{each} classes each", shares, labels)


def _sliding(codes: Indices, classes: int, clients: int, each: int, seed: int) -> list[Indices]:
    """See `by_classes`, overlapping."""
    if each % 2 or clients % 2 or clients // 2 + each // 2 - 1 > classes:
        raise ValueError(
            f"overlapping needs an even number of classes each, an even number of clients, and at least "
            f"{clients // 2 + each // 2 - 1} classes; got {each}, {clients} and {classes}"
        )
    sizes = np.bincount(codes, minlength=classes)
    order = np.argsort(sizes, kind="stable")
    shares: list[Indices] = []
    for pair in range(clients // 2):
        window = {*order[pair : pair + each // 2].tolist(), *order[::-1][pair : pair + each // 2].tolist()}
        rows = np.flatnonzero(np.isin(codes, sorted(window)))
        mixed = numpy_generator(seed, "partition", "sliding", pair).permutation(rows)
        shares += [np.sort(half).astype(np.int64) for half in np.array_split(mixed, 2)]
    return shares


def dirichlet(
    labels: Values, *, clients: int, alpha: float = 0.5, minimum: int = 2, retries: int = 100, seed: int = 0
) -> tuple[list[Indices], PartitionReport]:
    """Each class divided among the clients in proportions drawn from a symmetric Dirichlet distribution.

    Args:
        labels: (N,) class of each sample.
        clients: number of clients.
        alpha: concentration; small means that a class sits with few clients, large comes near `iid`.
        minimum: fewest samples a client may get. A draw that leaves some client with fewer is drawn again.
        retries: how many draws to make before giving up with an error.
        seed: run seed.
    """
    codes, names = _encode(labels, len(labels), "labels")
    if not (alpha > 0 and np.isfinite(alpha)):
        raise ValueError(f"alpha must be a positive number, got {alpha}")
    if minimum < 1 or retries < 1:
        raise ValueError(f"minimum and retries must be at least 1, got {minimum} and {retries}")
    _check_clients(clients, len(codes) // minimum, f"samples for {minimum} each")
    rng = numpy_generator(seed, "partition", "dirichlet")
    best = 0
    for _ in range(retries):
        owner = np.empty(len(codes), dtype=np.int64)
        for code in range(len(names)):
            members = rng.permutation(np.flatnonzero(codes == code))
            proportions = rng.dirichlet(np.full(clients, alpha))
            if not np.isfinite(proportions).all():  # every gamma draw underflowed: the limit is one client taking all
                proportions = np.eye(clients)[rng.integers(clients)]
            cuts = np.rint(np.cumsum(proportions)[:-1] * len(members)).astype(np.int64)
            for client, piece in enumerate(np.split(members, cuts)):
                owner[piece] = client
        best = max(best, smallest := int(np.bincount(owner, minlength=clients).min()))
        if smallest >= minimum:
            return _report(f"Dirichlet, alpha {alpha:g}", _split_by(owner, clients), labels)
    raise ValueError(
        f"in {retries} draws some client always had fewer than {minimum} of the {len(codes)} samples (at "
        f"best {best}): use fewer clients than {clients}, a larger alpha than {alpha:g} or a smaller minimum"
    )


def iid(labels: Values, *, clients: int, seed: int = 0) -> tuple[list[Indices], PartitionReport]:
    """Samples shuffled and cut into shares whose sizes differ by one at most."""
    _check_clients(clients, len(labels), "samples")
    order = numpy_generator(seed, "partition", "iid").permutation(len(labels))
    return _report("iid", [np.sort(share) for share in np.array_split(order, clients)], labels)


def divide(
    labels: Values,
    subjects: Values | None,
    *,
    by: str,
    clients: int | None = None,
    alpha: float = 0.5,
    shards: int = 2,
    seed: int = 0,
) -> tuple[list[Indices], PartitionReport]:
    """One of the divisions above by name: "subject", "dirichlet", "shards" or "iid"."""
    if by == "subject":
        if subjects is None:
            raise ValueError("the samples do not say who performed them: divide them otherwise than by subject")
        return by_subject(labels, subjects, clients=clients, seed=seed)
    ways = {
        "dirichlet": partial(dirichlet, alpha=alpha),
        "shards": partial(by_class_shards, shards=shards),
        "iid": iid,
    }
    if by not in ways:
        raise ValueError(f"samples cannot be divided by {by!r}: choose subject, dirichlet, shards or iid")
    if clients is None:
        raise ValueError(f"say how many clients to divide the samples among (by {by!r})")
    return ways[by](labels, clients=clients, seed=seed)


def choose_test(
    labels: npt.NDArray[np.int64],
    subjects: npt.NDArray[np.str_] | None,
    shares: Sequence[Indices],
    *,
    test: float | Sequence[str],
    cross_subject: bool = True,
    seed: int = 0,
) -> npt.NDArray[np.bool_]:
    """Which samples are for test, (N,) bool, over all clients of one division.

    Args:
        labels: (N,) class of each sample.
        subjects: (N,) person of each sample, or None when not known.
        shares: the clients' indices.
        test: the test people's names, or a share of the samples.
        cross_subject: with a share, keep test people out of training wherever people are known. Clients that
            own whole people are split one by one; otherwise one set of test people serves all clients, so
            that nobody is tested at one client and trained on at another. A client of one person is split by
            class.
        seed: run seed.
    """
    if not isinstance(test, int | float):
        if subjects is None:
            raise ValueError("test people are named, but the samples do not say who performed them")
        return np.isin(subjects, list(test))
    scopes = list(shares)
    if subjects is not None and cross_subject:
        owned = sum(len(set(subjects[share].tolist())) for share in shares)
        everyone = len(set(subjects.tolist()))
        if owned > everyone > 1:  # somebody's samples lie with two clients
            scopes = [np.arange(len(labels))]
    tested = np.zeros(len(labels), dtype=bool)
    for scope in scopes:
        if subjects is not None and cross_subject and len(set(subjects[scope].tolist())) > 1:
            _, chosen = split_by_subject(subjects[scope], test=test, seed=seed)
        else:
            _, chosen = split_stratified(labels[scope], test=test, seed=seed)
        tested[scope[chosen]] = True
    return tested


def split_by_subject(subjects: Values, *, test: float | Sequence[str], seed: int = 0) -> tuple[Indices, Indices]:
    """Training and test indices such that no person is in both.

    `test` is the test people's names; or a share of the samples in (0, 1), for which people are taken at random
    until the test samples reach it. One person at least stays in training.
    """
    codes, names = _encode(subjects, len(subjects), "subjects")
    if isinstance(test, int | float):
        _check_share(test)
        if len(names) < 2:
            raise ValueError(f"a split by subject needs two people, there is only {', '.join(names)}")
        order = numpy_generator(seed, "split", "by_subject").permutation(len(names))
        reached = np.cumsum(np.bincount(codes)[order]) >= test * len(codes)
        chosen = order[: min(int(np.argmax(reached)) + 1, len(names) - 1)]
    else:
        unknown = sorted(set(test) - set(names))
        if unknown:
            raise ValueError(f"no sample is by {', '.join(unknown)}; there are {', '.join(names)}")
        chosen = np.array([names.index(name) for name in test], dtype=np.int64)
    tested = np.isin(codes, chosen)
    return np.flatnonzero(~tested), np.flatnonzero(tested)


def split_stratified(labels: Values, *, test: float, seed: int = 0) -> tuple[Indices, Indices]:
    """Training and test indices with about the share `test` of each class for test; neither side is empty."""
    codes, names = _encode(labels, len(labels), "labels")
    _check_share(test)
    if len(codes) < 2:
        raise ValueError("a split needs at least two samples")
    rng = numpy_generator(seed, "split", "stratified")
    tested = np.zeros(len(codes), dtype=bool)
    for code in range(len(names)):
        members = rng.permutation(np.flatnonzero(codes == code))
        tested[members[: int(np.rint(test * len(members)))]] = True
    if tested.all() or not tested.any():
        tested[rng.integers(len(codes))] ^= True
    return np.flatnonzero(~tested), np.flatnonzero(tested)


def _check_share(test: float) -> None:
    if not 0 < test < 1:
        raise ValueError(f"the share of test samples must lie between 0 and 1, got {test}")


def _encode(values: Values, count: int, what: str) -> tuple[Indices, tuple[str, ...]]:
    """Values as positions in the sorted list of distinct values, and that list as text."""
    array = np.asarray(values)
    if array.ndim != 1 or len(array) != count:
        raise ValueError(f"{what} must be one value for each of the {count} samples, got shape {array.shape}")
    if count == 0:
        raise ValueError("there are no samples to divide")
    if array.dtype.kind not in "iuU":
        raise ValueError(f"{what} must be integers or strings, not {array.dtype}")
    names, codes = np.unique(array, return_inverse=True)
    return codes.astype(np.int64), tuple(str(name) for name in names)


def _check_clients(clients: int, most: int, what: str) -> None:
    if clients < 1:
        raise ValueError(f"clients must be at least 1, got {clients}")
    if clients > most:
        raise ValueError(f"{clients} clients are too many: there are only enough {what} for {most}")


def _split_by(owner: Indices, clients: int) -> list[Indices]:
    return [np.flatnonzero(owner == client) for client in range(clients)]


def _report(
    kind: str, shares: list[Indices], labels: Values, names: tuple[str, ...] | None = None
) -> tuple[list[Indices], PartitionReport]:
    codes, classes = _encode(labels, len(labels), "labels")
    counts = np.stack([np.bincount(codes[share], minlength=len(classes)) for share in shares])
    width = len(str(len(shares) - 1))
    return shares, PartitionReport(
        kind, names or tuple(f"{i:0{width}d}" for i in range(len(shares))), classes, counts
    )
