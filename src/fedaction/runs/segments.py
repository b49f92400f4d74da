"""LOCAL tensors of very many clients: a checkpoint writes those that have changed, and names the files of the others.

A segment is a file of some clients' tensors as they were after a round. A client's tensors are those of the newest
segment, among those that a checkpoint names, that has them. What is written with a checkpoint is so much as clients
were asked since the last one, and at most as much again of old segments, which go when nothing of them is needed:
on disk lies at most about twice of what there is.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from safetensors.torch import load, save
from torch import Tensor

from fedaction.engines.store import LocalState
from fedaction.federation.files import write_atomically
from fedaction.federation.outside import read_file
from fedaction.federation.tree import Tree

MOST_WHOLE = 200
"""Up to so many clients' LOCAL tensors lie in every checkpoint itself, which then needs no other file."""
_NAME = re.compile(r"^local-(\d{6,})\.safetensors$")


@dataclass(frozen=True)
class Segments:
    """The segments that a checkpoint names, by the round they are of."""

    digests: Mapping[int, str] = field(default_factory=dict[int, str])
    """SHA-256 of each file."""
    sizes: Mapping[int, int] = field(default_factory=dict[int, int])
    """How many clients each has, whether or not it is the newest that has them."""
    places: Mapping[str, int] = field(default_factory=dict[str, int])
    """Which is the newest, by client."""


def is_segmented(state: LocalState, segments: Segments) -> bool:
    """Whether LOCAL tensors are written to segments, and not into the checkpoint itself."""
    return bool(segments.digests) or len(state.committed) > MOST_WHOLE


def write_segment(folder: Path, round: int, state: LocalState, segments: Segments) -> Segments:
    """Writes the tensors that no segment has yet, with what is left of the oldest ones; gives what then counts.

    It depends on nothing but its arguments, so that a run that was killed writes the same files again.
    """
    if round in segments.digests:  # by the best checkpoint of this round
        return segments
    chosen = [c for c in state.committed if c in state.changed or c not in segments.places]
    if not chosen:
        return segments
    new, sizes = {*chosen}, dict(segments.sizes)
    places = {client: place for client, place in segments.places.items() if client not in new}
    stored, most = sum(sizes.values()) + len(chosen), len(chosen)
    for segment in sorted(sizes):
        if stored <= 2 * len(state.committed) or len(new) > 2 * most:
            break
        moved = [client for client, place in places.items() if place == segment]
        new.update(moved)
        stored += len(moved) - sizes.pop(segment)
        for client in moved:
            del places[client]
    needed = Counter(places.values())
    trees = {client: state.committed[client] for client in sorted(new)}
    digest = _write(folder / _name(round), trees)
    places |= dict.fromkeys(trees, round)
    digests = {n: own for n, own in segments.digests.items() if needed[n]} | {round: digest}
    return Segments(digests, {n: sizes[n] for n in digests if n != round} | {round: len(trees)}, places)


def read_segments(folder: Path, digests: Mapping[int, str]) -> tuple[dict[str, Tree], Segments]:
    """Clients' LOCAL tensors from the segments that a checkpoint names."""
    committed: dict[str, Tree] = {}
    sizes, places = dict[int, int](), dict[str, int]()
    for round in sorted(digests):
        blob = read_file(folder / _name(round))
        if hashlib.sha256(blob).hexdigest() != digests[round]:
            raise ValueError(f"{folder / _name(round)}, which it needs, is not as it was written")
        trees: dict[str, dict[str, Tensor]] = {}
        for key, tensor in load(blob).items():
            client, _, name = key.rpartition("|")
            trees.setdefault(client, {})[name] = tensor
        committed |= trees
        sizes[round] = len(trees)
        places |= dict.fromkeys(trees, round)
    return committed, Segments(digests, sizes, places)


def list_segments(folder: Path) -> list[Path]:
    """All segment files in a folder of checkpoints."""
    return sorted(path for path in folder.iterdir() if _NAME.match(path.name))


def remove_segments(paths: Iterable[Path], needed: Collection[int]) -> None:
    """Removes those that no checkpoint needs."""
    for path in paths:
        if (name := _NAME.match(path.name)) and int(name[1]) not in needed:
            path.unlink(missing_ok=True)


def _name(round: int) -> str:
    return f"local-{round:06d}.safetensors"


def _write(path: Path, trees: Mapping[str, Tree]) -> str:
    """Writes a segment; gives its SHA-256."""
    blob = save(
        {
            f"{client}|{name}": tensor.detach().to("cpu", copy=True).contiguous()
            for client, tree in trees.items()
            for name, tensor in tree.items()
        }
    )
    write_atomically(path, blob)
    return hashlib.sha256(blob).hexdigest()
