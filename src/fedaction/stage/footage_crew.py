"""Filming many recordings into one file, in worker processes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaction.federation.processes import cores, worker_pool
from fedaction.federation.seeds import derive, numpy_generator
from fedaction.stage.actors import actor
from fedaction.stage.film import film
from fedaction.stage.performance import perform
from fedaction.stage.scene import DOMAINS, Scene, Variety

_CHUNK = 16  # recordings of one task
_SMALL_BYTES = 48 * 2**20  # of clips; up to here, workers take longer to start than this process to film


@dataclass(frozen=True)
class Take:
    """One recording to make.

    Attributes:
        action: its number.
        who: the person's name.
        kind: in [0, 1), which of the domain's kinds of people that is.
        place: seed of the place.
        own: seed of the recording.
    """

    action: int
    who: str
    kind: float
    place: int
    own: int


def film_takes(
    settings: dict[str, Any],
    takes: list[Take],
    path: Path,
    begin: int,
    *,
    workers: int,
    progress: Callable[[int, int], object] | None,
) -> None:
    """Films recordings, clip after clip, into a file.

    Args:
        settings: of the footage.
        takes: what to film.
        path: the file.
        begin: the byte of it at which the first clip begins.
        workers: processes; 1: this one. 0: one for each core, or this one where there is little to film.
        progress: called with the clips done and the clips there are.
    """
    each, bytes_each = settings["clips"], settings["frames"] * settings["size"] ** 2 * 3
    tasks = [(takes[i : i + _CHUNK], begin + i * each * bytes_each) for i in range(0, len(takes), _CHUNK)]
    workers = workers or (cores() if len(takes) * each * bytes_each > _SMALL_BYTES else 1)
    done, total = 0, len(takes) * each
    if workers == 1:
        for task in tasks:
            done += _film_some(settings, *task, path)
            if progress is not None:
                progress(done, total)
        return
    with worker_pool(workers) as pool:
        for future in as_completed([pool.submit(_film_some, settings, *task, path) for task in tasks]):
            done += future.result()
            if progress is not None:
                progress(done, total)


def _film_some(settings: dict[str, Any], takes: list[Take], at: int, path: Path) -> int:
    """Films some recordings into their part of a file; how many clips that are."""
    domain, variety = DOMAINS[settings["domain"]], Variety(**settings["variety"])
    world, each = derive(settings["seed"], "footage", settings["domain"]), settings["clips"]
    size = (settings["size"], settings["size"])
    ticks = (np.arange(settings["frames"]) - 0.5 * (settings["frames"] - 1)) * settings["stride"]
    made: list[NDArray[np.uint8]] = []
    for take in takes:
        who = actor(world, take.who, domain.cohort(take.kind))
        show = perform([take.action], [who], take.own, 2)
        # The clips' middles lie in the action, not in the rest before and after it.
        part = 0.3 + 0.4 * (np.arange(each) + numpy_generator(take.own, "clips").random(each)) / each
        middles = show.script.start[0] + part * show.script.span[0]
        scene = Scene(domain, variety, take.place, take.own, settings["heterogeneity"])
        made.append(film(show, middles[:, None] + ticks, size, scene))
    with path.open("rb+") as file:
        file.seek(at)
        file.write(np.concatenate(made).tobytes())
    return len(takes) * each
