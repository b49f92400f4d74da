"""Methods and networks that a program gives, in place of those of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from fedaction.data.client import ClientInfo
from fedaction.federation.settings import Settings
from fedaction.methods.base import Method

BASELINES = ("fedavg", "local", "central", "fedprox", "fedbn", "fedagm", "fedema", "pfedme", "perfedavg", "fedbuff")
"""Methods of this package that train any network; the others build their own, or ask for layers by name."""


class Missing(Method):
    """Stands for a program's method where that program is not at hand: its runs can be read, not resumed."""

    settings_type = Settings

    def build(self, client: ClientInfo) -> nn.Module:
        """Refuses."""
        raise ValueError(
            "this run's method is a program's own, and not part of this package: resume it with that program, by the "
            "same fedaction.run(..., out=DIR)"
        )


def average_network(name: str, build: Callable[[ClientInfo], nn.Module]) -> type[Method]:
    """Federated averaging of a network that a function builds."""

    def build_own(self: Method, client: ClientInfo) -> nn.Module:
        return build(client)

    return type(name, (Method,), {"title": name, "build": build_own, "__module__": __name__})


def with_network(kind: type[Method], owner: type[Method], settings: Any) -> type[Method]:
    """A method that trains the network of another, `owner` with its settings, as that one builds it.

    What the method itself adds to a network (what clients keep of it, say) it adds to that one.
    """

    def build_own(self: Method, client: ClientInfo) -> nn.Module:
        return owner(self.clients.values(), settings).build(client)

    below = type("Given", (Method,), {"build": build_own})
    # Between the method and what all methods have, whose `build` it calls.
    return type(kind.__name__, (kind, below), {"__module__": kind.__module__})  # pyright: ignore[reportGeneralTypeIssues]
