"""What stands beside every study's result: the commonest class, a ridge classifier, and training alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, TypedDict

from fedaction.data.client import ClientData
from fedaction.evaluation.controls import SIMPLE, Simple, describe_split
from fedaction.evaluation.site import name_test
from fedaction.federation.files import read_sealed_json, write_sealed_json
from fedaction.federation.order import order_names
from fedaction.federation.progress import CONTROLS, Progress
from fedaction.methods import METHODS
from fedaction.methods.given import with_network
from fedaction.methods.start import initial_state
from fedaction.runs.recipe import Recipe
from fedaction.runs.seal import OF
from fedaction.runs.standing import CONTROLS_FILE

ALONE = "local"
"""The method that is training alone."""


class ControlResult(TypedDict):
    """A control's accuracy, 0 to 1: the mean over clients, and each client's own."""

    mean: float
    clients: dict[str, float]


def add_alone(recipe: Recipe, clients: Mapping[str, ClientData], warn: Callable[[str], object]) -> Recipe:
    """The recipe with `local` among its baselines, if its controls name it and its method learns from labels.

    Where no network can be built for clients alone from the recipe's keys, it is left out with a warning.
    """
    run = recipe.run
    if ALONE not in run.controls or run.method == "central" or ALONE in recipe.methods:
        return recipe
    if recipe.kinds[run.method].overrides("task"):
        return recipe
    known, kind = recipe.flat(), METHODS[ALONE]
    if run.own:
        kind = with_network(kind, recipe.kinds[run.method], recipe.methods[run.method])
    settings = kind.settings_type(**{key: known[key] for key in kind.settings_type.model_fields if key in known})
    try:
        initial_state(kind([client.info for client in clients.values()], settings), run.seeds[0])
    except ValueError as error:
        warn(f"training alone is left out of the controls, since its network cannot be built: {error}")
        return recipe
    run = run.model_copy(update={"baselines": (*run.baselines, ALONE)})
    return replace(recipe, run=run, methods={**recipe.methods, ALONE: settings}, kinds={**recipe.kinds, ALONE: kind})


def say_split(clients: Mapping[str, ClientData]) -> str:
    """Who trains and who is tested, in a few lines: groups with their clients, samples, classes, people held out."""
    groups: dict[str, list[ClientData]] = {}
    for client in clients.values():
        groups.setdefault(client.info.group, []).append(client)
    lines: list[str] = []
    for group, own in groups.items():
        trained = sum(len(client.train) for client in own)
        names = _list_names(order_names(client.info.id for client in own))
        lines.append(f"{group}: {len(own)} clients ({names}), {trained} samples to train on")
        held = {describe_split(client).held_out or () for client in own}
        same = len({name_test(client) or client.info.id for client in own}) == 1
        if same and len(held) == 1 and (people := next(iter(held))):
            lines.append(f"  held out for everybody's test: {_list_names(people)}, {len(own[0].test)} samples")
        else:
            count = sum(len(client.test) for client in own)
            others = order_names(sorted({who for people in held for who in people}))
            about = f"of people nobody at the client trains on: {_list_names(others)}" if others else "their own"
            lines.append(f"  tested on {count} samples, {about}")
    return "\n".join(lines)


def _list_names(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def has_controls(home: Path, word: str = "") -> bool:
    """Whether a directory has what `write_controls` writes, for what has this word; "", or an older file: for any."""
    about = _read(home)
    return about is not None and (not word or about.get(OF, word) == word)


def _read(home: Path) -> dict[str, Any] | None:
    """What `write_controls` wrote; None where it is not there, or damaged."""
    try:
        about = read_sealed_json(home / CONTROLS_FILE)
        split: dict[str, Any] = about["split"]
        scores = [own["accuracy"] for name in SIMPLE for own in dict[str, Any](about.get(name) or {}).values()]
        whole = all(isinstance(own, dict) for own in split.values()) and all(type(score) is float for score in scores)
        return about if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_controls(
    recipe: Recipe, clients: Mapping[str, ClientData], home: Path, progress: Progress, word: str = ""
) -> None:
    """Writes what clients hold and what the recipe's simple controls give on their tests; `word` says of what."""
    tested = {name: client for name, client in clients.items() if len(client.test) and len(client.train)}
    about: dict[str, Any] = {"split": {name: describe_split(client)._asdict() for name, client in clients.items()}}
    wanted = {name: score for name, score in SIMPLE.items() if name in recipe.run.controls}
    if wanted:
        progress.start(CONTROLS, 0, len(tested))
        about |= {name: {} for name in wanted}
    for done, (client, data) in enumerate(tested.items(), 1):
        for name, score in wanted.items():
            scores = score(data)
            about[name][client] = scores._asdict() | {"interval": scores.interval}
        if wanted:
            progress.advance(CONTROLS, done, None)
    write_sealed_json(home / CONTROLS_FILE, {**about, OF: word} if word else about)


def read_split(home: Path) -> dict[str, dict[str, Any]]:
    """By client, what `evaluation.controls.describe_split` says; nothing where a run has no such file."""
    return (_read(home) or {"split": {}})["split"]


def sum_up_controls(homes: Iterable[Path], unseen: str) -> dict[Simple, ControlResult]:
    """The controls in some directories, each a split of its own; means over them. `unseen` is not part of means."""
    found = [about for home in homes if (about := _read(home)) is not None]
    results: dict[Simple, ControlResult] = {}
    for name in SIMPLE:
        splits = [split[name] for split in found if split.get(name)]
        if splits:
            clients = {c: fmean(split[c]["accuracy"] for split in splits if c in split) for c in splits[0]}
            results[name] = {"mean": fmean(v for c, v in clients.items() if c != unseen), "clients": clients}
    return results
