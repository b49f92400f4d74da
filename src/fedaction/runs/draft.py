"""A recipe for one's own data, drafted from what the stores hold, with comments that say why.

A kind of store is one `StoreKind` in `KINDS`: how to recognise it, what to say of it, and which keys it needs.
"""

from __future__ import annotations

import math
import statistics
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedaction.data.client import ClientData
from fedaction.data.features.store import FeatureSet, is_feature_store, load_features
from fedaction.data.signals.store import SignalSet, is_signal_store, load_signals
from fedaction.data.sources import SOURCES
from fedaction.data.sources.base import Tell
from fedaction.data.store import is_store, load
from fedaction.federation.settings import to_toml
from fedaction.runs.recipe import parse_recipe

_SKELETON_STEPS = 2880
"""Local steps of the middle client (kard, 270 training recordings) of the recipe fsar/real: 320 epochs."""
_FEATURE_STEPS = 480
"""Local steps of each client (108 training samples) of the recipe fdarn/utd: 120 epochs."""
_SIGNAL_STEPS = 560
"""Local steps of the middle client (216 windows) of the recipe signals/wrist: 80 epochs."""
_SHARES = 4  # clients of a store that does not say who is who


@dataclass(frozen=True)
class Section:
    """Some keys of a recipe, and the comments above them, one line each."""

    keys: dict[str, Any]
    comments: list[str] = field(default_factory=list[str])

    def write(self) -> str:
        """TOML."""
        return "".join(f"# {line}\n" for line in self.comments) + to_toml(self.keys)


@dataclass(frozen=True)
class StoreKind:
    """A kind of store, and how a recipe for it is drafted."""

    name: str
    """What people call it."""
    is_kind: Callable[[Path], bool]
    """Whether a folder is one."""
    draft_data: Callable[[Sequence[Path]], tuple[list[str], Section]]
    """What the stores hold, a line for each, and the keys of the data, `data` among them."""
    draft_method: Callable[[Sequence[ClientData]], tuple[Section, Section]]
    """For the clients that those keys make: the method and its network; batch size, rate and schedule."""


@dataclass(frozen=True)
class RecipeDraft:
    """A drafted recipe: its text, and the clients that it makes."""

    text: str
    clients: list[ClientData]


def draft_recipe(stores: Sequence[Path], name: str, tell: Tell | None = None) -> RecipeDraft:
    """A commented recipe for stores, all of one kind. It has been parsed, and its data loaded.

    Args:
        stores: folders; relative ones are written as they are given.
        name: of the recipe, for its first line.
        tell: progress of loading.
    """
    kind = _kind_of(stores)
    about, data = kind.draft_data(stores)
    source = SOURCES[data.keys["data"]].model_validate({k: v for k, v in data.keys.items() if k != "data"})
    clients = source.load(0, tell)
    method, training = kind.draft_method(clients)
    judged = Section(
        {},
        [
            "A warning after the run says if accuracy was still rising: then take more rounds. To let the run end by",
            "itself, a fifth of each client's training people can choose the round; the test chooses nothing:",
            "validation = 0.2",
            'stop = "converged"',
            "Several seeds give a mean and its deviation: seeds = [0, 1, 2]",
        ],
    )
    head = f"# {_plain(name)}: {method.keys['method']} on {len(clients)} clients, drafted from {kind.name}.\n"
    text = "\n".join(
        [
            head + "".join(f"# {_plain(line)}\n" for line in about) + method.write(),
            data.write(),
            training.write(),
            judged.write(),
        ]
    )
    parse_recipe(tomllib.loads(text), name)
    return RecipeDraft(text, clients)


def _kind_of(stores: Sequence[Path]) -> StoreKind:
    """The one kind that all stores are of."""
    kinds: dict[str, Path] = {}
    for store in stores:
        kind = next((kind for kind in KINDS if kind.is_kind(store)), None)
        if kind is None:
            raise ValueError(
                f"{store} is no store: `fedaction data import` makes one of skeletons or wearables, `fedaction "
                "features` one of sounds, video and what else has features"
            )
        kinds.setdefault(kind.name, store)
    if len(kinds) > 1:
        mixed = " and ".join(f"{store} ({name})" for name, store in kinds.items())
        raise ValueError(
            f"one recipe has one kind of data, not {mixed}; `fedaction features STORE --modality skeleton` makes a "
            "feature store of skeletons"
        )
    return next(kind for kind in KINDS if kind.name in kinds)


# Skeletons


def _skeleton_data(paths: Sequence[Path]) -> tuple[list[str], Section]:
    stores = [load(path) for path in paths]
    about = [
        f"{item.name}: {len(item)} recordings, {len(item.classes)} classes, {_people(item.subjects)}, "
        f"{item.layout.name} ({len(item.layout)} joints)"
        for item in stores
    ]
    keys: dict[str, Any] = {"data": "store", "store_paths": [path.as_posix() for path in paths]}
    comments = ["Relative paths are looked up from where the command runs."]
    if len(stores) > 1:
        comments.append("One client for each dataset.")
    elif (people := _countable(stores[0].subjects)) > 1:
        keys["store_by"] = "subject"
        if held := _quarter(people, 2):
            keys["hold_out"] = held
            comments.append(f"One client for each of {people - held} people.")
        else:
            comments.append(f"One client for each of {people} people, tested on that person's own recordings.")
    else:
        keys |= {"store_by": "iid", "store_clients": _SHARES}
        comments.append(f"Nobody says who is who: {_SHARES} clients with equal shares, drawn at random.")
    shared = set[str].intersection(*(set(item.splits) for item in stores)) if len(stores) > 1 else set[str]()
    if shared:
        keys["store_protocol"] = "cross_subject" if "cross_subject" in shared else min(shared)
        comments.append("The test is the datasets' own.")
    else:
        known = len(stores) > 1 and all(_countable(item.subjects) > 1 for item in stores)
        if "hold_out" in keys:
            comments.append(_HELD.format(keys["hold_out"]))
        else:
            keys["test_share"] = 0.3
            comments.append(
                "Hold-out subjects: three tenths of the recordings, whole people, whom nobody trains on."
                if known
                else "Three tenths of the recordings are for test; of whole people where a client knows several."
            )
    keys["frames"] = 50
    return about, Section(keys, comments)


def _skeleton_method(clients: Sequence[ClientData]) -> tuple[Section, Section]:
    layouts = {client.info.layout.name for client in clients if client.info.layout}
    method = Section(
        {"method": "fsar", "baselines": ["fedavg"]},
        [
            f"FSAR: one backbone for all, each client with a graph of its own; {len(layouts)} skeleton "
            f"{'layout' if len(layouts) == 1 else 'layouts'}.",
            "Beside it plain averaging, each client alone, a ridge classifier and the commonest class.",
        ],
    )
    size, batch, rounds, epochs = _schedule(clients, _SKELETON_STEPS, 80)
    training = Section(
        {"rounds": rounds, "local_epochs": epochs, "batch_size": batch, "lr": 0.01}
        | {"model_width": 16, "model_last": 0, "model_projection": 0, "model_units": [4, 3, 3]},
        [
            "As long as five public datasets of some hundreds of recordings took to their end (docs/fsar.md): 80",
            f"rounds, {_SKELETON_STEPS} local steps at the middle one. Here the middle client trains on {size};",
            "that it is enough for your data has not been measured. The network is ST-GCN at FSAR's quarter width.",
        ],
    )
    return method, training


# Features


def _feature_data(paths: Sequence[Path]) -> tuple[list[str], Section]:
    stores = [load_features(path) for path in paths]
    about = [
        f"{path.name}: {len(item)} samples of {item.width} features ({item.modality}), {len(item.classes)} classes, "
        f"{_people(item.subjects)}"
        for path, item in zip(paths, stores, strict=True)
    ]
    return about, _deal("feature", "modality", paths, stores, all(_countable(item.subjects) for item in stores))


def _deal(
    kind: str, unit: str, paths: Sequence[Path], stores: Sequence[FeatureSet | SignalSet], known: bool
) -> Section:
    """Keys that deal features or signals: by person where people are `known`, with a quarter of them held out.

    `kind` is what the keys begin with, `unit` what people differ in where there are several stores.
    """
    keys: dict[str, Any] = {"data": f"{kind}s", f"{kind}_paths": [path.as_posix() for path in paths]}
    comments = ["Relative paths are looked up from where the command runs."]
    held = _hold_out(stores)
    if not held and not known:
        keys |= {f"{kind}_by": "equal", f"{kind}_deal": "all", f"{kind}_clients": _SHARES, "test_share": 0.25}
        comments.append(f"{_SHARES} clients of each store with equal shares, since not all say who is who.")
        return Section(keys, comments)
    keys |= {f"{kind}_by": "subject", f"{kind}_deal": "alternate"}
    comments.append("One client for each person" + (f", with one {unit} each." if len(paths) > 1 else "."))
    if held:
        keys["hold_out"] = held
        comments.append(_HELD.format(held))
    else:
        keys["test_share"] = 0.25
        comments.append("Each client is tested on a quarter of its own samples: on people it knows.")
    return Section(keys, comments)


def _hold_out(stores: Sequence[FeatureSet | SignalSet]) -> int:
    """How many people can be everybody's test: a quarter, where all stores have the same and enough are left."""
    people = {frozenset(item.subjects) for item in stores}
    return _quarter(len(next(iter(people))), 2 * len(stores)) if len(people) == 1 else 0


def _quarter(people: int, least: int) -> int:
    """A quarter of the people, at least one; 0 where fewer than `least` others would be left."""
    held = max(1, round(people / 4))
    return held if people - held >= least else 0


def _feature_method(clients: Sequence[ClientData]) -> tuple[Section, Section]:
    groups = sorted({client.info.group for client in clients})
    if len(groups) > 1:
        keys = {"method": "fdarn", "baselines": ["fedavg", "fedavg_within"]}
        why = (
            f"FDARN: clients differ in what they record ({', '.join(groups)}); beside it, averages over all and each."
        )
    else:
        keys = {"method": "fedavg", "baselines": ["fedprox"]}
        why = "Federated averaging: all clients have one modality; fedprox beside it, where clients are unlike."
    method = Section(
        keys, [_plain(why), "Each client alone, a ridge classifier and the commonest class stand beside them."]
    )
    size, batch, rounds, epochs = _schedule(clients, _FEATURE_STEPS, 60)
    training = Section(
        {"rounds": rounds, "local_epochs": epochs, "batch_size": batch, "lr": 0.05, "clip_norm": 2.0}
        | ({"clip_by": "module"} if len(groups) > 1 else {})
        | {"weight_decay": 1e-5, "backbone": "perceptron", "classifier": "shared", "model_norm": True}
        | {"model_features": 256, "model_hidden": 256},
        [
            f"As long as six people of UTD-MHAD train (docs/fdarn.md): 60 rounds, {_FEATURE_STEPS} local steps.",
            f"Here the middle client has {size} for training; that it is enough for your data has not been measured.",
        ],
    )
    return method, training


# Signals


def _signal_data(paths: Sequence[Path]) -> tuple[list[str], Section]:
    stores = [load_signals(path) for path in paths]
    about = [
        f"{path.name}: {len(item)} recordings of {item.device or 'inertial'} ({', '.join(item.channels)}), "
        f"{len(item.classes)} classes, {_people(item.subjects)}"
        for path, item in zip(paths, stores, strict=True)
    ]
    return about, _deal("signal", "device", paths, stores, all(item.subjects for item in stores))


def _signal_method(clients: Sequence[ClientData]) -> tuple[Section, Section]:
    groups = sorted({client.info.group for client in clients})
    method = Section(
        {"method": "fdarn", "baselines": ["fedavg_within"]} if len(groups) > 1 else {"method": "fedavg"},
        [
            _plain(f"FDARN: clients wear different devices ({', '.join(groups)}); beside it, averages over each.")
            if len(groups) > 1
            else "Federated averaging of a small convolutional network: all clients wear one device.",
            "Each client alone, a ridge classifier and the commonest class stand beside it.",
        ],
    )
    size, batch, rounds, epochs = _schedule(clients, _SIGNAL_STEPS, 40)
    training = Section(
        {"rounds": rounds, "local_epochs": epochs, "batch_size": batch, "lr": 0.05},
        [
            f"As long as the people of signals/wrist train (docs/data.md): 40 rounds, {_SIGNAL_STEPS} local steps.",
            f"Here the middle client has {size} windows; that it is enough for your data has not been measured.",
        ],
    )
    return method, training


# What they share

_HELD = "Hold-out subjects: the last {} by name are nobody's client, and everybody's test."


def _schedule(clients: Sequence[ClientData], steps: int, rounds: int) -> tuple[int, int, int, int]:
    """The middle client's training samples; batch size, rounds, local epochs that give it about so many local steps.

    Rounds are those of the recipe that the steps are from. Small clients have small batches, so that an epoch has
    several steps; many epochs in a round would let clients drift apart, so there are at most eight.
    """
    size = round(statistics.median(client.info.samples for client in clients))
    batch = next((batch for batch, most in ((16, 63), (32, 2000), (64, 8000)) if size <= most), 128)
    each = math.ceil(size / batch)
    return size, batch, rounds, min(8, max(1, round(steps / (rounds * each))))


def _countable(subjects: Sequence[str]) -> int:
    """People who have at least two recordings each; 0 where somebody has not, or people are not known."""
    counts = Counter(subjects)
    return len(counts) if min(counts.values(), default=0) > 1 else 0


def _people(subjects: Sequence[str]) -> str:
    return f"{len(set(subjects))} people" if subjects else "people not known"


def _plain(text: str) -> str:
    """Text that may stand in a comment: one line, nothing that cannot be seen."""
    return "".join(character if character.isprintable() else "?" for character in text)


KINDS = (
    StoreKind("skeleton stores", is_store, _skeleton_data, _skeleton_method),
    StoreKind("feature stores", is_feature_store, _feature_data, _feature_method),
    StoreKind("signal stores", is_signal_store, _signal_data, _signal_method),
)
"""The kinds of stores that a recipe can be drafted for, in the order in which a folder is tried."""
