"""Footage of the embedded world: large and small sets of varied clips, made once and kept, and dealt to clients.

Three domains differ in places, people, views and actions: "wide" is for learning from, "home" and "hall" are smaller
worlds to carry over to, each with actions that "wide" does not have.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.files import cache_root, digest_code, key_of
from fedaction.data.partition import by_classes
from fedaction.data.samples import Examples
from fedaction.federation import seeds
from fedaction.federation.files import lock_path
from fedaction.federation.seeds import derive, numpy_generator
from fedaction.stage.actions import number
from fedaction.stage.footage_crew import FootageSettings, Take, film_takes
from fedaction.stage.footage_file import Contents, Footage, load_footage, write_footage

_MADE_BY = (
    *("actions", "actors", "backdrop", "body", "capsules", "clutter", "film", "footage", "footage_crew"),
    *("performance", "pose", "render", "scene", "score", "wardrobe"),
)
Indices = NDArray[np.int64]


def stage_footage(
    *,
    cache: str | Path | None = None,
    workers: int = 0,
    progress: Callable[[int, int], object] | None = None,
    **settings: Any,
) -> Footage:
    """A set of synthetic clips made with `FootageSettings`: the one in the cache, mapped from its file, or a new one.

    Clips for training come first; in each half, a place's clips lie together. Every clip depends on the seed and
    the settings only, not on the number of workers. Of these, 0 is one for each core, or this process where there
    is little to do. `progress` is called with the clips done and the clips there are, while they are made.
    """
    chosen = FootageSettings(**settings)
    if workers < 0:
        raise ValueError(f"workers must be 0 (one for each core) or more, got {workers}")
    made_with = {**chosen.to_dict(), "code": _code()}
    out = cache_root(cache) / "footage" / f"{chosen.domain}-{key_of(made_with)}"
    with lock_path(out):
        if out.exists():
            try:
                footage = load_footage(out)
                if footage.settings == made_with:
                    return footage
                raise ValueError(f"{out} was made with other settings")
            except ValueError as error:
                warnings.warn(f"footage in the cache is made again: {error}", stacklevel=2)
        takes, contents = _list_takes(chosen, made_with)
        write_footage(out, contents, partial(film_takes, chosen, takes, workers=workers, progress=progress))
        return load_footage(out)


def stage_video(
    *,
    domain: str = "home",
    clients: int = 4,
    people: int = 4,
    test_people: int = 2,
    iid: bool = False,
    each: int = 0,
    overlapping: bool = False,
    seed: int = 0,
    **footage: Any,
) -> list[ClientData]:
    """A federation of cameras, each with its own people, room and view.

    Args:
        domain: see `FootageSettings`.
        clients: number of cameras.
        people: people at each client who are recorded for training.
        test_people: other people at each client, for test.
        iid: deal the same recordings, whosever they are, to the clients at random. Test people stay test people.
        each: deal them so that a client has so many classes; see `partition.by_classes`. 0: by place.
        overlapping: of `by_classes`.
        seed: seed of the world.
        footage: see `stage_footage`. Recordings, which are of all clients together, are 8 of each class for test
            where nothing else is said, and heterogeneity is 0.5.

    Returns:
        Clients called "<domain>-<number>", group "video", x (N, T, H, W, 3) uint8; all label the same classes.
    """
    crowd = {"people": people * clients, "test_people": test_people * clients}
    usual = {"test_recordings": 8, "heterogeneity": 0.5}
    clips = stage_footage(**{**usual, **crowd, "domain": domain, "places": clients, "seed": seed, **footage})
    if each:
        halves = [_deal_classes(clips, test, clients, each, seed, overlapping) for test in (False, True)]
    else:
        halves = [_deal(clips, test, clients, seed if iid else None) for test in (False, True)]
    return deal_footage(clips, *halves, name=domain)


def deal_footage(
    footage: Footage, train: Sequence[Indices], test: Sequence[Indices], name: str = "camera"
) -> list[ClientData]:
    """Clients, called "<name>-<number>", that hold given clips: indices to train and to test on for each."""

    def examples(rows: Indices) -> Examples:
        # Neighbours are taken as they lie in the file; anything else is copied.
        together = len(rows) > 0 and bool((np.diff(rows) == 1).all())
        x = footage.clips[rows[0] : rows[-1] + 1] if together else footage.clips[rows]
        return Examples(
            x=torch.from_numpy(x),
            y=torch.from_numpy(footage.labels[rows]),
            subjects=tuple(footage.people[i] for i in footage.person[rows]),
            recording=torch.from_numpy(footage.recording[rows]),
        )

    out: list[ClientData] = []
    for i, (some, others) in enumerate(zip(train, test, strict=True)):
        info = ClientInfo(f"{name}-{i}", "video", len(some), footage.classes, footage.clips.shape[1:])
        out.append(ClientData(info, examples(some), examples(others)))
    return out


def _deal(footage: Footage, test: bool, clients: int, seed: int | None) -> list[Indices]:
    """Each client's clips of one half: its own place's or, with a seed, as many recordings by chance."""
    rows = np.flatnonzero(footage.test == test)
    own = [rows[footage.place[rows] == client] for client in range(clients)]
    if seed is None:
        return own
    first = np.unique(footage.recording[rows])
    mixed = numpy_generator(seed, "footage", "deal", int(test)).permutation(first)
    sizes = [len(np.unique(footage.recording[part])) for part in own]
    parts = np.split(mixed, np.cumsum(sizes)[:-1])
    return [rows[np.isin(footage.recording[rows], part)] for part in parts]


def _deal_classes(
    footage: Footage, test: bool, clients: int, each: int, seed: int, overlapping: bool
) -> list[Indices]:
    """Each client's clips of one half, of the same few classes in both."""
    rows = np.flatnonzero(footage.test == test)
    parts, _ = by_classes(footage.labels[rows], clients=clients, each=each, seed=seed, overlapping=overlapping)
    return [rows[part] for part in parts]


def _list_takes(settings: FootageSettings, made_with: dict[str, Any]) -> tuple[list[Take], Contents]:
    """Every recording to make, in order, and what the clips will be."""
    world, names, spread = settings.world, settings.actions, settings.heterogeneity
    shares = np.array(settings.shares) / sum(settings.shares)
    numbers = [number(name) for name in names]
    takes: list[Take] = []
    of_take: list[tuple[int, int, bool]] = []  # label, place, whether it is for test
    halves = (
        ("train", settings.recordings, settings.people),
        ("test", settings.test_recordings, settings.test_people),
    )
    for split, recordings, crowd in halves:
        total = recordings * len(names)
        bounds = np.rint(np.concatenate([[0.0], np.cumsum(shares)]) * total).astype(np.int64)
        for place, (first, last) in enumerate(pairwise(bounds.tolist())):
            if first == last and total:
                raise ValueError(
                    f"place {place} would have none of the {total} {split} recordings: make more, or its share larger"
                )
            rng = numpy_generator(world, split, place)
            seed = derive(world, "elsewhere" if split == "test" and settings.elsewhere else "place", place)
            # In turn, so that all places together have as many of each; at test, always.
            even = np.arange(first, last) % len(names)
            weights = np.exp(spread * rng.standard_normal(len(names)))
            drawn = rng.choice(len(names), last - first, p=weights / weights.sum())
            own = np.where(rng.random(last - first) < spread, drawn, even) if split == "train" else even
            who = [f"{split}-{i}" for i in range(place, crowd, len(shares))]
            kinds = numpy_generator(world, "kind", place).random() + (1.0 - spread) * (rng.random(len(who)) - 0.5)
            for i, label in enumerate(rng.permutation(own)):
                person = int(rng.integers(len(who)))
                key = derive(world, split, place, i)
                takes.append(Take(numbers[label], who[person], float(kinds[person] % 1.0), seed, key))
                of_take.append((int(label), place, split == "test"))
    people = {name: i for i, name in enumerate(sorted({take.who for take in takes}))}
    rows = [(i, take.who, *of_take[i]) for i, take in enumerate(takes) for _ in range(settings.clips)]
    contents = Contents(
        settings=made_with,
        classes=list(names),
        people=list(people),
        labels=[label for _, _, label, _, _ in rows],
        recording=[i for i, *_ in rows],
        person=[people[who] for _, who, *_ in rows],
        place=[place for *_, place, _ in rows],
        test=[tested for *_, tested in rows],
        shape=(settings.frames, settings.size, settings.size),
    )
    return takes, contents


@lru_cache(maxsize=1)
def _code() -> str:
    """A digest of the code that lists, performs and films."""
    return digest_code([*(Path(__file__).with_name(f"{name}.py") for name in _MADE_BY), Path(seeds.__file__)])
