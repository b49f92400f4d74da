"""Datasets that are what their folders say: a folder per class, AIRTLab's cameras, UTD-MHAD's depth files."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Literal

import numpy as np

from fedaction.data.clips.depth import read_depth
from fedaction.data.clips.videos import (
    MOST_LIST,
    SUFFIXES,
    Side,
    VideoSample,
    VideoSet,
    folder,
    relative,
    videos_below,
)
from fedaction.data.dataset import Issue
from fedaction.data.features.clients import split as split_evenly
from fedaction.data.public.files import NumberedFiles
from fedaction.data.public.utd_mhad import CLASSES as UTD_CLASSES
from fedaction.data.text import read_csv
from fedaction.federation.outside import shorten

_SPLITS: dict[str, Side] = {"train": "train", "val": "test", "validation": "test", "test": "test"}
_DEPTH = NumberedFiles(
    name="utd_depth",
    about="UTD-MHAD's depth camera; expects a<action>_s<person>_t<trial>_depth.mat, as in UTD-MHAD's Depth folder",
    pattern=re.compile(r"(?P<name>a(?P<action>\d+)_s(?P<subject>\d+)_t\d+)_depth\.mat"),
    classes=UTD_CLASSES,
    train=(1, 3, 5, 7),
    test=(2, 4, 6, 8),
    parse=read_depth,
)
_VIOLENCE = ("non-violent", "violent")
_AIRTLAB_LABELS = {"non-violent": "nonviolent-action-classes.csv", "violent": "violent-action-classes.csv"}


def video_folders(root: str | Path, *, test: float = 0.25, person: str | None = None, seed: int = 0) -> VideoSet:
    """Any folder with a folder of videos per class; or with folders train and val (or test) of such folders.

    Args:
        root: the folder. Videos may lie at any depth below their class's folder.
        test: share of the videos for test, of each class where it has enough; not used where folders say it.
        person: a regular expression that finds the person in a file's name below root, such as `_s([0-9]+)_`.
        seed: decides which are for test.
    """
    root = folder(root, "expected a folder of videos for each class")
    inside = {path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")}
    if inside and inside <= _SPLITS.keys() and "train" in inside:
        return split_folders(root, root.name, person)
    rows = _by_class(root)
    classes = tuple(sorted({action for _, action in rows}))
    labels = np.array([classes.index(action) for _, action in rows], dtype=np.int64)
    tested = _choose_test(labels, test, seed, root)
    samples = [
        VideoSample(path, relative(path, root), int(label), "test" if out else "train", _person(path, root, person))
        for (path, _), label, out in zip(rows, labels, tested, strict=True)
    ]
    return VideoSet(root.name, classes, tuple(samples))


def split_folders(root: Path, name: str, person: str | None = None) -> VideoSet:
    """Folders train and val (or test), each with a folder of videos per class."""
    sides = {kind: root / kind for kind in _SPLITS if (root / kind).is_dir()}
    if "train" not in sides or len(sides) == 1:
        raise ValueError(f"{root} has neither lists nor the folders train and val: nothing says what is for test")
    if "test" in sides and len(sides) > 2:
        del sides["test"]  # as Kinetics is used: validation videos are for test
    rows: list[tuple[Path, str, Side]] = [
        (path, action, _SPLITS[kind]) for kind, side in sides.items() for path, action in _by_class(side)
    ]
    classes = tuple(sorted({action for _, action, split in rows if split == "train"}))
    unknown = sorted({action for _, action, _ in rows} - set(classes))
    if unknown:
        raise ValueError(
            f"{len(unknown)} classes have videos for test but none to train on: {', '.join(unknown[:3])}"
        )
    samples = [
        VideoSample(path, relative(path, root), classes.index(action), split, _person(path, root, person))
        for path, action, split in rows
    ]
    return VideoSet(name, classes, tuple(samples))


def airtlab(
    root: str | Path,
    *,
    task: Literal["violence", "action"] = "violence",
    test: float = 0.25,
    fewest: int = 2,
    seed: int = 0,
) -> VideoSet:
    """AIRTLab: violent|non-violent/cam1|cam2/N.mp4, the same performances from two cameras.

    A performance is for training or for test in both views, so that nothing tested has been seen from the side.

    Args:
        root: the dataset's folder, or the violence-detection-dataset in it.
        task: "violence" tells the two folders apart; "action" the actions of the clips that show exactly one, by the
            two lists of actions.
        test: share of the performances for test.
        fewest: performances of an action, for the task "action"; rarer ones are left out, and named in the issues.
        seed: decides which are for test.
    """
    if task not in ("violence", "action"):
        raise ValueError(f'the tasks of AIRTLab are "violence" and "action", not {task!r}')
    root = folder(root, "AIRTLab is read from a folder with violent and non-violent")
    home = root if (root / "violent").is_dir() else root / "violence-detection-dataset"
    rows: list[tuple[Path, str, str, str]] = []  # file, label, performance, camera
    issues: list[Issue] = []
    for kind in _VIOLENCE:
        actions = _airtlab_actions(home / _AIRTLAB_LABELS[kind]) if task == "action" else {}
        for path in sorted((home / kind).glob("cam*/*"), key=lambda p: (p.parent.name, len(p.stem), p.stem)):
            if path.suffix.lower() not in SUFFIXES:
                continue
            names = actions.get(path.name, []) if task == "action" else [kind]
            if len(names) == 1:
                rows.append((path, names[0], f"{kind}-{path.stem}", path.parent.name))
            elif not names:
                detail = f"{_AIRTLAB_LABELS[kind]} does not say what it shows"
                issues.append(Issue(kind="label", where=relative(path, root), detail=detail))
    if not rows:
        raise ValueError(f"{root} holds no violent/cam1/1.mp4 and the like: this is not AIRTLab's dataset")
    performed = {performance: label for _, label, performance, _ in rows}
    often = Counter(performed.values())
    if task == "action":
        for path, label, _, _ in rows:
            if often[label] < fewest:
                detail = f"{label!r} is performed {often[label]} times, fewer than {fewest}"
                issues.append(Issue(kind="label", where=relative(path, root), detail=detail))
    rows = [row for row in rows if task == "violence" or often[row[1]] >= fewest]
    classes = _VIOLENCE if task == "violence" else tuple(sorted({row[1] for row in rows}))
    performances = sorted({row[2] for row in rows})
    labels = np.array([classes.index(performed[name]) for name in performances], dtype=np.int64)
    tested = dict(zip(performances, _choose_test(labels, test, seed, root).tolist(), strict=True))
    samples = [
        VideoSample(
            path,
            relative(path, root),
            classes.index(label),
            "test" if tested[performance] else "train",
            group=performance,
            camera=camera,
        )
        for path, label, performance, camera in rows
    ]
    return VideoSet("airtlab", classes, tuple(samples), tuple(issues))


def utd_depth(
    root: str | Path, *, split: Literal["people", "share"] = "people", test: float = 0.25, seed: int = 0
) -> VideoSet:
    """UTD-MHAD's depth clips, aA_sS_tT_depth.mat: 27 actions, seen by a Kinect v1.

    Args:
        root: the dataset's folder, or the Depth folder in it.
        split: "people" trains on people 1, 3, 5 and 7 and tests on the others, as the dataset's authors do; "share"
            takes some of everybody's clips for test, so that every person can be a client with both.
        test: that share.
        seed: decides which are for test, by "share".
    """
    if split not in ("people", "share"):
        raise ValueError(f'split must be "people" or "share", got {split!r}')
    root = folder(root, "UTD-MHAD's depth clips are read from a folder with aA_sS_tT_depth.mat")
    listing = _DEPTH.find(root)
    files = [(source.path, source.samples[0]) for source in listing.sources]
    labels = np.array([UTD_CLASSES.index(sample.label) for _, sample in files], dtype=np.int64)
    tested = [sample.splits["cross_subject"] == "test" for _, sample in files]
    if split == "share":
        tested = _choose_test(labels, test, seed, root).tolist()
    samples = [
        VideoSample(path, relative(path, root), int(label), "test" if out else "train", person=sample.subject)
        for (path, sample), label, out in zip(files, labels, tested, strict=True)
    ]
    return VideoSet("utd_depth", UTD_CLASSES, tuple(samples), listing.issues)


def _choose_test(labels: np.ndarray, test: float, seed: int, root: Path) -> np.ndarray:
    if not 0 < test < 1:
        raise ValueError(f"the share of test videos must lie between 0 and 1, got {test}")
    if len(labels) < 2:
        raise ValueError(f"{root} holds {len(labels)} usable video; training and testing need at least 2")
    return split_evenly(labels, test, seed)


def _by_class(root: Path) -> list[tuple[Path, str]]:
    """Videos with the name of the folder right below root that they lie in."""
    rows = [(path, path.relative_to(root).parts[0]) for path in videos_below(root) if path.parent != root]
    if not rows:
        kinds = " ".join(sorted(SUFFIXES))
        raise ValueError(f"{root} holds no videos; expected {root.name}/<class>/<video>, with a suffix of {kinds}")
    return rows


def _person(path: Path, root: Path, pattern: str | None) -> str:
    if pattern is None:
        return ""
    match = re.search(pattern, relative(path, root))
    if match is None or not match.groups():
        raise ValueError(f"{relative(path, root)}: {pattern!r} finds no person (it needs one group in parentheses)")
    return match[1]


def _airtlab_actions(path: Path) -> dict[str, list[str]]:
    """Actions of each file: lines `3.mp4;slap,kick` after a heading."""
    if not path.is_file():
        raise ValueError(f"there is no {path}, which says what the clips show; use the task 'violence', or get it")
    actions: dict[str, list[str]] = defaultdict(list)
    for number, row in read_csv(path, MOST_LIST, ";", errors="replace"):
        if number == 1 and row[0].strip().upper() == "FILE":
            continue
        if len(row) != 2:
            found = shorten(";".join(row), 80)
            raise ValueError(f"{path}, line {number}: expected <file>;<action>,<action>, found {found!r}")
        actions[row[0].strip()] = [name.strip() for name in row[1].split(",") if name.strip()]
    return actions
