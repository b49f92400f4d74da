"""What a kind of data is."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from fedaction.data.client import ClientData
from fedaction.data.inputs import clip_input
from fedaction.federation.settings import Settings

Tell = Callable[[int, int], object]


class Source(Settings):
    """A kind of data. Its fields are keys of a recipe."""

    per_seed: ClassVar[bool] = False
    """Whether every seed of a study gets a split of its own."""

    @property
    def clip(self) -> tuple[int, int] | None:
        """Of clips: frames of a video from one frame to the next, and the shorter side frames are brought to."""
        return None

    @abstractmethod
    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """The clients, prepared for training; `seed` is the recipe's `data_seed`.

        `tell` is called during work that takes long, with what is done and what there is.
        """


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


def data_root(given: str, key: str, names: Sequence[str]) -> Path:
    """The folder with a folder for each public dataset: a recipe key's ("": there is none) or the environment's."""
    place = given or os.environ.get("FEDACTION_DATA", "")
    if not place:
        raise ValueError(
            f"where {', '.join(names)} lies is not known: name the folder that holds a folder for each of "
            f"{', '.join(names)} in {key and f'the recipe key {key} or in '}the environment variable FEDACTION_DATA"
        )
    return Path(place)
