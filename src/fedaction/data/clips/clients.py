"""Clients from clips in one place: recordings are dealt to them, each whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from fedaction.data import partition
from fedaction.data.client import ClientData
from fedaction.data.clips.clips import Clips
from fedaction.data.clips.videos import VideoSet, some
from fedaction.data.dataset import Issue
from fedaction.federation.seeds import derive

By = Literal["camera", "person", "group", "equal", "dirichlet", "shards", "classes"]
TestOn = Literal["own", "set"]


@dataclass(frozen=True)
class Division:
    """Which recordings each client has."""

    # For each client the positions of its recordings, without test recordings that all clients share
    shares: tuple[partition.Indices, ...]
    names: tuple[str, ...]  # of the clients, (C,)
    test_on: TestOn = "own"  # see `divide_videos`

    def deal(self, pool: ClientData) -> tuple[list[ClientData], list[Issue]]:
        """Clients that have the clips of a pool, whose `recording` is a position; and those that have nothing left.

        Clients are called "<pool>-<name>".
        """
        assert isinstance(pool.train, Clips) and isinstance(pool.test, Clips)
        dealt: list[ClientData] = []
        empty: list[Issue] = []
        for share, name in zip(self.shares, self.names, strict=True):
            numbers, own, test = torch.from_numpy(share), f"{pool.info.id}-{name}", pool.test
            train = pool.train.pick(torch.isin(pool.train.recording, numbers))
            if self.test_on == "own":
                test = test.pick(torch.isin(test.recording, numbers))
            if len(train) and len(test):
                dealt.append(ClientData(replace(pool.info, id=own, samples=len(train)), train, test))
                continue
            detail = f"none of its videos for {'test' if len(train) else 'training'} can be used: it is left out"
            empty.append(Issue(kind="empty", where=own, detail=detail))
        if not dealt:
            raise ValueError(f"no client of {pool.info.id} has both training and test clips; {empty[-1].detail}")
        return dealt, empty


def divide_videos(
    videos: VideoSet,
    *,
    by: By = "equal",
    clients: int | None = None,
    test_on: TestOn = "own",
    alpha: float = 0.5,
    shards: int = 2,
    seed: int = 0,
) -> Division:
    """Deals recordings to clients, before any is opened.

    Args:
        videos: the recordings, with what is for training and for test.
        by: one client for each camera, person or group; or the recordings dealt to `clients` clients: in "equal"
            shares, in shares of each class drawn from a "dirichlet" distribution, as "shards" of classes, or so that
            each has a few "classes", the same for training and test if both have all (see `partition.by_classes`).
        clients: how many. With "camera", "person" and "group": these are dealt whole to so many clients; None: one
            for each.
        test_on: "own": each client is tested on the test recordings that fall to it; "set": on all of them, which
            all clients then share. Needed where test recordings are of people or groups that have none to train on.
        alpha: of the Dirichlet distribution.
        shards: shards, or classes, per client.
        seed: of the division.
    """
    if test_on not in ("own", "set"):
        raise ValueError(f'test_on must be "own" or "set", got {test_on!r}')
    numbers = {side: np.flatnonzero([s.split == side for s in videos.samples]) for side in ("train", "test")}
    if not len(numbers["train"]) or not len(numbers["test"]):
        there_are = " and ".join(f"{len(those)} videos for {side}" for side, those in numbers.items())
        raise ValueError(f"{videos.name} has {there_are}: it needs both")
    dealt = np.sort(np.concatenate([numbers["train"], numbers["test"]])) if test_on == "own" else numbers["train"]
    labels = np.array([sample.label for sample in videos.samples], dtype=np.int64)
    if by in ("camera", "person", "group"):
        owners = [str(getattr(videos.samples[n], by)) for n in dealt.tolist()]
        if not all(owners):
            raise ValueError(
                f"{videos.name} does not say the {by} of each video: divide it otherwise, e.g. in equal shares"
            )
        shares, report = partition.by_subject(labels[dealt], owners, clients=clients, seed=seed)
        shares = [dealt[share] for share in shares]
        if test_on == "own":
            _check_sides(videos, shares, report.clients, by)
        return Division(tuple(shares), report.clients, test_on)
    if clients is None:
        raise ValueError(f"say how many clients to divide the videos among (by {by!r})")
    if by in ("equal", "classes"):  # training and test videos each
        sides = [numbers["train"], numbers["test"]] if test_on == "own" else [numbers["train"]]
        divisions = [
            partition.iid(labels[side], clients=clients, seed=derive(seed, "videos", i))
            if by == "equal"
            else partition.by_classes(labels[side], clients=clients, each=shards, seed=seed)
            for i, side in enumerate(sides)
        ]
        each = [[side[share] for share in shares] for side, (shares, _) in zip(sides, divisions, strict=True)]
        whole = tuple(np.sort(np.concatenate(own)) for own in zip(*each, strict=True))
        return Division(whole, divisions[0][1].clients, test_on)
    if by not in ("dirichlet", "shards"):
        known = "camera, person, group, equal, dirichlet, shards or classes"
        raise ValueError(f"videos cannot be divided by {by!r}: {known}")
    shares, report = partition.divide(
        labels[dealt], None, by=by, clients=clients, alpha=alpha, shards=shards, seed=seed
    )
    return Division(tuple(dealt[share] for share in shares), report.clients, test_on)


def _check_sides(videos: VideoSet, shares: Sequence[partition.Indices], names: Sequence[str], by: str) -> None:
    """Refuses a division that leaves clients without training or without test videos by its nature."""
    for side, what in (("train", "to train on"), ("test", "to test on")):
        lacking = [
            name
            for name, share in zip(names, shares, strict=True)
            if not any(videos.samples[n].split == side for n in share.tolist())
        ]
        if lacking:
            raise ValueError(
                f"{len(lacking)} of {len(names)} clients (by {by}) of {videos.name} have no videos {what}: "
                f'{some(lacking)}; test all clients on the whole test set (video_test_on = "set", in Python '
                'test_on="set"), or take test videos from everybody'
            )
