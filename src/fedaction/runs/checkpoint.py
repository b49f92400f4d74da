"""Checkpoints: tensors in safetensors, the rest in JSON. Written atomically, checked when read, the last few kept."""

from __future__ import annotations

import hashlib
import json
import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from fedaction.engines.store import LocalState
from fedaction.federation.clock import Span
from fedaction.federation.files import make_folder, read_json, write_atomically
from fedaction.federation.outside import read_file, refuse_damage
from fedaction.federation.state import Job, ServerState, Update
from fedaction.federation.tree import Tree
from fedaction.runs.seal import Seal, SealError, hash_beginning
from fedaction.runs.segments import (
    Segments,
    is_segmented,
    list_segments,
    read_segments,
    remove_segments,
    write_segment,
)
from fedaction.server.flights import Flight
from fedaction.server.state import FederationState

FORMAT = 2
"""Of checkpoints; raised whenever an older one would be read wrongly."""
SEGMENTED = 3
"""The format of those whose LOCAL tensors lie in files beside them."""
_NAME = re.compile(r"^round-(\d{6,})\.(json|safetensors)$")


@dataclass(frozen=True)
class RunState:
    """Everything a run needs to resume."""

    federation: FederationState
    """The server's side."""
    locals: LocalState = field(default_factory=LocalState)
    """What the sites keep, where they are simulated."""
    metrics_length: int = 0
    """Bytes of the metrics table that belong to it."""
    best: tuple[float, int] = (-1.0, 0)
    """The best mean validation accuracy so far, and the round it was reached in; (-1, 0) where there is none."""
    metrics_sha256: str = ""
    """A hash of those bytes; empty: of an older version."""
    seal: Seal = field(default_factory=Seal)
    """What the run was begun with."""
    segments: Segments = field(default_factory=Segments)
    """Where `locals` lie on disk, where they are too many for every checkpoint to hold them all."""

    @property
    def round(self) -> int:
        """Rounds done."""
        return self.federation.round

    @property
    def server(self) -> ServerState:
        """What the server has learned."""
        return self.federation.server


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, and why."""


def save_checkpoint(folder: Path, state: RunState, keep: int, name: str | None = None) -> RunState:
    """Writes a checkpoint: tensors first, then the JSON that vouches for them; then old ones go.

    Args:
        folder: where checkpoints live.
        state: what to keep.
        keep: how many of the last ones stay; the named ones stay anyway.
        name: a name instead of the round ("best").

    Returns:
        The state, which now knows where its LOCAL tensors lie.
    """
    make_folder(folder)
    stem = name or f"round-{state.round:06d}"
    segmented = is_segmented(state.locals, state.segments)
    if segmented:
        segments = write_segment(folder, state.round, state.locals, state.segments)
        state = replace(state, segments=segments)
    flat, aliases = _flatten(state)
    blob = save(flat)
    write_atomically(folder / f"{stem}.safetensors", blob)
    record: dict[str, Any] = {
        "format": SEGMENTED if segmented else FORMAT,
        "round": state.round,
        "version": state.server.version,
        "visits": dict(state.federation.visits),
        "metrics_length": state.metrics_length,
        "best": list(state.best),
        "groups": sorted(state.server.groups),
        "metrics_sha256": state.metrics_sha256,
        "configuration": state.seal.configuration,
        "seal": state.seal.record(),
        "time": state.federation.time,
        "busy": dict(state.federation.busy),
        "launched": state.federation.launched,
        "flights": [_describe(flight) for flight in state.federation.flights],
        "aliases": aliases,
    }
    if segmented:
        record["segments"] = {str(round): digest for round, digest in state.segments.digests.items()}
    record["sha256"] = _digest(record, blob)
    write_atomically(folder / f"{stem}.json", json.dumps(record, allow_nan=False).encode())
    if name is None:
        prune(folder, state.round, keep)
    return state


def prune(folder: Path, round: int, keep: int) -> None:
    """Removes all but the last few checkpoints up to a round.

    Later ones belong to a run that could not be resumed, and go too, as does what a kill left half removed.
    """
    kept = sorted(number for number in list_rounds(folder) if number <= round)[-keep:]
    for path in sorted(folder.iterdir()):  # each JSON before its tensors, so that no JSON is left without them
        if (name := _NAME.match(path.name)) and int(name[1]) not in kept:
            path.unlink(missing_ok=True)
    if segments := list_segments(folder):
        stems = [*(f"round-{number:06d}" for number in kept), "best"]
        remove_segments(segments, {number for stem in stems for number in _segments_of(folder / f"{stem}.json")})


def _segments_of(path: Path) -> list[int]:
    """The segments that a checkpoint names; none where it is not there, or damaged."""
    try:
        return [int(number) for number in read_json(path).get("segments", {})]
    except (OSError, ValueError, AttributeError):
        return []


def load_checkpoint(folder: Path, stem: str) -> RunState:
    """Reads one checkpoint; anything wrong with it is a CheckpointError."""
    with refuse_damage(f"checkpoint {stem!r}", "a whole one", CheckpointError):
        record: dict[str, Any] = read_json(folder / f"{stem}.json")
        blob = read_file(folder / f"{stem}.safetensors")
        if record["format"] not in (FORMAT, SEGMENTED):
            raise CheckpointError(
                f"checkpoint {stem!r} has format {record['format']}, this version reads {FORMAT} and {SEGMENTED}"
            )
        if _digest(record, blob) != record["sha256"]:
            raise CheckpointError(f"checkpoint {stem!r} is not as it was written")
        trees: dict[str, dict[str, Tensor]] = {}
        flat = load(blob)
        aliases: dict[str, str] = record.get("aliases", {})
        for key, tensor in (flat | {key: flat[first] for key, first in aliases.items()}).items():
            tree, _, tensor_name = key.rpartition("|")
            trees.setdefault(tree, {})[tensor_name] = tensor
        server = ServerState(
            int(record["version"]),
            trees.get("shared", {}),
            {group: trees.get(f"group|{group}", {}) for group in record["groups"]},
            trees.get("ahead", {}),
            trees.get("memory", {}),
        )
        federation = FederationState(
            int(record["round"]),
            server,
            {str(client): int(count) for client, count in record["visits"].items()},
            float(record["time"]),
            {str(client): float(seconds) for client, seconds in record["busy"].items()},
            int(record["launched"]),
            tuple(_flight(entry, trees) for entry in record["flights"]),
        )
        committed, segments = dict[str, Tree](_trees_below("local", trees)), Segments()
        if record["format"] == SEGMENTED:
            digests = {int(round): str(digest) for round, digest in record["segments"].items()}
            committed, segments = read_segments(folder, digests)
        return RunState(
            federation,
            LocalState(committed, _trees_below("pending", trees)),
            int(record["metrics_length"]),
            (float(record["best"][0]), int(record["best"][1])),
            str(record.get("metrics_sha256", "")),
            Seal.parse(record),
            segments,
        )


def latest_checkpoint(folder: Path, table: Path) -> RunState | None:
    """The newest checkpoint that a run can resume from; those that cannot are passed over, each with a warning.

    Where a checkpoint is sound, but none goes with the metrics that are there, that is an error: to begin again would
    be to throw away what was trained.

    Args:
        folder: where checkpoints live.
        table: the metrics, of which a checkpoint vouches for so many bytes.

    Returns:
        Its state, or None: start from the beginning.
    """
    rounds, sound = sorted(list_rounds(folder), reverse=True), 0
    for place, round in enumerate(rounds, 1):
        try:
            state = load_checkpoint(folder, f"round-{round:06d}")
            sound = max(sound, state.round)
            fault = find_fault(table, state.metrics_length, state.metrics_sha256)
            if not fault:
                return state
            raise CheckpointError(f"checkpoint 'round-{round:06d}' does not go with {fault}")
        except CheckpointError as error:
            if place == len(rounds) and sound:
                raise SealError(
                    f"{error}; nor does any other checkpoint, though that of round {sound} is sound. Put "
                    f"{table.name} back from a copy; or, to train from the beginning, remove {folder} first"
                ) from None
            instead = f"round {rounds[place]}" if place < len(rounds) else "the beginning"
            warnings.warn(f"{error}; going back to {instead}", stacklevel=2)
    return None


def find_fault(table: Path, length: int, sha256: str, *, whole: bool = False) -> str:
    """What is wrong with a table of metrics whose first bytes were sealed, in words; empty: nothing.

    Args:
        table: the file.
        length: how many bytes were sealed.
        sha256: their hash; empty: it is not known.
        whole: nothing may follow them.
    """
    size = table.stat().st_size if table.exists() else 0
    if size < length:
        return f"{table}: {length} bytes were sealed, but only {size} are there"
    if sha256 and hash_beginning(table, length) != sha256:
        return f"{table}: its first {length} bytes are not as they were sealed"
    return f"{table}: {size - length} bytes follow after what was sealed" if whole and size > length else ""


def list_rounds(folder: Path) -> list[int]:
    """Rounds with a checkpoint: the JSON is written last, so it stands for both files."""
    if not folder.is_dir():
        return []
    return [int(name[1]) for path in folder.iterdir() if (name := _NAME.match(path.name)) and name[2] == "json"]


def _digest(record: Mapping[str, Any], blob: bytes) -> str:
    """A hash of everything that a checkpoint says, but for the hash itself."""
    rest = json.dumps({key: value for key, value in record.items() if key != "sha256"}, sort_keys=True)
    return hashlib.sha256(rest.encode() + b"\n" + blob).hexdigest()


def _trees_below(kind: str, trees: Mapping[str, Tree]) -> dict[str, Tree]:
    """Clients' trees of a kind, by client."""
    return {key.removeprefix(f"{kind}|"): tree for key, tree in trees.items() if key.startswith(f"{kind}|")}


def _describe(flight: Flight) -> dict[str, Any]:
    """What a checkpoint's JSON says of a flight."""
    job, span, update = flight.job, flight.span, flight.update
    never = math.isinf(span.finish)
    return {
        "client": job.client,
        "group": job.group,
        "number": job.number,
        "epochs": job.epochs,
        "version": job.version,
        "round": job.round,
        "start": span.start,
        "finish": None if never else span.finish,
        "busy": span.busy,
        "lost": span.lost,
        "update": None if update is None else [update.samples, dict(update.metrics), update.fault],
    }


def _flight(entry: Mapping[str, Any], trees: Mapping[str, dict[str, Tensor]]) -> Flight:
    client, group, number = str(entry["client"]), str(entry["group"]), int(entry["number"])
    finish = math.inf if entry["finish"] is None else float(entry["finish"])
    span = Span(float(entry["start"]), finish, float(entry["busy"]), bool(entry["lost"]))
    payload, tree = (trees.get(f"flight|{number}|{kind}", {}) for kind in ("payload", "tree"))
    epochs = int(entry.get("epochs", 0))
    job = Job(client, group, int(entry["version"]), int(entry["round"]), payload, number, epochs)
    if entry["update"] is None:
        return Flight(job, span)
    samples, metrics, fault = entry["update"]
    update = Update(client, group, job.version, tree, float(samples), metrics, str(fault), job.occasion)
    return Flight(job, span, update)


def _flatten(state: RunState) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors by key, and further keys of some of them: many flights may have started from one model."""
    server, flights = state.server, state.federation.flights
    trees: dict[str, Tree] = {"shared": server.shared, "ahead": server.ahead, "memory": server.memory}
    trees |= {f"group|{group}": tree for group, tree in server.groups.items()}
    if not state.segments.digests:
        trees |= {f"local|{client}": tree for client, tree in state.locals.committed.items()}
    trees |= {f"pending|{client}": tree for client, tree in state.locals.pending.items()}
    trees |= {f"flight|{f.number}|tree": f.update.tree for f in flights if f.update is not None}
    payloads = {f"flight|{flight.number}|payload": flight.job.payload for flight in flights}
    flat: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[int, str] = {}
    for prefix, tree in (trees | payloads).items():
        for name, tensor in tree.items():
            key = f"{prefix}|{name}"
            if prefix in payloads and id(tensor) in first:
                aliases[key] = first[id(tensor)]
                continue
            first[id(tensor)] = key
            # Copied, because the format refuses tensors that share memory.
            flat[key] = tensor.detach().to("cpu", copy=True).contiguous()
    return flat, aliases
