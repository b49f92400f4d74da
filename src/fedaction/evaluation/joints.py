"""Skeleton sequences of one layout shown to a network of another: joints mapped by name."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from fedaction.data.layout import Layout
from fedaction.data.preprocess import normalise


def known_share(source: Layout, target: Layout) -> float:
    """The share of the target's joints that the source has by name, 0 to 1."""
    return len(target.shared_with(source)) / len(target)


def joint_map(source: Layout, target: Layout, others: Iterable[Layout] = ()) -> Tensor:
    """(V target, V source) float32 weights that make the target's joints from the source's; rows sum to 1.

    A joint that the source has is taken as it is. One that it lacks becomes the mean of the joints nearest to it
    among those the source has, in links (so a missing hand is where the wrist is); one that no link leads to becomes
    the source's centre. The links of other layouts help to say what is near.
    """
    links = _links({source, target, *others})
    known = set(source.joints)
    weights = torch.zeros(len(target), len(source))
    for row, joint in enumerate(target.joints):
        reached, seen = {joint}, {joint}
        while reached and not reached & known:
            reached = {near for at in reached for near in links.get(at, ())} - seen
            seen |= reached
        nearest = [source.index(name) for name in reached & known] or [source.centre]
        weights[row, nearest] = 1 / len(nearest)
    return weights


def map_joints(x: Tensor, source: Layout, target: Layout, others: Iterable[Layout] = ()) -> Tensor:
    """(N, M, T, V, C) sequences of one layout as (N, M, T, W, C) of another; arguments as in `joint_map`.

    They are then centred and aligned on the target's own joints, as its clients' sequences are. Sequences that
    already have the target's joints and centre come back as they are.
    """
    if (source.joints, source.centre) == (target.joints, target.centre):
        return x
    weights = joint_map(source, target, others).to(x)
    return normalise(torch.einsum("wv,nmtvc->nmtwc", weights, x), target)


def _links(layouts: set[Layout]) -> dict[str, set[str]]:
    """Which joints are linked in some layout, unless a finer one has both and joints between them.

    OpenNI links elbow and hand because it has no wrist; where another layout has all three, that is no near link.
    """
    links: dict[str, set[str]] = {}
    for own in layouts:
        for one, other in _name_edges(own):
            finer = [item for item in layouts if len(item) > len(own) and {one, other} <= set(item.joints)]
            if all({one, other} in _name_edges(item) for item in finer):
                links.setdefault(one, set()).add(other)
                links.setdefault(other, set()).add(one)
    return links


def _name_edges(layout: Layout) -> list[set[str]]:
    return [{layout.joints[a], layout.joints[b]} for a, b in layout.edges]
