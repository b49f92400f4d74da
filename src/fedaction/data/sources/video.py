"""Clients that hold clips of video: cameras of the embedded world, or videos that you have."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from fedaction.data.client import ClientData
from fedaction.data.sources.base import Source, Tell, data_root
from fedaction.federation.settings import HOW
from fedaction.stage.footage import stage_video
from fedaction.stage.scene import DOMAINS


class StageVideoSource(Source):
    """The embedded world, filmed: cameras with their own people, rooms and views; test people are others."""

    frames: int = Field(8, ge=1, le=1000)
    """Frames of a clip."""
    stage_domain: Literal["wide", "home", "hall"] = "home"
    """wide: the most actions, people, places and views; home, hall: smaller worlds with some actions of their own."""
    stage_clients: int = Field(4, ge=1, le=10_000)
    """How many cameras."""
    stage_train: int = Field(20, ge=1)
    """Recordings of each action for training, at all clients together, on average."""
    stage_test: int = Field(8, ge=1)
    """Recordings of each action for test, likewise."""
    stage_clips: int = Field(1, ge=1)
    """Clips of each recording."""
    stage_actions: int = Field(0, ge=0)
    """How many of the domain's actions; 0: all."""
    stage_people: int = Field(4, ge=1)
    """People at each client who are recorded for training."""
    stage_test_people: int = Field(2, ge=1)
    """Other people at each client, for test."""
    stage_iid: bool = False
    """Whether recordings are dealt to the clients at random, whosever they are."""
    stage_classes: int = Field(0, ge=0)
    """Deal recordings so that each client has so many of the actions; 0: each camera has its own."""
    stage_overlapping: bool = False
    """With stage_classes: the division that FedVSSL's authors released, in which clients share recordings."""
    stage_heterogeneity: float = Field(0.5, ge=0, le=1)
    """How much clients differ in rooms, views, light and in which actions are common."""
    stage_variety: float = Field(1.0, ge=0, le=2)
    """How strongly recordings differ; 0 is a plain studio."""
    stage_seconds: float = Field(0.3, gt=0, le=10)
    """Seconds from one frame of a clip to the next; an action takes 2 to 4."""
    stage_size: int = Field(64, ge=16, le=512)
    """Rows and columns of a frame, in pixels."""
    stage_cache: str = Field("", json_schema_extra=HOW)
    """Folder where clips are kept once made; empty: FEDACTION_CACHE, else ~/.cache/fedaction."""

    @property
    def clip(self) -> tuple[int, int]:
        """See `Source.clip`; as of a video with 30 frames a second."""
        return max(1, round(30 * self.stage_seconds)), self.stage_size

    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """See `Source.load`."""
        names = DOMAINS[self.stage_domain].actions
        return stage_video(
            domain=self.stage_domain,
            clients=self.stage_clients,
            actions=names[: self.stage_actions or None],
            recordings=self.stage_train,
            test_recordings=self.stage_test,
            clips=self.stage_clips,
            people=self.stage_people,
            test_people=self.stage_test_people,
            iid=self.stage_iid,
            each=self.stage_classes,
            overlapping=self.stage_overlapping,
            frames=self.frames,
            stride=self.stage_seconds,
            size=self.stage_size,
            seed=seed,
            variety=self.stage_variety,
            heterogeneity=self.stage_heterogeneity,
            cache=self.stage_cache or None,
            progress=tell,
        )


class VideoSource(Source):
    """Videos that you have: UCF-101, HMDB-51, Kinetics-400, AIRTLab, UTD-MHAD's depth, a folder for each class."""

    frames: int = Field(8, ge=1, le=1000)
    """Frames of a clip."""
    video_set: Literal["ucf101", "hmdb51", "kinetics400", "airtlab", "utd_depth", "folders"] = "folders"
    """How the folder is laid out."""
    video_root: str = Field("", json_schema_extra=HOW)
    """The folder; empty: the dataset's own below the one that FEDACTION_DATA names."""
    video_fold: int = Field(1, ge=1, le=3)
    """UCF-101, HMDB-51: which of the official splits."""
    video_task: Literal["violence", "action"] = "violence"
    """AIRTLab: two classes, or the actions of the clips that show exactly one."""
    video_by: Literal["camera", "person", "group", "equal", "dirichlet", "shards", "classes"] = "equal"
    """What makes a client: a camera, a person, a group of videos; or videos are dealt to video_clients clients."""
    video_clients: int = Field(0, ge=0)
    """How many clients; 0: one for each camera, person or group, or four."""
    video_alpha: float = Field(0.5, gt=0)
    """Concentration of the Dirichlet partition: the smaller, the less alike clients are."""
    video_classes: int = Field(8, ge=1)
    """With video_by = "classes": how many of the classes a client has."""
    video_stride: int = Field(1, ge=1)
    """Frames of a video from one frame of a clip to the next."""
    video_side: int = Field(128, ge=16)
    """Frames are brought to this shorter side, in pixels."""
    video_crop: int = Field(112, ge=16)
    """Side of the square that is then cut from their middle."""
    video_train_clips: int = Field(1, ge=0)
    """Clips of each training video, at random places; 0: all that do not overlap."""
    video_test_clips: int = Field(0, ge=0)
    """Clips of each test video, evenly spread; 0: all that do not overlap, as the papers test."""
    video_cache: str = Field("", json_schema_extra=HOW)
    """Folder where decoded clips are kept; empty: FEDACTION_CACHE, else ~/.cache/fedaction."""

    @property
    def clip(self) -> tuple[int, int]:
        """See `Source.clip`."""
        return self.video_stride, self.video_side

    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """See `Source.load`. Files that cannot be read are left out, with a warning."""
        # Imported here: they need PyAV, which is not always installed.
        from fedaction.data.clips.cache import ClipCache
        from fedaction.data.clips.clients import clients_from_videos
        from fedaction.data.clips.datasets import video_set
        from fedaction.data.clips.spec import ClipSpec

        options: dict[str, Any] = {}
        if self.video_set in ("ucf101", "hmdb51"):
            options["fold"] = self.video_fold
        elif self.video_set != "kinetics400":
            options["seed"] = seed  # decides which videos are for test, where nobody else does
        if self.video_set == "airtlab":
            options["task"] = self.video_task
        if self.video_set == "utd_depth":
            options["split"] = "share"  # each person has one trial of an action: a quarter of the actions is for test
        videos = video_set(self.video_set, self._root(), **options)
        dealt = self.video_by in ("equal", "dirichlet", "shards", "classes")
        clients, issues = clients_from_videos(
            videos,
            ClipSpec(self.frames, self.video_stride, self.video_side, self.video_crop),
            by=self.video_by,
            clients=self.video_clients or (4 if dealt else None),
            train_clips=self.video_train_clips or "all",
            test=self.video_test_clips or "all",
            alpha=self.video_alpha,
            shards=self.video_classes if self.video_by == "classes" else 2,
            seed=seed,
            cache=ClipCache(self.video_cache or None),
            progress=tell,
        )
        for issue in (*videos.issues, *issues):
            warnings.warn(f"{issue.where}: {issue.detail}; left out", stacklevel=2)
        return clients

    def _root(self) -> Path:
        if self.video_root:
            return Path(self.video_root)
        names = _VIDEO_FOLDERS.get(self.video_set, (self.video_set,))
        root = data_root("", "video_root", names[:1])
        return next((root / name for name in names if (root / name).is_dir()), root / names[0])


_VIDEO_FOLDERS = {"airtlab": ("airtlab", "airtlab_violence", "airtlab_violence_small"), "utd_depth": ("utd_mhad",)}
"""What a dataset's folder may be called."""
