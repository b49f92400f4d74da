"""Skeleton layouts: which joints a recording has, in which order, and how they are joined.

A layout travels with the data. Joints carry canonical names, so that two layouts can be compared joint by joint:
`left_wrist` means the same in a Kinect recording and in a motion-capture one, wherever it stands in the array.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from fedaction.federation.outside import check_amount, shorten

_MOST_JOINTS, _MOST_EDGES = 1000, 10_000  # that a description may have


@dataclass(frozen=True)
class Layout:
    """A named skeleton: joints in array order, undirected edges between them, and the centre of the graph."""

    name: str
    """What `layout("...")` and recipes call it."""
    joints: tuple[str, ...]
    """Canonical joint names, in the order of the recording's joint axis (V of them)."""
    edges: tuple[tuple[int, int], ...]
    """Pairs of joint indices, without self links."""
    centre: int
    """Index of the joint that graph partitions and centring take as the middle of the body."""

    def __post_init__(self) -> None:
        count = len(self.joints)
        twice = {j for j in self.joints if self.joints.count(j) > 1}
        if twice:
            raise ValueError(f"layout {self.name!r} names these joints twice: {sorted(twice)}")
        if not 0 <= self.centre < count:
            raise ValueError(f"layout {self.name!r}: centre {self.centre} is not one of its {count} joints")
        for a, b in self.edges:
            if not (0 <= a < count and 0 <= b < count) or a == b:
                raise ValueError(f"layout {self.name!r}: edge {(a, b)} does not join two of its {count} joints")

    def __len__(self) -> int:
        return len(self.joints)

    def index(self, joint: str) -> int:
        """Position of a joint on the joint axis; a name the layout lacks is an error that lists what it has."""
        try:
            return self.joints.index(joint)
        except ValueError:
            raise KeyError(f"layout {self.name!r} has no joint {joint!r}; it has {', '.join(self.joints)}") from None

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """(left, right) index pairs, by name."""
        twins = {joint: joint.replace("left_", "right_", 1) for joint in self.joints if joint.startswith("left_")}
        return tuple((self.index(one), self.index(other)) for one, other in twins.items() if other in self.joints)

    @property
    def mirror(self) -> tuple[int, ...]:
        """The joint order after swapping left and right: `x[..., mirror, :]` is the mirrored body's joints."""
        order = list(range(len(self)))
        for left, right in self.pairs:
            order[left], order[right] = right, left
        return tuple(order)

    def map_onto(self, body: Layout) -> tuple[int, ...]:
        """For each of this layout's joints, its index in `body`. A joint that `body` lacks is an error."""
        missing = [j for j in self.joints if j not in body.joints]
        if missing:
            raise KeyError(f"layout {body.name!r} lacks joints of {self.name!r}: {', '.join(missing)}")
        return tuple(body.joints.index(j) for j in self.joints)

    def shared_with(self, other: Layout) -> tuple[tuple[int, int], ...]:
        """(own index, other's index) of every joint that both layouts have."""
        return tuple((i, other.joints.index(j)) for i, j in enumerate(self.joints) if j in other.joints)

    def to_dict(self) -> dict[str, object]:
        """The layout as plain JSON values."""
        return {
            "name": self.name,
            "joints": list(self.joints),
            "edges": [list(edge) for edge in self.edges],
            "centre": self.joints[self.centre],
        }

    @classmethod
    def from_dict(cls, spec: dict[str, object]) -> Layout:
        """The inverse of `to_dict`; joints, edges and centre may be given by name or by index."""
        joints = spec.get("joints")
        edges = spec.get("edges")
        if not isinstance(joints, list) or not isinstance(edges, list):
            raise ValueError('a layout needs "joints" (a list of names) and "edges" (a list of pairs)')
        for what, many, most in (("joints", joints, _MOST_JOINTS), ("edges", edges, _MOST_EDGES)):
            check_amount(len(many), most, "a layout", "has", what)
        names = tuple(str(j) for j in joints)

        def place(joint: object) -> int:
            if isinstance(joint, bool) or not isinstance(joint, int | str):
                raise ValueError(f"a joint is given by name or by index, not by {shorten(repr(joint), 80)}")
            if isinstance(joint, int):
                return joint
            if joint not in names:
                raise ValueError(f"joint {joint!r} is not among the layout's joints: {shorten(', '.join(names))}")
            return names.index(joint)

        pairs: list[tuple[int, int]] = []
        for edge in edges:
            if not isinstance(edge, list | tuple) or len(edge) != 2:
                raise ValueError(f"an edge joins two joints; got {shorten(repr(edge), 80)}")
            pairs.append((place(edge[0]), place(edge[1])))
        return cls(str(spec.get("name", "custom")), names, tuple(pairs), place(spec.get("centre", 0)))


def union_body(layouts: Iterable[Layout]) -> Layout:
    """The smallest body that has every joint of every layout given: what a federation's clients map onto.

    Layouts are taken largest first (ties by name), so the result does not depend on the order of clients, and a
    federation whose clients all use one layout gets exactly that layout back: its joint map is the identity.
    """
    ordered = sorted(set(layouts), key=lambda item: (-len(item), item.name, item.joints, item.edges))
    if not ordered:
        raise ValueError("a union of no layouts has no joints")
    if len(ordered) == 1:
        return ordered[0]
    joints: list[str] = []
    edges: list[tuple[int, int]] = []
    for item in ordered:
        joints += [j for j in item.joints if j not in joints]
    for item in ordered:
        place = [joints.index(j) for j in item.joints]
        known = {frozenset(edge) for edge in edges}
        edges += [(place[a], place[b]) for a, b in item.edges if frozenset((place[a], place[b])) not in known]
    centre = joints.index(ordered[0].joints[ordered[0].centre])
    return Layout("+".join(item.name for item in ordered), tuple(joints), tuple(edges), centre)


def _expand(*chains: str) -> list[list[str]]:
    """Chains of joints, each written 'a b c'; 'X' stands for the left side, and then once more for the right."""
    sides = [(chain, side) for chain in chains for side in (("left_", "right_") if "X" in chain else ("",))]
    return [chain.replace("X", side).split() for chain, side in sides]


def _tree(name: str, joints: tuple[str, ...], centre: str, bones: tuple[str, ...]) -> Layout:
    """A layout from its joints, in order, and from chains of joints along its bones; both as `_expand` reads them."""
    names = tuple(joint for chain in _expand(*joints) for joint in chain)
    edges = [(names.index(a), names.index(b)) for chain in _expand(*bones) for a, b in itertools.pairwise(chain)]
    return Layout(name, names, tuple(edges), names.index(centre))


KINECT_V2 = _tree(
    "kinect_v2",
    (
        "spine_base spine_mid neck head",
        "Xshoulder Xelbow Xwrist Xhand",
        "Xhip Xknee Xankle Xfoot",
        "spine_shoulder",
        "Xhand_tip Xthumb",
    ),
    "spine_shoulder",
    # The hand's links as in ST-GCN's graph: tip to thumb to hand.
    (
        "spine_base spine_mid spine_shoulder neck head",
        "spine_shoulder Xshoulder Xelbow Xwrist Xhand Xthumb Xhand_tip",
        "spine_base Xhip Xknee Xankle Xfoot",
    ),
)

KINECT_V1 = _tree(
    "kinect_v1",
    ("spine_base spine_mid spine_shoulder head", "Xshoulder Xelbow Xwrist Xhand", "Xhip Xknee Xankle Xfoot"),
    "spine_shoulder",
    (
        "spine_base spine_mid spine_shoulder head",
        "spine_shoulder Xshoulder Xelbow Xwrist Xhand",
        "spine_base Xhip Xknee Xankle Xfoot",
    ),
)

COCO_17 = _tree(
    "coco_17",
    ("nose", "Xeye", "Xear", "Xshoulder", "Xelbow", "Xwrist", "Xhip", "Xknee", "Xankle"),
    "nose",
    ("Xankle Xknee Xhip Xshoulder nose", "Xshoulder Xelbow Xwrist", "nose Xeye Xear"),
)

OPENPOSE_18 = _tree(
    "openpose_18",
    (
        "nose spine_shoulder",  # OpenPose's "neck" is the midpoint of the shoulders
        "right_shoulder right_elbow right_wrist left_shoulder left_elbow left_wrist",
        "right_hip right_knee right_ankle left_hip left_knee left_ankle",
        "right_eye left_eye right_ear left_ear",
    ),
    "spine_shoulder",
    (
        "spine_shoulder Xshoulder Xelbow Xwrist",
        "Xshoulder Xhip Xknee Xankle",
        "spine_shoulder nose",
        "nose Xeye Xear",
    ),
)

OPENNI_15 = _tree(
    "openni_15",
    ("head neck", "Xshoulder Xelbow Xhand", "spine_mid", "Xhip Xknee Xfoot"),
    "neck",
    ("head neck spine_mid", "neck Xshoulder Xelbow Xhand", "spine_mid Xhip Xknee Xfoot"),
)

# As the Florence 3D Actions dataset names its joints. They come from the same tracker as openni_15: its hands are
# called wrists here and its feet ankles.
FLORENCE_15 = _tree(
    "florence_15",
    ("head neck spine_mid", "Xshoulder Xelbow Xwrist", "Xhip Xknee Xankle"),
    "neck",
    ("head neck spine_mid", "neck Xshoulder Xelbow Xwrist", "spine_mid Xhip Xknee Xankle"),
)

# Joints are the ends of the 30 bones of an Acclaim body (HDM05, CMU), after the root.
MOCAP_31 = _tree(
    "mocap_31",
    (
        "spine_base",
        "Xhip Xknee Xankle Xfoot Xtoes",
        "spine_low spine_mid spine_shoulder neck skull_base head",
        "Xshoulder Xelbow Xwrist Xpalm Xhand Xhand_tip Xthumb",
    ),
    "spine_shoulder",
    (
        "spine_base spine_low spine_mid spine_shoulder neck skull_base head",
        "spine_base Xhip Xknee Xankle Xfoot Xtoes",
        "spine_shoulder Xshoulder Xelbow Xwrist Xpalm Xhand Xhand_tip",
        "Xpalm Xthumb",
    ),
)

LAYOUTS: dict[str, Layout] = {
    item.name: item for item in (KINECT_V2, KINECT_V1, COCO_17, OPENPOSE_18, OPENNI_15, FLORENCE_15, MOCAP_31)
}


def layout(name: str) -> Layout:
    """A built-in layout by name."""
    try:
        return LAYOUTS[name]
    except KeyError:
        raise KeyError(f"no layout is called {name!r}; there are {', '.join(LAYOUTS)}") from None
