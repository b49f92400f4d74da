"""What actors wear: clothes with patterns, skin, hair and build, each person's own."""

from __future__ import annotations

import numpy as np

from fedaction.federation.seeds import numpy_generator
from fedaction.stage.body import Floats
from fedaction.stage.capsules import Paint
from fedaction.stage.render import LIMBS
from fedaction.stage.scene import Domain, between, rgb

_PARTS = ("skin", "hair", "shirt", "trousers", "shoes")
_STUDIO = np.array([[0.75, 0.58, 0.48], [0.18, 0.12, 0.08], [0.25, 0.40, 0.70], [0.22, 0.22, 0.26], [0.1, 0.1, 0.1]])
_OUTFITS = 3  # that one person owns


def dress(person: int, domain: Domain, strength: float, u: float) -> tuple[Paint, Floats]:
    """One of the outfits of a person (`Actor.seed`), by the domain's fashion.

    Of `strength`, 0 is the studio's uniform, 1 the person's own clothes; `u`, in [0, 1), says which outfit; the
    first is worn most. Gives what covers the limbs, in the order of `render.LIMBS`, and (limbs,) how thick they
    are relative to `render.RADII`.
    """
    body = numpy_generator(person, "body colours").random(6)
    worn = numpy_generator(person, "outfit", int(_OUTFITS * u * u)).random(20)
    own = np.array(
        [
            np.array([0.40, 0.26, 0.18]) + body[0] * np.array([0.55, 0.53, 0.51]) + 0.06 * (body[1] - 0.5),
            rgb(0.04 + 0.08 * body[2], 0.75 * body[3], 0.08 + 0.75 * body[4] ** 2),
            rgb(worn[0], between(worn[1], domain.vivid), 0.12 + 0.88 * worn[2]),
            rgb(worn[3], 0.6 * between(worn[4], domain.vivid), 0.08 + 0.65 * worn[5] ** 1.5),
            rgb(worn[6], between(worn[7], domain.vivid), 0.05 + 0.9 * worn[8] ** 2),
        ]
    )
    if worn[9] < 0.15:  # a hat
        own[1] = rgb(worn[10], 0.8, 0.2 + 0.8 * worn[11])
    colours = np.clip(_STUDIO + strength * (own - _STUDIO), 0.0, 1.0)
    contrast = np.clip(colours[2:4] + np.where(colours[2:4].mean(axis=1, keepdims=True) > 0.5, -0.3, 0.3), 0.0, 1.0)
    seconds = colours.copy()
    seconds[2:4] = contrast
    # Bands, stripes, checks or nothing, on the shirt and now and then on the trousers.
    bands, stripes = np.zeros(5), np.zeros(5)
    for part, kind, count, usual in ((2, worn[12], worn[13], 0.6), (3, worn[14], worn[15], 0.25)):
        if kind < usual * min(strength, 1.0):
            sort = int(3.0 * kind / (usual * min(strength, 1.0)))
            bands[part] = (1.0 + 3.0 * count) * (sort != 1)
            stripes[part] = (0.5 + 1.5 * count) * (sort != 0)
    arms = worn[16] < domain.bare * min(strength, 1.0)
    legs = worn[17] < 0.7 * domain.bare * min(strength, 1.0)
    long = worn[18] < 0.55 * min(strength, 1.0)
    covers = np.array([_PARTS.index(_covering(limb, arms, legs, long)) for limb in LIMBS])
    paint = Paint(colours[covers], seconds[covers], bands[covers], stripes[covers])
    loose = np.array([1.0, 1.0 + 0.15 * body[5], 0.9 + 0.4 * worn[19], 0.9 + 0.35 * worn[19], 1.0])
    stout = 0.85 + 0.4 * numpy_generator(person, "build").random()
    return paint, 1.0 + strength * (stout * loose[covers] - 1.0)


def _covering(limb: tuple[str, str, float, str], arms: bool, legs: bool, long: bool) -> str:
    """What covers a limb: forearms under long sleeves, or upper arms and shanks bare."""
    start, _, _, usual = limb
    if start.endswith("_elbow"):
        return "shirt" if long and not arms else "skin"
    if start.endswith("_knee"):
        return "skin" if legs else "trousers"
    if start in ("left_shoulder", "right_shoulder") and limb[1].endswith("_elbow") and arms and not long:
        return "skin"
    return usual
