"""UTD-MHAD: 27 actions by 8 people, four times each, before a Kinect v1 (Chen, Jafari, Kehtarnavaz, ICIP 2015).

Axes are the Kinect's, in metres: x to the right of a person who faces the camera, y up, z away from the camera.
Only the skeletons are read; depth and inertial files of the same trials are passed over.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.layout import KINECT_V1
from fedaction.data.matlab import read_matrix
from fedaction.data.public.files import NumberedSkeletons

CLASSES = (
    *("right arm swipe to the left", "right arm swipe to the right", "right hand wave", "two hand front clap"),
    *("right arm throw", "cross arms in the chest", "basketball shoot", "right hand draw x"),
    *("right hand draw circle (clockwise)", "right hand draw circle (counter clockwise)", "draw triangle"),
    *("bowling (right hand)", "front boxing", "baseball swing from right", "tennis right hand forehand swing"),
    *("arm curl (two arms)", "tennis serve", "two hand push", "right hand knock on door"),
    *("right hand catch an object", "right hand pick up and throw", "jogging in place", "walking in place"),
    *("sit to stand", "stand to sit", "forward lunge (left foot forward)", "squat (two arms stretch out)"),
)
_FILE = re.compile(r"(?P<name>a(?P<action>\d+)_s(?P<subject>\d+)_t\d+)_skeleton\.mat")
# The dataset's own order (Skeleton_joint_order.txt): down the spine, where the Kinect's SDK goes up it.
_JOINTS = ("head", "spine_shoulder", "spine_mid", "spine_base", *KINECT_V1.joints[4:])
_ORDER = [_JOINTS.index(joint) for joint in KINECT_V1.joints]


def _read(path: Path) -> npt.NDArray[np.float32]:
    joints = read_matrix(path, "d_skel")  # V, C, T
    if joints.ndim == 2:  # MATLAB drops a last axis of length 1
        joints = joints[:, :, None]
    if joints.ndim != 3 or joints.shape[:2] != (len(_JOINTS), 3):
        raise ValueError(f"{path}: d_skel has shape {joints.shape}; expected (20 joints, 3, frames)")
    return joints.transpose(2, 0, 1)[None][:, :, _ORDER].astype(np.float32)


READER = NumberedSkeletons(
    name="utd_mhad",
    layout=KINECT_V1,
    rate_hz=30.0,
    about="UTD-MHAD, 27 actions by 8 people, Kinect v1; expects Skeleton/a<action>_s<person>_t<trial>_skeleton.mat",
    pattern=_FILE,
    classes=CLASSES,
    train=(1, 3, 5, 7),
    test=(2, 4, 6, 8),
    parse=_read,
)
