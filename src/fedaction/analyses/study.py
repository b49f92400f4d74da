"""A finished study as analyses see it: its trained networks, and what they were trained on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

from fedaction.data.client import ClientData
from fedaction.data.samples import in_memory
from fedaction.engines.base import Applied, reestimate
from fedaction.federation.processes import cores
from fedaction.federation.settings import RecipeError
from fedaction.federation.state import Job, ServerState
from fedaction.federation.tree import Tree
from fedaction.methods.base import Batch
from fedaction.methods.start import first_tensors, fresh, initial_state
from fedaction.runs.assembly import Assembly
from fedaction.runs.checkpoint import RunState, latest_checkpoint
from fedaction.runs.metrics import Row, metric_name, read_rows
from fedaction.runs.recipe import Recipe, load_recipe
from fedaction.runs.standing import UNSEALED, check_run
from fedaction.runs.study import list_runs, load_clients, split_seed

Result = TypeVar("Result")


class NotApplicable(Exception):
    """An analysis that a run has nothing for; the message says why."""


class SeedRun(NamedTuple):
    """One seed of one method: its directory and its metrics."""

    method: str
    seed: int
    folder: Path
    rows: list[Row]


class Trained:
    """One method's federation, as its last checkpoint has it."""

    def __init__(
        self, recipe: Recipe, clients: Mapping[str, ClientData], state: RunState, say: Callable[[str], None]
    ) -> None:
        """`recipe` names one method and one seed; `say` is called with which client is done."""
        self.say = say
        anywhere = recipe.run.model_copy(update={"device": "auto"})  # it may have been trained on another machine
        self.assembly = Assembly.of(replace(recipe, run=anywhere), clients)
        self.method, self.seed, self.device = self.assembly.method, self.assembly.seed, self.assembly.device
        self.state = replace(state, federation=state.federation.to(self.device))

    @property
    def clients(self) -> Mapping[str, ClientData]:
        """The clients as the method sees them, in the order of their names, but for one that it never saw."""
        unseen = self.assembly.recipe.run.unseen
        return {name: client for name, client in sorted(self.assembly.clients.items()) if name != unseen}

    def tensors(self, client: str) -> Tree:
        """All tensors of a client's network: the server's, its own and the frozen ones."""
        info = self.method.clients[client]
        own = self.state.locals.committed.get(client, {})
        first = first_tensors(self.method, info, self.seed, self.device)
        own = {name: tensor.to(self.device) for name, tensor in own.items()}
        return {**first, **self.method.served(self.server, info), **own}

    @property
    def server(self) -> ServerState:
        """What the server had learned."""
        return self.state.server

    def net(self, client: str) -> Applied:
        """A client's network as it is tested: with what is estimated or adapted before that."""
        info = self.method.clients[client]
        tensors = {name: tensor.clone() for name, tensor in self.tensors(client).items()}
        net = Applied(fresh(self.method, info, self.seed).to(self.device).eval(), tensors)
        data = replace(self.assembly.clients[client], train=self.assembly.clients[client].train.on(self.device))
        if self.method.task is None:
            reestimate(self.method, data, self.assembly.training, net.module, net)
        if not self.method.overrides("adapt"):
            return net
        train = in_memory(data.train)
        with torch.no_grad():
            changes = self.method.adapt(net, Batch(train.x, train.y.to(train.x.device)))
        return Applied(net.module, {**net.tensors, **changes})

    def train_once(self, clients: Iterable[str]) -> dict[str, Applied]:
        """Clients' networks after one more round of local training, before anything is averaged.

        Of clients without training samples: as they are.
        """
        engine, server, round = self.assembly.engine(), self.server, self.state.round + 1
        engine.store.load(self.state.locals, self.device)
        infos = {client: self.method.clients[client] for client in clients}
        jobs = [
            Job(name, info.group, server.version, round, self.method.payload(server, info))
            for name, info in infos.items()
            if info.samples
        ]
        try:
            trees = {u.client: {**u.tree, **engine.store.pending(u.client)} for u in engine.train(jobs)}
        finally:
            engine.close()
        return {
            name: Applied(
                fresh(self.method, info, self.seed).to(self.device).eval(),
                {**self.tensors(name), **trees.get(name, {})},
            )
            for name, info in infos.items()
        }

    def untrained(self, client: str) -> Applied:
        """A client's network with the values that training started from."""
        info = self.method.clients[client]
        first = first_tensors(self.method, info, self.seed, self.device)
        sent = self.method.served(self._start, info)
        tensors = {**first, **{name: tensor.to(self.device) for name, tensor in sent.items()}}
        return Applied(fresh(self.method, info, self.seed).to(self.device).eval(), tensors)

    @cached_property
    def _start(self) -> ServerState:
        return initial_state(self.method, self.seed)

    def each(self, work: Callable[[str], Result], clients: Iterable[str]) -> Iterator[Result]:
        """The results of work on each client, in their order: side by side on the cores, with one torch thread each.

        So the arithmetic of a client is the same on every number of cores.
        """
        pool = ThreadPoolExecutor(
            cores() if self.device.type == "cpu" else 1, initializer=torch.set_num_threads, initargs=(1,)
        )
        try:
            names = list(clients)
            for name, result in zip(names, pool.map(work, names), strict=True):
                self.say(f"{self.method.title}, {name}")
                yield result
        finally:
            pool.shutdown(cancel_futures=True)


class Study:
    """A run directory with its baselines; of several seeds, the first."""

    def __init__(self, folder: Path, target: float | None = None) -> None:
        """Raises RecipeError or ValueError where there is nothing to analyse.

        `target` is the accuracy that `clock` and `target` measure the way to; None: they choose one.
        """
        self.say: Callable[[str], None] = lambda _: None  # called with what is done, while an analysis computes
        if target is not None and not 0 < target <= 1:
            raise ValueError(f"the target is an accuracy above 0 and up to 1 (0.6 for 60 %), got {target}")
        if not (folder / "recipe.toml").exists():
            raise RecipeError(f"{folder} is not a run directory: it has no recipe.toml")
        self.folder, self.target = folder, target
        self.recipe = load_recipe(folder / "recipe.toml")
        self.seed = self.recipe.run.seeds[0]
        self.homes = {method: home for method, seed, home in list_runs(self.recipe, folder) if seed == self.seed}
        self.states: dict[str, RunState] = {}
        for method, home in self.homes.items():
            state = self._state(method, home)
            if state is not None:
                self.states[method] = state
        if self.recipe.run.method not in self.states:
            raise ValueError(f"{folder} has no checkpoint to analyse; `fedaction resume {folder}` trains on")

    @property
    def round(self) -> int:
        """Rounds that the method's own checkpoint has behind it."""
        return self.states[self.recipe.run.method].round

    @property
    def word(self) -> str:
        """Which run it is; see `Seal.word`."""
        return self.states[self.recipe.run.method].seal.word

    @property
    def words(self) -> str:
        """Which data and which run, in one sentence for captions."""
        synthetic = self.recipe.run.data.startswith("stage")
        data = "Synthetic data (the embedded stage)" if synthetic else "The clients' own recordings"
        return f"{data}; run {self.recipe.run.name}, seed {self.seed}, after round {self.round}."

    @property
    def measure(self) -> str:
        """What the run's tests measured: accuracy, or recall at 1 where nothing was learned from labels."""
        return metric_name(self.recipe.methods)

    @cached_property
    def clients(self) -> Mapping[str, ClientData]:
        """The clients' data, if they are those that the run was trained on."""
        part = self.recipe.only(self.recipe.run.method, self.seed)
        clients = load_clients(self.recipe)
        data = self.recipe.source.fingerprint(split_seed(self.recipe))
        self.states[part.run.method].seal.check(part, self.folder, data)
        return clients

    @cached_property
    def runs(self) -> list[SeedRun]:
        """Every run that has begun, of all methods and seeds."""
        runs = ((m, seed, home, home / "metrics.jsonl") for m, seed, home in list_runs(self.recipe, self.folder))
        return [SeedRun(m, seed, home, read_rows(table)) for m, seed, home, table in runs if table.exists()]

    def describe_seeds(self, by_method: Mapping[str, Sized], bands: bool = True) -> str:
        """How many seeds means are of, from the most that any of the methods has; or which one."""
        most = max(map(len, by_method.values()))
        return f"means of {most} seeds{', bands one standard deviation' * bands}" if most > 1 else f"seed {self.seed}"

    def trained(self, method: str) -> Trained:
        """A method's federation at its last checkpoint."""
        return Trained(self.recipe.only(method, self.seed), self.clients, self.states[method], self.say)

    def first(self, most: int) -> tuple[list[str], tuple[str, ...]]:
        """The method and its first baselines, at most so many in all, and a note of those left out."""
        names = list(self.states)
        left = names[most:]
        return names[:most], (f"Left out: {', '.join(left)} (the first {most} methods are shown).",) if left else ()

    def _state(self, method: str, home: Path) -> RunState | None:
        standing = check_run(home)
        if standing is not None and not standing.sealed:
            warnings.warn(UNSEALED.format(home), stacklevel=2)
        state = latest_checkpoint(home / "checkpoints", home / "metrics.jsonl")
        if state is not None:
            state.seal.check(self.recipe.only(method, self.seed), home)
        return state


def some(clients: Mapping[str, ClientData], most: int) -> tuple[dict[str, ClientData], tuple[str, ...]]:
    """The first clients by name, at most so many, and a note where there are more."""
    names = sorted(clients)
    note = (f"The first {most} of {len(names)} clients by name.",) if len(names) > most else ()
    return {name: clients[name] for name in names[:most]}, note
