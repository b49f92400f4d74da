"""Where the clips of a distillation, or of an evaluation, come from, by the recipe's `data` key."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.clips.files import ClipData, look_over
from fedaction.data.dataset import Issue
from fedaction.data.samples import Examples
from fedaction.federation.files import read_json
from fedaction.federation.seeds import derive, generator
from fedaction.federation.settings import HOW, Settings
from fedaction.stage.footage import deal_footage, stage_footage

if TYPE_CHECKING:
    from fedaction.data.clips.cache import ClipCache
    from fedaction.data.clips.videos import VideoSet


class ClipSource(Settings):
    """A kind of clips. Its fields are keys of a recipe."""

    @abstractmethod
    def load(self, seed: int) -> ClipData:
        """Clips to learn from and clips to be tested on; `seed` is the recipe's `data_seed`."""

    @property
    def stride(self) -> int:
        """Frames of a video from one frame of a clip to the next; the model file says it to whoever uses it."""
        return 1


class FootageClips(ClipSource):
    """The embedded world: synthetic actors before a camera, made once and kept; test clips are of other people."""

    stage_domain: Literal["wide", "home", "hall"] = "wide"
    """wide: the most actions, people, places and views; home, hall: smaller worlds with some actions of their own."""
    stage_train: int = Field(200, ge=1)
    """Recordings of each action for training."""
    stage_test: int = Field(40, ge=1)
    """Recordings of each action for test."""
    stage_clips: int = Field(1, ge=1)
    """Clips of each recording."""
    stage_people: int = Field(100, ge=1)
    """People who are recorded for training."""
    stage_test_people: int = Field(25, ge=1)
    """Other people, who are recorded for test."""
    frames: int = Field(8, ge=1)
    """Frames of a clip."""
    stage_seconds: float = Field(0.3, gt=0, le=10)
    """Seconds from one frame of a clip to the next; an action takes 2 to 4."""
    stage_size: int = Field(64, ge=16)
    """Rows and columns of a frame."""
    stage_variety: float = Field(1.0, ge=0)
    """How strongly recordings differ in room, light, view and clothes; 0: a plain studio."""
    stage_cache: str = Field("", json_schema_extra=HOW)
    """Folder where clips are kept once made; empty: FEDACTION_CACHE, else ~/.cache/fedaction."""
    stage_workers: int = Field(0, ge=0, json_schema_extra=HOW)
    """Processes that film; 0: one for each core."""

    @property
    def stride(self) -> int:
        """See `ClipSource.stride`; as of a video with 30 frames a second."""
        return max(1, round(30 * self.stage_seconds))

    def load(self, seed: int) -> ClientData:
        """See `ClipSource.load`."""
        footage = stage_footage(
            domain=self.stage_domain,
            recordings=self.stage_train,
            test_recordings=self.stage_test,
            clips=self.stage_clips,
            people=self.stage_people,
            test_people=self.stage_test_people,
            frames=self.frames,
            stride=self.stage_seconds,
            size=self.stage_size,
            seed=seed,
            variety=self.stage_variety,
            cache=self.stage_cache or None,
            workers=self.stage_workers,
        )
        halves = [[np.flatnonzero(footage.test == test)] for test in (False, True)]
        return deal_footage(footage, *halves, name=self.stage_domain)[0]


class StageRecordings(FootageClips):
    """The same, filmed longer and at ten frames a second: recordings that clips are cut from."""

    frames: int = Field(40, ge=1)
    """Frames of a recording."""
    stage_seconds: float = Field(0.1, gt=0, le=10)
    """Seconds from one frame to the next; an action takes 2 to 4."""


class VideoRecordings(ClipSource):
    """Videos that you have: UCF-101, HMDB-51, Kinetics-400, AIRTLab, UTD-MHAD's depth, a folder for each class."""

    video_set: Literal["ucf101", "hmdb51", "kinetics400", "airtlab", "utd_depth", "folders"] = "folders"
    """How the folder is laid out."""
    video_fold: int = Field(1, ge=1, le=3)
    """UCF-101, HMDB-51: which of the official splits."""
    video_task: Literal["violence", "action"] = "violence"
    """AIRTLab: two classes, or the actions of the clips that show exactly one."""
    video_root: str = Field(json_schema_extra=HOW)
    """The folder; a relative path is looked up from where the command runs."""
    video_side: int = Field(128, ge=16)
    """Frames are brought to this shorter side, in pixels, and their middle square is kept; `crop` cuts from that."""
    video_cache: bool = Field(True, json_schema_extra=HOW)
    """Whether decoded clips are kept on disk, in FEDACTION_CACHE, else ~/.cache/fedaction."""
    video_memory: float = Field(8.0, ge=0, json_schema_extra=HOW)
    """GiB of decoded video that may be held in memory; a larger set is read from its files, batch by batch."""

    def load(self, seed: int) -> ClipData:
        """See `ClipSource.load`: whole videos. Files that cannot be read are left out, with a warning."""
        videos, cache = self.open(seed)
        files, issues = look_over(videos, self.video_side, cache, self.memory)
        left_out([*videos.issues, *issues])
        return files

    @property
    def memory(self) -> int:
        """Bytes of decoded video that may be held in memory."""
        return int(self.video_memory * 2**30)

    def open(self, seed: int) -> tuple[VideoSet, ClipCache | None]:
        """The files, none of which is opened yet, and where their clips are kept."""
        # Imported here: they need PyAV, which is not always installed.
        from fedaction.data.clips.cache import ClipCache
        from fedaction.data.clips.datasets import video_set

        options: dict[str, Any] = {}
        if self.video_set in ("ucf101", "hmdb51"):
            options["fold"] = self.video_fold
        elif self.video_set in ("folders", "airtlab"):
            options["seed"] = seed  # decides which videos are for test, where nobody else does
        if self.video_set == "airtlab":
            options["task"] = self.video_task
        return video_set(self.video_set, self.video_root, **options), ClipCache() if self.video_cache else None


class VideoClips(VideoRecordings):
    """The same as fixed clips."""

    frames: int = Field(8, ge=1)
    """Frames of a clip."""
    video_stride: int = Field(1, ge=1)
    """Frames of a video from one frame of a clip to the next."""
    video_train_clips: int = Field(1, ge=0)
    """Clips of each training video, at random places; 0: all that do not overlap."""
    video_test_clips: int = Field(0, ge=0)
    """Clips of each test video, evenly spread; 0: all that do not overlap, as the paper tests."""

    @property
    def stride(self) -> int:
        """See `ClipSource.stride`."""
        return self.video_stride

    def load(self, seed: int) -> ClipData:
        """See `ClipSource.load`. Files that cannot be read are left out, with a warning."""
        from fedaction.data.clips.clients import clients_from_videos
        from fedaction.data.clips.spec import ClipSpec, clip_starts

        videos, cache = self.open(seed)
        spec = ClipSpec(self.frames, self.video_stride, self.video_side, self.video_side)

        def starts(split: str, name: str, length: int) -> list[int]:
            """As `clients_from_videos` has them, so that clips are the same whether or not they are held."""
            train = split == "train"
            clips = (self.video_train_clips if train else self.video_test_clips) or "all"
            return clip_starts(length, spec, clips, generator(derive(seed, "clips", name)) if train else None)

        files, issues = look_over(
            videos, self.video_side, cache, self.memory, starts, (self.frames, self.video_stride)
        )
        if files.bytes_of_clips > self.memory:
            left_out([*videos.issues, *issues])
            return files
        clients, issues = clients_from_videos(
            videos,
            spec,
            by="equal",
            clients=1,
            train_clips=self.video_train_clips or "all",
            test=self.video_test_clips or "all",
            seed=seed,
            cache=cache,
        )
        left_out([*videos.issues, *issues])
        return clients[0]


def left_out(issues: Iterable[Issue]) -> None:
    """Warns of files that were left out."""
    for issue in issues:
        warnings.warn(f"{issue.where}: {issue.detail}; left out", stacklevel=3)


class ArrayClips(ClipSource):
    """Your own clips, as NumPy files in one folder; they are memory-mapped, never read as a whole.

    `train_clips.npy` is (N, T, H, W, 3) uint8 red, green, blue, `train_labels.npy` (N,) whole numbers from 0,
    `train_recordings.npy` (N,) whole numbers that say which recording each clip is of (without it, each is its own);
    the same for `test`. `classes.json` is the list of the classes' names. For evaluation, which cuts clips from what
    it finds, these may be longer recordings.
    """

    arrays: str
    """The folder; a relative path is looked up from where the command runs."""
    arrays_stride: int = Field(1, ge=1)
    """Frames of the videos from one frame of a clip to the next, for the model file."""

    @property
    def stride(self) -> int:
        """See `ClipSource.stride`."""
        return self.arrays_stride

    def load(self, seed: int) -> ClientData:
        """See `ClipSource.load`."""
        folder = Path(self.arrays)
        if not folder.is_dir():
            raise ValueError(f"arrays: there is no folder {folder}")
        if not (folder / "classes.json").is_file():
            raise ValueError(f"{folder}: classes.json is missing; it is the list of the classes' names")
        classes = read_json(folder / "classes.json")
        if not isinstance(classes, list) or not all(isinstance(name, str) for name in cast("list[Any]", classes)):
            raise ValueError(f"{folder / 'classes.json'} must be a list of names")
        names = tuple(cast("list[str]", classes))
        train, test = _split(folder, "train"), _split(folder, "test")
        return ClientData(ClientInfo("arrays", "video", len(train), names, tuple(train.x.shape[1:])), train, test)


def _split(folder: Path, name: str) -> Examples:
    clips = _array(folder / f"{name}_clips.npy")
    labels = _array(folder / f"{name}_labels.npy", whole=True)
    recordings = folder / f"{name}_recordings.npy"
    return Examples(clips, labels, recording=_array(recordings, whole=True) if recordings.exists() else None)


def _array(path: Path, whole: bool = False) -> Tensor:
    """A NumPy file, memory-mapped; `whole`: of whole numbers, read as int64."""
    if not path.is_file():
        raise ValueError(f"{path.parent}: {path.name} is missing")
    try:
        # "c": changes would stay in memory. Nothing changes it, but torch wants an array that could be.
        array = np.load(path, mmap_mode="c", allow_pickle=False)
        if not whole:
            return torch.from_numpy(array)
        if array.dtype.kind not in "iu":
            raise ValueError(f"its numbers must be whole, but they are {array.dtype}")
        return torch.from_numpy(array.astype(np.int64))
    except (ValueError, TypeError, OSError, EOFError) as error:
        raise ValueError(f"{path} cannot be used: {error}") from None


CLIP_SOURCES: dict[str, type[ClipSource]] = {"footage": FootageClips, "videos": VideoClips, "arrays": ArrayClips}
"""Kinds of clips by name, for distillation."""

RECORDING_SOURCES: dict[str, type[ClipSource]] = {
    "footage": StageRecordings,
    "videos": VideoRecordings,
    "arrays": ArrayClips,
}
"""Kinds of recordings by name, for evaluation, which cuts clips from them."""
