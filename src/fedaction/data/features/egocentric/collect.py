"""One modality of an egocentric dataset, as far as FDARN (Yang et al., AAAI 2022) uses it.

Feature vectors made elsewhere are taken where a folder `<root>/<modality>` holds them (see `given.FeatureFiles`);
else signals, sound and videos are read, of which features are then taken. Of optical flow only vectors are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedaction.data.clips.decode import probe, read_clips
from fedaction.data.clips.videos import videos_below
from fedaction.data.dataset import Issue
from fedaction.data.features.egocentric import ego_exo, epic, multimodal_ea, stanford_ecm
from fedaction.data.features.egocentric.epic_signals import Audio, Inertial
from fedaction.data.features.egocentric.given import FeatureFiles, Piece, given_features, read_features
from fedaction.data.features.egocentric.tables import KIND
from fedaction.data.features.extract import Recording
from fedaction.data.features.recordings import Collection, warn_left_out
from fedaction.data.features.store import FeatureSet, Modality
from fedaction.data.files import fingerprint

_FRAMES, _SHORT_SIDE = 16, 96  # of a piece of video; the built-in extractor has 16 frames of 48 x 48 cells


@dataclass(frozen=True)
class Egocentric:
    """An egocentric dataset."""

    title: str  # as the paper calls it
    modalities: tuple[Modality, ...]  # in the order of the paper's columns
    collect: Callable[[Path, Modality], Collection | FeatureSet]  # from its folder


def from_egocentric(name: str, root: str | Path, modality: Modality) -> Collection | FeatureSet:
    """Recordings of one modality of a dataset of `EGOCENTRIC`, or features where they were made elsewhere.

    What cannot be used is left out, with a warning that says how much it is and why.
    """
    dataset, root = EGOCENTRIC[name], Path(root).absolute()
    if modality not in dataset.modalities:
        raise ValueError(f"{dataset.title} has {', '.join(dataset.modalities)}; there is no {modality} in it")
    return dataset.collect(root, modality)


def dataset_of(features: FeatureSet) -> str:
    """The key of `EGOCENTRIC` that features are of, by their provenance; "" where they are of something else."""
    source = features.provenance.get("source")
    if not isinstance(source, Mapping) or source.get("kind") != KIND:
        return ""
    return next((name for name in EGOCENTRIC if name == source.get("name")), "")


def _epic(root: Path, modality: Modality) -> Collection | FeatureSet:
    """Every fourth of the 16 people who filmed in both years holds this modality: those are its four clients."""
    data = epic.read(root)
    people = epic.returning(data.participants)
    if not people:
        raise ValueError(
            f"{root} needs Extension_Participants.csv, as in the repository epic-kitchens-100-annotations: it says "
            "which 16 people filmed in both years, who are the clients"
        )
    modalities = EGOCENTRIC["epic"].modalities
    mine = people[modalities.index(modality) :: len(modalities)]
    segments = [item for item in data.segments if item.participant in mine]
    if modality == "inertial":
        segments = [item for item in segments if item.extension]
    if not segments:
        raise ValueError(
            f"the annotations in {root} have no segment of {', '.join(mine)}, who hold {modality}"
            f"{', in a video of 2020: those are in EPIC_100_train.csv' if modality == 'inertial' else ''}"
        )
    segments.sort(key=lambda item: (item.video, item.start_s))  # readers keep one video open at a time
    pieces = [
        Piece(item.name, item.video, item.verb, item.participant, (item.start_s, item.stop_s)) for item in segments
    ]
    _warn(data.segments.issues)
    if modality in ("inertial", "audio") and not FeatureFiles(root, modality):
        signals = Inertial(root) if modality == "inertial" else Audio(root)
        read = [lambda item=item: Recording(signals.read(item), signals.rate_hz) for item in segments]
        return _collection("epic", root, modality, pieces, data.verbs, read, signals.files)
    return _vectors_or_videos("epic", root, modality, pieces, data.verbs)


def _multimodal_ea(root: Path, modality: Modality) -> Collection | FeatureSet:
    if modality == "inertial" and not FeatureFiles(root, modality):
        signals = multimodal_ea.read_all(root)
        _warn(signals.issues)
        return signals.collection("multimodal_ea")
    classes = multimodal_ea.CLASSES
    names = [(label, f"act{label + 1:02d}seq{clip:02d}") for label in range(20) for clip in range(1, 11)]
    pieces = [Piece(name, name, label) for label, name in names]
    return _vectors_or_videos("multimodal_ea", root, modality, pieces, classes)


def _stanford_ecm(root: Path, modality: Modality) -> Collection | FeatureSet:
    videos = stanford_ecm.find(root)
    if modality == "inertial" and not FeatureFiles(root, modality):
        signals = stanford_ecm.read_all(root, heart=any(video.heart for video in videos))
        _warn(signals.issues)
        return signals.collection("stanford_ecm")
    issues = list(videos.issues)
    labelled: list[tuple[str, stanford_ecm.Activity]] = []
    for video in videos:
        activities = stanford_ecm.read_labels(video.labels) if video.labels else ()
        issues += getattr(activities, "issues", ())
        labelled += [(video.name, item) for item in activities if item.label != stanford_ecm.BACKGROUND]
    classes = sorted({item.label for _, item in labelled})
    pieces = [
        Piece(stanford_ecm.name_piece(video, item), video, classes.index(item.label), "", (item.start_s, item.stop_s))
        for video, item in labelled
    ]
    _warn(issues)
    return _vectors_or_videos("stanford_ecm", root, modality, pieces, classes)


def _ego_exo(root: Path, modality: Modality) -> FeatureSet:
    """The clients of all files that hold this modality, as the people of one set."""
    held = [item for path in ego_exo.find(root) for item in ego_exo.read(path).values() if item.modality == modality]
    if not held or len({item.width for item in held}) > 1:
        widths = sorted({item.width for item in held})
        raise ValueError(f"{root}: {modality} vectors must be there, all of one width; there are widths {widths}")
    classes = sorted({name for item in held for name in item.classes})
    labels = [classes.index(item.classes[label]) for item in held for label in item.labels]
    people = [who for item in held for who in item.subjects]
    names = [name for item in held for name in item.names]
    x = np.concatenate([item.x for item in held])
    return given_features(modality, x, labels, classes, people, names, "ego_exo")


def _vectors_or_videos(
    name: str, root: Path, modality: Modality, pieces: Sequence[Piece], classes: Sequence[str]
) -> Collection | FeatureSet:
    if FeatureFiles(root, modality):
        features, issues = read_features(root, modality, pieces, classes, name)
        _warn(issues)
        return features
    if modality != "video":
        raise ValueError(
            f"{root} holds no {modality} features: expected {modality}/{pieces[0].name.replace(':', '_')}.npy, or "
            f"{modality}/{pieces[0].video}.npz with an array {pieces[0].name}"
        )
    films: dict[str, Path] = {}
    for path in videos_below(root):
        if films.setdefault(path.stem, path) != path:
            raise ValueError(f"{root} holds the video {path.stem} twice: {films[path.stem]} and {path}; keep one")
    wanted = {piece.video for piece in pieces}
    if not wanted & films.keys():
        raise ValueError(
            f"{root} holds neither videos, such as {pieces[0].video}.mp4, nor features of them, such as "
            f"video/{pieces[0].name.replace(':', '_')}.npy"
        )
    read = [lambda piece=piece: Recording(_film(films, piece)) for piece in pieces]
    files = [path for video, path in sorted(films.items()) if video in wanted]
    return _collection(name, root, modality, pieces, classes, read, files)


def _film(films: Mapping[str, Path], piece: Piece) -> np.ndarray:
    """(16, H, W, 3) uint8: frames of a piece, evenly spaced."""
    if piece.video not in films:
        raise ValueError(f"there is no video {piece.video}")
    about = probe(films[piece.video])
    rate, length = about.fps or 0.0, about.seconds or 0.0
    start, stop = piece.span or (0.0, length)
    if not rate or not 0 <= start < stop:
        raise ValueError(f"{films[piece.video]} does not say how many frames a second or seconds it has")
    stride = max(int((stop - start) * rate) // _FRAMES, 1)
    return read_clips(films[piece.video], [round(start * rate)], _FRAMES, stride, short_side=_SHORT_SIDE)[0]


def _collection(
    name: str,
    root: Path,
    modality: Modality,
    pieces: Sequence[Piece],
    classes: Sequence[str],
    read: Sequence[Callable[[], Recording]],
    files: Iterable[Path],
) -> Collection:
    """Pieces that are read one at a time, each by its own function."""
    digest = hashlib.sha256(repr(pieces).encode())
    digest.update(fingerprint(root, sorted(files)).encode())
    return Collection(
        modality=modality,
        names=tuple(piece.name for piece in pieces),
        labels=tuple(classes[piece.label] for piece in pieces),
        subjects=tuple(piece.subject for piece in pieces) if all(piece.subject for piece in pieces) else (),
        classes=tuple(classes),
        read=lambda i: read[i](),
        source={"kind": KIND, "name": name, "fingerprint": digest.hexdigest()},
        skip=True,
    )


def _warn(issues: Sequence[Issue]) -> None:
    warn_left_out([f"{issue.where}: {issue.detail}" for issue in issues])


EGOCENTRIC: Mapping[str, Egocentric] = {
    "epic": Egocentric("Epic-Kitchens", ("video", "flow", "audio", "inertial"), _epic),
    "multimodal_ea": Egocentric("Multimodal-EA", ("video", "inertial"), _multimodal_ea),
    "stanford_ecm": Egocentric("Stanford-ECM", ("video", "inertial"), _stanford_ecm),
    "ego_exo": Egocentric("Ego-Exo-AR", ("image", "inertial"), _ego_exo),
}
"""FDARN's datasets, by the names that the command has for them."""
