"""Who performs: people with bodies and habits, each a function of a seed and a name."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedaction.federation.seeds import derive, numpy_generator
from fedaction.stage.body import BONES, PROPORTIONS
from fedaction.stage.pose import CHANNELS


@dataclass(frozen=True)
class Cohort:
    """The people that actors are drawn from: means and spreads of bodies and habits."""

    name: str  # e.g. "adults"
    height: float = 1.70  # mean standing height in metres
    height_spread: float = 0.09  # its standard deviation in metres
    head: float = 1.0  # head size relative to an adult's proportions
    tempo: float = 1.0  # mean speed of movement; 1 is the action's usual duration
    amplitude: float = 1.0  # mean size of gestures; 1 is as written
    stoop: float = 0.0  # mean forward lean of the torso in radians
    knees: float = 0.0  # mean lowering of the hips by bent knees, in leg lengths
    left_handed: float = 0.12  # share of left-handers
    spread: float = 1.0  # how much people differ; scales every habit's spread


ADULTS = Cohort("adults")
CHILDREN = Cohort("children", height=1.25, height_spread=0.12, head=1.28, tempo=1.2, amplitude=1.1)
ELDERLY = Cohort("elderly", height=1.62, tempo=0.78, amplitude=0.82, stoop=0.20, knees=0.03)


@dataclass(frozen=True)
class Actor:
    """A person: a body and habits."""

    name: str  # unique among the actors of one seed
    seed: int  # what the person's style of each action derives from
    height: float  # metres
    bones: tuple[float, ...] = field(repr=False)  # segment lengths in metres, in the order of `body.BONES`
    tempo: float  # speed of movement; above 1 is fast
    amplitude: float  # size of gestures
    left_handed: bool  # whether actions are mirrored
    off_hand: float  # chance of using the other hand all the same
    stoop: float  # forward lean in radians
    knees: float  # hips lowered by bent knees, in leg lengths
    stance: float  # feet apart, in leg lengths on each side
    carry: float  # how far the elbows point outwards, added to every pose
    snap: float  # 1 moves evenly from pose to pose; above that waits at poses and moves briskly between them
    rhythm: float  # number of beats relative to the usual
    hesitation: float  # mean length of a pause in seconds
    sway: float  # size of idle movements relative to the usual
    spread: float  # how far the person's style of each action is from the table's


def actor(seed: int, name: str | int, cohort: Cohort = ADULTS) -> Actor:
    """The person of that name in the world of that seed."""
    own = derive(seed, "actor", cohort.name, name)
    rng = numpy_generator(own, "body and habits")
    n = rng.standard_normal(12) * cohort.spread
    height = float(np.clip(cohort.height + cohort.height_spread * n[0], 0.85, 2.1))
    lengths = height * np.array([PROPORTIONS[bone] for bone in BONES])
    # Limbs vary together more than segments do; left and right are equal.
    segment = np.exp(0.025 * cohort.spread * rng.standard_normal(len(BONES)))
    for first, last, deviate in (("upper_arm", "hand", n[1]), ("thigh", "shank", n[2]), ("shoulder", "hip", n[3])):
        segment[BONES.index(first) : BONES.index(last) + 1] *= np.exp(0.05 * deviate)
    segment[BONES.index("neck") :] *= cohort.head
    return Actor(
        name=str(name),
        seed=own,
        height=height,
        bones=tuple(float(length) for length in lengths * segment),
        tempo=float(cohort.tempo * np.exp(0.20 * n[4])),
        amplitude=float(np.clip(cohort.amplitude * np.exp(0.18 * n[5]), 0.55, 1.35)),
        left_handed=bool(rng.random() < cohort.left_handed),
        off_hand=float(0.05 + 0.40 * rng.random()),
        stoop=float(cohort.stoop + 0.06 * n[6]),
        knees=float(np.clip(cohort.knees + 0.008 * abs(n[7]), 0.0, 0.08)),
        stance=float(0.04 + 0.03 * abs(n[8])),
        carry=float(0.14 * n[9]),
        snap=float(1.0 + 0.9 * rng.random()),
        rhythm=float(np.exp(0.14 * n[10])),
        hesitation=float(0.12 + 0.25 * rng.random()),
        sway=float(np.exp(0.4 * n[11])),
        spread=cohort.spread,
    )


# How far one channel of one pose usually differs between people: arm or leg lengths, or radians.
_SPREADS = {"out": 0.09, "up": 0.09, "forward": 0.09, "elbow": 0.22, "upright": 0.0, "toe": 0.06, "height": 0.006}
_ANGLES = {"lean": 0.07, "bend": 0.05, "twist": 0.09, "nod": 0.12, "turn": 0.14, "tilt": 0.08}
_FEET = 0.018


def _spread(channel: str) -> float:
    head, _, part = channel.rpartition(".")
    if head in ("right", "left") or part in ("toe", "height"):
        return _SPREADS[part]
    if not head:
        return _ANGLES[part]
    if head.endswith("foot") and part == "up":
        return 0.003  # standing feet are on the ground
    return 0.05 if channel == "travel.turn" else _FEET


CHANNEL_SPREAD: NDArray[np.float32] = np.array([_spread(channel) for channel in CHANNELS], np.float32)
"""(len(CHANNELS),) standard deviation between people, in the channels' own units."""


@lru_cache(maxsize=100_000)
def style(actor_seed: int, action: str) -> tuple[NDArray[np.float32], float, float]:
    """How the person of an `Actor.seed` does one action.

    Gives (len(CHANNELS),) offsets in units of `CHANNEL_SPREAD`, a factor on the duration, and a number in [0, 1)
    that stands for a favourite loop count.
    """
    rng = numpy_generator(actor_seed, "style", action)
    offsets = rng.standard_normal(len(CHANNELS), np.float32)
    offsets.setflags(write=False)
    return offsets, float(np.exp(0.15 * rng.standard_normal())), float(rng.random())
