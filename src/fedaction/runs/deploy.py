"""From a run to a model file: the server's network, ready for `fedaction predict` and `fedaction export`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from fedaction.data.client import ClientInfo
from fedaction.federation.scope import Scope
from fedaction.federation.state import ServerState
from fedaction.federation.tree import tensors_of
from fedaction.methods import METHODS
from fedaction.methods.start import fresh
from fedaction.methods.video import is_clip
from fedaction.models.files import Card, save_model
from fedaction.models.resnet3d import ResNet3D
from fedaction.runs.recipe import Recipe


def write_model(path: Path, recipe: Recipe, clients: Mapping[str, ClientInfo], server: ServerState) -> None:
    """Writes what `build_model` gives, if anything."""
    model = build_model(recipe, clients, server)
    if model is not None:
        save_model(path, *model)


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
    method = METHODS[kind]([clients[name] for name in sorted(clients)], recipe.methods[kind])
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
    about = {"method": kind, "seed": recipe.run.seeds[0], "configuration": recipe.configuration()}
    card = Card(classes=classes, frames=frames, stride=stride, resize=side, crop=height, provenance=about)
    return network.eval(), card
