"""Video networks wherever they lie: in a model file, in a run's directory, in one of its checkpoints."""

from __future__ import annotations

from pathlib import Path

from fedaction.federation.progress import Progress
from fedaction.methods.central import arrange
from fedaction.models.files import Card, load_resnet
from fedaction.models.resnet3d import ResNet3D
from fedaction.runs.checkpoint import load_checkpoint
from fedaction.runs.deploy import SERVER, build_model, is_as_written, read_index
from fedaction.runs.recipe import Recipe, load_recipe
from fedaction.runs.seal import SealError
from fedaction.runs.standing import check_run, read_part
from fedaction.runs.study import list_runs, load_clients, split_seed


def network_file(place: Path) -> Path:
    """The file that a network is read from: of a run's directory its model file. Raises ValueError."""
    if place.is_dir():
        inner = place / SERVER
        if inner.is_file():
            check_models(place, SERVER)
            return inner
        own = sorted((place / "models" / "clients").glob("*.safetensors"))
        kept = sorted((place / "checkpoints").glob("*.safetensors"))
        hint = f"; but it has a checkpoint, {kept[-1]}" if kept else ""
        if own:
            hint = f": its clients share no whole network; name one of theirs, such as {own[0]}"
        raise ValueError(f"{place} has no model.safetensors{hint}")
    return place


def check_models(place: Path, file: str) -> None:
    """Refuses a model file of a run's directory that is not of the run as it now is, or not as it was written."""
    index, standing = read_index(place), check_run(place)
    again = f"`fedaction resume {place}` makes it again"
    if index is None:
        if standing is not None and standing.sealed:
            raise SealError(f"{place} has no list of its model files, or a damaged one: {again}")
        return
    if standing is not None and standing.sealed:
        recipe = read_part(place)
        if not standing.over(recipe):
            raise SealError(
                f"{place / file} is of an earlier end of this run, which is now at round {standing.round} of "
                f"{recipe.run.rounds}: {again}"
            )
        if index["of"] not in ("", standing.seal.word):
            raise SealError(f"{place / file} is of another run: {again}")
        if index["round"] != standing.chosen(recipe):
            raise SealError(
                f"{place / file} is of round {index['round']}, but the run's is {standing.chosen(recipe)}: {again}"
            )
    if not is_as_written(place, index, file):
        raise SealError(f"{place / file} is not there, or not as it was written: {again}")


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
    state.seal.check(recipe, file.parent.parent, recipe.source.fingerprint(split_seed(recipe)))
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
