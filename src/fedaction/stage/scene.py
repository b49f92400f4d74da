"""What a recording looks like apart from its performance: where the camera stands, in which room, how varied.

Everything is drawn from two seeds, the place's and the recording's own: the more a place keeps, the more alike its
recordings look, while the spread over all places stays the same.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fedaction.federation.seeds import numpy_generator
from fedaction.stage.actions import NAMES
from fedaction.stage.actors import ADULTS, CHILDREN, ELDERLY, Cohort
from fedaction.stage.body import Floats

Range = tuple[float, float]


@dataclass(frozen=True)
class Variety:
    """How strongly each kind of difference shows; 0 is the plain studio, 1 the usual."""

    # Where the camera stands, how far, how high, how tilted, how much of the picture the performer fills
    view: float = 1.0
    motion: float = 1.0  # shake and pan of the camera
    backdrop: float = 1.0  # wall, floor, furniture, windows
    clothing: float = 1.0  # clothes, skin, hair and build
    light: float = 1.0  # brightness, colour temperature, side light, shadow, gamma, flicker
    grain: float = 1.0  # blur, noise and blocks as of compression
    distractors: float = 1.0  # things that cross, bystanders, screens, posts in front
    mirror: float = 1.0  # half of the recordings (at 1) have left and right exchanged

    def __post_init__(self) -> None:
        wrong = [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if not 0.0 <= getattr(self, f.name) <= 2.0]
        if wrong:
            raise ValueError(
                f"a variety lies between 0 (plain studio) and 2 (twice the usual); got {', '.join(wrong)}"
            )

    @classmethod
    def of(cls, amount: float | Variety) -> Variety:
        """All kinds at one strength."""
        return amount if isinstance(amount, Variety) else cls(*[float(amount)] * len(fields(cls)))


@dataclass(frozen=True)
class Domain:
    """A kind of footage: what is done, by whom, and what it looks like. Ranges are (least, most)."""

    name: str  # e.g. "home"
    actions: tuple[str, ...]  # the usual classes, sorted
    people: tuple[float, float, float]  # shares of adults, children and the elderly
    yaw: Range  # radians that the camera stands to the side of the performer's front
    height: Range  # metres of the camera above the floor
    distance: Range  # metres to the performer
    fill: Range  # share of the picture that the performer's path fills
    shake: float  # pictures of camera shake and pan
    behind: Range  # metres from the performer to the wall
    walls: tuple[float, ...]  # weights of `backdrop.WALLS`
    floors: tuple[float, ...]  # weights of `backdrop.FLOORS`
    wall_colour: tuple[Range, Range, Range]  # ranges of hue, saturation and value
    furniture: tuple[int, int]  # number of pieces
    windows: float  # chance of one
    vivid: Range  # saturation of clothes
    bare: float  # chance of bare arms, and of bare legs
    exposure: Range  # brightness
    warmth: Range  # colour temperature; 0 is neutral, 1 a light bulb, -1 the shade
    noise: Range  # standard deviation, of the full range
    blocks: Range  # steps of the compression's coarsest quantisation, of the full range
    bystanders: float  # chance of one
    crossing: float  # chance of things that cross
    screens: float  # chance of a flickering one
    posts: float  # chance of one in front

    def cohort(self, u: float) -> Cohort:
        """Which people a number in [0, 1) means."""
        shares = np.cumsum(self.people) / np.sum(self.people)
        return (ADULTS, CHILDREN, ELDERLY)[int(np.searchsorted(shares, u, side="right"))]


# Of the actions of "home" and "hall", these are not in "wide": what was learnt there must carry over to them.
_ONLY_HOME = ("check_watch", "comb_hair", "sweep", "type")
_ONLY_HALL = ("catch", "hop", "lunge", "pull")
_HOME = (
    *("brush_teeth", "clap", "cross_arms", "drink", "phone_call", "pick_up", "put_on_hat", "read_book", "sit_down"),
    *("stand_up", "wave", *_ONLY_HOME),
)
_HALL = (
    *("jump", "jumping_jack", "kick", "lift_box", "punch", "push", "run", "squat", "stretch_arms", "throw"),
    *("turn_around", "walk", *_ONLY_HALL),
)

# What differs between the domains: wide, home, hall.
_TABLE: dict[str, tuple[Any, Any, Any]] = {
    "people": ((0.6, 0.2, 0.2), (0.4, 0.25, 0.35), (0.75, 0.25, 0.0)),
    "yaw": ((-1.0, 1.0), (-0.8, 0.8), (-1.0, 1.0)),
    "height": ((0.5, 2.8), (1.2, 2.6), (0.4, 3.0)),
    "distance": ((2.3, 7.0), (2.0, 3.6), (4.5, 9.0)),
    "fill": ((0.75, 1.0), (0.8, 1.0), (0.7, 1.0)),
    "shake": (0.05, 0.03, 0.07),
    "behind": ((0.8, 5.0), (0.6, 2.0), (2.0, 7.0)),
    "walls": (
        (2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
        (1.0, 2.0, 0.5, 0.0, 2.0, 1.5, 0.5),
        (1.0, 0.5, 1.0, 2.5, 0.0, 1.0, 1.0),
    ),
    "floors": ((1.0, 1.0, 1.0, 1.0), (0.5, 2.0, 0.5, 0.0), (0.5, 0.5, 0.5, 3.0)),
    "wall_colour": (
        ((0.0, 1.0), (0.0, 0.6), (0.3, 0.95)),
        ((0.02, 0.20), (0.10, 0.50), (0.25, 0.80)),
        ((0.40, 0.75), (0.0, 0.40), (0.45, 1.0)),
    ),
    "furniture": ((0, 6), (2, 6), (0, 3)),
    "windows": (0.35, 0.5, 0.3),
    "vivid": ((0.0, 0.9), (0.0, 0.5), (0.4, 1.0)),
    "bare": (0.4, 0.25, 0.7),
    "exposure": ((0.7, 1.25), (0.6, 1.0), (0.8, 1.25)),
    "warmth": ((-0.8, 1.0), (0.1, 1.2), (-1.0, 0.2)),
    "noise": ((0.0, 0.03), (0.01, 0.04), (0.0, 0.02)),
    "blocks": ((0.0, 0.08), (0.0, 0.06), (0.02, 0.10)),
    "bystanders": (0.30, 0.15, 0.5),
    "crossing": (0.30, 0.15, 0.5),
    "screens": (0.2, 0.35, 0.05),
    "posts": (0.20, 0.15, 0.15),
}
_ACTIONS = {"wide": set(NAMES) - {*_ONLY_HOME, *_ONLY_HALL}, "home": _HOME, "hall": _HALL}
DOMAINS: dict[str, Domain] = {
    name: Domain(name, tuple(sorted(actions)), **{key: values[i] for key, values in _TABLE.items()})
    for i, (name, actions) in enumerate(_ACTIONS.items())
}


@dataclass(frozen=True)
class Scene:
    """One recording's setting."""

    domain: Domain  # the kind of footage
    variety: Variety  # how strongly each kind of difference shows
    place: int  # seed of the place
    own: int  # seed of the recording
    keep: float = 0.0  # 0 to 1, how much of view, room and light the place keeps from recording to recording

    def roll(self, part: str, count: int, keep: float = 0.0) -> Floats:
        """(count,) numbers uniform in [0, 1); the larger `keep` times the scene's own, the nearer to the place's."""
        # On a circle, so that they stay uniform over all places however narrow each place is.
        fixed = numpy_generator(self.place, "scene", part).random(count)
        return (fixed + (1.0 - keep * self.keep) * (self.random(part).random(count) - 0.5)) % 1.0

    def random(self, part: str) -> np.random.Generator:
        """The recording's own generator for one purpose."""
        return numpy_generator(self.own, "scene", part)


def between(u: float, least_most: Range) -> float:
    """The number a share `u` of the way along a range."""
    return least_most[0] + u * (least_most[1] - least_most[0])


def choice(u: float, weights: tuple[float, ...]) -> int:
    """Which of several weighted things a number in [0, 1) means."""
    return int(np.searchsorted(np.cumsum(weights) / np.sum(weights), u, side="right"))


def rgb(hue: float, saturation: float, value: float) -> Floats:
    """(3,) red, green, blue of a hue in turns, a saturation and a value."""
    wheel = np.clip(np.abs((hue + np.array([0.0, 2.0, 1.0]) / 3.0) % 1.0 * 6.0 - 3.0) - 1.0, 0.0, 1.0)
    return value * (1.0 - saturation * (1.0 - wheel))


@dataclass(frozen=True)
class Camera:
    """A camera on its stand. Camera axes: x to the right, y up, z away; pixels count right and down."""

    yaw: float  # radians to the side of the performer's front
    pitch: float  # radians that it looks down
    roll: float  # radians that it is tilted
    distance: float  # metres, along the floor, to the middle of the floor
    height: float  # metres
    focal: float = 1.0  # pixels
    centre: tuple[float, float] = (0.0, 0.0)  # (x, y) pixel at which it looks

    def see(self, points: Floats) -> tuple[Floats, Floats]:
        """Room metres (..., 3) to pixels (2, ...) and depth in metres (...)."""
        x, y, z = np.moveaxis(points, -1, 0)
        cy, sy = np.cos(self.yaw), np.sin(self.yaw)
        right, ahead = cy * x + sy * z, self.distance + sy * x - cy * z
        up = y - self.height
        cp, sp = np.cos(self.pitch), np.sin(self.pitch)
        depth = np.maximum(cp * ahead - sp * up, 0.3)
        u, v = right / depth, -(cp * up + sp * ahead) / depth
        cr, sr = np.cos(self.roll), np.sin(self.roll)
        flat = np.stack([cr * u - sr * v, sr * u + cr * v])
        shift = np.reshape(self.centre, (2, *[1] * (flat.ndim - 1)))
        return self.focal * flat + shift, depth

    def rays(self, columns: Floats, rows: Floats) -> tuple[Floats, Floats, Floats]:
        """Where pixels look, for each metre of depth: metres right, up and ahead, (H, W) each."""
        u = ((columns - self.centre[0]) / self.focal)[None, :]
        v = ((rows - self.centre[1]) / self.focal)[:, None]
        cr, sr = np.cos(self.roll), np.sin(self.roll)
        u, v = cr * u + sr * v, cr * v - sr * u
        cp, sp = np.cos(self.pitch), np.sin(self.pitch)
        return u, -cp * v - sp, cp - sp * v


def stand(scene: Scene) -> Camera:
    """Where a recording's camera stands; it is not yet turned or focused on anything."""
    u = scene.roll("view", 5, keep=0.85)
    domain, strength = scene.domain, scene.variety.view
    yaw = strength * between(u[0], domain.yaw)
    distance = 4.0 + strength * (between(u[1], domain.distance) - 4.0)
    height = 1.2 + strength * (between(u[2], domain.height) - 1.2)
    distance, height = max(distance, 1.8), max(height, 0.3)
    pitch = float(np.arctan2(height - 0.9, distance))
    return Camera(yaw, pitch, strength * 0.12 * (u[3] + u[4] - 1.0), distance, height)
