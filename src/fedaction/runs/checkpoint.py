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

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedaction.federation.clock import Span
from fedaction.federation.files import write_atomically
from fedaction.federation.state import ServerState, Update
from fedaction.federation.tree import Tree
from fedaction.server.events import Flight

_NAME = re.compile(r"^round-(\d{6,})\.(json|safetensors)$")


@dataclass(frozen=True)
class RunState:
    """Everything a run needs to go on: random numbers are derived, so none are here.

    Attributes:
        round: rounds done.
        server: the server's state.
        locals: LOCAL tensors of the clients that have trained.
        visits: how often each client has been sent something.
        metrics_length: bytes of the metrics table that belong to it.
        best: the best mean accuracy so far, and the round it was reached in.
        configuration: a hash of the recipe it comes from.
        time: seconds on the virtual clock.
        busy: seconds that each client's device has worked.
        launched: asynchronous: jobs given out so far.
        flights: asynchronous: jobs that the server has not seen the answers of yet.
    """

    round: int
    server: ServerState
    locals: Mapping[str, Tree] = field(default_factory=dict[str, Tree])
    visits: Mapping[str, int] = field(default_factory=dict[str, int])
    metrics_length: int = 0
    best: tuple[float, int] = (-1.0, 0)
    configuration: str = ""
    time: float = 0.0
    busy: Mapping[str, float] = field(default_factory=dict[str, float])
    launched: int = 0
    flights: tuple[Flight, ...] = ()


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, and why."""


def save_checkpoint(folder: Path, state: RunState, keep: int, name: str | None = None) -> None:
    """Writes a checkpoint: tensors first, then the JSON that vouches for them; then old ones go.

    Args:
        folder: where checkpoints live.
        state: what to keep.
        keep: how many of the last ones stay; the named ones stay anyway.
        name: a name instead of the round ("best").
    """
    stem = name or f"round-{state.round:06d}"
    flat, aliases = _flatten(state)
    blob = save(flat)
    write_atomically(folder / f"{stem}.safetensors", blob)
    record: dict[str, Any] = {
        "format": 1,
        "round": state.round,
        "version": state.server.version,
        "visits": dict(state.visits),
        "metrics_length": state.metrics_length,
        "best": list(state.best),
        "groups": sorted(state.server.groups),
        "configuration": state.configuration,
        "time": state.time,
        "busy": dict(state.busy),
        "launched": state.launched,
        "flights": [_noted(flight) for flight in state.flights],
        "aliases": aliases,
    }
    record["sha256"] = _digest(record, blob)
    write_atomically(folder / f"{stem}.json", json.dumps(record, allow_nan=False).encode())
    if name is None:
        prune(folder, state.round, keep)


def prune(folder: Path, round: int, keep: int) -> None:
    """Removes all but the last few checkpoints up to a round.

    Later ones belong to a run that could not be gone on with, and go too, as does what a kill left half removed.
    """
    kept = sorted(found for found in _rounds(folder) if found <= round)[-keep:]
    for path in sorted(folder.iterdir()):  # each JSON before its tensors, so that no JSON is left without them
        if (found := _NAME.match(path.name)) and int(found[1]) not in kept:
            path.unlink(missing_ok=True)


def load_checkpoint(folder: Path, stem: str) -> RunState:
    """Reads one checkpoint; anything wrong with it is a CheckpointError."""
    try:
        record: dict[str, Any] = json.loads((folder / f"{stem}.json").read_text(encoding="utf-8"))
        blob = (folder / f"{stem}.safetensors").read_bytes()
        if record["format"] != 1:
            raise CheckpointError(f"checkpoint {stem!r} has format {record['format']}, this version reads 1")
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
            trees.get("memory", {}),
        )
        return RunState(
            int(record["round"]),
            server,
            {key.removeprefix("local|"): tree for key, tree in trees.items() if key.startswith("local|")},
            {str(client): int(count) for client, count in record["visits"].items()},
            int(record["metrics_length"]),
            (float(record["best"][0]), int(record["best"][1])),
            str(record["configuration"]),
            # Not in checkpoints from before there was a clock.
            float(record.get("time", 0.0)),
            {str(client): float(seconds) for client, seconds in record.get("busy", {}).items()},
            int(record.get("launched", 0)),
            tuple(_flight(entry, trees) for entry in record.get("flights", [])),
        )
    except CheckpointError:
        raise
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise CheckpointError(f"checkpoint {stem!r} cannot be read: {error}") from None


def latest_checkpoint(folder: Path, metrics_length: int) -> RunState | None:
    """The newest checkpoint that can be gone on from; those that cannot are passed over, each with a warning.

    Args:
        folder: where checkpoints live.
        metrics_length: bytes of the metrics table that are there.

    Returns:
        Its state, or None: start from the beginning.
    """
    rounds = sorted(_rounds(folder), reverse=True)
    for place, round in enumerate(rounds, 1):
        try:
            state = load_checkpoint(folder, f"round-{round:06d}")
            if state.metrics_length <= metrics_length:
                return state
            raise CheckpointError(
                f"checkpoint 'round-{round:06d}' goes with {state.metrics_length} bytes of metrics, but only "
                f"{metrics_length} are there"
            )
        except CheckpointError as error:
            instead = f"round {rounds[place]}" if place < len(rounds) else "the beginning"
            warnings.warn(f"{error}; going back to {instead}", stacklevel=2)
    return None


def _rounds(folder: Path) -> list[int]:
    """Rounds with a checkpoint: the JSON is written last, so it stands for both files."""
    if not folder.is_dir():
        return []
    return [int(found[1]) for path in folder.iterdir() if (found := _NAME.match(path.name)) and found[2] == "json"]


def _digest(record: Mapping[str, Any], blob: bytes) -> str:
    """A hash of everything that a checkpoint says, but for the hash itself."""
    rest = json.dumps({key: value for key, value in record.items() if key != "sha256"}, sort_keys=True)
    return hashlib.sha256(rest.encode() + b"\n" + blob).hexdigest()


def _noted(flight: Flight) -> dict[str, Any]:
    """What a checkpoint's JSON says of a flight."""
    span, update = flight.span, flight.update
    never = math.isinf(span.finish)
    return {
        "client": flight.client,
        "number": flight.number,
        "version": flight.version,
        "start": span.start,
        "finish": None if never else span.finish,
        "busy": span.busy,
        "lost": span.lost,
        "update": None if update is None else [update.group, update.weight, dict(update.metrics)],
    }


def _flight(entry: Mapping[str, Any], trees: Mapping[str, dict[str, Tensor]]) -> Flight:
    client, number, version = str(entry["client"]), int(entry["number"]), int(entry["version"])
    finish = math.inf if entry["finish"] is None else float(entry["finish"])
    span = Span(float(entry["start"]), finish, float(entry["busy"]), bool(entry["lost"]))
    payload, tree, local = (trees.get(f"flight|{number}|{kind}", {}) for kind in ("payload", "tree", "local"))
    update = None
    if entry["update"] is not None:
        group, weight, metrics = entry["update"]
        update = Update(client, str(group), version, tree, local, float(weight), metrics)
    return Flight(client, number, version, span, payload, update)


def _flatten(state: RunState) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors by key, and further keys of some of them: many flights may have started from one model."""
    trees: dict[str, Tree] = {"shared": state.server.shared, "memory": state.server.memory}
    trees |= {f"group|{group}": tree for group, tree in state.server.groups.items()}
    trees |= {f"local|{client}": tree for client, tree in state.locals.items()}
    sent = {f"flight|{flight.number}|payload": flight.payload for flight in state.flights}
    for flight in state.flights:
        if flight.update is not None:
            trees |= {f"flight|{flight.number}|tree": flight.update.tree}
            trees |= {f"flight|{flight.number}|local": flight.update.local}
    flat: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[int, str] = {}
    for prefix, tree in (trees | sent).items():
        for name, tensor in tree.items():
            key = f"{prefix}|{name}"
            if prefix in sent and id(tensor) in first:
                aliases[key] = first[id(tensor)]
                continue
            first[id(tensor)] = key
            # Copied, because the format refuses tensors that share memory (memory starts out as the shared tree).
            flat[key] = tensor.detach().to("cpu", copy=True).contiguous()
    return flat, aliases


def moved(state: RunState, device: torch.device) -> RunState:
    """The state with all its tensors on a device."""

    def move(tree: Tree) -> dict[str, Tensor]:
        return {name: tensor.to(device) for name, tensor in tree.items()}

    server = ServerState(
        state.server.version,
        move(state.server.shared),
        {group: move(tree) for group, tree in state.server.groups.items()},
        move(state.server.memory),
    )
    locals_ = {client: move(tree) for client, tree in state.locals.items()}
    flights: list[Flight] = []
    for flight in state.flights:
        update = flight.update
        if update is not None:
            update = replace(update, tree=move(update.tree), local=move(update.local))
        flights.append(replace(flight, payload=move(flight.payload), update=update))
    return replace(state, server=server, locals=locals_, flights=tuple(flights))
