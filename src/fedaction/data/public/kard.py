"""KARD: 18 actions by 10 people, three times each, OpenNI's 15 joints (Gaglio, Lo Re, Morana, IEEE THMS 2014).

Files are in millimetres, with x to the left of a person who faces the camera, y up and z away from the camera: axes
in which a body is its mirror image. The reader turns x round and gives metres: x to the person's right, y up, z away
from the camera.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.layout import OPENNI_15
from fedaction.data.public.files import NumberedSkeletons, read_joints

CLASSES = (
    *("horizontal arm wave", "high arm wave", "two hand wave", "catch cap", "high throw", "draw x", "draw tick"),
    *("toss paper", "forward kick", "side kick", "take umbrella", "bend", "hand clap", "walk", "phone call", "drink"),
    *("sit down", "stand up"),
)
_FILE = re.compile(r"(?P<name>a(?P<action>\d+)_s(?P<subject>\d+)_e\d+)_realworld\.txt")
# The dataset has the right side before the left.
_JOINTS = (
    *("head", "neck", "right_shoulder", "right_elbow", "right_hand", "left_shoulder", "left_elbow", "left_hand"),
    *("spine_mid", "right_hip", "right_knee", "right_foot", "left_hip", "left_knee", "left_foot"),
)
_ORDER = [_JOINTS.index(joint) for joint in OPENNI_15.joints]
_TO_METRES = np.array([-1e-3, 1e-3, 1e-3], dtype=np.float32)


def _read(path: Path) -> npt.NDArray[np.float32]:
    return read_joints(path, len(_JOINTS), columns=3)[:, :, _ORDER] * _TO_METRES


READER = NumberedSkeletons(
    name="kard",
    layout=OPENNI_15,
    rate_hz=30.0,
    about="KARD, 18 actions by 10 people, OpenNI; expects a<action>_s<person>_e<trial>_realworld.txt",
    pattern=_FILE,
    classes=CLASSES,
    train=range(1, 6),
    test=range(6, 11),
    parse=_read,
)
