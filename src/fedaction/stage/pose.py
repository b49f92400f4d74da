"""The words that actions are written in: poses of an articulated body, in units of that body.

A pose gives each channel (where a hand is, how far the torso leans) a value. Lengths are multiples of the performer's
own measures, so that a hand which goes to the mouth does so for a child and for a tall adult.

Directions: the performer faces forward, `out` is away from the body's middle on that hand's own side, and angles are
in radians. Hands are placed relative to their shoulder, feet relative to the ground below their hip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

MEASURES = ("one", "arm", "shoulder", "head", "torso", "leg")

_HAND = ("out", "up", "forward", "elbow", "upright")
_FOOT = ("out", "up", "forward", "toe")

CHANNELS: tuple[str, ...] = (
    # Where the whole body goes: legs to the left and forward, and a turn to the left.
    *("travel.left", "travel.forward", "travel.turn"),
    # Hip height above the ankles (1 leg: knees straight) and the hips' shift over the feet.
    *("hips.height", "hips.left", "hips.forward"),
    # Torso: lean forward, bend to the right, twist to the left. Head: nod down, turn left, tilt right.
    *("lean", "bend", "twist", "nod", "turn", "tilt"),
    *(f"right.{part}" for part in _HAND),
    *(f"left.{part}" for part in _HAND),
    *(f"right_foot.{part}" for part in _FOOT),
    *(f"left_foot.{part}" for part in _FOOT),
)


class ChannelValue(NamedTuple):
    """One channel's value: the sum of `measures` times the body's measures."""

    measures: tuple[float, ...]  # one coefficient per entry of MEASURES
    # whether a performer with large or small gestures scales it; a hand that must touch its goal is not
    loose: bool = True


Pose = dict[str, ChannelValue]


def _value(value: float, unit: str = "one", loose: bool = True) -> ChannelValue:
    return ChannelValue(tuple(value if name == unit else 0.0 for name in MEASURES), loose)


# Places a hand can go to, from that hand's shoulder, as (out, up, forward) in the body's measures.
_PLACES: dict[str, tuple[dict[str, float], dict[str, float], dict[str, float]]] = {
    "shoulder": ({}, {}, {}),
    "middle": ({"shoulder": -1.0}, {}, {}),
    "mouth": ({"shoulder": -1.0, "head": 0.12}, {"head": 0.44}, {"head": 0.74}),
    "ear": ({"shoulder": -1.0, "head": 0.66}, {"head": 0.62}, {"head": 0.12}),
    "brow": ({"shoulder": -1.0, "head": 0.50}, {"head": 1.02}, {"head": 0.50}),
    "crown": ({"shoulder": -1.0, "head": 0.25}, {"head": 1.38}, {"head": 0.05}),
    "other_elbow": ({"shoulder": -1.85}, {"torso": -0.45}, {"arm": 0.27}),
    "belly": ({"shoulder": -1.0, "arm": 0.08}, {"torso": -0.62}, {"arm": 0.36}),
    "hip": ({"shoulder": 0.15}, {"torso": -0.92}, {"arm": 0.02}),
}


def reach(
    out: float = 0.0,
    up: float = 0.0,
    forward: float = 0.0,
    *,
    place: str = "shoulder",
    elbow: float = 0.15,
    upright: float = 0.0,
) -> dict[str, ChannelValue]:
    """A hand's position: a place on the body plus (out, up, forward) in arm lengths.

    Any place (see above) but the shoulder is a contact, which large gestures do not scale. `elbow` 0 points the
    elbow down and back, 1 out to the side. `upright` 0 moves the hand with the torso, 1 keeps the offset's axes
    vertical while the torso leans.
    """
    cells: dict[str, ChannelValue] = {}
    for part, anchor, offset in zip(_HAND, _PLACES[place], (out, up, forward), strict=False):
        totals = dict.fromkeys(MEASURES, 0.0) | anchor
        totals["arm"] += offset
        cells[part] = ChannelValue(tuple(totals[name] for name in MEASURES), loose=place == "shoulder")
    return cells | {"elbow": _value(elbow), "upright": _value(upright, loose=False)}


def right(hand: dict[str, ChannelValue]) -> Pose:
    """The stronger hand's part of a pose (the right, before a left-hander's mirror)."""
    return {f"right.{part}": cell for part, cell in hand.items()}


def left(hand: dict[str, ChannelValue]) -> Pose:
    """The weaker hand's part of a pose."""
    return {f"left.{part}": cell for part, cell in hand.items()}


def both(hand: dict[str, ChannelValue]) -> Pose:
    """Both hands alike."""
    return right(hand) | left(hand)


def foot(side: str, out: float = 0.0, up: float = 0.0, forward: float = 0.0, toe: float = 0.0) -> Pose:
    """One foot (`side` is "right" or "left"), in leg lengths from the ground below its hip; toe > 0 points down."""
    values = (_value(out, "leg"), _value(up, "leg"), _value(forward, "leg"), _value(toe))
    return {f"{side}_foot.{part}": cell for part, cell in zip(_FOOT, values, strict=True)}


def feet(out: float = 0.0, up: float = 0.0, forward: float = 0.0, toe: float = 0.0) -> Pose:
    """Both feet alike."""
    return foot("right", out, up, forward, toe) | foot("left", out, up, forward, toe)


def hips(height: float, forward: float = 0.0, left: float = 0.0) -> Pose:
    """Hip height and shift over the feet, in leg lengths. Never scaled: the feet should stay on the ground."""
    names = ("hips.height", "hips.forward", "hips.left")
    return {n: _value(v, "leg", loose=False) for n, v in zip(names, (height, forward, left), strict=True)}


def torso(lean: float = 0.0, bend: float = 0.0, twist: float = 0.0) -> Pose:
    """Torso angles in radians."""
    return {"lean": _value(lean), "bend": _value(bend), "twist": _value(twist)}


def head(nod: float = 0.0, turn: float = 0.0, tilt: float = 0.0) -> Pose:
    """Head angles in radians, on top of the torso's."""
    return {"nod": _value(nod), "turn": _value(turn), "tilt": _value(tilt)}


def travel(forward: float = 0.0, left: float = 0.0, turn: float = 0.0) -> Pose:
    """Where the body has gone: leg lengths, and a turn to the left in radians."""
    return {
        "travel.forward": _value(forward, "leg", loose=False),
        "travel.left": _value(left, "leg", loose=False),
        "travel.turn": _value(turn, loose=False),
    }


HANG = reach(out=0.10, up=-0.96, forward=0.08, upright=0.5)
REST: Pose = travel() | hips(0.985) | torso() | head() | both(HANG) | feet()


def unit_of(channel: str) -> str:
    """The body measure that a channel's offsets and swings are multiples of."""
    axis = channel.rpartition(".")[2]
    if channel.startswith(("right.", "left.")):
        return "arm" if axis in ("out", "up", "forward") else "one"
    return "leg" if "." in channel and axis not in ("toe", "turn") else "one"


@dataclass(frozen=True)
class Swing:
    """A rhythmic movement of one channel on top of the key poses."""

    channel: str  # a name in CHANNELS
    size: float  # amplitude; in the units of `unit_of`: arm lengths for hands, leg lengths for hips and feet, radians
    beat: float = 0.0  # where in its cycle it starts, 0 to 1
    times: int = 1  # cycles for each cycle of the action: 2 moves twice as often
    # "sine", "lift" (only its upper half: a foot that leaves the ground) or "bounce" (rebounds at zero)
    shape: str = "sine"


def hold(pose: Pose, start: float, stop: float) -> tuple[tuple[float, Pose], ...]:
    """Key poses of an action that goes from rest to one pose, keeps it from `start` to `stop`, and goes back."""
    return ((0.0, REST), (start, pose), (stop, pose), (1.0, REST))


@dataclass(frozen=True)
class Action:
    """A named action as key poses, rhythmic swings, and how long it usually takes."""

    name: str  # the label
    seconds: float  # usual duration
    keys: tuple[tuple[float, Pose], ...]  # (moment, pose), moments from 0 to 1
    # rhythmic movements, `cycles` of them while the action lasts, within the moments of `during`
    swings: tuple[Swing, ...] = ()
    cycles: float = 0.0  # number of cycles of the swings
    during: tuple[float, float] = (0.0, 1.0)  # first and last moment of the swings
    # moments between which the keys repeat; a performer repeats them `repeats` (least, most) times
    loop: tuple[float, float] = (1.0, 1.0)
    repeats: tuple[int, int] = (1, 1)  # see `loop`
    # moves at one speed from key to key instead of easing in and out, so that steps fit the distance
    steady: bool = False
    # moments when a hand or the body meets a thing that is not drawn: these make a sound
    contacts: tuple[float, ...] = ()
