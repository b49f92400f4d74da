"""Actions of the arms and the head.

Several are close on purpose: drink, phone_call, brush_teeth, comb_hair, salute and put_on_hat all bring a hand to the
head; punch, knock, point and catch all reach to the front; type and read_book hold both hands before the belly.
"""

from __future__ import annotations

from fedaction.stage.pose import (
    REST,
    Action,
    Pose,
    Swing,
    both,
    feet,
    foot,
    head,
    hips,
    hold,
    left,
    reach,
    right,
    torso,
)

_SIP: Pose = REST | right(reach(place="mouth", elbow=0.10)) | head(-0.05)
_CALL: Pose = REST | right(reach(place="ear", elbow=0.05)) | head(tilt=0.20)
_TEETH: Pose = REST | right(reach(0.03, 0.02, 0.03, place="mouth", elbow=0.65)) | head(0.12)
_COMB: Pose = REST | right(reach(place="crown", elbow=0.75)) | head(0.10, tilt=-0.15)
_SALUTE: Pose = REST | right(reach(place="brow", elbow=1.0))
_WAVE: Pose = REST | right(reach(0.34, 0.42, 0.16, elbow=0.55))
_GUARD: Pose = REST | both(reach(-0.12, -0.08, 0.42)) | torso(0.1) | foot("left", 0.0, 0.0, 0.15)
_HAT: Pose = REST | both(reach(0.10, 0.06, 0.08, place="crown", elbow=0.9))
_HAT_LOW: Pose = REST | both(reach(place="belly", elbow=0.3)) | head(0.35)
_BOOK: Pose = REST | both(reach(0.05, 0.06, 0.10, place="belly")) | head(0.50)
_KEYBOARD: Pose = REST | both(reach(-0.14, -0.44, 0.54)) | head(0.32)
_WATCH: Pose = REST | left(reach(0.10, 0.20, 0.10, place="belly", elbow=0.75)) | head(0.50, turn=0.15)
_FOLDED: Pose = (
    REST
    | right(reach(place="other_elbow", elbow=0.55))
    | left(reach(0.0, -0.10, -0.06, place="other_elbow", elbow=0.55))
)
_AIM: Pose = REST | right(reach(0.30, 0.12, 1.20, elbow=0.3))
_TIPTOE: Pose = hips(1.06) | feet(up=0.075, toe=0.55)

GESTURES: tuple[Action, ...] = (
    Action(
        "wave",
        3.0,
        hold(_WAVE, 0.2, 0.85),
        (Swing("right.out", 0.26), Swing("right.up", 0.06, 0.25, times=2), Swing("bend", 0.04)),
        cycles=4.0,
        during=(0.18, 0.86),
    ),
    Action(
        "clap",
        3.0,
        hold(REST | both(reach(0.0, -0.20, 0.50, place="middle", elbow=0.3)), 0.15, 0.88),
        (Swing("right.out", 0.24, shape="bounce"), Swing("left.out", 0.24, shape="bounce")),
        cycles=3.0,
        during=(0.15, 0.88),
    ),
    Action(
        "drink",
        3.0,
        (
            (0.0, REST),
            (0.28, _SIP),
            (0.42, _SIP | head(-0.45)),
            (0.62, _SIP | head(-0.50)),
            (0.74, _SIP),
            (1.0, REST),
        ),
    ),
    Action("phone_call", 3.4, ((0.0, REST), (0.25, _CALL), (0.88, _CALL | head(0.05, 0.2, 0.22)), (1.0, REST))),
    Action(
        "brush_teeth",
        3.2,
        hold(_TEETH, 0.18, 0.88),
        (Swing("right.out", 0.07), Swing("right.up", 0.025, 0.25)),
        cycles=6.0,
        during=(0.16, 0.88),
    ),
    Action(
        "comb_hair",
        3.2,
        (
            (0.0, REST),
            (0.18, _COMB | right(reach(0.0, 0.0, 0.16, place="crown", elbow=0.6))),
            (0.45, _COMB | right(reach(0.06, -0.16, -0.18, place="crown", elbow=0.9))),
            (0.52, _COMB | right(reach(0.05, 0.06, 0.10, place="crown", elbow=0.75))),
            (0.58, _COMB | right(reach(0.0, 0.0, 0.16, place="crown", elbow=0.6))),
            (0.85, _COMB | right(reach(0.06, -0.16, -0.18, place="crown", elbow=0.9))),
            (1.0, REST),
        ),
        loop=(0.18, 0.58),
        repeats=(1, 3),
    ),
    Action("salute", 2.6, hold(_SALUTE, 0.22, 0.78)),
    Action("point", 2.6, hold(_AIM, 0.3, 0.75)),
    Action(
        "catch",
        2.2,
        (
            (0.0, REST),
            (0.38, REST | both(reach(-0.10, 0.22, 0.82, elbow=0.5)) | head(-0.2)),
            (0.50, REST | both(reach(0.0, 0.1, 0.9, place="belly")) | head(-0.1)),
            (0.62, REST | both(reach(0.0, 0.16, -0.04, place="belly", elbow=0.3)) | hips(0.93) | torso(0.2)),
            (0.8, REST | both(reach(0.0, 0.14, 0.0, place="belly", elbow=0.3))),
            (1.0, REST | both(reach(0.0, 0.10, 0.0, place="belly", elbow=0.3))),
        ),
        contacts=(0.55,),
    ),
    Action(
        "punch",
        2.6,
        (
            (0.0, REST),
            (0.22, _GUARD),
            (0.34, _GUARD | right(reach(-0.24, 0.06, 1.20, elbow=0.4)) | torso(0.15, 0.0, 0.55)),
            (0.48, _GUARD),
            (0.60, _GUARD | left(reach(-0.24, 0.06, 1.20, elbow=0.4)) | torso(0.15, 0.0, -0.45)),
            (0.74, _GUARD),
            (1.0, REST),
        ),
        loop=(0.22, 0.74),
        repeats=(1, 2),
    ),
    Action(
        "stretch_arms",
        3.4,
        (
            (0.0, REST),
            (0.22, REST | both(reach(1.20, 0.10, 0.0, elbow=0.4))),
            (0.45, REST | _TIPTOE | both(reach(0.14, 1.35, 0.0, elbow=0.9)) | head(-0.35) | torso(-0.12)),
            (0.68, REST | _TIPTOE | both(reach(0.14, 1.35, 0.0, elbow=0.9)) | head(-0.35) | torso(-0.12)),
            (0.85, REST | both(reach(1.20, 0.05, -0.15, elbow=0.4))),
            (1.0, REST),
        ),
    ),
    Action("check_watch", 2.6, hold(_WATCH, 0.30, 0.72)),
    Action(
        "cross_arms",
        2.6,
        ((0.0, REST), (0.22, REST | both(reach(-0.05, -0.35, 0.5))), (0.45, _FOLDED), (1.0, _FOLDED)),
    ),
    Action(
        "put_on_hat",
        3.0,
        (
            (0.0, REST),
            (0.22, _HAT_LOW),
            (0.52, _HAT | both(reach(0.10, 0.20, 0.12, place="crown", elbow=0.9))),
            (0.62, _HAT),
            (0.74, _HAT | head(0.15)),
            (1.0, REST),
        ),
    ),
    Action(
        "read_book",
        3.6,
        (
            (0.0, _BOOK),
            (0.40, _BOOK | head(0.50, -0.12)),
            (0.50, _BOOK | right(reach(0.14, 0.18, 0.06, place="belly"))),
            (0.60, _BOOK | right(reach(-0.10, 0.16, 0.12, place="belly")) | head(0.50, 0.14)),
            (0.70, _BOOK | head(0.50, 0.12)),
            (1.0, _BOOK | head(0.50, -0.10)),
        ),
    ),
    Action(
        "type",
        3.4,
        ((0.0, _KEYBOARD), (1.0, _KEYBOARD)),
        (
            Swing("right.up", 0.055, 0.0, times=2, shape="bounce"),
            Swing("left.up", 0.055, 0.37, times=3, shape="bounce"),
            Swing("right.out", 0.07, 0.1),
            Swing("left.out", 0.07, 0.55),
        ),
        cycles=4.0,
    ),
    Action(
        "knock",
        2.8,
        hold(REST | right(reach(-0.08, 0.12, 0.72, elbow=0.3)), 0.25, 0.80),
        (Swing("right.forward", -0.16, shape="bounce"), Swing("right.up", 0.05, shape="bounce")),
        cycles=2.5,
        during=(0.25, 0.80),
        contacts=(0.36, 0.47, 0.58, 0.69),
    ),
)
