"""MSR Action3D: 20 actions by 10 people, two or three times each, before a Kinect v1 (Li, Zhang, Liu, CVPR4HB 2010).

Reads the skeletons in real-world coordinates (`..._skeleton3D.txt`). Axes, in metres: x to the right of a person who
faces the camera, y up, z away from the camera. Frames without a person are all zero.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.layout import KINECT_V1
from fedaction.data.public.files import NumberedSkeletons, read_joints

CLASSES = (
    *("high arm wave", "horizontal arm wave", "hammer", "hand catch", "forward punch", "high throw", "draw x"),
    *("draw tick", "draw circle", "hand clap", "two hand wave", "side boxing", "bend", "forward kick", "side kick"),
    *("jogging", "tennis swing", "tennis serve", "golf swing", "pick up and throw"),
)
# What the list of 557 usable files (Wang et al., CVPR 2012) leaves out: the skeleton is missing or wrong.
UNUSABLE = (
    *("a02_s03_e02", "a04_s03_e01", "a07_s04_e01", "a13_s09_e01", "a13_s09_e02", "a13_s09_e03", "a14_s03_e01"),
    *("a20_s07_e01", "a20_s07_e03", "a20_s10_e03"),
)
_FILE = re.compile(r"(?P<name>a(?P<action>\d+)_s(?P<subject>\d+)_e\d+)_skeleton3D\.txt")
# The dataset's own order, which is not that of the Kinect's SDK.
_JOINTS = (
    *("left_shoulder", "right_shoulder", "spine_shoulder", "spine_mid", "left_hip", "right_hip", "spine_base"),
    *(f"{side}_{part}" for part in ("elbow", "wrist", "hand", "knee", "ankle", "foot") for side in ("left", "right")),
    "head",
)
_ORDER = [_JOINTS.index(joint) for joint in KINECT_V1.joints]


def _read(path: Path) -> npt.NDArray[np.float32]:
    return read_joints(path, len(_JOINTS), columns=4)[:, :, _ORDER]  # the fourth is the tracker's confidence


READER = NumberedSkeletons(
    name="msr_action3d",
    layout=KINECT_V1,
    rate_hz=15.0,
    about=(
        "MSR Action3D, 20 actions by 10 people, Kinect v1; expects a<action>_s<person>_e<trial>_skeleton3D.txt, the "
        "real-world skeletons"
    ),
    pattern=_FILE,
    classes=CLASSES,
    train=(1, 3, 5, 7, 9),
    test=(2, 4, 6, 8, 10),
    parse=_read,
    unusable=UNUSABLE,
)
