"""The articulated body: from channels (where the hands are, how far the torso leans) to every joint's position.

Arrays are coordinates first, (3, N, T), so that each operation runs over one long contiguous block. Axes of the
body's own frame: x to its left, y up, z forward, origin on the ground.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedaction.data.layout import LAYOUTS, Layout, union_body
from fedaction.stage.pose import CHANNELS

BODY: Layout = union_body(LAYOUTS.values())
"""Every joint that any layout knows: what a performance computes."""

# Lengths of an average adult's segments as fractions of height.
PROPORTIONS: dict[str, float] = {
    **{"upper_arm": 0.186, "forearm": 0.146, "hand": 0.054},  # the hand: from the wrist to its middle
    **{"thigh": 0.245, "shank": 0.246},
    **{"ankle": 0.039, "foot": 0.100, "toes": 0.035},  # the ankle: height above the ground
    **{"shoulder": 0.112, "hip": 0.052},  # half the width
    **{"spine_low": 0.080, "spine_mid": 0.090, "spine_shoulder": 0.112},
    **{"neck": 0.040, "skull_base": 0.040, "head": 0.055},
}
BONES: tuple[str, ...] = tuple(PROPORTIONS)

Floats = NDArray[np.floating]


def measures(bones: Floats) -> Floats:
    """The body measures that poses are written in (`pose.MEASURES`), of (N, len(BONES)) bones in metres.

    Gives (N, 6): 1, arm, half shoulder width, head (shoulders to crown), torso, leg; metres.
    """
    b = dict(zip(BONES, bones.T, strict=True))
    return np.stack(
        [
            np.ones(len(bones)),
            b["upper_arm"] + b["forearm"] + b["hand"],
            b["shoulder"],
            1.35 * (b["neck"] + b["skull_base"] + b["head"]),
            b["spine_low"] + b["spine_mid"] + b["spine_shoulder"],
            b["thigh"] + b["shank"],
        ],
        axis=1,
    )


def _dot(a: Floats, b: Floats) -> Floats:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _cross(a: Floats, b: Floats) -> Floats:
    return np.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def _unit(a: Floats) -> Floats:
    return a / np.sqrt(_dot(a, a) + 1e-12)


def _axes(yaw: Floats, pitch: Floats, roll: Floats) -> tuple[Floats, Floats, Floats]:
    """Left, up and forward axes, each (3, N, T), of a frame turned left, pitched forward, rolled right."""
    cy, sy, cp, sp, cr, sr = np.cos(yaw), np.sin(yaw), np.cos(pitch), np.sin(pitch), np.cos(roll), np.sin(roll)
    left = np.stack([cy * cr + sy * sr * sp, sr * cp, cy * sr * sp - sy * cr])
    up = np.stack([sy * cr * sp - cy * sr, cr * cp, sy * sr + cy * cr * sp])
    return left, up, np.stack([sy * cp, -sp, cy * cp])


def _two_bones(
    start: Floats, goal: Floats, upper: Floats, lower: Floats, hinge: Floats, pull: Floats | None = None
) -> tuple[Floats, Floats, Floats]:
    """Middle joint, end joint and the bend plane's normal of a limb that reaches from `start` for `goal`.

    A goal out of reach is approached as far as the limb goes, so bone lengths hold exactly. The limb bends about the
    axis `hinge`, wherever it points: a knee is in front of a hanging leg and on top of a raised one. `pull` draws the
    middle joint aside, as a raised elbow.
    """
    line = goal - start
    far = np.sqrt(_dot(line, line) + 1e-12)
    line = line / far
    span = np.clip(far, np.abs(upper - lower) + 0.03, 0.9985 * (upper + lower))
    along = (upper**2 - lower**2 + span**2) / (2.0 * span)
    aside = np.sqrt(np.maximum(upper**2 - along**2, 0.0))
    pole = _cross(line, hinge)
    if pull is not None:
        pole = pole + pull - _dot(pull, line) * line
    pole = _unit(pole)
    return start + along * line + aside * pole, start + span * line, _cross(line, pole)


def joint_positions(channels: Floats, bones: Floats) -> Floats:
    """Every joint of BODY in the body's own frame, (J, 3, N, T) metres.

    Channels are (len(CHANNELS), N, T) in metres and radians, bones (N, len(BONES)) in metres. The channels under
    "travel" are not applied here.
    """
    c = dict(zip(CHANNELS, channels, strict=True))
    b = {name: length[:, None] for name, length in zip(BONES, bones.T.astype(channels.dtype), strict=True)}
    out = np.empty((len(BODY), 3, *channels.shape[1:]), channels.dtype)
    at = {joint: out[i] for i, joint in enumerate(BODY.joints)}

    base = at["spine_base"]
    base[0], base[2] = c["hips.left"], c["hips.forward"]
    base[1] = c["hips.height"] + b["ankle"] + 0.4 * b["hip"]
    _spine_and_head(at, c, b)
    chest_left, chest_up, chest_forward = _axes(c["twist"], c["lean"], c["bend"])
    middle = at["spine_shoulder"]
    for side, sign in (("right", -1.0), ("left", 1.0)):
        chest_out = sign * chest_left
        shoulder = at[f"{side}_shoulder"]
        shoulder[:] = middle + b["shoulder"] * chest_out - 0.14 * b["shoulder"] * chest_up
        _arm(at, c, b, side, sign, chest_out, chest_up, chest_forward)
        _leg(at, c, b, side, sign)
    return out


def _spine_and_head(at: dict[str, Floats], c: dict[str, Floats], b: dict[str, Floats]) -> None:
    below = at["spine_base"]
    for joint, share in (("spine_low", 0.45), ("spine_mid", 0.8), ("spine_shoulder", 1.0)):
        up = _axes(share * c["twist"], share * c["lean"], share * c["bend"])[1]
        at[joint][:] = below + b[joint] * up
        below = at[joint]
    neck_up = _axes(c["twist"] + 0.3 * c["turn"], c["lean"] + 0.35 * c["nod"], c["bend"] + 0.4 * c["tilt"])[1]
    left, up, forward = _axes(c["twist"] + c["turn"], c["lean"] + c["nod"], c["bend"] + c["tilt"])
    at["neck"][:] = below + b["neck"] * neck_up
    at["skull_base"][:] = at["neck"] + b["skull_base"] * up
    at["head"][:] = at["skull_base"] + b["head"] * up
    # The face hangs on the middle of the skull.
    size = b["head"]
    nose = at["skull_base"] + size * (0.35 * up + 1.05 * forward)
    at["nose"][:] = nose
    for side, sign in (("right", -1.0), ("left", 1.0)):
        at[f"{side}_eye"][:] = nose + size * (0.35 * up - 0.22 * forward + sign * 0.34 * left)
        at[f"{side}_ear"][:] = nose + size * (0.12 * up - 0.95 * forward + sign * 0.80 * left)


def _arm(
    at: dict[str, Floats],
    c: dict[str, Floats],
    b: dict[str, Floats],
    side: str,
    sign: float,
    chest_out: Floats,
    chest_up: Floats,
    chest_forward: Floats,
) -> None:
    shoulder = at[f"{side}_shoulder"]
    out, up, forward = c[f"{side}.out"], c[f"{side}.up"], c[f"{side}.forward"]
    with_chest = out * chest_out + up * chest_up + forward * chest_forward
    level = np.stack([sign * out, up, forward])
    offset = with_chest + c[f"{side}.upright"] * (level - with_chest)
    # Elbows bend back, sink by their weight, and are raised to the side.
    raised = c[f"{side}.elbow"]
    pull = (0.3 + 1.7 * raised) * chest_out - (0.8 - 0.6 * raised) * chest_up - 0.2 * chest_forward
    lower = b["forearm"] + b["hand"]
    hinge = -sign * chest_out
    elbow, hand, normal = _two_bones(shoulder, shoulder + offset, b["upper_arm"], lower, hinge, pull)
    at[f"{side}_elbow"][:] = elbow
    at[f"{side}_hand"][:] = hand
    along = (hand - elbow) / lower
    at[f"{side}_wrist"][:] = elbow + b["forearm"] * along
    at[f"{side}_palm"][:] = hand - 0.45 * b["hand"] * along
    at[f"{side}_hand_tip"][:] = hand + 0.9 * b["hand"] * along
    # The normals of the two arms' bend planes are mirror images only after a change of sign.
    at[f"{side}_thumb"][:] = hand + b["hand"] * (0.35 * along - sign * 0.75 * normal)


def _leg(at: dict[str, Floats], c: dict[str, Floats], b: dict[str, Floats], side: str, sign: float) -> None:
    hip = at[f"{side}_hip"]
    hip[:] = at["spine_base"]
    hip[0] += sign * b["hip"]
    hip[1] -= 0.4 * b["hip"]
    goal = np.stack(
        [sign * (b["hip"] + c[f"{side}_foot.out"]), b["ankle"] + c[f"{side}_foot.up"], c[f"{side}_foot.forward"]]
    )
    # Knees point a little outwards, as feet do.
    lateral = np.zeros_like(hip)
    lateral[0], lateral[2] = 0.98, -sign * 0.2
    knee, ankle, _ = _two_bones(hip, goal, b["thigh"], b["shank"], lateral)
    at[f"{side}_knee"][:] = knee
    at[f"{side}_ankle"][:] = ankle
    toe = c[f"{side}_foot.toe"]
    for joint, start, drop, length in (
        ("foot", ankle, np.arcsin(np.minimum(0.7 * b["ankle"] / b["foot"], 0.9)), b["foot"]),
        ("toes", at[f"{side}_foot"], 0.0, b["toes"]),
    ):
        pitch = (1.0 if joint == "foot" else 0.6) * toe + drop
        flat = np.cos(pitch)
        at[f"{side}_{joint}"][:] = start + length * np.stack([sign * 0.2 * flat, -np.sin(pitch), 0.98 * flat])


def place(body: Floats, channels: Floats, mirrored: NDArray[np.bool_], facing: Floats, spot: Floats) -> Floats:
    """Puts bodies (J, 3, N, T) on the floor, in metres and the room's axes.

    Mirrors left-handed performances (N,), applies travel, from the channels (len(CHANNELS), N, T), facing, (N,)
    radians to the left of forward, and standpoint, (N, 2) metres left and forward of the floor's middle.
    """
    c = dict(zip(CHANNELS, channels, strict=True))
    sign = np.where(mirrored, -1.0, 1.0).astype(body.dtype)[:, None]
    if mirrored.any():
        body = np.where(mirrored[:, None], body[list(BODY.mirror)], body)
    turn = sign * c["travel.turn"]
    cos, sin = np.cos(turn), np.sin(turn)
    # One rotation for the turn and the facing: the body turns about its own middle, which then moves along.
    ahead, aside = c["travel.forward"], sign * c["travel.left"]
    cos_f, sin_f = np.cos(facing).astype(body.dtype)[:, None], np.sin(facing).astype(body.dtype)[:, None]
    cos, sin = cos * cos_f - sin * sin_f, sin * cos_f + cos * sin_f
    spot = spot.astype(body.dtype)
    x, z = body[:, 0] * sign, body[:, 2]
    out = np.empty_like(body)
    out[:, 0] = cos * x + sin * z + (cos_f * aside + sin_f * ahead + spot[:, :1])
    out[:, 1] = body[:, 1]
    out[:, 2] = cos * z - sin * x + (cos_f * ahead - sin_f * aside + spot[:, 1:])
    return out
