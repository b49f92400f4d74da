"""A site of a real federation: its own data under a server's recipe, and nothing that the server has no say in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.sources import SOURCES
from fedaction.engines.base import SimulatedEngine, choose_device
from fedaction.federation.settings import FILE, RecipeError, Settings
from fedaction.federation.tree import Tree
from fedaction.methods import METHODS
from fedaction.methods.base import Method
from fedaction.methods.central import Pooled
from fedaction.runs.assembly import Assembly
from fedaction.runs.deploy import write_own_model
from fedaction.runs.recipe import Recipe, RunSettings, parse_recipe
from fedaction.runs.study import load_clients, split_seed

ELSEWHERE = "each site's own"
"""What a server's recipe has in the place of paths."""
_SEEDS = "seeds"  # not what decides a study's result, yet what a run's randomness follows from
PATHS: dict[str, str] = {"store": "store_paths", "signals": "signal_paths"}
"""Kinds of data that a site may have, with the key that says where they lie."""
_ONE: dict[str, dict[str, Any]] = {
    "store": {"store_by": "dataset"},
    "signals": {"signal_by": "dataset", "signal_deal": "all", "signal_groups": []},
}
"""What makes one client of all that a site has."""


def check_real(recipe: Recipe) -> None:
    """Refuses a recipe that cannot be run between sites of their own."""
    run = recipe.run
    if run.data not in PATHS:
        raise RecipeError(f"data = {run.data!r}: sites can have {', '.join(PATHS)} so far; others are simulated")
    for name, kind in recipe.kinds.items():
        if issubclass(kind, Pooled):
            raise RecipeError(f"method {name} puts everybody's samples in one place, which no site can agree to")
    if run.own:
        raise RecipeError("networks of one's own are not sent to sites: they would have to run a server's program")
    for key, value in recipe.flat().items():
        if value and _names_file(key, recipe):
            raise RecipeError(f"{key} = {value!r} names a file, which sites do not have")
    for key in ("unseen", "late", "devices", "least_epochs", "report_samples"):
        if getattr(run, key):
            raise RecipeError(f"{key} is for simulations; drop it")


def recipe_for_sites(recipe: Recipe) -> dict[str, Any]:
    """What sites are told of a recipe: the keys that decide a result, without paths."""
    kinds: list[type[Settings]] = [RunSettings, type(recipe.source), *(type(s) for s in recipe.methods.values())]
    values = {key: value for key, value in recipe.flat().items() if key == _SEEDS or _decides(key, kinds)}
    return {**values, PATHS[recipe.run.data]: [ELSEWHERE]}


@dataclass(frozen=True)
class SiteWorkshop:
    """Makes a site's data and engine from what a server says. Is a `Workshop` of `engines.flower.site`."""

    name: str
    """The client's."""
    path: Path
    """Where its data lie."""
    device: str = "auto"
    """auto, cpu or cuda."""

    def read(self, values: Mapping[str, Any]) -> Recipe:
        """A server's recipe with this site's data; what a server has no say in is left out or refused."""
        if values.get("method") not in METHODS:
            raise RecipeError(f"this site knows no method called {str(values.get('method'))[:100]!r}")
        if values.get("data") not in PATHS:
            raise RecipeError(f"this site has no data of the kind {str(values.get('data'))[:100]!r}")
        data = str(values["data"])
        kinds: list[type[Settings]] = [RunSettings, SOURCES[data], METHODS[values["method"]].settings_type]
        # How work is carried out here, and where files lie, is the site's own business.
        values = {k: v for k, v in values.items() if k == _SEEDS or _decides(k, kinds)}
        own: dict[str, Any] = {PATHS[data]: [str(self.path)], **_ONE[data], "device": self.device, "workers": 1}
        recipe = parse_recipe({**values, **own, "engine": "sequential", "baselines": []}, "the server's recipe")
        check_real(recipe)
        return recipe

    def load(self, recipe: Mapping[str, Any]) -> ClientData:
        """See `Workshop.load`."""
        parsed = self.read(recipe)
        loaded = parsed.source.load(split_seed(parsed))
        if len(loaded) != 1:
            raise RecipeError(f"a site is one client, but the recipe makes {len(loaded)} of its data")
        client = replace(loaded[0], info=replace(loaded[0].info, id=self.name))
        return load_clients(parsed, given=[client])[self.name]

    def build(
        self, recipe: Mapping[str, Any], data: ClientData, members: Sequence[ClientInfo]
    ) -> tuple[Method, SimulatedEngine]:
        """See `Workshop.build`."""
        parsed = self.read(recipe)
        kind = parsed.kinds[parsed.run.method]
        described = {member.id: member for member in members}
        method = kind(described.values(), parsed.methods[parsed.run.method])
        device = choose_device(parsed.run.device)
        assembly = Assembly(parsed, method, {self.name: data}, described, device, {})
        return method, assembly.engine()

    def write_model(
        self, recipe: Mapping[str, Any], data: ClientData, method: Method, tensors: Tree, path: Path
    ) -> None:
        """See `Workshop.write_model`."""
        parsed = self.read(recipe)
        cards = {self.name: (data.info.classes, data.input)}
        device = choose_device(parsed.run.device)
        assembly = Assembly(parsed, method, {self.name: data}, method.clients, device, cards)
        write_own_model(path, assembly, self.name, tensors)


def _decides(key: str, kinds: Sequence[type[Settings]]) -> bool:
    """Whether a key decides a result, as far as those who know it say; of an unknown one the parser complains."""
    return all(kind.decides(key) for kind in kinds if key in kind.model_fields)


def _names_file(key: str, recipe: Recipe) -> bool:
    kinds = [type(recipe.run), *(type(settings) for settings in recipe.methods.values())]
    return any(key in kind.model_fields and kind.model_fields[key].json_schema_extra == FILE for kind in kinds)
