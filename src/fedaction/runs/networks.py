"""Video networks wherever they lie: in a model file, in a run's directory, in one of its checkpoints."""

from __future__ import annotations

from pathlib import Path

from fedaction.federation.progress import Progress
from fedaction.methods.central import arrange
from fedaction.models.files import Card, load_resnet
from fedaction.models.resnet3d import ResNet3D
from fedaction.runs.checkpoint import CheckpointError, load_checkpoint
from fedaction.runs.deploy import build_model
from fedaction.runs.recipe import Recipe, load_recipe
from fedaction.runs.study import list_runs, load_clients


def network_file(place: Path) -> Path:
    """The file that a network is read from: of a run's directory its model file. Raises ValueError."""
    if place.is_dir():
        inner = place / "model.safetensors"
        if inner.is_file():
            return inner
        own = sorted((place / "models" / "clients").glob("*.safetensors"))
        kept = sorted((place / "checkpoints").glob("*.safetensors"))
        hint = f"; but it has a checkpoint, {kept[-1]}" if kept else ""
        if own:
            hint = f": its clients share no whole network; name one of theirs, such as {own[0]}"
        raise ValueError(f"{place} has no model.safetensors{hint}")
    return place


def read_network(file: Path, progress: Progress) -> tuple[ResNet3D, Card]:
    """The network of a model file or of a run's checkpoint, in evaluation mode, and its card.

    A checkpoint says nothing of the network: that is in the run's recipe, and the classes are its clients', whose
    recordings are loaded for it. Raises ValueError.
    """
    file = file.resolve()  # its folders' names count
    if file.parent.name != "checkpoints" or not file.with_suffix(".json").is_file():
        return load_resnet(file)
    recipe = _recipe_of(file.parent.parent)
    state = load_checkpoint(file.parent, file.stem)
    if state.configuration != recipe.checkpoint_hash:
        raise CheckpointError(
            f"{file} is of another recipe than the run that it lies in; put the recipe.toml back as it was"
        )
    clients = arrange(recipe.kinds[recipe.run.method], load_clients(recipe, progress))
    model = build_model(recipe, {name: client.info for name, client in clients.items()}, state.server)
    if model is None:
        raise ValueError(f"{file}: method {recipe.run.method} has no video network that all clients share")
    return model


def _recipe_of(home: Path) -> Recipe:
    """What a directory holds a run of: one method of a study, one seed."""
    for folder in (home, *home.parents):
        if (folder / "recipe.toml").is_file():
            recipe = load_recipe(folder / "recipe.toml")
            for method, seed, part in list_runs(recipe, folder):
                if part == home:
                    return recipe.only(method, seed)
    raise ValueError(f"{home} holds checkpoints, but neither it nor a folder above has the recipe.toml of their run")
