"""Whether a study can start: what would stop it is said before anything is written."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fedaction.data.client import ClientData
from fedaction.engines.base import check_precision, choose_device
from fedaction.engines.flower.limits import LimitError, bound_network, find_memory
from fedaction.engines.stackable import find_unstackable
from fedaction.methods.base import Method, blank
from fedaction.methods.central import arrange
from fedaction.methods.start import initial_state
from fedaction.runs.recipe import Recipe
from fedaction.server.devices import fleet_of


def check_ready(recipe: Recipe, clients: Mapping[str, ClientData]) -> None:
    """Raises what would stop the study at its start, so that a study which cannot start leaves nothing behind."""
    device = choose_device(recipe.run.device)
    check_precision(recipe.run.precision, device)
    unseen = recipe.run.unseen
    if unseen and (unseen not in clients or len(clients) < 2):
        raise ValueError(f"unseen = {unseen!r} must be one of several clients; there are {', '.join(clients)}")
    unknown = [name for name in recipe.run.late if name not in clients]
    if unknown or {*recipe.run.late} == {*clients}:
        said = f"no client is called {unknown[0]!r}" if unknown else "not all clients can be late"
        raise ValueError(f"late: {said}; there are {', '.join(clients)}")
    if recipe.run.devices:
        fleet_of(recipe.run.devices)
    for name, settings in recipe.methods.items():
        run = recipe.run
        if run.stop_time and not (run.devices or run.deadline or recipe.kinds[name].overrides("buffer")):
            raise ValueError(
                f"stop_time: method {name} has no virtual clock here; say devices or a deadline, or drop the key"
            )
        if recipe.run.late and recipe.kinds[name].overrides("buffer"):
            raise ValueError(f"late: method {name} has no rounds that a client could come late to; drop the key")
        arranged = arrange(recipe.kinds[name], clients)
        if unseen and not arranged[unseen].info.samples:
            raise ValueError(
                f"method {name} pools everybody's samples, so no client can be unseen; drop one of the two"
            )
        method = recipe.kinds[name]([client.info for client in arranged.values()], settings)
        _check_size(method)
        initial_state(method, recipe.run.seeds[0])
        if run.engine == "vectorised" and (fault := find_unstackable(method, run.seeds[0], device)):
            raise ValueError(
                f"engine = 'vectorised' trains many clients at once, but {fault}; say engine = 'sequential' or 'auto'"
            )


def _check_size(method: Method) -> None:
    """Refuses a network that this machine could not hold, before memory is taken for it."""
    largest = max(method.clients.values(), key=lambda client: math.prod(client.shape) * len(client.classes))
    memory = find_memory()
    size = f"{memory / 2**30:.0f} GiB of memory"
    try:
        with bound_network(memory // 4, f"that this machine's {size} hold", f"this machine's {size}"):
            blank(method, largest)
    except LimitError as error:
        raise ValueError(f"{error}: make it smaller, by model_width or model_units, say") from None
