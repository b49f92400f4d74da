"""Clients whose modalities differ, from feature stores: one store for each modality."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedaction.data import partition
from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.features.fewer import Fewer
from fedaction.data.features.store import FeatureSet
from fedaction.data.holdout import HoldOut, choose_held_out
from fedaction.data.inputs import Input
from fedaction.data.samples import Examples
from fedaction.data.signals.windows import WindowSet, make_signal_client
from fedaction.federation.seeds import derive, numpy_generator

Scale = Literal["client", "unit", "none"]
_MOST = 10.0  # deviations; what lies further out at test is cut there, so that one odd value cannot drown the rest


def clients_from_features(
    sets: Sequence[FeatureSet | WindowSet],
    *,
    by: Literal["subject", "dataset", "equal", "dirichlet", "shards"] = "subject",
    groups: Sequence[str] = (),
    deal: Literal["alternate", "all"] = "alternate",
    clients: int = 4,
    alpha: float = 0.5,
    keep: int = 0,
    samples: int = 0,
    test: float = 0.25,
    hold_out: HoldOut = 0,
    fewer: Fewer | None = None,
    scale: Scale | Sequence[Scale] = "client",
    seed: int = 0,
) -> list[ClientData]:
    """Clients of several modalities that label the same actions.

    Labels are the union of the sets' class names, sorted, for every client: a classifier that all share has one row
    for each action.

    Args:
        sets: one for each group of clients: for each modality, or for each device where devices differ; features, or
            signals, whose samples here are recordings.
        groups: the name of each set's group; empty: its modality.
        by: one client for each person, one for each set, or each set's samples in shares: equal ones, or by class
            (see `partition`).
        deal: "alternate" takes everybody into one set only: person i (of all people, sorted by name) into set i mod M
            where everybody is in all, see `_deal`; "all" takes everybody into every set. People of one name in two
            sets count as one person.
        clients: clients of each set, where samples are dealt in shares.
        alpha: concentration of the Dirichlet division.
        keep: so many clients of each set, the first by name; 0: all.
        samples: most samples of a client, training and test together, drawn by the seed; 0: all.
        test: share of each client's samples kept for test, of each class where possible.
        hold_out: hold-out subjects, see `holdout`: they are nobody's client in any set, the others are dealt, and
            every client is tested on all that its set has of them, in place of `test`. How well a network knows
            people it has met says little about others: a person's own repetitions are much alike. Not by the seed, so
            that seeds have one list of clients.
        fewer: what is taken away from training.
        scale: see `standardise`; one for all sets, or one for each.
        seed: seed of shares and splits.

    Returns:
        Clients called "<group>-<person>" or "<group>-<number>", with x (N, F).
    """
    groups = groups or [item.modality for item in sets]
    twice = [name for name, count in Counter(groups).items() if count > 1]
    if not sets or twice or len(groups) != len(sets):
        raise ValueError(
            f"{len(sets)} feature stores for the groups {', '.join(groups)}: give each store a group of its own, by "
            "feature_groups or by the name of its folder"
        )
    nameless = [group for item, group in zip(sets, groups, strict=True) if not item.subjects]
    if nameless and (by == "subject" or (deal == "alternate" and len(sets) > 1)):
        raise ValueError(
            f"the {nameless[0]} recordings do not say who performed them, so they cannot be dealt by person: take "
            'them again with a pattern for the subject, or deal equal shares of all of them (by "equal", deal "all")'
        )
    classes = tuple(sorted({name for item in sets for name in item.classes}))
    held_out = choose_held_out(
        hold_out, {group: item.subjects for group, item in zip(groups, sets, strict=True)}, together=True
    )
    left = [sorted({*item.subjects} - {*held_out[group]}) for item, group in zip(sets, groups, strict=True)]
    dealt = _deal(left) if deal == "alternate" else left
    if fewer is not None:
        fewer.check(groups, len(classes))
    made: list[ClientData] = []
    scales: Sequence[Scale] = (scale,) * len(sets) if isinstance(scale, str) else scale
    for item, group, mine, own_scale in zip(sets, groups, dealt, scales, strict=True):
        used = np.flatnonzero(np.isin(item.subjects, mine)) if item.subjects else np.arange(len(item))
        unseen = np.flatnonzero(np.isin(item.subjects, held_out[group])) if held_out[group] else None
        if not len(used):
            raise ValueError(
                f"{group} is left without a client: its people, {', '.join(left[groups.index(group)])}, are dealt to "
                'other groups, since each is in one only; use all of them in every group (deal "all")'
            )
        labels = np.array([classes.index(name) for name in item.classes], dtype=np.int64)[item.labels]
        who = np.array(item.subjects) if item.subjects else None
        own = derive(seed, "features", group)
        shares, names = [np.arange(len(used))], [""]
        if by != "dataset":
            kind, count = ("iid" if by == "equal" else by), (None if by == "subject" else clients)
            people = None if who is None else who[used]
            shares, given = partition.divide(labels[used], people, by=kind, clients=count, alpha=alpha, seed=own)
            names = list(given.clients)
        for share, name in list(zip(shares, names, strict=True))[: keep or None]:
            own_name = f"{group}-{name}" if name else group
            if samples:
                share = np.sort(numpy_generator(own, "samples", name).permutation(share)[:samples])
            train, other = used[share], unseen
            if other is None:
                tested = split(labels[train], test, derive(seed, own_name))
                train, other = train[~tested], train[tested]
            sides = (train, other)
            if fewer is not None:
                sides = fewer.choose(sides, labels, len(classes), modality=group, name=own_name, seed=seed)
            make = make_signal_client if isinstance(item, WindowSet) else make_client
            made.append(make(item, sides, labels, own_name, classes, own_scale, group))  # pyright: ignore[reportArgumentType]
    return made


def _deal(known: Sequence[Sequence[str]]) -> list[list[str]]:
    """Which of the people that each set knows it gets, everyone in one set only, in order of their names.

    Everyone goes to the set with the fewest people so far, of those that know the person; whoever few sets know comes
    first. So where all sets know all people, they are dealt in turn; where each has its own people, it keeps them.
    """
    dealt: list[list[str]] = [[] for _ in known]
    for who in sorted(set[str]().union(*known), key=lambda who: (sum(who in own for own in known), who)):
        fewest = min((i for i, own in enumerate(known) if who in own), key=lambda i: len(dealt[i]))
        dealt[fewest].append(who)
    return [sorted(people) for people in dealt]


def standardise(train: Tensor, test: Tensor, scale: Scale) -> tuple[Tensor, Tensor]:
    """Both splits of a client, (N, F) and (N', F), scaled. Test samples are never learned from.

    "client" subtracts the mean and divides by the deviation of each feature over the training samples (features
    that are constant there become 0, and values are cut at 10 deviations); "unit" scales each vector to a root
    mean square of 1; "none" leaves all as it is.
    """
    if scale == "none":
        return train, test
    if scale == "unit":
        first, second = (x / x.square().mean(1, keepdim=True).sqrt().clamp(min=1e-12) for x in (train, test))
        return first, second
    mean, factor = measure_scale(train)
    first, second = (((x - mean) * factor).clamp(-_MOST, _MOST) for x in (train, test))
    return first, second


def measure_scale(train: Tensor) -> tuple[Tensor, Tensor]:
    """What scale "client" subtracts from each of (N, F) features, and then multiplies it by: two (F,)."""
    mean, spread = train.mean(0), train.std(0, correction=0)
    moves = spread > 1e-5 * (mean.abs() + 1e-3)
    return mean, torch.where(moves, 1 / spread.clamp(min=1e-12), 0.0)


def split(labels: npt.NDArray[np.int64], test: float, seed: int) -> npt.NDArray[np.bool_]:
    """Which samples are for test, (N,): about the share `test` of all, and of each class where it has enough.

    Samples stand in a row, class by class, both orders at random; the test samples are evenly spaced in it. Rounding
    each class by itself would leave almost nothing for test where classes have a sample or two.
    """
    if len(labels) < 2:
        raise ValueError(f"there is {len(labels)} sample; training and testing need at least 2 at each client")
    rng = numpy_generator(seed, "features", "split")
    mixed = rng.permutation(len(labels))
    rank = rng.permutation(int(labels.max()) + 1)
    row = mixed[np.argsort(rank[labels[mixed]], kind="stable")]
    steps = np.floor((np.arange(len(labels) + 1)) * test + rng.random())
    tested = np.zeros(len(labels), dtype=bool)
    tested[row] = np.diff(steps) > 0
    if tested.all() or not tested.any():
        tested[row[0]] ^= True
    return tested


def make_client(
    item: FeatureSet,
    sides: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    labels: npt.NDArray[np.int64],
    name: str,
    classes: tuple[str, ...],
    scale: Scale,
    group: str = "",
) -> ClientData:
    """A client of some of a set's samples: `sides` are those to train and those to test on.

    `labels` (N,) are those of all samples of the set, as indices into `classes`; `group` is the set's modality where
    no other is given.
    """
    train, test = (torch.from_numpy(np.array(item.x[side])) for side in sides)
    halves = [
        Examples(x, torch.from_numpy(labels[side]), tuple(item.subjects[i] for i in side) if item.subjects else ())
        for x, side in zip(standardise(train, test, scale), sides, strict=True)
    ]
    info = ClientInfo(name, group or item.modality, len(halves[0]), classes, (item.width,))
    made = item.provenance.get("extractor")
    mean, factor = measure_scale(train) if scale == "client" else (train[:0], train[:0])
    given = Input(
        kind="features",
        shape=info.shape,
        device=info.group,
        extractor={**made, "modality": item.modality} if isinstance(made, dict) else None,
        scale=scale,
        mean=tuple(mean.flatten().tolist()),
        factor=tuple(factor.flatten().tolist()),
    )
    return ClientData(info, halves[0], halves[1], input=given)
