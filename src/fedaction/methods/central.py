"""Centralised training: all clients' data in one place, which a federation is there to avoid. The ceiling to compare.

Skeletons: one network on one body (the union of all clients' joints; a joint that a recording lacks is zero) learns
all clients' classes side by side, and a client is then tested on its own test set, among its own classes. Others
must have samples of one shape and the same classes everywhere: they are simply put together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.clips.clips import join
from fedaction.data.inputs import Input
from fedaction.data.layout import Layout
from fedaction.data.samples import Examples, Samples, in_memory
from fedaction.federation.scope import FROZEN, GLOBAL, Rule, ScopeTable
from fedaction.methods.base import Method
from fedaction.methods.network import body_of, layout_of
from fedaction.methods.video import frozen_parts

EVERYONE = "everyone"


class Pooled:
    """What is common to methods that train in one place, which a federation is there to avoid."""

    @staticmethod
    def pool(clients: Mapping[str, ClientData], *, keep: bool = False) -> dict[str, ClientData]:
        """One client with all training samples, on one body; the others keep their test samples.

        A client with `samples = 0` is never asked to train, one without test samples is not tested. With `keep`,
        clients keep their training samples too, for what they estimate before a test.
        """
        if EVERYONE in clients:
            raise ValueError(f"a client is called {EVERYONE!r}, the name that centralised training uses: rename it")
        if any(client.info.layout is None for client in clients.values()):
            return _put_together(clients, keep)
        body = body_of(client.info for client in clients.values())
        bodies = max(client.info.shape[0] for client in clients.values())
        arranged: dict[str, ClientData] = {}
        samples: list[Tensor] = []
        labels: list[Tensor] = []
        names: list[str] = []
        for key, client in clients.items():
            info = client.info
            own = tuple(f"{key}: {name}" for name in info.classes)
            samples.append(_map_onto(in_memory(client.train).x, layout_of(info), body, bodies))
            labels.append(client.train.labels + len(names))
            names += own
            test, held = _place(client.test, info, body, bodies), client.validation
            train = _place(client.train, info, body, bodies) if keep else Examples(test.x[:0], test.y[:0])
            arranged[key] = ClientData(
                ClientInfo(key, info.group, 0, own, test.shape, body),
                train,
                test,
                None if held is None else _place(held, info, body, bodies),
                _describe(client.input, body, bodies),
            )
        x = torch.cat(samples)
        everyone = ClientInfo(EVERYONE, "skeleton", len(x), tuple(names), tuple(x.shape[1:]), body)
        none = Examples(x[:0], labels[0][:0])
        return {**arranged, EVERYONE: ClientData(everyone, Examples(x, torch.cat(labels)), none)}


def arrange(kind: type[Method], clients: Mapping[str, ClientData], *, keep: bool = False) -> Mapping[str, ClientData]:
    """The clients as a method sees them: as they are, or for centralised training in one place; see `Pooled.pool`."""
    return kind.pool(clients, keep=keep) if issubclass(kind, Pooled) else clients


class Central(Pooled, Method):
    """One client trains on everybody's data; the others are only tested, each among its own classes."""

    title = "Centralised"

    def scopes(self) -> ScopeTable:
        """All of it is one model."""
        return ScopeTable(
            (Rule("topology.A", FROZEN), *(Rule(n, FROZEN) for n in frozen_parts(self.settings)), Rule("**", GLOBAL))
        )


def _put_together(clients: Mapping[str, ClientData], keep: bool) -> dict[str, ClientData]:
    """Clients whose samples are alike: their training samples in one place."""
    first, *others = clients.values()
    for other in others:
        if (other.info.shape, other.info.classes) != (first.info.shape, first.info.classes):
            raise ValueError(
                f"clients {first.info.id!r} and {other.info.id!r} hold samples of other shapes or classes, which "
                "cannot be put together; leave method central out"
            )
    everything = join([client.train for client in clients.values()])
    none = Examples(everything.take(torch.arange(0)), everything.labels[:0])
    pooled = ClientData(replace(first.info, id=EVERYONE, samples=len(everything)), everything, none)
    tested = {
        key: replace(c, info=replace(c.info, samples=0), train=c.train if keep else none)
        for key, c in clients.items()
    }
    return {**tested, EVERYONE: pooled}


def _describe(given: Input | None, body: Layout, bodies: int) -> Input | None:
    """What a client's recordings go through on their way to the body."""
    return None if given is None else given.model_copy(update={"body": body.to_dict(), "bodies": bodies})


def _place(split: Samples, info: ClientInfo, body: Layout, bodies: int) -> Examples:
    """A client's samples on another body."""
    return Examples(_map_onto(in_memory(split).x, layout_of(info), body, bodies), split.labels, split.subjects)


def _map_onto(x: Tensor, layout: Layout, body: Layout, bodies: int) -> Tensor:
    """(N, M, T, V, C) samples on another body, with zeros for joints and bodies that they lack."""
    count, own, frames, _, channels = x.shape
    out = x.new_zeros(count, bodies, frames, len(body), channels)
    out[:, :own, :, list(layout.map_onto(body))] = x
    return out
