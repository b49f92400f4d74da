"""What a kind of data is."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, field_validator

from fedaction.data.client import ClientData
from fedaction.data.holdout import check_hold_out
from fedaction.data.inputs import clip_input
from fedaction.federation.outside import LIMITS, allow
from fedaction.federation.settings import Settings

Tell = Callable[[int, int], object]
PUBLIC = "public:"
"""What the name of a public dataset's reader follows, where a recipe could also name a store."""


class Source(Settings):
    """A kind of data. Its fields are keys of a recipe."""

    per_seed: ClassVar[bool] = False
    """Whether every seed of a study gets a split of its own."""
    suited: ClassVar[Mapping[str, Any]] = {}
    """Values of methods' keys that suit these data, where a recipe has none of its own."""

    @property
    def clip(self) -> tuple[int, int] | None:
        """Of clips: frames of a video from one frame to the next, and the shorter side frames are brought to."""
        return None

    @abstractmethod
    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """The clients, prepared for training; `seed` is the recipe's `data_seed`.

        `tell` is called during work that takes long, with what is done and what there is.
        """

    @abstractmethod
    def fingerprint(self, seed: int) -> dict[str, str]:
        """What the data are, by what they are read from: a run is resumed with the same ones, or not at all.

        Of files it is `digest_files`: names, sizes and contents, not where they lie. It follows from what `load` with
        this seed reads, but not from what becomes of that: other keys of the recipe decide it.
        """


def name_each(paths: Iterable[str]) -> list[str]:
    """A name for each of some paths: its last part, and a number where an earlier one has it."""
    names: list[str] = []
    for path in paths:
        name, number = Path(path).name, 2
        while name in names:
            name, number = f"{Path(path).name} ({number})", number + 1
        names.append(name)
    return names


class PeopleSource(Source):
    """A kind of data that may know who was recorded."""

    formerly: ClassVar[Mapping[str, str]] = {}
    """What keys were called in hashes of published results, which stay as they are."""

    hold_out: int | float | tuple[str, ...] = 0
    """Hold-out subjects, whom nobody trains on and everybody is tested on: a number of each store's people, the last
    by name; a share of them below 1; or names, as "anna", or "store:anna" for one store alone."""
    test_share: float = Field(0.3, gt=0, lt=1)
    """Where nobody is held out: the share of each client's samples kept for test."""

    @field_validator("hold_out")
    @classmethod
    def _countable(cls, hold_out: int | float | tuple[str, ...]) -> int | float | tuple[str, ...]:
        check_hold_out(hold_out)
        return hold_out

    def deciding(self, *, defaults: bool = False) -> dict[str, Any]:
        """See `Settings.deciding`."""
        return {self.formerly.get(key, key): value for key, value in super().deciding(defaults=defaults).items()}


class SequenceSource(Source):
    """A kind of data that is made of skeletons or signals."""

    frames: int = Field(50, ge=8, le=1000)
    """Every sequence is resized to so many frames."""
    align: bool = True
    """Turn every frame about the vertical so that the shoulders lie along x."""


class ClipSource(Source):
    """A kind of video: clips at clients for a federation, the same in one place for distillation and evaluation."""

    @property
    @abstractmethod
    def clip(self) -> tuple[int, int]:
        """See `Source.clip`."""

    def describe(self, client: ClientData) -> ClientData:
        """A client that says how its clips were cut; of frames that are not square it cannot."""
        stride, side = self.clip
        _, height, width, *_ = client.info.shape
        return replace(client, input=clip_input(client.info.shape, stride, side)) if height == width else client

    @abstractmethod
    def pool(self, seed: int, tell: Tell | None = None, *, whole: bool = False) -> ClientData:
        """One client that has everything; `seed` is the recipe's `data_seed`.

        With `whole`, its samples are recordings, as long as they are; see `data.clips.clips.recordings_of`.
        """


MOST_MADE = 5_000_000
"""Recordings that a recipe may have made for it, and people in them."""
MOST_MADE_BYTES = 16 * 2**30
"""What they may take in memory; of video, which lies on the disk, four times as much."""


def check_made(recordings: int, people: int, size: int, most: int = MOST_MADE_BYTES) -> None:
    """Refuses synthetic recordings beyond a limit, before the first is made.

    Args:
        recordings: how many.
        people: how many are recorded; 0: not counted.
        size: bytes of one of them.
        most: bytes that all of them may take.
    """
    needed = max(recordings / allow(MOST_MADE), people / allow(MOST_MADE), recordings * size / allow(most))
    if needed > 1:
        of = f" of {people:,} people" if people else ""
        limit = f"{allow(MOST_MADE):,}, or {allow(most) / 2**30:,.0f} GiB"
        raise ValueError(
            f"the stage would make {recordings:,} recordings{of}, {recordings * size / 2**30:,.1f} GiB, and may make "
            f"{limit}: let the recipe ask for fewer, or set {LIMITS} in the environment, which multiplies all limits"
        )


def data_root(given: str, key: str, names: Sequence[str]) -> Path:
    """The folder with a folder for each public dataset: a recipe key's ("": there is none) or the environment's."""
    place = given or os.environ.get("FEDACTION_DATA", "")
    if not place:
        raise ValueError(
            f"where {', '.join(names)} lies is not known: name the folder that holds a folder for each of "
            f"{', '.join(names)} in {key and f'the recipe key {key} or in '}the environment variable FEDACTION_DATA"
        )
    return Path(place)
