"""NTU RGB+D 60 and 120 (Shahroudy et al., CVPR 2016; Liu et al., TPAMI 2019): three Kinect v2 cameras, 30 Hz.

Users bring the `.skeleton` files, named `SsssCcccPpppRrrrAaaa`: setup, camera, performer, replication and action.
Axes are the camera's, in metres: y up, z away from the camera.

A file holds up to six bodies a frame, in changing order; a body's id says which track it belongs to. Out of the
tracks at most two actors are made:

1. tracks of at most 11 frames are ghosts, and dropped, unless there is no longer one;
2. tracks are taken in the order of their motion: the sum of squared distances of all joints, over all frames of the
   track, from where the joint is on average. The most motion comes first;
3. each goes to the first actor that is absent in all of its frames (a person that the tracker lost and found again
   has two ids), else to the second, else it is dropped.

A file without any body is "empty" in the skip report. So are the samples that the dataset's authors list as missing
or incomplete (302 of NTU 60, 535 of NTU 120): `ntu_missing.txt`, and any list of theirs that lies in the folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.dataset import Issue
from fedaction.data.files import to_float32
from fedaction.data.layout import KINECT_V2, Layout
from fedaction.data.public.base import Listing, Sample, SourceFile, files_below
from fedaction.data.public.files import find_in_ranges
from fedaction.data.public.ntu_actions import ACTIONS
from fedaction.federation.outside import check_amount, check_size, refuse_damage

TRAIN_60 = frozenset((1, 2, 4, 5, 8, 9, 13, 14, 15, 16, 17, 18, 19, 25, 27, 28, 31, 34, 35, 38))
"""Performers trained on in the cross-subject protocol of NTU 60; the others of 1 to 40 are tested on."""
TRAIN_120 = TRAIN_60 | {
    *(45, 46, 47, 49, 50, 52, 53, 54, 55, 56, 57, 58, 59, 70, 74, 78, 80, 81, 82, 83, 84, 85, 86, 89),
    *(91, 92, 93, 94, 95, 97, 98, 100, 103),
}
"""Performers trained on in the cross-subject protocol of NTU 120; the others of 1 to 106 are tested on."""

_NAME = re.compile(
    r"S(?P<setup>\d{3})C(?P<camera>\d{3})P(?P<performer>\d{3})R(?P<replication>\d{3})A(?P<action>\d{3})"
)
_FILE = re.compile(rf"(?P<name>{_NAME.pattern})\.skeleton")
_MISSING = re.compile(r".*missing.*skeletons?.*\.txt", re.IGNORECASE)
_MOST_BYTES = 64 * 2**20
_MOST_FRAMES = 2**18  # two and a half hours; an empty frame is two bytes in a file and 600 as an array
_JOINTS = 25
_GHOST_FRAMES = 11  # the length that CTR-GCN's denoising takes
_ACTORS = 2


@dataclass(frozen=True)
class Ntu:
    """See `fedaction.data.public.base.Reader`."""

    name: str
    protocols: tuple[str, ...]
    about: str
    largest: Mapping[str, int] = field(repr=False)
    version: int = 2
    layout: Layout = KINECT_V2
    rate_hz: float | None = 30.0

    def find(self, root: Path) -> Listing:
        """See `Reader.find`. Files of actions that this dataset does not have are passed over."""
        classes = tuple(f"A{i:03d} {name}" for i, name in enumerate(ACTIONS[: self.largest["action"]], 1))
        ranges = {what: (1, most) for what, most in self.largest.items()}
        files, issues = find_in_ranges(
            root, _FILE, ranges, lambda numbers: len(classes) < numbers["action"] <= len(ACTIONS)
        )
        if not files:
            raise ValueError(
                f"{root} holds no file of {self.name}: expected names such as S001C002P003R002A013.skeleton, with "
                f"actions up to A{len(classes):03d}, in it or in folders below it"
            )
        lists = tuple(path for path in files_below(root) if _MISSING.fullmatch(path.name))
        missing = dict.fromkeys(list_missing(), "the dataset's list of missing skeletons") | {
            listed.group(): path.name
            for path in lists
            for listed in _NAME.finditer(path.read_bytes().decode("ascii", errors="replace"))
        }
        sources: list[SourceFile] = []
        for name, path, numbers in files:
            if name in missing:
                issues.append(Issue(kind="empty", where=name, detail=f"listed in {missing[name]}"))
                continue
            label, person = classes[numbers["action"] - 1], f"P{numbers['performer']:03d}"
            sample = Sample(name, label, person, self._splits(numbers))
            sources.append(SourceFile(path, (sample,)))
        return Listing(tuple(sources), classes, tuple(issues), lists)

    def read(self, path: Path) -> npt.NDArray[np.float32]:
        """See `Reader.read`. M is 1 or 2; see the module for which bodies these are."""
        check_size(path, _MOST_BYTES)
        with refuse_damage(path, "an NTU skeleton file"):
            lines = path.read_bytes().split(b"\n")
            frames, tracks, poses = _parse(lines)
            return _actors(frames, tracks, poses)

    def _splits(self, numbers: Mapping[str, int]) -> dict[str, str]:
        rules = {
            "cross_subject": numbers["performer"] in TRAIN_120,  # of 1 to 40, these are the performers of NTU 60
            "cross_view": numbers["camera"] != 1,
            "cross_setup": numbers["setup"] % 2 == 0,
        }
        return {protocol: "train" if rules[protocol] else "test" for protocol in self.protocols}


@cache
def list_missing() -> tuple[str, ...]:
    """Names of the samples whose skeletons the dataset's authors list as missing or incomplete, of NTU 120."""
    names: list[str] = []
    for line in (
        resources.files("fedaction.data.public").joinpath("ntu_missing.txt").read_text(encoding="ascii").splitlines()
    ):
        if line.startswith("#"):
            continue
        *numbers, actions = line.split(maxsplit=4)
        recording = "".join(f"{what}{int(number):03d}" for what, number in zip("SCPR", numbers, strict=True))
        for span in actions.split():
            first, _, last = span.partition("-")
            names += [f"{recording}A{action:03d}" for action in range(int(first), int(last or first) + 1)]
    return tuple(names)


def _parse(lines: list[bytes]) -> tuple[int, dict[int, dict[int, int]], npt.NDArray[np.float32]]:
    """The frame count; for each body id, the row of its pose in each frame it is in; and the poses (rows, 25, 3).

    Only x, y and z are turned into numbers, a quarter of the file's: that is what takes the time.
    """
    place = 0

    def fail(what: str) -> ValueError:
        within = f" (frame {frame + 1} of {frames})" if frame >= 0 else ""
        return ValueError(f"line {place + 1}{within}: {what}")

    def count(what: str) -> int:
        try:
            value = int(lines[place])
        except IndexError:
            raise fail("the file ends too early") from None
        except ValueError:
            value = -1
        if value < 0:
            raise fail(f"expected the number of {what}, found {lines[place][:40]!r}")
        return value

    frame = frames = -1
    frames = count("frames")
    check_amount(frames, _MOST_FRAMES, "it", "has", "frames")
    tracks: dict[int, dict[int, int]] = {}
    cells: list[bytes] = []
    firsts: list[int] = []  # the line at which the joints of each pose begin
    for frame in range(frames):
        place += 1
        for _ in range(count("bodies")):
            place += 1
            heading = lines[place].split() if place < len(lines) else []
            if len(heading) != 10 or not heading[0].isdigit():
                raise fail(f"expected a body's id and nine more numbers, found {b' '.join(heading)[:40]!r}")
            place += 1
            if (joints := count("joints")) != _JOINTS:
                raise fail(f"the body has {joints} joints; expected {_JOINTS}")
            # Ids are longer than a float is exact: as floats, two bodies would be one.
            tracks.setdefault(int(heading[0]), {}).setdefault(frame, len(firsts))
            firsts.append(place + 1)
            block = lines[place + 1 : place + 1 + _JOINTS]
            if len(block) < _JOINTS:
                raise fail("the file ends within the body")
            for line in block:
                place += 1
                if line.count(b" ") != 11 and len(line.split()) != 12:
                    raise fail(f"expected 12 numbers of a joint, found {line[:40]!r}")
                cells += line.split(None, 3)[:3]
    if any(line.strip() for line in lines[place + 1 :]):
        place, frame = place + 1, -1
        raise fail(f"there is more text after the last of {frames} frames")
    try:
        numbers = np.array(cells, dtype=np.float64)
    except ValueError:
        i = next((i for i, cell in enumerate(cells) if not _is_number(cell)), 0)
        place, frame = firsts[i // 75] + i % 75 // 3, -1
        raise fail(f"{cells[i][:40]!r} is not a number") from None
    return frames, tracks, to_float32(numbers).reshape(-1, _JOINTS, 3)


def _is_number(cell: bytes) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _actors(
    frames: int, tracks: Mapping[int, Mapping[int, int]], poses: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """(M, frames, 25, 3) with at most two actors, by the module's rules; one absent actor where there is no track."""
    longest = max(map(len, tracks.values()), default=0)
    kept = [
        (np.fromiter(track, dtype=np.int64), poses[list(track.values())])
        for track in tracks.values()
        if len(track) > _GHOST_FRAMES or longest <= _GHOST_FRAMES
    ]
    if len(kept) > 1:
        kept.sort(key=lambda track: -_motion(track[1]))
    out = np.zeros((_ACTORS, frames, _JOINTS, 3), dtype=np.float32)
    taken = np.zeros((_ACTORS, frames), dtype=bool)
    for when, track in kept:
        for actor in range(_ACTORS):
            if not taken[actor, when].any():
                out[actor, when] = track
                taken[actor, when] = True
                break
    return out[: max(1, int(taken.any(axis=1).sum()))]


def _motion(track: npt.NDArray[np.float32]) -> float:
    """How much a body (T, 25, 3) moves, in all its frames together, in square metres."""
    good = track[np.isfinite(track).all(axis=(1, 2))]
    return float(np.square(good - good.mean(axis=0)).sum()) if len(good) else 0.0


NTU60 = Ntu(
    "ntu60",
    ("cross_subject", "cross_view"),
    "NTU RGB+D 60, 60 actions by 40 people, Kinect v2; expects S001C002P003R002A013.skeleton and the like",
    {"setup": 17, "camera": 3, "performer": 40, "replication": 2, "action": 60},
)
NTU120 = Ntu(
    "ntu120",
    ("cross_subject", "cross_setup"),
    "NTU RGB+D 120, 120 actions by 106 people, Kinect v2; expects the files of both parts, S001 to S032",
    {"setup": 32, "camera": 3, "performer": 106, "replication": 2, "action": 120},
)
