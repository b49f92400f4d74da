"""Clients from labelled videos: clips in memory, each client with its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Literal

import numpy as np
import torch

from fedaction.data import partition
from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.clips.cache import ClipCache
from fedaction.data.clips.load import load_clips
from fedaction.data.clips.picture import Pixels
from fedaction.data.clips.spec import ClipSpec
from fedaction.data.clips.videos import VideoSample, VideoSet, some
from fedaction.data.dataset import Issue
from fedaction.data.samples import Examples
from fedaction.federation.processes import in_order
from fedaction.federation.seeds import derive, generator

By = Literal["camera", "person", "group", "equal", "dirichlet", "shards", "classes"]
GROUP = "video"

_Loaded = tuple[Pixels | None, str]


def clients_from_videos(
    videos: VideoSet,
    spec: ClipSpec,
    *,
    by: By = "equal",
    clients: int | None = None,
    train_clips: int | Literal["all"] = 1,
    test: int | Literal["all"] = "all",
    test_on: Literal["own", "set"] = "own",
    alpha: float = 0.5,
    shards: int = 2,
    seed: int = 0,
    cache: ClipCache | None = None,
    workers: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> tuple[list[ClientData], list[Issue]]:
    """Clients that hold clips of videos.

    The same arguments give the same clients, whatever the number of workers. All clips are held in memory: at
    8 x 112 x 112 a clip takes 0.3 MB.

    Args:
        videos: the labelled videos, with what is for training and test.
        spec: what a clip is.
        by: one client for each camera, person or group; or the videos dealt to `clients` clients: in "equal" shares,
            in shares of each class drawn from a "dirichlet" distribution, as "shards" of classes, or so that each
            has a few "classes", the same for training and test if both have all (see `partition.by_classes`).
        clients: how many. With "camera", "person" and "group": these are dealt whole to so many clients; None: one
            for each.
        train_clips: clips of each training video, at random places; "all": all that do not overlap.
        test: clips of each test video, evenly spread; "all": all that do not overlap, as the papers test.
        test_on: "own": each client is tested on the test videos that fall to it; "set": on all test videos, which
            all clients then share. Needed where test videos are of people or groups that have none to train on.
        alpha: of the Dirichlet distribution.
        shards: shards, or classes, per client.
        seed: of division and clips. Each video draws from a generator of its own, by its name.
        cache: keeps decoded clips.
        workers: threads that decode, one file each; 0: one for each core.
        progress: called with the files read and the files there are.

    Returns:
        Clients called "<dataset>-<camera, person, group or number>", with x (N, T, H, W, 3) uint8, `recording` the
        position of a clip's video in `videos.samples`, and the group "video"; and what was skipped: files that cannot
        be read, with the reason, and clients that have nothing left.
    """
    if test_on not in ("own", "set"):
        raise ValueError(f'test_on must be "own" or "set", got {test_on!r}')
    for what, count in (("train_clips", train_clips), ("test", test)):
        if count != "all" and (isinstance(count, str) or count < 1):
            raise ValueError(f'{what} must be "all" or at least 1, got {count!r}')
    parts, names = _divide(videos, by, clients, test_on, alpha, shards, seed)
    used = sorted({number for part in parts for number in part.tolist()})
    if test_on == "set":
        used = sorted({*used, *(n for n, sample in enumerate(videos.samples) if sample.split == "test")})
    loaded: dict[int, Pixels] = {}
    skipped: list[Issue] = []
    jobs = [_Job(videos.samples[n], spec, train_clips, test, seed, cache) for n in used]
    for done, (number, (clips, fault)) in enumerate(zip(used, in_order(jobs, workers), strict=True), 1):
        if clips is None:
            skipped.append(Issue(kind="unreadable", where=videos.samples[number].name, detail=fault))
        else:
            loaded[number] = clips
        if progress is not None:
            progress(done, len(used))
    if not loaded:
        first = "".join(f"\n  {issue.where}: {issue.detail}" for issue in skipped[:5])
        raise ValueError(f"no video of {videos.name} can be used; {len(skipped)} issues:{first}")
    shape = _one_shape(videos, loaded)
    shared = None
    if test_on == "set":
        shared = _examples(videos, [n for n in used if videos.samples[n].split == "test"], loaded, shape)
    made: list[ClientData] = []
    for part, name in zip(parts, names, strict=True):
        sides = {side: [n for n in part.tolist() if videos.samples[n].split == side] for side in ("train", "test")}
        train = _examples(videos, sides["train"], loaded, shape)
        tested = shared if shared is not None else _examples(videos, sides["test"], loaded, shape)
        own = f"{videos.name}-{name}"
        if not len(train) or not len(tested):
            detail = f"none of its videos for {'test' if len(train) else 'training'} can be used: it is left out"
            skipped.append(Issue(kind="empty", where=own, detail=detail))
            continue
        info = ClientInfo(own, GROUP, len(train), videos.classes, shape)
        made.append(ClientData(info, train, tested))
    if not made:
        raise ValueError(f"no client of {videos.name} has both training and test clips; {skipped[-1].detail}")
    return made, skipped


class _Job:
    """Reads the clips of one video."""

    def __init__(
        self,
        sample: VideoSample,
        spec: ClipSpec,
        train_clips: int | Literal["all"],
        test: int | Literal["all"],
        seed: int,
        cache: ClipCache | None,
    ) -> None:
        self._sample, self._spec, self._cache = sample, spec, cache
        training = sample.split == "train"
        self._clips: int | Literal["all"] = train_clips if training else test
        # Without a number nothing is drawn, and the cache serves all seeds.
        self._seed = derive(seed, "clips", sample.name) if training and self._clips != "all" else None

    def __call__(self) -> _Loaded:
        try:
            if self._cache is None:
                return self._read(), ""
            how = {"spec": asdict(self._spec), "clips": self._clips, "seed": self._seed}
            return self._cache.clips(self._sample.path, how, self._read), ""
        except Exception as error:  # a file from outside may be anything: it is reported, and the others are read
            kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
            return None, f"{kind}{error}" or type(error).__name__

    def _read(self) -> Pixels:
        random = None if self._seed is None else generator(self._seed)
        return load_clips(self._sample.path, self._spec, self._clips, random)


def _divide(
    videos: VideoSet, by: By, clients: int | None, test_on: str, alpha: float, shards: int, seed: int
) -> tuple[list[partition.Indices], tuple[str, ...]]:
    """Names of the clients, and for each the positions of its videos, without test videos that all clients share."""
    numbers = {side: np.flatnonzero([s.split == side for s in videos.samples]) for side in ("train", "test")}
    if not len(numbers["train"]) or not len(numbers["test"]):
        found = " and ".join(f"{len(those)} videos for {side}" for side, those in numbers.items())
        raise ValueError(f"{videos.name} has {found}: it needs both")
    dealt = np.sort(np.concatenate([numbers["train"], numbers["test"]])) if test_on == "own" else numbers["train"]
    labels = np.array([sample.label for sample in videos.samples], dtype=np.int64)
    if by in ("camera", "person", "group"):
        owners = [str(getattr(videos.samples[n], by)) for n in dealt.tolist()]
        if not all(owners):
            raise ValueError(
                f"{videos.name} does not say the {by} of each video: divide it otherwise, e.g. in equal shares"
            )
        parts, report = partition.by_subject(labels[dealt], owners, clients=clients, seed=seed)
        parts = [dealt[part] for part in parts]
        if test_on == "own":
            _check_sides(videos, parts, report.clients, by)
        return parts, report.clients
    if clients is None:
        raise ValueError(f"say how many clients to divide the videos among (by {by!r})")
    if by in ("equal", "classes"):  # training and test videos each
        sides = [numbers["train"], numbers["test"]] if test_on == "own" else [numbers["train"]]
        shares = [
            partition.iid(labels[side], clients=clients, seed=derive(seed, "videos", i))
            if by == "equal"
            else partition.by_classes(labels[side], clients=clients, each=shards, seed=seed)
            for i, side in enumerate(sides)
        ]
        whole = zip(
            *[[side[part] for part in found] for side, (found, _) in zip(sides, shares, strict=True)], strict=True
        )
        return [np.sort(np.concatenate(parts)) for parts in whole], shares[0][1].clients
    if by not in ("dirichlet", "shards"):
        known = "camera, person, group, equal, dirichlet, shards or classes"
        raise ValueError(f"videos cannot be divided by {by!r}: {known}")
    parts, report = partition.divide(
        labels[dealt], None, by=by, clients=clients, alpha=alpha, shards=shards, seed=seed
    )
    return [dealt[part] for part in parts], report.clients


def _check_sides(videos: VideoSet, parts: Sequence[partition.Indices], names: Sequence[str], by: str) -> None:
    """Refuses a division that leaves clients without training or without test videos by its nature."""
    for side, what in (("train", "to train on"), ("test", "to test on")):
        lacking = [
            name
            for name, part in zip(names, parts, strict=True)
            if not any(videos.samples[n].split == side for n in part.tolist())
        ]
        if lacking:
            raise ValueError(
                f"{len(lacking)} of {len(names)} clients (by {by}) of {videos.name} have no videos {what}: "
                f'{some(lacking)}; test all clients on the whole test set (test_on="set"), or take test videos from '
                "everybody"
            )


def _examples(
    videos: VideoSet, numbers: Iterable[int], loaded: dict[int, Pixels], shape: tuple[int, ...]
) -> Examples:
    """Clips of some videos, which are taken out of `loaded`, so that no clip is in memory twice for long."""
    held = [(n, loaded.pop(n)) for n in numbers if n in loaded]
    counts = [len(clips) for _, clips in held]
    x = np.concatenate([clips for _, clips in held]) if held else np.zeros((0, *shape), dtype=np.uint8)
    samples = [videos.samples[n] for n, _ in held]
    people = [sample.person for sample, count in zip(samples, counts, strict=True) for _ in range(count)]
    return Examples(
        x=torch.from_numpy(x),
        y=torch.from_numpy(np.repeat(np.array([sample.label for sample in samples], dtype=np.int64), counts)),
        subjects=tuple(people) if all(people) else (),
        recording=torch.from_numpy(np.repeat(np.array([n for n, _ in held], dtype=np.int64), counts)),
    )


def _one_shape(videos: VideoSet, loaded: dict[int, Pixels]) -> tuple[int, ...]:
    """(T, H, W, 3) of every clip."""
    shapes = {clips.shape[1:]: videos.samples[n].name for n, clips in loaded.items()}
    if len(shapes) > 1:
        (first, one), (second, other) = list(shapes.items())[:2]
        raise ValueError(
            f"the clips of {videos.name} have different sizes: {first[1]} x {first[2]} in {one}, "
            f"{second[1]} x {second[2]} in {other}; cut a square from all of them (crop)"
        )
    return next(iter(shapes))
