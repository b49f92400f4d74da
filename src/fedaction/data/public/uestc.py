"""UESTC RGB-D varying-view actions (Ji et al., ACM MM 2018): 40 exercises, 118 people, two Kinect v2 cameras, 30 Hz.

Users bring the `.mat` files of `mat_from_skeleton`, named `aA_dD_pPPP_cC_skeleton.mat`: action 0 to 39, direction 1
to 8, person 1 to 118 and camera. Camera 1 always stands in front of the person; camera 2 stands in direction 1 to 7,
or moves around the person in direction 8. Axes are the camera's, in metres: y up, z away from the camera.

Splits:

- cross_subject: 51 people to train, the other 67 to test;
- cross_view: camera 2 in directions 1, 3, 5 and 7 to train, and in 2, 4 and 6 to test; the front camera and
  direction 8 are left out. Published work differs in its views: this is one reading of "cross-view".

The dataset's authors copied some recordings of the front camera (directions 1, 2, 3 to 7, 6, 5), so that some samples
of a person occur twice. They are kept, as in published results.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.files import to_float32
from fedaction.data.layout import KINECT_V2, Layout
from fedaction.data.matlab import read_matrix
from fedaction.data.public.base import Listing, Sample, SourceFile
from fedaction.data.public.files import find_in_ranges

TRAIN = frozenset(
    (
        *(1, 2, 6, 12, 13, 16, 21, 24, 28, 29, 30, 31, 33, 35, 39, 41, 42, 45, 47, 50, 52, 54, 55, 57, 59, 61),
        *(63, 64, 67, 69, 70, 71, 73, 77, 81, 84, 86, 87, 88, 90, 91, 93, 96, 99, 102, 103, 104, 107, 108, 112, 113),
    )
)
"""People trained on in the cross-subject protocol; the others of 1 to 118 are tested on."""

CLASSES = (
    *("punching and knee lifting", "marking time and knee lifting", "jumping jack", "squatting", "forward lunging"),
    *("left lunging", "left stretching", "raising hand and jumping", "left kicking", "rotation clapping"),
    *("front raising", "pulling chest expanders", "punching", "wrist circling", "single dumbbell raising"),
    *("shoulder raising", "elbow circling", "dumbbell one-arm shoulder pressing", "arm circling"),
    *("dumbbell shrugging", "pinching back", "head anticlockwise circling", "shoulder abduction"),
    *("deltoid muscle stretching", "straight forward flexion", "spinal stretching", "dumbbell side bend"),
    *("standing opposite elbow-to-knee crunch", "standing rotation", "overhead stretching", "upper back stretching"),
    *("knee to chest", "knee circling", "alternate knee lifting", "bent-over twist", "rope skipping"),
    *("standing toe touches", "standing gastrocnemius calf", "single leg lateral hopping", "high knees running"),
)

_FILE = re.compile(r"(?P<name>a(?P<action>\d+)_d(?P<direction>\d+)_p(?P<person>\d+)_c(?P<camera>\d+))_skeleton\.mat")
_RANGES = {"action": (0, 39), "direction": (1, 8), "person": (1, 118), "camera": (1, 2)}


@dataclass(frozen=True)
class Uestc:
    """See `fedaction.data.public.base.Reader`."""

    name: str = "uestc"
    version: int = 1
    layout: Layout = KINECT_V2
    rate_hz: float | None = 30.0
    protocols: tuple[str, ...] = ("cross_subject", "cross_view")
    about: str = (
        "UESTC varying-view RGB-D, 40 exercises by 118 people, Kinect v2; expects "
        "mat_from_skeleton/a<action>_d<direction>_p<person>_c<camera>_skeleton.mat"
    )

    def find(self, root: Path) -> Listing:
        """See `Reader.find`."""
        files, issues = find_in_ranges(root, _FILE, _RANGES)
        if not files:
            raise ValueError(
                f"{root} holds no file of {self.name}: expected names such as a13_d3_p102_c1_skeleton.mat, in it or "
                "in folders below it"
            )
        sources: list[SourceFile] = []
        for name, path, numbers in files:
            action, direction, person, camera = numbers.values()
            view = "" if camera == 1 or direction == 8 else "train" if direction % 2 else "test"
            splits = {"cross_subject": "train" if person in TRAIN else "test", "cross_view": view}
            sources.append(SourceFile(path, (Sample(name, CLASSES[action], f"p{person:03d}", splits),)))
        return Listing(tuple(sources), CLASSES, tuple(issues))

    def read(self, path: Path) -> npt.NDArray[np.float32]:
        """See `Reader.read`."""
        rows = read_matrix(path, "v")
        if rows.ndim != 2 or rows.shape[1] != 3 * len(self.layout):
            raise ValueError(f"v has shape {rows.shape}; expected (frames, {3 * len(self.layout)})")
        return to_float32(rows).reshape(1, -1, len(self.layout), 3)


READER = Uestc()
