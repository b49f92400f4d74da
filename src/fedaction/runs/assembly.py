"""What one run is made of: a recipe's method over its clients, the engine and the rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Protocol

import torch

from fedaction.data.augment import Augment
from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.flipped import flip_labels
from fedaction.data.inputs import Input
from fedaction.engines.base import SimulatedEngine, Training, check_precision, choose_device, set_precision
from fedaction.engines.hostile import Attack, choose_attackers
from fedaction.engines.observed import ObservedEngine
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.federation.average import Averager
from fedaction.federation.clock import Clock, Device, spread_devices
from fedaction.federation.processes import cores
from fedaction.federation.profile import NOTHING, Profile
from fedaction.federation.scope import Scope
from fedaction.federation.settings import RecipeError
from fedaction.guard.base import Gatherer, Guard
from fedaction.guard.norm import NormBound
from fedaction.guard.robust import RobustAverager
from fedaction.guard.validate import NotTooOld, validate
from fedaction.methods.base import Method
from fedaction.methods.central import EVERYONE, arrange
from fedaction.methods.start import precompute_frozen
from fedaction.runs.recipe import Recipe
from fedaction.runs.way import EngineWay, list_ways
from fedaction.server.devices import deal_devices, fleet_of, share_work
from fedaction.server.events import Events
from fedaction.server.federation import Federation, Warn
from fedaction.server.live import Live
from fedaction.server.rounds import Rounds
from fedaction.server.schedule import Participation, Turns


class Assembled(Protocol):
    """What one run is made of, wherever its sites are."""

    @property
    def method(self) -> Method:
        """Over all clients."""
        ...

    @property
    def described(self) -> Mapping[str, ClientInfo]:
        """The clients before frozen stages have seen their clips."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the server works."""
        ...

    @property
    def seed(self) -> int:
        """The run's seed."""
        ...

    @property
    def tested(self) -> list[str]:
        """Those who are tested by what they were trained for."""
        ...

    @property
    def validated(self) -> list[str]:
        """Those who keep validation samples."""
        ...

    @property
    def engine_name(self) -> str:
        """The engine that is used."""
        ...

    def engine(self) -> SimulatedEngine:
        """The engine."""
        ...


@dataclass(frozen=True)
class Assembly:
    """The sites of one simulated run, and the method: one method, one seed."""

    recipe: Recipe
    """Names one method and one seed."""
    method: Method
    """Over all clients."""
    clients: Mapping[str, ClientData]
    """The sites' data, as the method sees them."""
    described: Mapping[str, ClientInfo]
    """The clients before frozen stages have seen their clips."""
    device: torch.device
    """Where everything happens."""
    cards: Mapping[str, tuple[tuple[str, ...], Input | None]]
    """By client, for whoever uses its network: the names of its classes, and how recordings became samples."""
    attackers: frozenset[str] = frozenset()
    """Clients that are hostile, for experiments."""
    profile: Profile = NOTHING
    """Where engines note what takes their time."""
    chosen: EngineWay | None = None
    """The way that a trial has found; None: the first of `ways`."""

    @classmethod
    def of(cls, recipe: Recipe, clients: Mapping[str, ClientData], profile: Profile = NOTHING) -> Assembly:
        """`clients` are prepared, as the recipe's data gives them."""
        run = recipe.run
        kind, settings = recipe.kinds[run.method], recipe.methods[run.method]
        device = choose_device(run.device)
        check_precision(run.precision, device)
        attackers = _attackers(recipe, clients)
        again = run.statistics == "reestimate"  # from samples of their own, wherever training was
        given, clients = clients, arrange(kind, _flip(recipe, clients, attackers), keep=again)
        cards = {name: (given[name].info.classes, clients[name].input) for name in sorted(given)}
        described = {name: clients[name].info for name in sorted(clients)}
        method = kind(described.values(), settings)
        ready = precompute_frozen(method, clients, run.seeds[0], device)
        infos = [ready[name].info for name in described]
        if any(info != described[info.id] for info in infos):
            method = kind(infos, settings)
        return cls(recipe, method, ready, described, device, cards, attackers, profile)

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.recipe.run.seeds[0]

    @property
    def tested(self) -> list[str]:
        """Those who are tested by what they were trained for."""
        names = self.method.clients
        return [name for name in names if len(self.clients[name].test) and name != self.recipe.run.unseen]

    @property
    def validated(self) -> list[str]:
        """Those who keep validation samples."""
        kept = (name for name in self.method.clients if name != self.recipe.run.unseen)
        return [name for name in kept if (held := self.clients[name].validation) is not None and len(held)]

    @property
    def training(self) -> Training:
        """How clients train."""
        run = self.recipe.run
        skeletons = all(info.layout is not None for info in self.method.clients.values())
        augment = Augment(run.augment_shear, run.augment_crop, run.augment_move)
        return Training(
            seed=self.seed,
            batch_size=run.batch_size,
            local_epochs=run.local_epochs,
            optimiser=run.optimiser,
            lr=run.lr,
            lr_decay=run.lr_decay,
            momentum=run.momentum,
            nesterov=run.nesterov,
            weight_decay=run.weight_decay,
            clip_norm=run.clip_norm,
            clip_by=run.clip_by,
            augment=augment if run.augment and skeletons else None,
            reestimate=run.statistics == "reestimate",
        )

    @property
    def engine_name(self) -> str:
        """See `Assembled.engine_name`."""
        return self.way.engine

    @cached_property
    def ways(self) -> list[EngineWay]:
        """The engines that the recipe leaves open, and how they would work; the first needs no trial."""
        return list_ways(self.recipe.run, self.method, self.device, self.seed)

    @property
    def way(self) -> EngineWay:
        """The engine that is used, and how it works."""
        return self.chosen or self.ways[0]

    def engine(self) -> SimulatedEngine:
        """The engine, which holds every site; hostile ones send what they please."""
        engine, guard = self._engine(), self.recipe.guard
        engine.profile = self.profile
        if guard.attack in ("none", "labels") or not self.attackers:
            return engine
        attack = Attack(self.method, guard.attack, self.attackers, self.seed, guard.attack_size)
        return ObservedEngine(engine, [attack])

    def _engine(self) -> SequentialEngine | VectorisedEngine:
        run = self.recipe.run
        set_precision(run.tf32, fastest=run.precision == "bf16")
        common, way = (self.method, self.clients, self.training, self.device), self.way
        if way.engine == "vectorised":
            return VectorisedEngine(*common, run.clients_per_step, way.compiled, run.precision, recorded=way.recorded)
        return SequentialEngine(
            *common,
            way.workers,
            precision=run.precision,
            channels_last=run.channels_last,
            compiled=way.compiled,
            recorded=way.recorded,
        )


def make_federation(recipe: Recipe, method: Method, warn: Warn) -> Federation:
    """The server's side of a run: what it knows and what it refuses. It needs no client's data."""
    run = recipe.run
    guards: list[Guard] = [validate]
    if run.oldest_update:
        guards.append(NotTooOld(run.oldest_update))
    if recipe.guard.guard == "norm" and recipe.guard.guard_norm_unit == "absolute":
        guards.append(NormBound(method, recipe.guard.guard_norm))
    members = [info for info in method.clients.values() if info.samples and info.id != run.unseen]
    epochs = dict[str, int]()
    if run.least_epochs:
        devices, samples = _deal_devices(recipe, members)
        epochs = share_work(devices, samples, min(run.least_epochs, run.local_epochs), run.local_epochs)
    timed = bool(run.devices) or method.buffer > 0
    return Federation(method, members, tuple(guards), warn, timed, epochs, _gatherer(recipe, method, members, warn))


def _gatherer(recipe: Recipe, method: Method, members: Sequence[ClientInfo], warn: Warn) -> Callable[[], Gatherer]:
    """What makes averages. A guard that compares updates is refused where they are combined one at a time."""
    guard = recipe.guard
    if not guard.holds_round:
        return Averager
    if method.buffer == 1 and guard.guard != "none":
        raise RecipeError(
            f"guard = {guard.guard!r} compares updates, but {recipe.run.method} combines them one at a time; say "
            'guard = "norm" with guard_norm_unit = "absolute", or take fedbuff'
        )
    if guard.guard == "krum":
        _warn_of_few(recipe, method, members, warn)
    return partial(RobustAverager, method, guard)


def _warn_of_few(recipe: Recipe, method: Method, members: Sequence[ClientInfo], warn: Warn) -> None:
    """Says where Krum has fewer updates than it needs for as many attackers as are expected."""
    expected, asked = recipe.guard.guard_krum, method.buffer or recipe.run.clients_per_round or len(members)
    sizes: dict[str, int] = {}
    for member in members:
        scopes = {*method.plan(member).scopes.values()}
        for scope, place in ((Scope.GLOBAL, "all clients"), (Scope.GROUP, f"group {member.group!r}")):
            if scope in scopes:
                sizes[place] = sizes.get(place, 0) + 1
    for place, size in sorted(sizes.items()):
        count = min(size, asked)
        if count < 2 * expected + 3:
            least = max((count - 3) // 2, 0)
            warn(
                f"guard_krum = {expected} needs {2 * expected + 3} updates at a time, but {place} has {count}: Krum "
                f"then expects {least} attackers" + ("" if least else ", and chooses nobody")
            )


def _attackers(recipe: Recipe, clients: Mapping[str, ClientData]) -> frozenset[str]:
    """Who is hostile; a client that never trains cannot be."""
    if recipe.guard.attack == "none":
        return frozenset()
    names = [name for name, client in clients.items() if client.info.samples and name != recipe.run.unseen]
    try:
        return choose_attackers(recipe.guard.attackers, names, recipe.run.seeds[0])
    except ValueError as error:
        raise RecipeError(str(error)) from None


def _flip(recipe: Recipe, clients: Mapping[str, ClientData], attackers: frozenset[str]) -> Mapping[str, ClientData]:
    """The clients, with wrong labels to learn from where they are hostile in that way."""
    if recipe.guard.attack != "labels":
        return clients
    wrong = {n: flip_labels(clients[n].train, len(clients[n].info.classes)) for n in sorted(attackers)}
    return {n: replace(c, train=wrong[n]) if n in wrong else c for n, c in clients.items()}


def make_rounds(
    recipe: Recipe, federation: Federation, now: Callable[[], float] | None = None, engine: str = ""
) -> Rounds | Events | Live:
    """The schedule: rounds that wait, or events, on the virtual clock or, where `now` gives real seconds, on that.

    `engine` is the one that is used, where it is known: a stack is given more jobs at a time.
    """
    run, seed, clock = recipe.run, recipe.run.seeds[0], _make_clock(recipe, federation)
    at_once, everyone = run.clients_per_round or None, len(federation.members)
    if federation.method.buffer:
        updates = run.updates_per_round or min(at_once or everyone, everyone)
        if now is not None:
            return Live(federation, Turns(seed, at_once), updates, now)
        ahead = (run.clients_per_step or 64) if (engine or run.engine) == "vectorised" else run.workers or cores()
        return Events(federation, Turns(seed, at_once), clock, updates, ahead)
    timed = clock if run.devices or run.deadline else None
    participation = Participation(seed, at_once, run.failure_rate, run.deadline or None, timed)
    return Rounds(federation, participation, run.quorum, dict.fromkeys(run.late, run.late_round))


def _make_clock(recipe: Recipe, federation: Federation) -> Clock:
    """How long every client's jobs take."""
    run, members = recipe.run, federation.members
    devices, samples = _deal_devices(recipe, members)
    plans = {member.id: federation.method.plan(member) for member in members}
    traffic = {name: plan.traffic for name, plan in plans.items()}
    installed = {name: plan.frozen_bytes for name, plan in plans.items()}
    return Clock(
        run.seeds[0], devices, samples, run.local_epochs, traffic, federation.epochs, installed, run.clock_tests
    )


def _deal_devices(recipe: Recipe, members: Sequence[ClientInfo]) -> tuple[dict[str, Device], dict[str, int]]:
    """Every client's device, and its number of training samples."""
    run, samples = recipe.run, {member.id: member.samples for member in members}
    if run.devices:
        return deal_devices(
            fleet_of(run.devices), [*samples], [name for name in samples if name == EVERYONE]
        ), samples
    return spread_devices(run.seeds[0], samples, run.seconds_per_sample, run.speed_spread), samples
