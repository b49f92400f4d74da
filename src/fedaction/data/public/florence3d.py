"""Florence 3D Actions: 9 actions by 10 people, 215 short clips, 15 joints (Seidenari et al., CVPRW 2013).

Reads the dataset cut into one file per clip. Files are in millimetres; axes are x to the right of a person who faces
the camera, y up, z away from the camera. The reader gives metres.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.layout import FLORENCE_15
from fedaction.data.public.files import NumberedSkeletons, read_joints

CLASSES = (
    *("wave", "drink from a bottle", "answer phone", "clap", "tight lace", "sit down", "stand up", "read watch"),
    "bow",
)
_FILE = re.compile(r"(?P<name>a(?P<action>\d+)_s(?P<subject>\d+)_id\d+)\.txt")


def _read(path: Path) -> npt.NDArray[np.float32]:
    return read_joints(path, len(FLORENCE_15), columns=3) * np.float32(1e-3)


READER = NumberedSkeletons(
    name="florence3d",
    layout=FLORENCE_15,
    about="Florence 3D Actions, 9 actions by 10 people; expects a<action>_s<person>_id<clip>.txt, a clip each",
    pattern=_FILE,
    classes=CLASSES,
    train=range(1, 6),
    test=range(6, 11),
    parse=_read,
)
