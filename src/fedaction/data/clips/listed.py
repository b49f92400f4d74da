"""Datasets whose authors publish lists of what is for training and test: UCF-101, HMDB-51, Kinetics-400."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from fedaction.data.clips.folders import split_folders
from fedaction.data.clips.videos import (
    MOST_LIST,
    Missing,
    Side,
    VideoSample,
    VideoSet,
    absent,
    folder,
    read_lines,
    relative,
    some,
    videos_below,
)
from fedaction.data.dataset import Issue
from fedaction.data.text import read_csv
from fedaction.federation.outside import shorten

_UCF_GROUP = re.compile(r"_(g\d+)_c\d+$")
_HMDB_LIST = re.compile(r"(?P<action>.+)_test_split(?P<fold>[123])\.txt")
_SIDES: dict[str, Side] = {"1": "train", "2": "test"}
_COLUMNS = ("label", "youtube_id", "time_start", "time_end", "split")
_VALIDATION = frozenset({"val", "validate", "validation"})


def ucf101(
    root: str | Path, *, lists: str | Path | None = None, fold: int = 1, missing: Missing = "error"
) -> VideoSet:
    """UCF-101: <class>/v_<class>_gGG_cCC.avi, with trainlist0N.txt, testlist0N.txt and classInd.txt.

    The 25 groups of a class are taken to be people: clips of one group share person and place. The lists of a
    fold (1, 2 or 3) are in the folder `lists`, or anywhere below root; `missing` says what to do about files they
    name that are not there.
    """
    what = "UCF-101 is read from a folder of videos per class"
    root = folder(root, what)
    names = (f"trainlist{fold:02d}.txt", f"testlist{fold:02d}.txt", "classInd.txt")
    where = _list_folder(root, lists, lambda path: path.name == names[0], " and ".join(names))
    gone = [name for name in names if not (where / name).is_file()]
    if gone:
        raise ValueError(f"{where} lacks {', '.join(gone)}: get UCF-101's lists (UCF101TrainTestSplits)")
    classes = _ucf_classes(where / names[2])
    place = {name: label for label, name in enumerate(classes)}
    find = _finder(root)
    samples: list[VideoSample] = []
    lacking: list[str] = []
    listed = 0
    sides: tuple[Side, ...] = ("train", "test")
    for name, split in zip(names, sides, strict=False):
        for line in read_lines(where / name):
            entry = line.split()[0] if split == "train" else line
            action, _, file = entry.rpartition("/")
            if action not in place:
                known = f"{names[2]} lists ({len(classes)})"
                raise ValueError(f"{where / name}: {shorten(line, 80)!r} is of no class that {known}")
            listed += 1
            path = find(action, file)
            if path is None:
                lacking.append(entry)
                continue
            group = _UCF_GROUP.search(path.stem)
            who = f"{action}-{group[1]}" if group else ""
            samples.append(VideoSample(path, relative(path, root), place[action], split, person=who, group=who))
    issues = absent(lacking, listed, root, f"{names[0]} and {names[1]}", missing)
    return VideoSet("ucf101", classes, tuple(samples), tuple(issues))


def hmdb51(
    root: str | Path, *, lists: str | Path | None = None, fold: int = 1, missing: Missing = "error"
) -> VideoSet:
    """HMDB-51: <action>/<clip>.avi, with <action>_test_splitN.txt: clips with 0 (unused), 1 (train) or 2 (test).

    Clips of one source video have one group; who is in them is not known. For the arguments see `ucf101`.
    """
    root = folder(root, "HMDB-51 is read from a folder of videos per action")
    wanted = f"<action>_test_split{fold}.txt"

    def is_list(path: Path) -> bool:
        match = _HMDB_LIST.fullmatch(path.name)
        return match is not None and match["fold"] == str(fold)

    where = _list_folder(root, lists, is_list, wanted)
    files = sorted(path for path in where.iterdir() if is_list(path))
    if not files:
        raise ValueError(f"{where} holds no {wanted}: get HMDB-51's lists (test_train_splits)")
    classes = tuple(path.name.removesuffix(f"_test_split{fold}.txt") for path in files)
    find = _finder(root)
    samples: list[VideoSample] = []
    lacking: list[str] = []
    listed = 0
    for label, (action, file) in enumerate(zip(classes, files, strict=True)):
        for line in read_lines(file):
            name, _, flag = line.rpartition(" ")
            if flag not in ("0", "1", "2") or not name.strip():
                raise ValueError(f"{file}: {shorten(line, 80)!r} does not end in 0, 1 or 2")
            if flag == "0":
                continue
            listed += 1
            path = find(action, name.strip())
            if path is None:
                lacking.append(f"{action}/{name.strip()}")
                continue
            source = name.split(f"_{action}_")[0]
            samples.append(VideoSample(path, relative(path, root), label, _SIDES[flag], group=source))
    issues = absent(lacking, listed, root, f"the lists of fold {fold}", missing)
    return VideoSet("hmdb51", classes, tuple(samples), tuple(issues))


def kinetics400(root: str | Path, *, lists: Sequence[str | Path] = (), missing: Missing = "skip") -> VideoSet:
    """Kinetics-400: videos with csv lists (label,youtube_id,time_start,time_end,split), or in folders train and val.

    A video is called <youtube_id>_<start, six digits>_<end, six digits>, or just <youtube_id>, in any folder below
    root. Validation rows are for test; rows of the test list only where there are no validation rows. Videos that are
    gone from the web are the rule here, so they are skipped unless asked otherwise.

    Args:
        root: folder with the videos.
        lists: csv files; empty: those in root and root/annotations. Where there are none, root has the folders train
            and val (or test), each with a folder of videos per class.
        missing: what to do where a list names files that are not there.
    """
    root = folder(root, "Kinetics-400 is read from a folder with videos and csv lists, or with folders train and val")
    paths = [Path(path) for path in lists] or _kinetics_lists(root)
    if not paths:
        return split_folders(root, "kinetics400")
    rows = [row for path in paths for row in _rows(path)]
    trained = {row["label"] for row in rows if row["split"] == "train"}
    classes = tuple(sorted(trained or {row["label"] for row in rows}))
    place = {name: label for label, name in enumerate(classes)}
    unknown = sorted({row["label"] for row in rows} - set(classes))
    if unknown:
        raise ValueError(
            f"{len(unknown)} classes are only in the lists for validation or test, not in that for training: "
            f"{some(unknown)}; give lists of one release"
        )
    validated = any(row["split"] in _VALIDATION for row in rows)
    by_stem = {path.stem: path for path in reversed(videos_below(root))}
    samples: list[VideoSample] = []
    lacking: list[str] = []
    issues: list[Issue] = []
    used: set[Path] = set()
    listed = 0
    for row in rows:
        split = "train" if row["split"] == "train" else "test"
        if row["split"] == "test" and validated:
            continue
        listed += 1
        start, end = int(float(row["time_start"])), int(float(row["time_end"]))
        full = f"{row['youtube_id']}_{start:06d}_{end:06d}"
        path = by_stem.get(full) or by_stem.get(row["youtube_id"])
        if path is None:
            lacking.append(full)
        elif path in used:
            issues.append(
                Issue(kind="duplicate", where=relative(path, root), detail="listed twice; the first counts")
            )
        else:
            used.add(path)
            samples.append(
                VideoSample(path, relative(path, root), place[row["label"]], split, group=row["youtube_id"])
            )
    issues += absent(lacking, listed, root, ", ".join(path.name for path in paths), missing)
    return VideoSet("kinetics400", classes, tuple(samples), tuple(issues))


def _list_folder(root: Path, lists: str | Path | None, is_list: Callable[[Path], bool], wanted: str) -> Path:
    if lists is not None:
        return folder(lists, f"it should hold {wanted}")
    for path in sorted(root.rglob("*.txt")):
        if is_list(path):
            return path.parent
    raise ValueError(f"no {wanted} in {root} or below: say with `lists` in which folder the official lists are")


def _ucf_classes(path: Path) -> tuple[str, ...]:
    names: list[str] = []
    for line in read_lines(path):
        number, _, name = line.partition(" ")
        if number != str(len(names) + 1) or not name.strip():
            raise ValueError(f"{path}: expected '{len(names) + 1} <class>', found {shorten(line, 80)!r}")
        names.append(name.strip())
    return tuple(names)


def _finder(root: Path) -> Callable[[str, str], Path | None]:
    """Finds a video by its folder and name, wherever that folder is below root; else by its name alone."""
    paths: dict[tuple[str, str], Path] = {}
    named: dict[str, Path] = {}
    for path in videos_below(root):
        key = path.parent.name, path.name
        if key in paths:
            raise ValueError(f"{root} holds {'/'.join(key)} twice: {paths[key]} and {path}; keep one of them")
        paths[key] = named[path.name] = path
    if not paths:
        raise ValueError(f"{root} holds no videos; expected a folder of them for each class")
    return lambda action, name: paths.get((action, name)) or named.get(name)


def _kinetics_lists(root: Path) -> list[Path]:
    places = [path for place in (root, root / "annotations") for path in sorted(place.glob("*.csv"))]
    return [path for path in places if set(_COLUMNS) <= set(_header(path))]


def _header(path: Path) -> list[str]:
    return next(read_csv(path, MOST_LIST, errors="replace"), (1, []))[1]


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no list {path}")
    lacking = [name for name in _COLUMNS if name not in _header(path)]
    if lacking:
        raise ValueError(f"{path} has no column {', '.join(lacking)}; Kinetics lists have {', '.join(_COLUMNS)}")
    rows: list[dict[str, str]] = []
    lines = read_csv(path, MOST_LIST, errors="replace")
    place = {name: column for column, name in enumerate(next(lines)[1])}
    for number, row in lines:
        values = {name: (row[place[name]] if place[name] < len(row) else "").strip() for name in _COLUMNS}
        if values["split"] not in {"train", "test", *_VALIDATION} or not values["label"]:
            raise ValueError(f"{path}, line {number}: no label, or a split that is not train, validate or test")
        if not all(re.fullmatch(r"\d{1,9}(\.\d{0,9})?", values[name]) for name in ("time_start", "time_end")):
            raise ValueError(f"{path}, line {number}: time_start and time_end must be seconds")
        rows.append(values)
    return rows
