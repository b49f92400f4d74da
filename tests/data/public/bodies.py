"""What must be true of any recording of a person, whatever a dataset's documentation says of its joints and axes."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.layout import Layout
from fedaction.data.public.base import Reader

Array = npt.NDArray[np.float64]


def some(reader: Reader, root: Path, count: int) -> list[Array]:
    """About `count` recordings spread over the whole dataset, (T, V, 3) each, frames without a person left out."""
    sources = reader.find(root).sources
    chosen = [reader.read(source.path)[0].astype(np.float64) for source in sources[:: len(sources) // count]]
    return [body[(body != 0).any(axis=(1, 2))] for body in chosen]


def middle(bodies: list[Array], layout: Layout, joint: str) -> Array:
    """(N, 3): where a joint is on average over each recording."""
    return np.array([body[:, layout.index(joint)].mean(axis=0) for body in bodies])


def distances(bodies: list[Array]) -> tuple[Array, Array]:
    """(V, V) each: the distance between two joints and its standard deviation over time; means over recordings."""
    apart = [np.linalg.norm(body[:, :, None] - body[:, None], axis=-1) for body in bodies]  # T, V, V
    return np.mean([d.mean(axis=0) for d in apart], axis=0), np.mean([d.std(axis=0) for d in apart], axis=0)


def along(edges: tuple[tuple[int, int], ...], values: Array, order: list[int] | None = None) -> Array:
    """Values (V, V) along edges; with an order, as if joint i were the one at order[i]."""
    place = np.array(order if order is not None else range(len(values)))
    first, second = place[np.array(edges)].T
    return values[first, second]


def assert_joints_are_in_order(bodies: list[Array], layout: Layout) -> None:
    """No exchange of two joints makes the skeleton shorter: the joints are those that the layout says.

    A layout's edges join neighbours in the body, so that in the true order the tree they form is short. Left and
    right as a whole are not settled by this.
    """
    lengths, _ = distances(bodies)
    total = along(layout.edges, lengths).sum()
    for one, other in itertools.combinations(range(len(layout)), 2):
        order = list(range(len(layout)))
        order[one], order[other] = other, one
        exchanged = along(layout.edges, lengths, order).sum()
        assert exchanged > 1.003 * total, f"{layout.joints[one]} and {layout.joints[other]}"


def assert_sides_are_alike(bodies: list[Array], layout: Layout, within: float) -> None:
    """Bones of the left and of the right differ in mean length by less than `within` metres."""
    lengths, _ = distances(bodies)
    mirrored = along(layout.edges, lengths, list(layout.mirror))
    assert np.abs(along(layout.edges, lengths) - mirrored).max() < within


def assert_person_before_a_kinect(bodies: list[Array], layout: Layout, foot: str) -> None:
    """Metres; y up; z away from the camera; people face the camera and have their right side at larger x."""
    head, base = middle(bodies, layout, "head"), middle(bodies, layout, f"left_{foot}")
    assert np.median(head[:, 1] - base[:, 1]) > 1.1 and (head[:, 1] - base[:, 1]).min() > 0.5
    height = np.median([np.ptp(body[..., 1], axis=1).max() for body in bodies])
    assert 1.2 < height < 2.1
    assert all(body[..., 2].min() > 0.5 and body[..., 2].max() < 5 for body in bodies)
    for part in ("shoulder", "hip"):
        across = middle(bodies, layout, f"right_{part}") - middle(bodies, layout, f"left_{part}")
        assert (across[:, 0] > 0.05).all() and np.median(across[:, 0]) < 0.6
    forward = [
        np.median(middle(bodies, layout, f"{side}_{hand}")[:, 2] - middle(bodies, layout, f"{side}_elbow")[:, 2])
        for side in ("left", "right")
        for hand in ("wrist", "hand")
        if f"{side}_{hand}" in layout.joints
    ]
    assert max(forward) < 0  # forearms point to the camera


def path_length(body: Array, layout: Layout, joint: str) -> float:
    """How far a joint travels against the middle of the spine, metres."""
    steps = np.diff(body[:, layout.index(joint)] - body[:, layout.index("spine_mid")], axis=0)
    return float(np.linalg.norm(steps, axis=1).sum())
