"""`fedaction.run`: a method, or a network of your own, over clients, beside baselines."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from torch import nn

from fedaction.api.results import Run, load_run
from fedaction.cli.common import Bar
from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.samples import in_memory
from fedaction.federation.files import take_folder
from fedaction.federation.progress import Progress
from fedaction.federation.settings import RecipeError, nearest
from fedaction.methods import METHODS
from fedaction.methods.base import Method
from fedaction.methods.given import BASELINES, average_network, with_network
from fedaction.methods.settings import NetworkSettings
from fedaction.report import write_report
from fedaction.runs.callback import Callback
from fedaction.runs.recipe import parse_recipe
from fedaction.runs.study import run_study

Given = str | type[Method] | type[nn.Module] | Callable[[ClientInfo], nn.Module]
"""A method's name or class; a network's class; or a function that builds a client's network."""


def run(
    method: Given,
    clients: Sequence[ClientData] | None = None,
    *,
    baselines: Sequence[str] = (),
    out: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    progress: Progress | None = None,
    **keys: Any,
) -> Run:
    """Trains a method over clients, beside baselines on the same clients, and writes it all into a directory.

    Args:
        method: the name of a method ("fsar", "fedavg"); a `Method` of your own; or a network of your own, which is
            then averaged: an `nn.Module` class that takes nothing or the number of classes, or a function from a
            client's description (`ClientInfo`: id, classes, shape) to a module.
        clients: from `fedaction.clients`. Without them the keys name the data, as in a recipe: data="stage", ...
        baselines: methods to compare with, by name; with a network of your own they train that network.
        out: the run directory; default: runs/NAME-N. One that holds this same run is resumed, or just read if it is
            done.
        callbacks: see `fedaction.callbacks`: each is told of every round by `on_round(rows)`.
        progress: told of the work as it goes; default: a bar where standard error is a terminal.
        **keys: keys of a recipe: rounds=20, lr=0.03, seeds=[0, 1, 2], ... (`fedaction recipes --keys` has all).

    Returns:
        The run: accuracies, tables, metrics and networks. Its directory has a report, too.
    """
    name, own = _understand(method)
    values: dict[str, Any] = {"name": _plain(name), "method": name, "baselines": list(baselines), **keys}
    if "own" in keys:
        raise RecipeError("own is not for you to say: it follows from the method that is given")
    kinds: dict[str, type[Method]] = {}
    if own is not None:
        values["own"] = f"{getattr(method, '__module__', '')}.{getattr(method, '__qualname__', name)}"
        kinds = _own_kinds(name, own, values)
    if clients is not None:
        clients = list(clients)
        values |= {"data": "given", "given_clients": [c.info.id for c in clients], "given_sha256": _hash(clients)}
        if "data" in keys:
            raise RecipeError("data names clients, and so do clients: give one of them")
    recipe = parse_recipe(values, "run", kinds)
    place = nullcontext(Path(out)) if out is not None else take_folder(Path("runs"), recipe.run.name)
    with place as folder, _shown(progress) as shown:
        run_study(recipe, folder, shown, given=clients, callbacks=callbacks, finish=write_report)
    return load_run(folder)


def _understand(method: Given) -> tuple[str, type[Method] | None]:
    """A method's name, and its class where it is none of this package."""
    if isinstance(method, str):
        return method, None
    if isinstance(method, nn.Module):
        raise RecipeError(
            "give the network's class, or a function that builds it, not a network: each client needs one"
        )
    if not callable(method):
        raise RecipeError(f"{method!r} is neither a method, nor a network's class, nor a function that builds one")
    name = getattr(method, "__name__", "own")
    name = "own" if name == "<lambda>" else name
    kind: Any = method
    if inspect.isclass(kind) and issubclass(kind, Method):
        known = {built_in: word for word, built_in in METHODS.items()}
        return (known[kind], None) if kind in known else (_free(name), kind)
    if inspect.isclass(method) and issubclass(method, nn.Module):
        return _free(name), average_network(name, _builder(method))
    if inspect.isclass(method):
        raise RecipeError(f"{name} is neither a fedaction.Method nor a torch.nn.Module")
    return _free(name), average_network(name, method)


def _free(name: str) -> str:
    """A name for tables and folders, none of this package's."""
    plain = _plain(name).lower()
    return f"own-{plain}" if plain in METHODS else plain


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("._-") or "own"


def _builder(kind: type[nn.Module]) -> Callable[[ClientInfo], nn.Module]:
    """What builds a network of a class that takes nothing, or the number of classes."""
    parameters = inspect.signature(kind).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(needed) > 1:
        raise RecipeError(
            f"{kind.__name__} needs {', '.join(needed)}; give a function instead: lambda client: "
            f"{kind.__name__}(..., len(client.classes))"
        )

    def build(client: ClientInfo) -> nn.Module:
        return kind(**{needed[0]: len(client.classes)}) if needed else kind()

    return build


def _own_kinds(name: str, own: type[Method], values: dict[str, Any]) -> dict[str, type[Method]]:
    """The classes of a run whose network is a program's own: its method, and baselines over the same network."""
    if not own.overrides("build"):
        return {name: _titled(own, name)}
    reads_network = issubclass(own.settings_type, NetworkSettings)
    odd = [key for key in values if key in NetworkSettings.model_fields and key != "buffers"]
    if odd and reads_network:
        raise RecipeError(f"{odd[0]} is a key of this package's networks, and {name} builds its own: leave it out")
    if reads_network or values["baselines"]:
        values.setdefault("buffers", "average")  # plain averaging is of all that a network has
    known = own.settings_type.model_fields
    settings = own.settings_type(**{key: value for key, value in values.items() if key in known})
    kinds = {name: _titled(own, name)}
    for baseline in values["baselines"]:
        if baseline not in BASELINES:
            raise RecipeError(
                f"baselines: {baseline!r} does not train a network of your own{nearest(str(baseline), BASELINES)}; "
                f"those that do are {', '.join(BASELINES)}"
            )
        kinds[baseline] = with_network(METHODS[baseline], own, settings)
    return kinds


def _titled(own: type[Method], name: str) -> type[Method]:
    if not hasattr(own, "title"):
        own.title = own.__name__
    return own


def _hash(clients: Sequence[ClientData]) -> str:
    """Of all that clients hold: names, classes, samples, labels and splits."""
    digest = hashlib.sha256()
    for client in sorted(clients, key=lambda c: c.info.id):
        info = client.info
        digest.update(repr((info.id, info.group, info.classes, info.shape, info.layout)).encode())
        for split in (client.train, client.test, client.validation):
            if split is not None:
                held = in_memory(split)
                digest.update(held.x.contiguous().numpy().tobytes() + held.y.numpy().tobytes())
                digest.update(repr(held.subjects).encode())
    return digest.hexdigest()


def _shown(progress: Progress | None) -> AbstractContextManager[Progress]:
    return Bar() if progress is None else nullcontext(progress)
