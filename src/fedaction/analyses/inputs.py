"""Inputs that several clients' networks can be shown alike, and the probabilities that they give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedaction.analyses.study import NotApplicable, Study, Trained, some
from fedaction.data.client import ClientData
from fedaction.data.layout import Layout
from fedaction.data.samples import Samples
from fedaction.evaluation.features import in_batches
from fedaction.evaluation.joints import known_share, map_joints
from fedaction.federation.seeds import generator

Chosen = tuple[str, Trained, dict[str, ClientData]]
_KNOWN = 0.5  # of a client's joints that a source must have by name


def layout_of(client: ClientData) -> Layout:
    """A client's layout, where it has one."""
    if client.info.layout is None:
        raise NotApplicable(f"client {client.info.id!r} holds {client.info.group!r} samples, which are no skeletons")
    return client.info.layout


def comparable(clients: Mapping[str, ClientData]) -> tuple[dict[str, ClientData], tuple[str, ...]]:
    """The tested clients whose skeletons agree in bodies, frames and coordinates, and a note of the others."""
    tested = {name: client for name, client in clients.items() if len(client.test)}
    if not tested:
        raise NotApplicable("no client has test samples")
    for client in tested.values():
        layout_of(client)
    kinds = {name: (*c.info.shape[:2], c.info.shape[3]) for name, c in tested.items()}
    ((common, _),) = Counter(kinds.values()).most_common(1)
    left = [name for name, kind in kinds.items() if kind != common]
    note = f"Left out, for other bodies, frames or coordinates than the rest: {', '.join(left)}."
    return {name: c for name, c in tested.items() if name not in left}, (note,) if left else ()


def choose(study: Study, methods: int, clients: int, alone: str) -> tuple[list[Chosen], tuple[str, ...]]:
    """The first methods, each with its federation and the first of its comparable clients; and notes.

    `alone` is why a single client is not enough.
    """
    names, notes = study.first(methods)
    chosen: list[Chosen] = []
    for method in names:
        trained = study.trained(method)
        able, left_out = comparable(trained.clients)
        able, few = some(able, clients)
        if len(able) < 2:
            raise NotApplicable(alone)
        notes += tuple(note for note in left_out + few if note not in notes)
        chosen.append((method, trained, able))
    return chosen, notes


@dataclass(frozen=True)
class Inputs:
    """Test sequences that every one of some clients can be shown."""

    rows: Mapping[str, Tensor]  # by source client, which of its test sequences
    clients: Mapping[str, ClientData]  # all clients

    def __len__(self) -> int:
        return sum(len(rows) for rows in self.rows.values())

    def shown_to(self, client: str) -> Tensor:
        """(N, M, T, V, C) the sequences on a client's joints."""
        target, layouts = layout_of(self.clients[client]), [layout_of(c) for c in self.clients.values()]
        return torch.cat(
            [
                map_joints(self.clients[source].test.take(rows), layout_of(self.clients[source]), target, layouts)
                for source, rows in self.rows.items()
            ]
        )


def common_inputs(clients: Mapping[str, ClientData], most: int, seed: int) -> Inputs:
    """Test sequences, pooled over the clients whose skeletons can be expressed on everyone's joints.

    A source qualifies if it has at least half of every client's joints by name; where none does, the best ones do.
    About `most` sequences are drawn in all, as many of each source.
    """
    layouts = {name: layout_of(client) for name, client in clients.items()}
    shares = {name: min(known_share(own, target) for target in layouts.values()) for name, own in layouts.items()}
    bound = min(_KNOWN, max(shares.values()))
    sources = [name for name, share in shares.items() if share >= bound]
    rows: dict[str, Tensor] = {}
    for name in sources:
        order = torch.randperm(len(clients[name].test), generator=generator(seed, "analysis inputs", name))
        rows[name] = order[: -(-most // len(sources))].sort().values
    return Inputs(rows, clients)


def probabilities(trained: Trained, client: str, x: Tensor) -> Tensor:
    """(N, classes) of (N, ...) samples under a client's network, on the CPU."""
    net = trained.net(client)
    logits = in_batches(lambda batch: net(batch.to(trained.device)), x)
    return logits.float().softmax(-1).cpu()


def subset(samples: Samples, most: int, seed: int, *purpose: str) -> tuple[Tensor, Tensor]:
    """(x, y) of at most so many samples, drawn without replacement."""
    rows = torch.randperm(len(samples), generator=generator(seed, *purpose))[:most].sort().values
    return samples.take(rows), samples.labels[rows]
