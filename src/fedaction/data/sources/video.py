"""Videos that you have, in one place or dealt to clients."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from fedaction.data.client import ClientData
from fedaction.data.clips.clients import By, Division, TestOn, divide_videos
from fedaction.data.clips.pool import Choice, pool_videos
from fedaction.data.clips.spec import ClipSpec
from fedaction.data.clips.videos import VideoSet
from fedaction.data.dataset import Issue
from fedaction.data.files import digest_files, key_of
from fedaction.data.sources.base import ClipSource, Tell, data_root, name_each
from fedaction.federation.settings import HOW


class RecordedSource(ClipSource):
    """Recordings that clips are cut from, dealt to clients."""

    video_stride: int = Field(1, ge=1)
    """Frames of a recording from one frame of a clip to the next; fewer, where it is short."""
    video_train_clips: int = Field(1, ge=0)
    """Training clips of each recording; 0: as many as do not overlap."""
    video_fresh: bool = True
    """Whether training clips are from other places of their recordings each time; else they are drawn once."""
    video_test_clips: int = Field(0, ge=0)
    """Test clips of each recording, evenly spread; 0: all that do not overlap, as the papers test."""
    video_by: By = "equal"
    """What makes a client: a camera, a person, a group of videos; or they are dealt to video_clients clients."""
    video_clients: int = Field(0, ge=0)
    """How many clients; 0: one for each camera, person or group, or four. In one place for distil and evaluate."""
    video_alpha: float = Field(0.5, gt=0)
    """Concentration of the Dirichlet partition: the smaller, the less alike clients are."""
    video_classes: int = Field(8, ge=1)
    """With video_by = "classes": how many of the classes a client has."""
    video_test_on: TestOn = "own"
    """Each client is tested on its own test recordings, or on those of the whole set."""

    def deciding(self, *, defaults: bool = False) -> dict[str, Any]:
        """See `Settings.deciding`. Clips were drawn once before there was a key for it: its default counts, too.

        So hashes differ from those of before, when `video_crop` had another default.
        """
        return super().deciding(defaults=defaults) | {"video_fresh": self.video_fresh}

    @abstractmethod
    def list_videos(self, seed: int) -> VideoSet:
        """The recordings, none of which is opened yet."""

    @abstractmethod
    def cut(self, videos: VideoSet, seed: int, tell: Tell | None, whole: bool) -> ClientData:
        """Their clips in one place, or the whole recordings."""

    def pool(self, seed: int, tell: Tell | None = None, *, whole: bool = False) -> ClientData:
        """See `ClipSource.pool`."""
        return self.cut(self.list_videos(seed), seed, tell, whole)

    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """See `Source.load`."""
        videos = self.list_videos(seed)
        division = self._divide(videos, seed)  # first, since this can fail at once
        clients, empty = division.deal(self.cut(videos, seed, tell, whole=False))
        _warn_of(empty)
        return [self.describe(client) for client in clients]

    def _choice(self, seed: int, whole: bool) -> Choice:
        return Choice(self.video_train_clips, self.video_fresh, self.video_test_clips, whole, seed)

    def _divide(self, videos: VideoSet, seed: int) -> Division:
        dealt = self.video_by in ("equal", "dirichlet", "shards", "classes")
        return divide_videos(
            videos,
            by=self.video_by,
            clients=self.video_clients or (4 if dealt else None),
            test_on=self.video_test_on,
            alpha=self.video_alpha,
            shards=self.video_classes if self.video_by == "classes" else 2,
            seed=seed,
        )


def _warn_of(issues: Iterable[Issue]) -> None:
    for issue in issues:
        warnings.warn(f"{issue.where}: {issue.detail}; left out", stacklevel=3)


class VideoSource(RecordedSource):
    """Videos that you have: UCF-101, HMDB-51, Kinetics-400, AIRTLab, UTD-MHAD's depth, a folder for each class.

    Files that cannot be read are left out, with a warning.
    """

    frames: int = Field(8, ge=1, le=1000)
    """Frames of a clip. `fedaction evaluate` cuts its own (clip_frames) from the whole videos."""
    video_set: Literal["ucf101", "hmdb51", "kinetics400", "airtlab", "utd_depth", "folders"] = "folders"
    """How the folder is laid out."""
    video_root: str = Field("", json_schema_extra=HOW)
    """The folder; empty: the dataset's own below the one that FEDACTION_DATA names."""
    video_paths: tuple[str, ...] = ()
    """In place of it: folders with a folder for each class, one client for each, as sites of their own would be."""
    video_fold: int = Field(1, ge=1, le=3)
    """UCF-101, HMDB-51: which of the official splits."""
    video_task: Literal["violence", "action"] = "violence"
    """AIRTLab: two classes, or the actions of the clips that show exactly one."""
    video_split: Literal["people", "share"] = "people"
    """UTD-MHAD depth: test on people 2, 4, 6, 8, as its authors do; or on a share of everybody's recordings."""
    video_side: int = Field(128, ge=16)
    """Frames are brought to this shorter side, in pixels."""
    video_crop: int = Field(0, ge=0)
    """Side of the square that is kept from their middle; 0: video_side. A network's `crop` is cut from that."""
    video_memory: float = Field(8.0, ge=0, json_schema_extra=HOW)
    """GiB of decoded video that may be held in memory; a larger set is read from its files, batch by batch."""
    video_cache: str = Field("", json_schema_extra=HOW)
    """Folder of decoded clips; empty: FEDACTION_CACHE, else ~/.cache/fedaction; none: they are not kept."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.video_paths and (self.video_root or self.video_set != "folders" or self.video_clients):
            raise ValueError(
                "video_paths makes a client of each folder, which has a folder for each class: leave out video_root, "
                "video_set and video_clients"
            )
        names = [Path(path).name for path in self.video_paths]
        if len(set(names)) != len(names):
            raise ValueError(
                f"video_paths: two of the folders {', '.join(names)} have one name; clients need their own"
            )
        return self

    @property
    def clip(self) -> tuple[int, int]:
        """See `Source.clip`."""
        return self.video_stride, self.video_side

    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """See `Source.load`."""
        clients: list[ClientData] = []
        for path in self.video_paths:
            one = self.model_copy(update={"video_root": path, "video_paths": ()})
            pool = one.pool(seed, tell)
            clients.append(self.describe(replace(pool, info=replace(pool.info, id=Path(path).name))))
        return clients or super().load(seed, tell)

    def fingerprint(self, seed: int) -> dict[str, str]:
        """See `Source.fingerprint`."""
        ones = [self.model_copy(update={"video_root": path, "video_paths": ()}) for path in self.video_paths]
        names = name_each(self.video_paths) if ones else [self.video_set]
        return {name: one._digest(seed) for name, one in zip(names, ones or [self], strict=True)}

    def list_videos(self, seed: int) -> VideoSet:
        """See `RecordedSource.list_videos`."""
        from fedaction.data.clips.datasets import video_set

        options: dict[str, Any] = {}
        if self.video_set in ("ucf101", "hmdb51"):
            options["fold"] = self.video_fold
        elif self.video_set != "kinetics400":
            options["seed"] = seed  # decides which videos are for test, where nobody else does
        if self.video_set == "airtlab":
            options["task"] = self.video_task
        if self.video_set == "utd_depth":
            options["split"] = self.video_split
        return video_set(self.video_set, self._root(), **options)

    def cut(self, videos: VideoSet, seed: int, tell: Tell | None, whole: bool) -> ClientData:
        """See `RecordedSource.cut`."""
        from fedaction.data.clips.cache import ClipCache

        pool, issues = pool_videos(
            videos,
            ClipSpec(self.frames, self.video_stride, self.video_side, self.video_crop),
            self._choice(seed, whole),
            cache=None if self.video_cache == "none" else ClipCache(self.video_cache or None),
            memory=int(self.video_memory * 2**30),
            progress=tell,
        )
        _warn_of([*videos.issues, *issues])
        return pool

    def _digest(self, seed: int) -> str:
        """Of one folder: its files, and what is said of each."""
        samples = self.list_videos(seed).samples
        said = [(s.name, s.label, s.split, s.person, s.group, s.camera) for s in samples]
        return key_of({"files": digest_files(self._root(), (s.path for s in samples)), "samples": said})

    def _root(self) -> Path:
        if self.video_paths:
            raise ValueError("video_paths are clients of a federation; one place has one folder: say video_root")
        if self.video_root:
            return Path(self.video_root)
        names = _VIDEO_FOLDERS.get(self.video_set, (self.video_set,))
        root = data_root("", "video_root", names[:1])
        return next((root / name for name in names if (root / name).is_dir()), root / names[0])


_VIDEO_FOLDERS = {"airtlab": ("airtlab", "airtlab_violence", "airtlab_violence_small"), "utd_depth": ("utd_mhad",)}
"""What a dataset's folder may be called."""
