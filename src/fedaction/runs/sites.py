"""A site of a real federation: its own data under a server's recipe, and nothing that the server has no say in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.files import look_over
from fedaction.data.holdings import suits
from fedaction.data.sources import SOURCES
from fedaction.data.sources.video import VideoSource
from fedaction.engines.base import choose_device
from fedaction.engines.flower.install import Install
from fedaction.engines.flower.limits import Limits
from fedaction.engines.flower.site import SiteWork
from fedaction.federation.settings import FILE, RecipeError, Settings
from fedaction.federation.state import ServerState
from fedaction.federation.tree import Tree
from fedaction.methods import METHODS
from fedaction.methods.base import Method, blank
from fedaction.methods.central import Pooled
from fedaction.methods.start import precompute_frozen
from fedaction.runs.assembly import Assembly
from fedaction.runs.deploy import write_model, write_own_model
from fedaction.runs.recipe import Recipe, RunSettings, parse_recipe
from fedaction.runs.study import load_clients, split_seed

ELSEWHERE = "each site's own"
"""What a server's recipe has in the place of paths."""
SENT = "sent by the server"
"""What sites are told in the place of a model file's path."""
_SEEDS = "seeds"  # not what decides a study's result, yet what a run's randomness follows from
_MODEL = "pretrained"
PATHS: dict[str, str] = {
    "store": "store_paths",
    "signals": "signal_paths",
    "features": "feature_paths",
    "video": "video_paths",
    "arrays": "arrays",
}
"""Kinds of data that a site may have, with the key that says where they lie."""
_ONE: dict[str, dict[str, Any]] = {
    "store": {"store_by": "dataset"},
    "signals": {"signal_by": "dataset", "signal_deal": "all", "signal_groups": []},
    "features": {"feature_by": "dataset", "feature_deal": "all", "feature_groups": [], "feature_keep": 0},
    "video": {"video_root": "", "video_set": "folders", "video_clients": 0},
    "arrays": {"video_by": "equal", "video_clients": 1},
}
"""What makes one client of all that a site has."""
_INSTEAD: dict[str, str] = {
    "stage": '`fedaction data stage --out DIR` writes datasets of three places to play with; say data = "store"',
    "stage_video": '`fedaction data stage --kind video --out DIR` writes videos of three places; say data = "video"',
    "stage_features": "`fedaction data stage --kind features --out DIR` writes a feature store for each of three "
    'devices; say data = "features"',
    "public": 'each site makes a store of what it has (`fedaction data prepare` or `import`); say data = "store"',
}
"""What to do about kinds of data that are for simulations."""
_SIMULATED = (
    "unseen",
    "late",
    "devices",
    "least_epochs",
    "report_samples",
    "feature_missing",
    "feature_rare",
    "attackers",
    "sites",
)


def where(data: str, path: str) -> Any:
    """The value of the key that says where data of a kind lie: a path, or a list of one."""
    return path if SOURCES[data].model_fields[PATHS[data]].annotation is str else [path]


def check_real(recipe: Recipe) -> None:
    """Refuses a recipe that cannot be run between sites of their own."""
    run = recipe.run
    if run.data not in PATHS:
        instead = _INSTEAD.get(run.data, "simulate it with `fedaction run`")
        raise RecipeError(f"data = {run.data!r} is for simulations, sites have {', '.join(PATHS)}: {instead}")
    if isinstance(recipe.source, VideoSource) and recipe.source.video_set != "folders":
        raise RecipeError(
            f"video_set = {recipe.source.video_set!r}: a site has a folder of videos for each class; drop the key"
        )
    for name, kind in recipe.kinds.items():
        if issubclass(kind, Pooled):
            raise RecipeError(f"method {name} puts everybody's samples in one place, which no site can agree to")
    if run.own:
        raise RecipeError("networks of one's own are not sent to sites: they would have to run a server's program")
    values = recipe.flat()
    for key, value in values.items():
        if value and key != _MODEL and _names_file(key, recipe):
            raise RecipeError(f"{key} = {value!r} names a file, which sites do not have")
    for key in _SIMULATED:
        if values.get(key):
            raise RecipeError(f"{key} is for simulations; drop it")


def recipe_for_sites(recipe: Recipe) -> dict[str, Any]:
    """What sites are told of a recipe: the keys that decide a result, without paths."""
    kinds: list[type[Settings]] = [RunSettings, type(recipe.source), *(type(s) for s in recipe.methods.values())]
    values = {key: value for key, value in recipe.flat().items() if key == _SEEDS or _decides(key, kinds)}
    if values.get(_MODEL):
        values[_MODEL] = SENT
    return {**values, PATHS[recipe.run.data]: where(recipe.run.data, ELSEWHERE)}


@dataclass(frozen=True)
class SiteWorkshop:
    """Makes a site's data and engine from what a server says. Is a `Workshop` of `engines.flower.site`."""

    name: str
    """The client's."""
    path: Path
    """Where its data lie."""
    device: str = "auto"
    """auto, cpu or cuda."""
    limits: Limits = field(default_factory=Limits)
    """What a server may ask for at most."""

    def read(self, values: Mapping[str, Any], model: str = SENT) -> Recipe:
        """A server's recipe with this site's data; what a server has no say in is left out or refused.

        `model` is the site's own file of what the server's `pretrained` stands for.
        """
        if values.get("method") not in METHODS:
            raise RecipeError(f"this site knows no method called {str(values.get('method'))[:100]!r}")
        data, here = str(values.get("data"))[:100], suits(self.path)
        if data not in PATHS or data not in here:
            raise RecipeError(f"the run is about data = {data!r}; this site has data for {' or '.join(here)}")
        kinds: list[type[Settings]] = [RunSettings, SOURCES[data], METHODS[values["method"]].settings_type]
        # How work is carried out here, and where files lie, is the site's own business.
        values = {k: v for k, v in values.items() if k == _SEEDS or _decides(k, kinds)}
        if values.get(_MODEL, "") not in ("", SENT):
            raise RecipeError(f"{_MODEL} = {str(values[_MODEL])[:100]!r}: a server has no say in a site's files")
        if values.get(_MODEL):
            values[_MODEL] = model
        own: dict[str, Any] = {PATHS[data]: where(data, str(self.path)), **_ONE[data], "device": self.device}
        own |= {"workers": 1, "engine": "sequential", "baselines": []}
        recipe = parse_recipe({**values, **own}, "the server's recipe")
        check_real(recipe)
        self.limits.check_job(recipe.run.batch_size, recipe.run.local_epochs)
        return recipe

    def load(self, recipe: Mapping[str, Any]) -> ClientData:
        """See `Workshop.load`."""
        parsed = self.read(recipe)
        loaded = parsed.source.load(split_seed(parsed))
        if len(loaded) != 1:
            raise RecipeError(f"a site is one client, but the recipe makes {len(loaded)} of its data")
        client = replace(loaded[0], info=replace(loaded[0].info, id=self.name))
        data = load_clients(parsed, given=[client])[self.name]
        if not recipe.get(_MODEL):  # which says how large the network is, and comes later
            self._method(parsed, [data.info], Install())
        return data

    def look(self) -> str:
        """See `Workshop.look`."""
        return look_over(self.path)

    def fingerprint(self, recipe: Mapping[str, Any]) -> str:
        """See `Workshop.fingerprint`: wherever the data lie."""
        parsed = self.read(recipe)
        return " ".join(parsed.source.fingerprint(split_seed(parsed)).values())

    def build(
        self,
        recipe: Mapping[str, Any],
        data: ClientData,
        members: Sequence[ClientInfo],
        install: Install,
        folder: Path,
    ) -> SiteWork:
        """See `Workshop.build`."""
        with self.limits.bound_networks():
            model = str(install.write_model(folder)) if install.model else ""
        parsed = self.read(recipe, model)
        device, described = choose_device(parsed.run.device), {member.id: member for member in members}
        method = self._method(parsed, members, install)
        install.check(method.plan(data.info))
        ready = precompute_frozen(method, {self.name: data}, parsed.run.seeds[0], device)
        if ready[self.name].info != data.info:
            method = self._method(parsed, {**described, self.name: ready[self.name].info}.values(), install)
        cards = {self.name: (data.info.classes, data.input)}
        assembly = Assembly(parsed, method, ready, described, device, cards)
        return SiteWork(method, assembly.engine(), partial(_write_model, assembly, self.name))

    def _method(self, recipe: Recipe, members: Iterable[ClientInfo], install: Install) -> Method:
        """The method over some clients, this site among them, if its network is not too large here."""
        method = recipe.kinds[recipe.run.method](members, recipe.methods[recipe.run.method])
        with self.limits.bound_networks():
            blank(method, method.clients[self.name])
        method.installed = install.tensors
        return method


def _write_model(assembly: Assembly, client: str, tensors: Tree, path: Path) -> bool:
    """See `SiteWork.write_model`."""
    if assembly.method.task is None:
        write_own_model(path, assembly, client, tensors)
        return True
    own = {client: assembly.described[client]}  # what was learned without labels is the backbone
    return write_model(path, assembly.recipe, own, ServerState(0, tensors))


def _decides(key: str, kinds: Sequence[type[Settings]]) -> bool:
    """Whether a key decides a result, as far as those who know it say; of an unknown one the parser complains."""
    return all(kind.decides(key) for kind in kinds if key in kind.model_fields)


def _names_file(key: str, recipe: Recipe) -> bool:
    kinds = [type(recipe.run), *(type(settings) for settings in recipe.methods.values())]
    return any(key in kind.model_fields and kind.model_fields[key].json_schema_extra == FILE for kind in kinds)
