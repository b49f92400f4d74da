"""All actions of the embedded world. Each is written for right-handers; others mirror it.

Several are close on purpose: drink, phone_call, brush_teeth, comb_hair, salute and put_on_hat all bring a hand to the
head; punch, knock, point and catch all reach to the front; type and read_book hold both hands before the belly;
squat, sit_down, pick_up, lift_box and bow all go down.
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
    travel,
)


def _gait(stride: float, lift: float, arms: float, bounce: float) -> tuple[Swing, ...]:
    """Legs and arms in opposition, as in walking and running."""
    return (
        Swing("right_foot.forward", stride, 0.0),
        Swing("left_foot.forward", stride, 0.5),
        Swing("right_foot.up", lift, 0.75, shape="lift"),
        Swing("left_foot.up", lift, 0.25, shape="lift"),
        Swing("right_foot.toe", 0.45, 0.60, shape="lift"),
        Swing("left_foot.toe", 0.45, 0.10, shape="lift"),
        Swing("right.forward", arms, 0.5),
        Swing("left.forward", arms, 0.0),
        Swing("hips.height", bounce, 0.25, times=2),
        Swing("twist", 0.12, 0.5),
    )


_RUN_ARMS = both(reach(0.02, -0.50, 0.32))
_CROUCH: Pose = REST | hips(0.68) | torso(0.5) | both(reach(0.1, -0.85, -0.35))
_SEAT: Pose = REST | hips(0.56, forward=-0.48) | torso(0.05) | both(reach(-0.02, -0.66, 0.45))
_SEAT_LEAN: Pose = REST | hips(0.72, forward=-0.32) | torso(0.65) | both(reach(0.0, -0.80, 0.42))
_PUSH_READY: Pose = REST | both(reach(0.02, -0.16, 0.34, elbow=0.5)) | foot("left", forward=0.22)
_PULL_OUT: Pose = REST | both(reach(-0.06, -0.15, 1.12)) | torso(0.28) | foot("left", forward=0.25)
_GRASP: Pose = (
    REST | hips(0.60, forward=-0.12) | torso(0.85) | both(reach(0.02, -0.84, 0.42, upright=1.0)) | head(-0.2)
)
_CARRY: Pose = REST | both(reach(-0.06, -0.42, 0.55)) | torso(-0.06)
_BROOM: Pose = (
    REST
    | right(reach(0.08, -0.82, 0.40, upright=1.0))
    | left(reach(-0.10, -0.42, 0.40, upright=1.0))
    | torso(0.35)
    | head(0.3)
)
_WIND_UP: Pose = (
    REST
    | right(reach(0.40, 0.45, -0.28, elbow=1.1))
    | left(reach(0.05, 0.05, 0.75))
    | torso(-0.15, 0.12, -0.6)
    | foot("left", 0.0, 0.12, 0.22)
)
_RELEASE: Pose = (
    REST
    | right(reach(-0.12, 0.40, 1.05))
    | left(reach(0.15, -0.75, -0.35))
    | torso(0.40, -0.05, 0.45)
    | foot("left", 0.0, 0.0, 0.42)
    | hips(0.93, forward=0.14)
)
_OPEN_JACK: Pose = REST | both(reach(0.30, 1.25, 0.05, elbow=0.9)) | hips(0.965) | feet(out=0.34)
_LUNGE: Pose = (
    REST
    | hips(0.66)
    | foot("right", 0.0, 0.0, 0.48)
    | foot("left", 0.0, 0.12, -0.60, 0.9)
    | both(reach(place="hip", elbow=0.9))
)
_LYING: Pose = (
    REST
    | hips(0.06, forward=-0.40)
    | torso(-1.52)
    | head(0.15)
    | feet(0.10, 0.0, 0.52, -0.9)
    | both(reach(0.72, -0.55, 0.0, elbow=0.3))
)
_BUCKLE: Pose = (
    REST | hips(0.50, forward=-0.42) | torso(-0.35, 0.25) | both(reach(0.55, 0.10, 0.45)) | feet(0.08, 0.0, 0.15)
)
_HOP_LEG: Pose = REST | foot("left", 0.0, 0.32, -0.25, 0.7) | both(reach(0.30, -0.72, 0.20)) | hips(0.94)
_KICK_BACK: Pose = (
    REST
    | foot("right", 0.0, 0.22, -0.42, 0.6)
    | torso(0.15, 0.0, 0.2)
    | left(reach(0.3, -0.6, 0.5))
    | right(reach(0.3, -0.7, -0.35))
)
_KICK_OUT: Pose = (
    REST
    | foot("right", -0.05, 0.42, 0.82, 0.4)
    | torso(-0.22, 0.0, -0.25)
    | right(reach(0.3, -0.6, 0.5))
    | left(reach(0.5, -0.6, -0.3))
)
_BIN: Pose = REST | hips(0.70, forward=-0.20) | torso(1.15) | head(-0.3)
_BOWED: Pose = (
    REST | torso(1.15) | head(0.25) | hips(0.985, forward=-0.10) | both(reach(0.02, -0.93, 0.10, upright=0.8))
)
_STEP_OUT: Pose = REST | foot("right", 0.0, 0.15, 0.28) | both(reach(place="hip", elbow=0.9))
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

ACTIONS: tuple[Action, ...] = (
    # The whole body: going, jumping, getting down, handling things.
    Action(
        "walk",
        3.3,
        ((0.0, REST | travel(-1.2)), (1.0, REST | travel(1.2))),
        (*_gait(0.25, 0.10, 0.30, 0.012),),
        cycles=2.5,
        steady=True,
    ),
    Action(
        "run",
        2.8,
        ((0.0, REST | _RUN_ARMS | travel(-1.5) | torso(0.2)), (1.0, REST | _RUN_ARMS | travel(1.5) | torso(0.2))),
        (*_gait(0.36, 0.34, 0.38, 0.05), Swing("right.up", 0.22, 0.5), Swing("left.up", 0.22, 0.0)),
        cycles=4.0,
        steady=True,
    ),
    Action(
        "jump",
        2.2,
        (
            (0.0, REST),
            (0.32, _CROUCH),
            (0.41, REST | hips(0.95) | torso(0.2) | both(reach(0.1, -0.20, 1.0))),
            (0.50, REST | hips(1.36) | feet(up=0.37, toe=0.7) | both(reach(0.15, 1.20, 0.30))),
            (0.66, REST | hips(0.80) | torso(0.3) | both(reach(0.2, -0.5, 0.5))),
            (1.0, REST),
        ),
    ),
    Action(
        "hop",
        3.2,
        hold(_HOP_LEG, 0.14, 0.88),
        (
            Swing("hips.height", 0.17, shape="bounce"),
            Swing("right_foot.up", 0.17, shape="bounce"),
            Swing("left_foot.up", 0.17, shape="bounce"),
            Swing("right.up", 0.12, 0.25, times=2),
            Swing("left.up", 0.12, 0.25, times=2),
        ),
        cycles=2.5,
        during=(0.14, 0.88),
    ),
    Action(
        "squat",
        3.2,
        (
            (0.0, REST),
            (0.12, REST | both(reach(-0.05, 0.0, 1.2))),
            (0.50, REST | hips(0.46, forward=-0.20) | torso(0.55) | both(reach(-0.05, 0.50, 1.15)) | feet(out=0.08)),
            (0.88, REST | both(reach(-0.05, 0.0, 1.2))),
            (1.0, REST),
        ),
        loop=(0.12, 0.88),
        repeats=(1, 2),
    ),
    Action("sit_down", 2.3, ((0.0, REST), (0.45, _SEAT_LEAN), (0.8, _SEAT), (1.0, _SEAT)), contacts=(0.78,)),
    Action("stand_up", 2.2, ((0.0, _SEAT), (0.15, _SEAT), (0.5, _SEAT_LEAN), (0.9, REST), (1.0, REST))),
    Action("bow", 2.8, hold(_BOWED, 0.40, 0.60)),
    Action(
        "lunge", 3.0, ((0.0, REST), (0.25, _STEP_OUT), (0.48, _LUNGE), (0.62, _LUNGE), (0.80, _STEP_OUT), (1.0, REST))
    ),
    Action(
        "kick",
        2.0,
        ((0.0, REST), (0.35, _KICK_BACK), (0.55, _KICK_OUT), (0.65, _KICK_OUT), (1.0, REST)),
        contacts=(0.52,),
    ),
    Action(
        "fall", 2.2, ((0.0, REST), (0.12, REST | torso(-0.1, 0.1)), (0.36, _BUCKLE), (0.58, _LYING), (1.0, _LYING))
    ),
    Action(
        "turn_around",
        2.8,
        (
            (0.0, REST),
            (0.1, REST | head(turn=0.5)),
            (0.5, REST | travel(turn=1.6) | head(turn=0.45) | torso(twist=0.2)),
            (0.9, REST | travel(turn=3.14)),
            (1.0, REST | travel(turn=3.14)),
        ),
        (
            Swing("right_foot.up", 0.10, 0.0, shape="lift"),
            Swing("left_foot.up", 0.10, 0.5, shape="lift"),
            Swing("right.forward", 0.10),
            Swing("left.forward", 0.10, 0.5),
        ),
        cycles=2.5,
        during=(0.12, 0.88),
    ),
    Action(
        "jumping_jack",
        3.0,
        (
            (0.0, REST),
            (0.12, REST),
            (0.30, REST | hips(1.10) | feet(0.16, 0.14, 0.0, 0.4) | both(reach(1.30, 0.1, 0.0, elbow=0.5))),
            (0.48, _OPEN_JACK),
            (0.66, REST | hips(1.10) | feet(0.16, 0.14, 0.0, 0.4) | both(reach(1.30, 0.1, 0.0, elbow=0.5))),
            (0.84, REST),
            (1.0, REST),
        ),
        loop=(0.12, 0.84),
        repeats=(2, 3),
    ),
    Action(
        "lift_box",
        3.2,
        ((0.0, REST), (0.32, _GRASP), (0.42, _GRASP), (0.78, _CARRY), (1.0, _CARRY)),
        contacts=(0.34,),
    ),
    Action(
        "pick_up",
        2.8,
        (
            (0.0, REST),
            (0.42, _BIN | right(reach(-0.10, -0.97, 0.18, upright=1.0))),
            (0.52, _BIN | right(reach(-0.10, -0.97, 0.18, upright=1.0))),
            (0.85, REST | right(reach(0.08, 0.0, 0.05, place="belly"))),
            (1.0, REST | right(reach(0.08, 0.0, 0.05, place="belly"))),
        ),
        contacts=(0.47,),
    ),
    Action(
        "sweep",
        3.4,
        ((0.0, _BROOM), (1.0, _BROOM | travel(0.35))),
        (
            Swing("right.out", 0.30),
            Swing("left.out", 0.16, 0.5),
            Swing("twist", 0.30, 0.5),
            Swing("right.forward", 0.12, 0.25, times=2),
        ),
        cycles=3.0,
    ),
    Action(
        "throw",
        2.4,
        (
            (0.0, REST),
            (0.40, _WIND_UP),
            (0.48, _WIND_UP | right(reach(0.25, 0.75, 0.10, elbow=0.9)) | torso(0.1, 0.05, -0.1)),
            (0.56, _RELEASE),
            (0.68, _RELEASE | right(reach(-0.35, -0.45, 0.65))),
            (1.0, REST),
        ),
    ),
    Action(
        "push",
        2.8,
        (
            (0.0, REST),
            (0.28, _PUSH_READY),
            (0.60, _PUSH_READY | both(reach(-0.02, 0.0, 1.15)) | torso(0.42) | hips(0.93, 0.20)),
            (0.75, _PUSH_READY | both(reach(-0.02, 0.0, 1.15)) | torso(0.42) | hips(0.93, 0.22)),
            (1.0, REST),
        ),
        contacts=(0.30,),
    ),
    Action(
        "pull",
        2.8,
        (
            (0.0, REST),
            (0.25, _PULL_OUT),
            (0.60, _PULL_OUT | both(reach(0.04, -0.42, 0.16, elbow=0.35)) | torso(-0.28) | hips(0.92, -0.18)),
            (0.72, _PULL_OUT | both(reach(0.04, -0.42, 0.16, elbow=0.35)) | torso(-0.28) | hips(0.92, -0.18)),
            (1.0, REST),
        ),
        contacts=(0.25,),
    ),
    # Arms and head.
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
NAMES: tuple[str, ...] = tuple(action.name for action in ACTIONS)


def number(name: str) -> int:
    """An action's number by name; an unknown name is an error that lists the known ones."""
    try:
        return NAMES.index(name)
    except ValueError:
        raise KeyError(f"no action is called {name!r}; there are {', '.join(NAMES)}") from None
