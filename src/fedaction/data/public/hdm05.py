"""HDM05: motion capture of five people, cut into clips of one action each (Mueller et al., CG-2007-2, Bonn 2007).

Files hold joint angles; positions come from forward kinematics over each person's own skeleton, in metres. Axes: y up
from the floor, x and z horizontal and fixed in the room, right-handed. The 31 joints are the root and the far ends of
the skeleton's 30 bones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.dataset import Issue
from fedaction.data.layout import MOCAP_31, Layout
from fedaction.data.public.acclaim import positions, read_amc, read_asf
from fedaction.data.public.base import Listing, Sample, SourceFile
from fedaction.data.public.files import find_named

_SPLIT = {"bd": "train", "bk": "train", "dg": "train", "mm": "test", "tr": "test"}
_FILE = re.compile(
    r"(?P<name>HDM_(?P<subject>[a-z]+)_(?P<label>[a-z][^_]*)_\d+_120)\.amc", re.IGNORECASE
)  # some end in .AMC
# The bones whose far ends are the layout's joints, in its order, after the root.
_LEG = ("hipjoint", "femur", "tibia", "foot", "toes")
_ARM = ("clavicle", "humerus", "radius", "wrist", "hand", "fingers", "thumb")
BONES = (
    *(f"{side}{bone}" for side in "lr" for bone in _LEG),
    *("lowerback", "upperback", "thorax", "lowerneck", "upperneck", "head"),
    *(f"{side}{bone}" for side in "lr" for bone in _ARM),
)


@dataclass(frozen=True)
class Hdm05:
    """See `fedaction.data.public.base.Reader`."""

    name: str = "hdm05"
    version: int = 1
    layout: Layout = MOCAP_31
    rate_hz: float | None = 120.0
    protocols: tuple[str, ...] = ("cross_subject",)
    about: str = (
        "HDM05 motion capture, cut clips of 5 people; expects HDM_<person>_<action>_<number>_120.amc, and "
        "HDM_<person>.asf in the same folder or one above"
    )

    def find(self, root: Path) -> Listing:
        """See `Reader.find`. Classes are those found, by name. Cross-subject: bd, bk and dg train."""
        files = find_named(root, _FILE, "HDM_<person>_<action>_<number>_120.amc, as in HDM05's cut clips")
        sources: list[SourceFile] = []
        issues: list[Issue] = []
        skeletons: set[Path] = set()
        for name, (path, match) in sorted(files.items(), key=lambda item: (item[1][1]["label"], item[0])):
            label, person = match["label"], match["subject"].lower()
            body = _skeleton_file(path, person)
            if person not in _SPLIT or body is None:
                fault = f"person {person!r} is not one of the dataset's" if body else f"there is no HDM_{person}.asf"
                issues.append(Issue(kind="unreadable", where=name, detail=fault))
                continue
            skeletons.add(body)
            sources.append(SourceFile(path, (Sample(name, label, person, {"cross_subject": _SPLIT[person]}),)))
        classes = sorted({sample.label for source in sources for sample in source.samples})
        return Listing(tuple(sources), tuple(classes), tuple(issues), tuple(sorted(skeletons)))

    def read(self, path: Path) -> npt.NDArray[np.float32]:
        """See `Reader.read`."""
        match = _FILE.fullmatch(path.name)
        body = _skeleton_file(path, match["subject"].lower()) if match else None
        if body is None:
            raise ValueError(f"{path} has no skeleton file HDM_<person>.asf in its folder or one above")
        skeleton = read_asf(body)
        lacking = [bone for bone in BONES if bone not in skeleton.joints]
        if lacking:
            raise ValueError(f"{body} lacks these bones: {', '.join(lacking)}")
        order = [skeleton.joints.index(joint) for joint in ("root", *BONES)]
        return positions(skeleton, read_amc(path, skeleton))[None, :, order].astype(np.float32)


def _skeleton_file(path: Path, person: str) -> Path | None:
    """The person's skeleton file: beside the clip, or in one of the two folders above."""
    for folder in list(path.parents)[:3]:
        for suffix in (".asf", ".ASF"):
            if (folder / f"HDM_{person}{suffix}").is_file():
                return folder / f"HDM_{person}{suffix}"
    return None


READER = Hdm05()
