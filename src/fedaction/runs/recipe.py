"""Recipes: one flat TOML per experiment, read into frozen, validated settings."""

from __future__ import annotations

import re
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field
from pydantic.fields import FieldInfo

from fedaction.data.sources import SOURCES
from fedaction.data.sources.base import Source
from fedaction.engines.base import ClipBy, OptimiserName, Precision
from fedaction.federation.outside import MOST_SETTINGS, describe, parse_toml, read_text, refuse_damage, shorten
from fedaction.federation.recipes import find_recipe
from fedaction.federation.settings import (
    FILE,
    HOW,
    RecipeError,
    Settings,
    check_choice,
    check_flat,
    hash_values,
    mark_alike,
    parse_settings,
)
from fedaction.guard.settings import GuardSettings
from fedaction.methods import METHODS
from fedaction.methods.base import Method
from fedaction.methods.given import Missing


class RunSettings(Settings):
    """Keys that every recipe has."""

    name: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", json_schema_extra=HOW)
    """What the run is called: at most 100 letters, digits, dots, dashes. Default: from the recipe's path."""
    method: str
    """The method: fsar, fdarn, or a baseline such as fedavg; `fedaction recipes --keys` lists them all."""
    baselines: tuple[str, ...] = Field((), json_schema_extra=HOW)
    """Methods run beside it on the same clients and seeds, to compare with."""
    controls: tuple[Literal["majority", "ridge", "local"], ...] = Field(
        ("majority", "ridge", "local"), json_schema_extra=HOW
    )
    """What else stands beside it: each client's commonest class, a ridge classifier on the input, training alone."""
    seeds: tuple[int, ...] = Field((0,), min_length=1, json_schema_extra=HOW)
    """One run per seed; results are means over them."""
    own: str = Field("", json_schema_extra=HOW)
    """From Python: the class of the network or method that a program gave; that program can resume the run."""
    data: str = "stage"
    """stage, stage_features, stage_video (synthetic); public, store, signals, features; video, arrays."""
    data_seed: int = 0
    """What the data itself is drawn from (the stage, partitions); the same for every seed of a study."""

    rounds: int = Field(20, ge=1)
    """How often the server combines updates."""
    extended: tuple[int, ...] = Field((), json_schema_extra=HOW)
    """The rounds a run had before it was made longer: `fedaction resume DIR --extend rounds=60` writes both keys."""
    clients_per_round: int = Field(0, ge=0)
    """0: all."""
    sites: tuple[str, ...] = ()
    """The clients that take part, by name; none named: all. To see what a federation of fewer is worth."""
    train_share: float = Field(1.0, gt=0, le=1)
    """The share of each client's training samples, class by class, that it has: to see how small sites fare."""
    validation: float = Field(0.0, ge=0, lt=1)
    """The share of each client's training people (samples, where people are not known) that choose the best round."""
    stop: Literal["", "converged", "target"] = ""
    """When training ends early: after `stop_patience` rounds without a better validation, or at `stop_target`."""
    stop_patience: int = Field(10, ge=1)
    """Rounds without a better mean validation accuracy that end a run, where stop = "converged"."""
    stop_target: float = Field(0.9, gt=0, le=1)
    """The mean validation accuracy that ends a run, where stop = "target"."""
    stop_time: float = Field(0.0, ge=0)
    """Seconds on the virtual clock that end a run (asynchronous between real sites: real seconds); 0: no limit."""
    quorum: float = Field(0.5, ge=0, le=1)
    """The least share of the asked clients whose updates make a round count."""
    late: tuple[str, ...] = ()
    """Clients that join only in round `late_round`."""
    late_round: int = Field(2, ge=1)
    """When late clients join."""
    unseen: str = ""
    """A client that takes no part in training; its test is k-NN on the server's features of its sequences."""
    knn_k: int = Field(1, ge=1)
    """Neighbours that vote for a sequence of the unseen client."""
    knn_distance: Literal["cosine", "euclidean"] = "cosine"
    """How near two sequences' features are."""
    knn_temperature: float = Field(0.0, ge=0)
    """Votes weigh exp(similarity / this); 0: equally. Some authors use knn_k = 200 with 0.1."""
    failure_rate: float = Field(0.0, ge=0, lt=1)
    """The chance that an asked client fails."""
    deadline: float = Field(0.0, ge=0)
    """Simulated seconds after which answers are ignored; 0: none."""
    devices: str = Field("", json_schema_extra=FILE)
    """Device profiles: jetson_hmdb51, jetson_ucf101 or a TOML file; empty: by the next two keys."""
    seconds_per_sample: float = Field(0.01, gt=0)
    """Without profiles: how long an ordinary client takes for a training sample, on the virtual clock."""
    speed_spread: float = Field(0.5, ge=0, le=10)
    """Without profiles: how unequal clients' speeds are: standard deviation of their logarithm."""
    clock_tests: bool = False
    """Virtual clock: whether devices test what they are sent before they train, for as long as their profiles say."""
    updates_per_round: int = Field(0, ge=0)
    """Asynchronous methods: updates that make a round; 0: as many as a synchronous round asks for."""
    oldest_update: int = Field(0, ge=0)
    """Asynchronous methods: updates older than so many server updates are refused; 0: none is."""

    batch_size: int = Field(32, ge=1)
    """Samples per local step; a client with fewer takes all it has."""
    local_epochs: int = Field(1, ge=1)
    """Passes over a client's data per round."""
    least_epochs: int = Field(0, ge=0)
    """Slower devices do fewer passes, down to this many (the edge paper's H_min); 0: all do local_epochs."""
    optimiser: OptimiserName = "sgd"
    """sgd, adam or adamw, as in torch.optim; what it remembers starts anew every round. Methods with steps of their
    own (pfedme, perfedavg, metahar) keep those."""
    lr: float = Field(0.1, gt=0)
    """Learning rate of the clients' optimiser."""
    lr_decay: float = Field(1.0, gt=0, le=1)
    """Factor on the learning rate each round."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Momentum of sgd; starts anew every round."""
    nesterov: bool = False
    """Whether that momentum looks ahead."""
    weight_decay: float = Field(1e-4, ge=0)
    """L2 penalty on weights (adamw: decoupled), except those a method leaves out."""
    clip_norm: float = Field(0.0, ge=0)
    """The largest gradient norm; 0: no limit."""
    clip_by: ClipBy = "network"
    """Whether that norm is over a client's whole network, or over each of its modules (FDARN's five, say)."""
    augment: bool = True
    """Random shear and temporal crop of training sequences, where all clients have skeletons; never at test."""
    augment_shear: float = Field(0.5, ge=0)
    """Largest entry of the shear."""
    augment_crop: int = Field(6, ge=0)
    """A sequence is padded by frames / this at both ends, then cropped; 0: no crop."""
    augment_move: bool = False
    """Turn, scale and shift it slowly from its first frame to its last, as ST-GCN's code does, which FSAR cites."""

    engine: Literal["sequential", "vectorised", "auto"] = Field(
        "auto", json_schema_extra=mark_alike("auto", "sequential")
    )
    """auto: the fastest here, tried on the run's first jobs where that pays; sequential: one client after another, on
    all cores; vectorised: many at once, for a GPU. A recipe's hash is the same for the first two."""
    device: Literal["auto", "cpu", "cuda"] = Field("auto", json_schema_extra=HOW)
    """auto, cpu or cuda."""
    workers: int = Field(0, ge=0, json_schema_extra=HOW)
    """Sequential engine: clients trained side by side; 0: one per core."""
    clients_per_step: int = Field(0, ge=0, json_schema_extra=HOW)
    """Vectorised engine: clients per stack; 0: as many as fit."""
    compile_step: bool = Field(False, json_schema_extra=HOW)
    """Compile networks (vectorised engine: the stacked step) with torch.compile: minutes first, then faster steps."""
    record_step: bool = Field(False, json_schema_extra=HOW)
    """On a GPU: it repeats a recorded local step by itself; much faster where steps are small."""
    tf32: bool = True
    """On a GPU: faster float32 products with 10-bit mantissas."""
    precision: Precision = "fp32"
    """fp32, or on a GPU bf16: networks in bfloat16, by kernels whose last bits may differ from run to run."""
    channels_last: bool = Field(False, json_schema_extra=HOW)
    """Sequential engine: weights of 3D convolutions with channels last in memory; faster with bf16."""
    evaluate_every: int = Field(1, ge=1)
    """Rounds between evaluations."""
    clients_per_test: int = Field(0, ge=0)
    """How many clients are tested between the first round and the last, always the same ones, drawn by the seed, and
    how many validate; after the last round all are tested. 0: always all."""
    statistics: Literal["kept", "reestimate"] = "kept"
    """Normalisation at a test: statistics kept from training, or re-estimated on unlabelled training samples."""
    update_distances: bool = Field(False, json_schema_extra=HOW)
    """Whether to record how far each client's model goes from the one that it was sent, by module."""
    checkpoint_every: int = Field(1, ge=1, json_schema_extra=HOW)
    """Rounds between checkpoints."""
    keep_checkpoints: int = Field(2, ge=1, json_schema_extra=HOW)
    """How many of the last checkpoints stay; with `validation` the best stays anyway."""
    models_every: int = Field(0, ge=0, json_schema_extra=HOW)
    """Video: rounds between model files that stay, models/round-NUMBER.safetensors; 0: only the last round's."""
    client_models: Literal["auto", "all", "none"] = Field("auto", json_schema_extra=HOW)
    """Model files of clients' own networks at the end, models/clients/*.safetensors; auto: of up to 200 clients."""
    report_samples: int = Field(0, ge=0, json_schema_extra=HOW)
    """Test sequences per client that the report can play; whoever has the report then has those recordings."""


DEFAULTS = 2
"""Raised whenever the default of a key that decides results changes, so that hashes tell the two apart."""


@dataclass(frozen=True)
class Recipe:
    """A validated recipe."""

    run: RunSettings
    """Keys every recipe has."""
    source: Source
    """The data's keys."""
    methods: Mapping[str, Settings]
    """The keys of the method and of each baseline, by method name."""
    kinds: Mapping[str, type[Method]]
    """The classes of the method and of each baseline, by method name."""
    guard: GuardSettings
    """What is done about hostile clients, and who is one."""

    def flat(self) -> dict[str, Any]:
        """Every key with its value, defaults filled in: the resolved recipe."""
        values = self.run.model_dump() | self.guard.model_dump() | self.source.model_dump()
        for settings in self.methods.values():
            values |= settings.model_dump()
        return values

    def only(self, method: str, seed: int) -> Recipe:
        """The part of a study that is one run: one method, one seed."""
        run = self.run.model_copy(update={"method": method, "baselines": (), "seeds": (seed,)})
        return replace(self, run=run, methods={method: self.methods[method]}, kinds={method: self.kinds[method]})

    @property
    def checkpoint_hash(self) -> str:
        """The hash that a run's checkpoints carry; a run may be made longer, so rounds are not in it."""
        return self.configuration("rounds")

    @property
    def older_hash(self) -> str:
        """The same by versions in which engine = "auto" was no default."""
        return hash_values({**self._hashed("rounds"), "engine": "auto"})

    def deciding(self) -> dict[str, Any]:
        """Every key that decides the result of `method`, but for the seed and the rounds, with its value."""
        values: dict[str, Any] = {"method": self.run.method, "data": self.run.data}
        for settings in (self.run, self.guard, self.source, self.methods[self.run.method]):
            values |= settings.deciding(defaults=True)
        return {key: value for key, value in values.items() if key != "rounds"}

    def configuration(self, *besides: str) -> str:
        """A hash of everything that decides the result of `method`, but for the seed and the keys named.

        Only values other than their defaults enter it: a key that is added later leaves the hashes of published runs
        as they are. Whoever changes a default raises `DEFAULTS`.
        """
        return hash_values(self._hashed(*besides))

    def _hashed(self, *besides: str) -> dict[str, Any]:
        left: dict[str, Any] = {"method": self.run.method, "data": self.run.data, "defaults": DEFAULTS}
        for settings in (self.run, self.guard, self.source, self.methods[self.run.method]):
            left |= {key: value for key, value in settings.deciding().items() if key not in besides}
        return left


def load_recipe(path: Path | str, overrides: Sequence[str] = ()) -> Recipe:
    """Reads a recipe, with `key=value` overrides: a file, or one of the package by name ("fsar/demo").

    Raises RecipeError with a message for people.
    Where overrides choose other methods, the file's keys that only methods not run have are left out with a warning.
    """
    values, given = read_recipe(path), read_overrides(overrides)
    merged = values | given
    check_flat(merged, str(path))
    if any(merged.get(key, []) != values.get(key, []) for key in ("method", "baselines")):
        readers = _readers(merged, str(path), _kinds(merged, str(path), {}))
        read = {key for kind in readers.values() for key in kind.model_fields}
        of_methods = {key for method in METHODS.values() for key in method.settings_type.model_fields}
        idle = [key for key in values if key in of_methods - read and key not in given]
        if idle:
            warnings.warn(f"{path}: left out, since no method that is run reads it: {', '.join(idle)}", stacklevel=2)
        merged = {key: value for key, value in merged.items() if key not in idle}
    return parse_recipe(merged, str(path))


def read_recipe(path: Path | str) -> dict[str, Any]:
    """A recipe's keys and values, not yet validated; a name is filled in. See `find_recipe` for what names it."""
    path = find_recipe(path)
    with refuse_damage(path, "a recipe", RecipeError):
        values = parse_toml(read_text(path, MOST_SETTINGS, RecipeError), path, RecipeError)
    return {"name": _name_of(path), **values}


def read_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    """Values of `key=value` texts: TOML where it is TOML, else the text itself, so that strings need no quotes."""
    values: dict[str, Any] = {}
    for override in overrides:
        key, equals, text = (part.strip() for part in override.partition("="))
        if not equals or not key:
            raise RecipeError(f"--set takes key=value, got {override!r}")
        try:
            parsed = tomllib.loads(f"value = {text}")
        except tomllib.TOMLDecodeError:
            parsed = {"value": text}
        except (ValueError, RecursionError) as error:  # a number of too many digits, or too many brackets
            raise RecipeError(f"--set {shorten(key, 80)}: {describe(error)}") from None
        if len(parsed) > 1:
            raise RecipeError(f"--set takes one key=value, got several lines in {override!r}; say --set for each")
        values[key] = parsed["value"]
    return values


def parse_recipe(
    values: Mapping[str, Any], origin: str = "the recipe", own: Mapping[str, type[Method]] | None = None
) -> Recipe:
    """Validates a recipe's values. Every key must belong to the run, its data or one of its methods.

    `own` are a program's methods by name, over those of this package. Where they are missing, the recipe that a
    program's run has left behind can be read, but not run.
    """
    check_flat(values, origin)
    kinds = _kinds(values, origin, own or {})
    readers = _readers(values, origin, kinds)
    source = readers["data"]
    assert issubclass(source, Source)
    known = {key for reader in readers.values() for key in reader.model_fields}
    suited = {key: value for key, value in source.suited.items() if key in known}
    if values.get("own") and not own:
        values = {key: value for key, value in values.items() if key in known}  # of methods that are not here
    parsed = parse_settings({**suited, **values}, readers, origin)
    run, source, guard = (parsed.pop(name) for name in ("run", "data", "guard"))
    assert isinstance(run, RunSettings) and isinstance(source, Source) and isinstance(guard, GuardSettings)
    if len(set(run.seeds)) != len(run.seeds):
        raise RecipeError(f"{origin}: a seed is named twice in {list(run.seeds)}")
    if run.stop and not run.validation:
        raise RecipeError(
            f"{origin}: stop = {run.stop!r} needs people to decide it: say validation = 0.2, since the test may not"
        )
    if run.channels_last and run.engine == "vectorised":
        raise RecipeError(f"{origin}: channels_last goes with engine = 'sequential'; leave one of them out")
    return Recipe(run, source, parsed, kinds, guard)


def _kinds(values: Mapping[str, Any], origin: str, own: Mapping[str, type[Method]]) -> dict[str, type[Method]]:
    """The classes of a recipe's method and baselines, by name."""
    known = {**METHODS, **own}
    if values.get("own") and not own and isinstance(values.get("method"), str):
        known.setdefault(values["method"], Missing)
    check_choice(values, "method", known, origin)
    baselines = values.get("baselines", [])
    if not isinstance(baselines, list | tuple):
        raise RecipeError(f"{origin}: baselines = {baselines!r} must be a list of methods, such as ['fedavg']")
    names: list[str] = [str(values["method"])]
    for baseline in cast("Sequence[Any]", baselines):
        check_choice({"baselines": baseline}, "baselines", known, origin)
        names.append(baseline)
    if len(set(names)) != len(names):
        raise RecipeError(f"{origin}: a method is named twice among {', '.join(names)}")
    return {name: known[name] for name in names}


def _readers(values: Mapping[str, Any], origin: str, kinds: Mapping[str, type[Method]]) -> dict[str, type[Settings]]:
    """Whose keys a recipe may have: "run", "guard", "data" and its methods by name."""
    check_choice({"data": "stage", **values}, "data", SOURCES, origin)
    source = SOURCES[values.get("data", "stage")]
    readers: dict[str, type[Settings]] = {"run": RunSettings, "guard": GuardSettings, "data": source}
    return readers | {name: kind.settings_type for name, kind in kinds.items()}


def all_keys() -> dict[str, dict[str, FieldInfo]]:
    """Every key a recipe of a federated run may have, by who reads it: every run, a kind of data, a method."""
    keys: dict[str, dict[str, FieldInfo]] = {"run": RunSettings.model_fields, "guard": GuardSettings.model_fields}
    keys |= {f'data = "{name}"': kind.model_fields for name, kind in SOURCES.items()}
    keys |= {f'method = "{name}"': kind.settings_type.model_fields for name, kind in METHODS.items()}
    return keys


def _name_of(path: Path) -> str:
    """A run's name from where its recipe lies (recipes/fsar/demo.toml: fsar-demo), fit for a file name."""
    text = path.stem if path.parent.name in ("", "recipes") else f"{path.parent.name}-{path.stem}"
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")[:100] or "run"
