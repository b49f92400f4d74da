"""What footage is made with, and filming many recordings into one file, in worker processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from contextlib import nullcontext
from dataclasses import InitVar, asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaction.federation.processes import cores, worker_pool
from fedaction.federation.seeds import derive, numpy_generator
from fedaction.stage.actions import number
from fedaction.stage.actors import actor
from fedaction.stage.film import film
from fedaction.stage.performance import perform
from fedaction.stage.scene import DOMAINS, Scene, Variety

_CHUNK = 16  # recordings of one task
_SMALL_BYTES = 48 * 2**20  # of clips; up to here, workers take longer to start than this process to film


@dataclass(kw_only=True)
class FootageSettings:
    """What a set of footage is made with; settings that make none are refused.

    A place has its own people and, where `heterogeneity` is not 0, room, view, light and mix of actions.
    """

    domain: str = "wide"  # "wide", "home" or "hall"; see `scene.DOMAINS`
    actions: Sequence[str] = ()  # class names; none: the domain's own
    recordings: int = 20  # of each class for training, on average
    test_recordings: int = 5  # of each class for test, on average; 0: none
    clips: int = 1  # of each recording, from its beginning to its end
    people: int = 40  # who are recorded for training, at least one for each place
    test_people: int = 10  # others, who are recorded for test
    places: InitVar[int] = 1  # number of places
    shares: Sequence[float] = ()  # (places,) relative numbers of recordings; none: equal
    frames: int = 8  # T of a clip
    stride: float = 0.3  # seconds between frames; an action takes 2 to 4 s
    size: int = 64  # H and W, pixels
    seed: int = 0  # of the world
    variety: float | Variety = 1.0  # how strongly recordings differ: 0 is a plain studio, 1 the usual
    # 0 to 1. 0: every recording is in a room, from a view and in a light of its own. 1: a place's are alike, and
    # places differ in which actions are common.
    heterogeneity: float = 0.0
    elsewhere: bool = False  # whether test people are in other rooms and views than their place's training people

    def __post_init__(self, places: int) -> None:
        if self.domain not in DOMAINS:
            raise ValueError(f"a domain is one of {', '.join(DOMAINS)}, not {self.domain!r}")
        self.actions = tuple(self.actions) or DOMAINS[self.domain].actions
        self.shares = tuple(float(share) for share in self.shares) or (1.0,) * places
        self.variety = Variety.of(self.variety)
        for name in self.actions:
            number(name)
        if len(self.actions) < 2 or len(set(self.actions)) != len(self.actions):
            raise ValueError(f"footage needs two or more different actions; got {', '.join(self.actions)}")
        least = {"recordings": 1, "test_recordings": 0, "clips": 1, "frames": 1, "size": 16}
        wrong = [f"{name}={getattr(self, name)}" for name, value in least.items() if getattr(self, name) < value]
        if wrong or not 0.0 < self.stride <= 10.0 or not 0.0 <= self.heterogeneity <= 1.0:
            raise ValueError(
                f"footage needs {', '.join(f'{name} >= {value}' for name, value in least.items())}, a stride of some "
                f"seconds and heterogeneity from 0 to 1; got {', '.join(wrong) or 'one that is not'}"
            )
        if places < 1 or len(self.shares) != places or not all(0.0 < w < np.inf for w in self.shares):
            raise ValueError(f"there must be a positive share for each of {places} places; got {list(self.shares)}")
        if self.people < places or (self.test_recordings and self.test_people < places):
            raise ValueError(
                f"each of {places} places needs a person for training and another for test; got people={self.people} "
                f"and test_people={self.test_people}"
            )

    def to_dict(self) -> dict[str, Any]:
        """All of them as JSON values."""
        return {**asdict(self), "actions": list(self.actions), "shares": list(self.shares)}

    @property
    def world(self) -> int:
        """What people, places and recordings are drawn from."""
        return derive(self.seed, "footage", self.domain)


@dataclass(frozen=True)
class Take:
    """One recording to make."""

    action: int  # its number
    who: str  # the person's name
    kind: float  # in [0, 1), which of the domain's kinds of people that is
    place: int  # seed of the place
    own: int  # seed of the recording


def film_takes(
    settings: FootageSettings,
    takes: list[Take],
    path: Path,
    begin: int,
    *,
    workers: int,
    progress: Callable[[int, int], object] | None,
) -> None:
    """Films recordings, clip after clip, into a file from the byte `begin` on.

    Of workers, 1 is this process; 0: one for each core, or this one where there is little to film. `progress` is
    called with the clips done and the clips there are.
    """
    each, bytes_each = settings.clips, settings.frames * settings.size**2 * 3
    tasks = [(takes[i : i + _CHUNK], begin + i * each * bytes_each) for i in range(0, len(takes), _CHUNK)]
    workers = workers or (cores() if len(takes) * each * bytes_each > _SMALL_BYTES else 1)
    films = [partial(_film_some, settings, *task, path) for task in tasks]
    with worker_pool(workers) if workers > 1 else nullcontext() as pool:
        futures = [pool.submit(job) for job in films] if pool else []
        counts = (future.result() for future in as_completed(futures)) if pool else (job() for job in films)
        done = 0
        for count in counts:
            done += count
            if progress is not None:
                progress(done, len(takes) * each)


def _film_some(settings: FootageSettings, takes: list[Take], at: int, path: Path) -> int:
    """Films some recordings into their part of a file; how many clips that are."""
    domain, variety, each = DOMAINS[settings.domain], Variety.of(settings.variety), settings.clips
    ticks = (np.arange(settings.frames) - 0.5 * (settings.frames - 1)) * settings.stride
    made: list[NDArray[np.uint8]] = []
    for take in takes:
        who = actor(settings.world, take.who, domain.cohort(take.kind))
        show = perform([take.action], [who], take.own, 2)
        # The clips' middles lie in the action, not in the rest before and after it.
        share = 0.3 + 0.4 * (np.arange(each) + numpy_generator(take.own, "clips").random(each)) / each
        middles = show.script.start[0] + share * show.script.span[0]
        scene = Scene(domain, variety, take.place, take.own, settings.heterogeneity)
        made.append(film(show, middles[:, None] + ticks, (settings.size, settings.size), scene))
    with path.open("rb+") as file:
        file.seek(at)
        file.write(np.concatenate(made).tobytes())
    return len(takes) * each
