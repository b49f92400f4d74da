"""KARD: 18 actions by 10 people, three times each, OpenNI's 15 joints (Gaglio, Lo Re, Morana, IEEE THMS 2014).

Files are in millimetres, with x to the left of a person who faces the camera, y up and z away from the camera: axes
in which a body is its mirror image. The reader turns x round and gives metres: x to the person's right, y up, z away
from the camera.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.layout import OPENNI_15, Layout
from fedaction.data.public.base import Listing
from fedaction.data.public.files import list_numbered, read_joints

CLASSES = (
    "horizontal arm wave",
    "high arm wave",
    "two hand wave",
    "catch cap",
    "high throw",
    "draw x",
    "draw tick",
    "toss paper",
    "forward kick",
    "side kick",
    "take umbrella",
    "bend",
    "hand clap",
    "walk",
    "phone call",
    "drink",
    "sit down",
    "stand up",
)
_FILE = re.compile(r"(?P<name>a(?P<action>\d+)_s(?P<subject>\d+)_e\d+)_realworld\.txt")
# The dataset has the right side before the left.
_JOINTS = (
    *("head", "neck", "right_shoulder", "right_elbow", "right_hand", "left_shoulder", "left_elbow", "left_hand"),
    *("spine_mid", "right_hip", "right_knee", "right_foot", "left_hip", "left_knee", "left_foot"),
)
_ORDER = [_JOINTS.index(joint) for joint in OPENNI_15.joints]
_TO_METRES = np.array([-1e-3, 1e-3, 1e-3], dtype=np.float32)


@dataclass(frozen=True)
class Kard:
    """See `fedaction.data.public.base.Reader`."""

    name: str = "kard"
    version: int = 1
    layout: Layout = OPENNI_15
    rate_hz: float | None = 30.0
    protocols: tuple[str, ...] = ("cross_subject",)
    about: str = "KARD, 18 actions by 10 people, OpenNI; expects a<action>_s<person>_e<trial>_realworld.txt"

    def find(self, root: Path) -> Listing:
        """See `Reader.find`. Cross-subject: people 1 to 5 train."""
        return list_numbered(
            root,
            _FILE,
            classes=CLASSES,
            train=range(1, 6),
            test=range(6, 11),
            expected="a<action>_s<person>_e<trial>_realworld.txt, KARD's skeletons in real-world coordinates",
        )

    def read(self, path: Path) -> npt.NDArray[np.float32]:
        """See `Reader.read`."""
        return read_joints(path, len(_JOINTS), columns=3)[:, :, _ORDER] * _TO_METRES


READER = Kard()
