"""Training samples that are not trained on: validation people, so that the test has nothing to choose, or a share."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedaction.data.client import ClientData
from fedaction.federation.seeds import derive, generator


def hold_validation(clients: Iterable[ClientData], share: float, seed: int, unseen: str = "") -> list[ClientData]:
    """The clients with a share, 0 to 1, of their training samples as validation samples.

    Whole people where a client knows several, whole recordings where samples are clips; else samples, of each class
    its share. Everybody's rank follows from the seed and their own name alone, so a client is split the same whoever
    else is there, on a machine of its own too; and a person whom several clients have seen is on the same side at all
    of them as far as shares allow. `unseen` is left as it is: it does not train.
    """
    held = [client if client.info.id == unseen else _hold(client, share, seed) for client in clients]
    if not any(client.validation is not None for client in held):
        raise ValueError(f"validation = {share}: no client has training samples to spare; drop the key")
    return held


def _hold(client: ClientData, share: float, seed: int) -> ClientData:
    train, name = client.train, client.info.id
    if len(train) < 2:
        return client
    if len(set(train.subjects)) > 1:
        people = sorted(
            set(train.subjects), key=lambda person: (derive(seed, "validation", "person", person), person)
        )
        away = _whole(train.subjects, people, share)
    elif train.recording is not None and len(train.recording.unique()) > 1:
        numbers = train.recording.unique()
        order = torch.randperm(len(numbers), generator=generator(seed, "validation", name))
        away = _whole(train.recording.tolist(), numbers[order].tolist(), share)
    else:
        away = _by_class(train.labels, share, generator(seed, "validation", name))
    rows = away.nonzero().flatten()
    rest = (~away).nonzero().flatten()
    info = replace(client.info, samples=len(rest))
    return replace(client, info=info, train=train.pick(rest), validation=train.pick(rows))


def keep_share(client: ClientData, share: float, seed: int) -> ClientData:
    """The client with a share, 0 to 1, of its training samples of each class, rounded, but one of each at least.

    Where samples are clips, of each class whole recordings. A smaller share is part of a larger one.
    """
    train, name = client.train, client.info.id
    group = torch.arange(len(train)) if train.recording is None else train.recording
    numbers, which = group.unique(return_inverse=True)
    labels = train.labels.new_zeros(len(numbers)).index_copy_(0, which, train.labels)
    order = torch.randperm(len(numbers), generator=generator(seed, "share", name))
    kept = torch.zeros(len(numbers), dtype=torch.bool)
    for label in labels.unique():
        own = order[labels[order] == label]
        kept[own[: max(round(share * len(own)), 1)]] = True
    rows = kept[which].nonzero().flatten()
    return replace(client, info=replace(client.info, samples=len(rows)), train=train.pick(rows))


def _whole(of: Sequence[Hashable], groups: Sequence[Hashable], share: float) -> Tensor:
    """(N,) bool: samples of the first groups, as many as the share says, at least one and not all."""
    count = min(max(round(share * len(groups)), 1), len(groups) - 1)
    first = set(groups[:count])
    return torch.tensor([group in first for group in of])


def _by_class(labels: Tensor, share: float, random: torch.Generator) -> Tensor:
    """(N,) bool: of each class its share, rounded over all classes; at least one sample and not all."""
    shuffled = torch.randperm(len(labels), generator=random)
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    count = min(max(round(share * len(labels)), 1), len(labels) - 1)
    away = torch.zeros(len(labels), dtype=torch.bool)
    away[by_class[((torch.arange(count) + 0.5) * len(labels) / count).long()]] = True
    return away
