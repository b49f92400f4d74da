"""Footage of the embedded world: large and small sets of varied clips, made once and kept, and dealt to clients.

Three domains differ in places, people, views and actions: "wide" is for learning from, "home" and "hall" are smaller
worlds to carry over to, each with actions that "wide" does not have.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.features.make import cache_folder
from fedaction.data.partition import by_classes
from fedaction.data.samples import Examples
from fedaction.federation import seeds
from fedaction.federation.files import lock_path
from fedaction.federation.seeds import derive, numpy_generator
from fedaction.stage.actions import number
from fedaction.stage.footage_crew import Take, film_takes
from fedaction.stage.footage_file import Contents, Footage, load_footage, write_footage
from fedaction.stage.scene import DOMAINS, Variety

_MADE_BY = (
    *("actions", "actors", "backdrop", "body", "capsules", "clutter", "film", "footage", "footage_crew", "gestures"),
    *("performance", "pose", "render", "scene", "score", "wardrobe", "whole_body"),
)
Indices = NDArray[np.int64]


def stage_footage(
    *,
    domain: str = "wide",
    actions: Sequence[str] | None = None,
    recordings: int = 20,
    test_recordings: int = 5,
    clips: int = 1,
    people: int = 40,
    test_people: int = 10,
    places: int = 1,
    shares: Sequence[float] | None = None,
    frames: int = 8,
    stride: float = 0.3,
    size: int = 64,
    seed: int = 0,
    variety: float | Variety = 1.0,
    heterogeneity: float = 0.0,
    elsewhere: bool = False,
    cache: str | Path | None = None,
    workers: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> Footage:
    """A set of synthetic clips: the one in the cache, or a new one.

    Clips for training come first; in each half, a place's clips lie together. Every clip depends on the seed and the
    settings only, not on the number of workers.

    Args:
        domain: "wide", "home" or "hall"; see `scene.DOMAINS`.
        actions: class names; default: the domain's own.
        recordings: recordings of each class for training, on average.
        test_recordings: recordings of each class for test, on average; 0: none.
        clips: clips of each recording, from its beginning to its end.
        people: people who are recorded for training, at least one for each place.
        test_people: other people, who are recorded for test.
        places: places with their own people and, where `heterogeneity` is not 0, room, view, light and mix of
            actions.
        shares: (places,) relative numbers of recordings; default: equal.
        frames: T of a clip.
        stride: seconds between frames. An action takes 2 to 4 s.
        size: H and W, pixels.
        seed: seed of the world.
        variety: how strongly recordings differ; 0 is a plain studio, 1 the usual. See `scene.Variety`.
        heterogeneity: 0 to 1. 0: every recording is in a room, from a view and in a light of its own. 1: a place's
            are alike, and places differ in which actions are common.
        elsewhere: whether test people are recorded in other rooms and views than the training people of their place.
        cache: folder of the cache; default: $FEDACTION_CACHE, else ~/.cache/fedaction.
        workers: processes that film; 0: one for each core, or this one where there is little to do.
        progress: called with the clips done and the clips there are, while they are made.

    Returns:
        The clips, mapped from the file in the cache.
    """
    if domain not in DOMAINS:
        raise ValueError(f"a domain is one of {', '.join(DOMAINS)}, not {domain!r}")
    names = DOMAINS[domain].actions if actions is None else tuple(actions)
    weights = [1.0] * places if shares is None else [float(share) for share in shares]
    settings: dict[str, Any] = {
        "domain": domain,
        "actions": list(names),
        "recordings": recordings,
        "test_recordings": test_recordings,
        "clips": clips,
        "people": people,
        "test_people": test_people,
        "shares": weights,
        "frames": frames,
        "stride": float(stride),
        "size": size,
        "seed": seed,
        "variety": asdict(Variety.of(variety)),
        "heterogeneity": float(heterogeneity),
        "elsewhere": elsewhere,
        "code": _code(),
    }
    _check(settings, places, workers)
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    out = cache_folder(cache).with_name("footage") / f"{domain}-{key}"
    with lock_path(out):
        if out.exists():
            try:
                found = load_footage(out)
                if found.settings == settings:
                    return found
                raise ValueError(f"{out} was made with other settings")
            except ValueError as error:
                warnings.warn(f"footage in the cache is made again: {error}", stacklevel=2)
        takes, contents = _plan(settings)
        write_footage(out, contents, partial(film_takes, settings, takes, workers=workers, progress=progress))
        return load_footage(out)


def stage_video(
    *,
    domain: str = "home",
    clients: int = 4,
    actions: Sequence[str] | None = None,
    recordings: int = 20,
    test_recordings: int = 8,
    clips: int = 1,
    people: int = 4,
    test_people: int = 2,
    shares: Sequence[float] | None = None,
    iid: bool = False,
    each: int = 0,
    overlapping: bool = False,
    frames: int = 8,
    stride: float = 0.3,
    size: int = 64,
    seed: int = 0,
    variety: float | Variety = 1.0,
    heterogeneity: float = 0.5,
    elsewhere: bool = False,
    cache: str | Path | None = None,
    workers: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> list[ClientData]:
    """A federation of cameras, each with its own people, room and view.

    Args:
        domain: see `stage_footage`, as for what else says nothing here.
        clients: number of cameras.
        actions: class names, the same at all clients.
        recordings: recordings of each class for training, on average, at all clients together.
        test_recordings: the same for test.
        clips: clips of each recording.
        people: people at each client who are recorded for training.
        test_people: other people at each client, for test.
        shares: (clients,) relative amounts of recordings; default: equal.
        iid: deal the same recordings, whosever they are, to the clients at random. Test people stay test people.
        each: deal them so that a client has so many classes; see `partition.by_classes`. 0: by place.
        overlapping: of `by_classes`.
        frames: T.
        stride: seconds between frames.
        size: H and W.
        seed: seed of the world.
        variety: how strongly recordings differ.
        heterogeneity: 0 to 1, how much clients differ.
        elsewhere: whether test people are recorded in other rooms and views.
        cache: folder of the cache.
        workers: processes that film.
        progress: called with the clips done and the clips there are.

    Returns:
        Clients called "<domain>-<number>", group "video", x (N, T, H, W, 3) uint8; all label the same classes.
    """
    footage = stage_footage(
        domain=domain,
        actions=actions,
        recordings=recordings,
        test_recordings=test_recordings,
        clips=clips,
        people=people * clients,
        test_people=test_people * clients,
        places=clients,
        shares=shares,
        frames=frames,
        stride=stride,
        size=size,
        seed=seed,
        variety=variety,
        heterogeneity=heterogeneity,
        elsewhere=elsewhere,
        cache=cache,
        workers=workers,
        progress=progress,
    )
    if each:
        halves = [_deal_classes(footage, test, clients, each, seed, overlapping) for test in (False, True)]
    else:
        halves = [_deal(footage, test, clients, seed if iid else None) for test in (False, True)]
    return deal_footage(footage, *halves, name=domain)


def deal_footage(
    footage: Footage, train: Sequence[Indices], test: Sequence[Indices], name: str = "camera"
) -> list[ClientData]:
    """Clients that hold given clips.

    Args:
        footage: the clips.
        train: each client's clips for training, as indices.
        test: and for test.
        name: clients are called "<name>-<number>".
    """

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


def _check(settings: dict[str, Any], places: int, workers: int) -> None:
    """Refuses settings that make no footage."""
    s = settings
    for name in s["actions"]:
        number(name)
    if len(s["actions"]) < 2 or len(set(s["actions"])) != len(s["actions"]):
        raise ValueError(f"footage needs two or more different actions; got {', '.join(s['actions'])}")
    least = {"recordings": 1, "test_recordings": 0, "clips": 1, "frames": 1, "size": 16}
    wrong = [f"{name}={s[name]}" for name, value in least.items() if s[name] < value]
    if wrong or not 0.0 < s["stride"] <= 10.0 or not 0.0 <= s["heterogeneity"] <= 1.0 or workers < 0:
        raise ValueError(
            f"footage needs {', '.join(f'{name} >= {value}' for name, value in least.items())}, a stride of some "
            f"seconds, heterogeneity from 0 to 1 and workers >= 0; got {', '.join(wrong) or 'one that is not'}"
        )
    if places < 1 or len(s["shares"]) != places or not all(0.0 < w < np.inf for w in s["shares"]):
        raise ValueError(f"there must be a positive share for each of {places} places; got {s['shares']}")
    if s["people"] < places or (s["test_recordings"] and s["test_people"] < places):
        raise ValueError(
            f"each of {places} places needs a person for training and another for test; got people={s['people']} "
            f"and test_people={s['test_people']}"
        )


def _plan(settings: dict[str, Any]) -> tuple[list[Take], Contents]:
    """Every recording to make, in order, and what the clips will be."""
    world = derive(settings["seed"], "footage", settings["domain"])
    names, shares = settings["actions"], np.array(settings["shares"]) / sum(settings["shares"])
    spread = settings["heterogeneity"]
    numbers = [number(name) for name in names]
    takes: list[Take] = []
    labels: list[int] = []
    places: list[int] = []
    tested: list[bool] = []
    for split in ("train", "test"):
        total = settings["recordings" if split == "train" else "test_recordings"] * len(names)
        crowd = settings["people" if split == "train" else "test_people"]
        bounds = np.rint(np.concatenate([[0.0], np.cumsum(shares)]) * total).astype(np.int64)
        for place, (first, last) in enumerate(pairwise(bounds.tolist())):
            if first == last and total:
                raise ValueError(
                    f"place {place} would have none of the {total} {split} recordings: make more, or its share larger"
                )
            rng = numpy_generator(world, split, place)
            seed = derive(world, "elsewhere" if split == "test" and settings["elsewhere"] else "place", place)
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
                labels.append(int(label))
                places.append(place)
                tested.append(split == "test")
    people = sorted({take.who for take in takes})
    each = settings["clips"]
    numbered = {name: i for i, name in enumerate(people)}
    contents = Contents(
        settings=settings,
        classes=names,
        people=people,
        labels=_repeat(labels, each),
        recording=_repeat(list(range(len(takes))), each),
        person=_repeat([numbered[take.who] for take in takes], each),
        place=_repeat(places, each),
        test=[bool(value) for value in _repeat(tested, each)],
        shape=(settings["frames"], settings["size"], settings["size"]),
    )
    return takes, contents


def _repeat(values: Sequence[int], times: int) -> list[int]:
    return [value for value in values for _ in range(times)]


@lru_cache(maxsize=1)
def _code() -> str:
    """A digest of the code that plans, performs and films: what other code made is not taken from the cache."""
    digest = hashlib.sha256()
    for path in [*(Path(__file__).with_name(f"{name}.py") for name in _MADE_BY), Path(seeds.__file__)]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
