"""From a run to model files: the server's network, and every client's own, ready for use."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from fedaction.data.client import ClientInfo
from fedaction.data.inputs import Input
from fedaction.engines.ready import ready_tensors
from fedaction.engines.store import LocalStore
from fedaction.federation.files import hash_file, read_sealed_json, write_sealed_json
from fedaction.federation.scope import Scope
from fedaction.federation.state import ServerState
from fedaction.federation.tree import Tree, tensors_of
from fedaction.methods.base import Method
from fedaction.methods.start import fresh
from fedaction.methods.video import is_clip
from fedaction.models.files import Card, clip_card, make_example, save_model
from fedaction.models.program import Graph, Program, record
from fedaction.models.resnet3d import ResNet3D
from fedaction.runs.assembly import Assembly
from fedaction.runs.recipe import Recipe

INDEX = "models.json"
"""In a run's directory: which model files it has, of whom, and why others are not there."""
SERVER = "model.safetensors"
MOST_CLIENTS = 200
"""With client_models = "auto": the most clients whose networks are written."""


def write_models(
    folder: Path,
    assembly: Assembly,
    server: ServerState,
    store: LocalStore,
    warn: Callable[[str], object],
    about: Mapping[str, Any],
    word: str,
) -> None:
    """Writes a run's model files and, last, the list of them.

    `model.safetensors` is the server's, where all clients share a whole network; `models/clients/*.safetensors` are
    the clients' own, as they are tested: with what they keep, and what they change before a test. Where a network
    cannot be written, `warn` is told why.

    Args:
        folder: the run's directory.
        assembly: the run.
        server: its state.
        store: what clients keep.
        warn: told what is left out.
        about: goes into every file's provenance; `round` is that of the state.
        word: of the run; see `Seal.word`.
    """
    recipe = assembly.recipe
    if assembly.method.task is not None:  # what was learned without labels is the backbone
        model = build_model(recipe, assembly.described, server)
        if model is not None:
            save_model(folder / SERVER, *model)
        write_index(folder, about["round"], SERVER if model else None, {}, "", word)
        return
    names = [name for name in assembly.cards if name != recipe.run.unseen]
    left_out, files = "", dict[str, str]()
    wanted = recipe.run.client_models
    if wanted == "auto" and len(names) > MOST_CLIENTS:
        left_out = f'{len(names)} clients are more than {MOST_CLIENTS}; client_models = "all" writes them'
    elif wanted == "none":
        left_out = 'client_models = "none"'
    writer = _Writer(assembly, {**about, **_about(recipe)})
    failed: list[str] = []
    shared = False
    try:
        shared = writer.write_server(folder / SERVER, server, names)
    except ValueError as error:  # a network that is no program, or that has diverged
        failed.append(f"the server's: {error}")
    for name in names if not left_out else ():
        path = client_file(name)
        try:
            writer.write_client(folder / path, name, server, store)
            files[name] = path
        except ValueError as error:
            failed.append(f"client {name!r}: {error}")
    if failed:
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        left_out = f"a network cannot be written as a model file: {failed[0]}{more}"
    if left_out and wanted != "none":
        warn(f"model files: {left_out}")
    write_index(folder, about["round"], SERVER if shared else None, files, left_out, word)


def write_own_model(path: Path, assembly: Assembly, client: str, tensors: Tree) -> None:
    """Writes one client's own network as a model file, at the client: from what it was sent and what it keeps."""
    _Writer(assembly, _about(assembly.recipe)).write_tensors(path, client, tensors)


def client_file(name: str) -> str:
    """Where a client's network lies in a run's directory; any name makes a file name."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "client"
    if plain != name or len(plain) > 100:
        plain = f"{plain[:100]}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    return f"models/clients/{plain}.safetensors"


def write_index(
    folder: Path, round: int, server: str | None, clients: Mapping[str, str], left_out: str, word: str
) -> None:
    """Writes the list of a run's model files, with the run and the round that they are of and a hash of each."""
    files = [*clients.values(), *([server] if server else [])]
    index: Index = {
        "server": server,
        "clients": dict(clients),
        "left_out": left_out,
        "round": round,
        "files": {path: hash_file(folder / path) for path in files},
        "of": word,
    }
    write_sealed_json(folder / INDEX, index)


def has_models(folder: Path, round: int, word: str = "") -> bool:
    """Whether a run's directory has the model files that it lists, as they were written, of a round.

    `word`: of the run (`Seal.word`); "": that is not known.
    """
    index = read_index(folder)
    if index is None or index["round"] not in (None, round) or (word and index["of"] not in ("", word)):
        return False
    listed = [*index["clients"].values(), *([index["server"]] if index["server"] else [])]
    return all(is_as_written(folder, index, path) for path in listed)


def is_as_written(folder: Path, index: Index, path: str) -> bool:
    """Whether a listed model file is there, and holds what was written into it, as far as that is known."""
    digest = index["files"].get(path, "")
    try:
        return (folder / path).is_file() and digest in ("", hash_file(folder / path))
    except OSError:  # a name that no file can have, or one that cannot be read
        return False


def describe_models(folder: Path) -> str:
    """One line on the model files of a run, and what they are for; empty where nothing is known of them."""
    index = read_index(folder)
    if index is None:
        return ""
    count, words = len(index["clients"]), list[str]()
    if index["server"]:
        words.append(f"{folder / SERVER}, which all clients share")
    if count:
        alone = "" if index["server"] else " (they share no whole network)"
        own = "one client's own" if count == 1 else f"{count} clients' own"
        words.append(f"{own} in {folder / 'models' / 'clients'}{alone}")
    if not words:
        return f"models: none; {index['left_out']}" if index["left_out"] else ""
    return f"models: {'; '.join(words)}"


class Index(TypedDict):
    """Which model files a run has."""

    server: str | None
    clients: dict[str, str]
    left_out: str
    round: int | None
    """That they are of; None: of an older version, which did not say."""
    files: dict[str, str]
    """A hash of each."""
    of: str
    """The run's word (`Seal.word`); "": of an older version."""


def read_index(folder: Path) -> Index | None:
    """The list of a run's model files: the server's, the clients' by name, and why some are not there."""
    try:
        index: Any = read_sealed_json(folder / INDEX)
        clients, server = dict[str, str](index["clients"]), index["server"]
        if not all(isinstance(path, str) for path in (*clients, *clients.values(), server or "")):
            return None
        hashes = {str(path): str(digest) for path, digest in dict[str, str](index.get("files") or {}).items()}
        round = index.get("round")
        return {
            "server": server,
            "clients": clients,
            "left_out": str(index["left_out"]),
            "round": None if round is None else int(round),
            "files": hashes,
            "of": str(index.get("of", "")),
        }
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _about(recipe: Recipe) -> dict[str, Any]:
    return {"method": recipe.run.method, "seed": recipe.run.seeds[0], "configuration": recipe.configuration()}


@dataclass
class _Writer:
    """Writes networks; those of one architecture are built and recorded once."""

    assembly: Assembly
    about: dict[str, Any]
    _trained: dict[object, nn.Module] = field(default_factory=dict[object, nn.Module])
    _whole: dict[object, nn.Module] = field(default_factory=dict[object, nn.Module])
    _graphs: dict[object, tuple[Graph, dict[str, Tensor]]] = field(
        default_factory=dict[object, tuple[Graph, dict[str, Tensor]]]
    )

    def write_client(self, path: Path, name: str, server: ServerState, store: LocalStore) -> None:
        """A client's own network."""
        info = self.assembly.method.clients[name]
        self.write_tensors(path, name, {**self.assembly.method.served(server, info), **store.current(name)})

    def write_tensors(self, path: Path, name: str, sent: Tree) -> None:
        """A client's own network from what it is sent and what it keeps."""
        assembly, method = self.assembly, self.assembly.method
        info = method.clients[name]
        if info.architecture not in self._trained:
            self._trained[info.architecture] = fresh(method, info, assembly.seed).to(assembly.device)
        module = self._trained[info.architecture]
        tensors = ready_tensors(method, assembly.clients[name], assembly.training, module, sent)
        self._save(path, name, tensors, {"client": name, "group": info.group})

    def write_server(self, path: Path, server: ServerState, names: list[str]) -> bool:
        """The network that all clients share; False where there is none, or their recordings differ."""
        assembly, method = self.assembly, self.assembly.method
        cards = [assembly.cards[name] for name in names]
        shared = {scope for name in names for scope in method.scopes_of(name).values()}
        if any(card != cards[0] for card in cards) or not shared <= {Scope.GLOBAL, Scope.FROZEN}:
            path.unlink(missing_ok=True)  # of another recipe, say
            return False
        tensors = {n: t.cpu() for n, t in method.served(server, method.clients[names[0]]).items()}
        self._save(path, names[0], tensors, {"client": None})
        return True

    def _save(self, path: Path, name: str, tensors: Tree, about: dict[str, Any]) -> None:
        info, (classes, given) = self.assembly.described[name], self.assembly.cards[name]
        given = given or Input(kind="arrays", shape=info.shape)
        network = self._network(info, given)
        own = tensors_of(network)
        with torch.no_grad():
            for key, tensor in tensors.items():
                own[key].copy_(tensor)
        card = Card(classes=classes, input=given, provenance={**about, **self.about})
        if isinstance(network, ResNet3D):
            save_model(path, network, card)
            return
        key = info.architecture
        if key not in self._graphs:
            graph, found = record(network, make_example(given))
            self._graphs[key] = graph, {n: t for n, t in found.items() if n.startswith("constant.")}
        graph, constants = self._graphs[key]
        every = {**dict(network.named_parameters()), **dict(network.named_buffers())}
        save_model(path, Program(graph, {**constants, **every}), card)

    def _network(self, info: ClientInfo, given: Input) -> nn.Module:
        """A network that takes recordings: where training began after frozen stages, the whole of it."""
        if info.architecture not in self._whole:
            assembly, run = self.assembly, self.assembly.recipe.run
            kind = assembly.recipe.kinds[run.method]
            method: Method = assembly.method
            if info != method.clients[info.id]:
                method = kind(assembly.described.values(), assembly.recipe.methods[run.method])
            self._whole[info.architecture] = fresh(method, info, assembly.seed).eval()
        return self._whole[info.architecture]


def write_model(path: Path, recipe: Recipe, clients: Mapping[str, ClientInfo], server: ServerState) -> bool:
    """Writes what `build_model` gives; False where that is nothing."""
    model = build_model(recipe, clients, server)
    if model is not None:
        save_model(path, *model)
    return model is not None


def build_model(
    recipe: Recipe, clients: Mapping[str, ClientInfo], server: ServerState
) -> tuple[ResNet3D, Card] | None:
    """What a federation has learned about video, where all clients share one network, in evaluation mode.

    Args:
        recipe: of the run.
        clients: as they are before frozen stages have seen their clips.
        server: its state.

    Returns:
        The network and its card; None where there is none for clips that is all shared or frozen.
    """
    clip, info = recipe.source.clip, clients[min(clients)]
    if clip is None or not is_clip(info.shape):
        return None
    kind = recipe.run.method
    method = recipe.kinds[kind]([clients[name] for name in sorted(clients)], recipe.methods[kind])
    network = fresh(method, info, recipe.run.seeds[0])
    own, scopes = tensors_of(network), method.plan(info).scopes
    with torch.no_grad():
        for name, tensor in method.served(server, info).items():
            own[name].copy_(tensor)
    classes = info.classes
    if method.task is not None:  # what was learned without labels is the backbone
        network, classes = network.get_submodule("backbone"), ()
        scopes = {name: scope for name, scope in scopes.items() if name.startswith("backbone.")}
        clip = clip[0], method.task.size
        info = replace(info, shape=(method.task.frames, method.task.size, method.task.size, 3))
    if not isinstance(network, ResNet3D) or Scope.LOCAL in scopes.values():
        return None
    frames, height, *_ = info.shape
    stride, side = clip
    card = clip_card(
        classes=classes, frames=frames, stride=stride, resize=side, crop=height, provenance=_about(recipe)
    )
    return network.eval(), card
