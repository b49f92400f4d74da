"""Checkpoints: tensors in safetensors, the rest in JSON. Written atomically, checked when read, the last few kept."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedaction.federation.state import ServerState
from fedaction.federation.tree import Tree
from fedaction.runs.files import write_atomically

_NAME = re.compile(r"^round-(\d{6})\.json$")


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
    """

    round: int
    server: ServerState
    locals: Mapping[str, Tree] = field(default_factory=dict[str, Tree])
    visits: Mapping[str, int] = field(default_factory=dict[str, int])
    metrics_length: int = 0
    best: tuple[float, int] = (-1.0, 0)


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
    blob = save(_flatten(state))
    write_atomically(folder / f"{stem}.safetensors", blob)
    record = {
        "format": 1,
        "round": state.round,
        "version": state.server.version,
        "visits": dict(state.visits),
        "metrics_length": state.metrics_length,
        "best": list(state.best),
        "groups": sorted(state.server.groups),
        "sha256": hashlib.sha256(blob).hexdigest(),
    }
    write_atomically(folder / f"{stem}.json", json.dumps(record, allow_nan=False).encode())
    if name is None:
        for round in sorted(_rounds(folder))[:-keep]:
            (folder / f"round-{round:06d}.json").unlink(missing_ok=True)
            (folder / f"round-{round:06d}.safetensors").unlink(missing_ok=True)


def load_checkpoint(folder: Path, stem: str) -> RunState:
    """Reads one checkpoint; anything wrong with it is a CheckpointError."""
    try:
        record: dict[str, Any] = json.loads((folder / f"{stem}.json").read_text(encoding="utf-8"))
        blob = (folder / f"{stem}.safetensors").read_bytes()
        if hashlib.sha256(blob).hexdigest() != record["sha256"]:
            raise CheckpointError(f"the tensors of checkpoint {stem!r} are not those that were written")
        if record["format"] != 1:
            raise CheckpointError(f"checkpoint {stem!r} has format {record['format']}, this version reads 1")
        trees: dict[str, dict[str, Tensor]] = {}
        for key, tensor in load(blob).items():
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
        )
    except CheckpointError:
        raise
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise CheckpointError(f"checkpoint {stem!r} cannot be read: {error}") from None


def latest_checkpoint(folder: Path) -> RunState | None:
    """The newest checkpoint that is whole; a corrupt one is passed over with a warning."""
    for round in sorted(_rounds(folder), reverse=True):
        try:
            return load_checkpoint(folder, f"round-{round:06d}")
        except CheckpointError as error:
            warnings.warn(f"{error}; going back to the one before it", stacklevel=2)
    return None


def _rounds(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return [int(found[1]) for path in folder.iterdir() if (found := _NAME.match(path.name))]


def _flatten(state: RunState) -> dict[str, Tensor]:
    trees: dict[str, Tree] = {"shared": state.server.shared, "memory": state.server.memory}
    trees |= {f"group|{group}": tree for group, tree in state.server.groups.items()}
    trees |= {f"local|{client}": tree for client, tree in state.locals.items()}
    flat: dict[str, Tensor] = {}
    for prefix, tree in trees.items():
        for name, tensor in tree.items():
            # Copied, because the format refuses tensors that share memory (memory starts out as the shared tree).
            flat[f"{prefix}|{name}"] = tensor.detach().to("cpu", copy=True).contiguous()
    return flat


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
    return RunState(state.round, server, locals_, state.visits, state.metrics_length, state.best)
